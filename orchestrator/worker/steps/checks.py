"""Run the project's checks on a worker's commit, in a fresh checkout and fresh containers.

None of the worker's other files are present, and no code runs on the host. Of the files that a
check writes, only a SARIF file at `ORCHESTRATOR_SARIF` is kept.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from orchestrator.base.errors import (
    EngineError,
    EngineUnavailableError,
    GitCommandError,
    OrchestratorError,
    PlaceLostError,
    UnfinishedError,
)
from orchestrator.base.events import Notice
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.results import CheckResult, Reason, Status
from orchestrator.base.text.decode import decode
from orchestrator.engine.interface.spec import BindMount
from orchestrator.engine.places.place import Part, Place
from orchestrator.repository.git.failures import disk_full
from orchestrator.sandbox.supervision.output import findings_file, stage_log
from orchestrator.sandbox.supervision.verdict import Verdict, judge_checks
from orchestrator.state.worker.endings import Ending
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.steps.container_specs import Job, setup_job
from orchestrator.worker.steps.job import Work, problem_of
from orchestrator.worker.steps.place import open_check_place
from orchestrator.worker.workspace.caches import ready_caches
from orchestrator.worker.workspace.furnish import Extras
from orchestrator.worker.workspace.layout import CHECKED
from orchestrator.worker.workspace.mounts import Workspace
from orchestrator.worker.workspace.private_git import StoreOptions, make_store
from orchestrator.worker.workspace.shared_files import CHECK_OUT, SARIF

MOST_FINDINGS = 16 * 1024**2
"""Maximum size in bytes of a SARIF file of a check."""
_MOST_KEPT = 3 * 1024**2
"""Number of bytes at the beginning of a SARIF file that reports read."""
_UNCHECKED = frozenset({Reason.CANCELLED, Reason.ENGINE_ERROR, Reason.HARVEST_REFUSED})
"""Reasons of a failure after which checks are pointless, or there is no commit to check."""


def check(
    worker: WorkerContext, workspace: Workspace, tip: str, verdict: Verdict
) -> tuple[list[CheckResult], Verdict]:
    """Run the checks that have no result yet; return all results, and the verdict after them.

    Raises:
        EngineUnavailableError: The engine cannot be reached; a resumed run runs the checks that
            have no result.
        UnfinishedError: The disk is full; so does a resumed run.
    """
    wanted = worker.config.project.checks
    if not wanted or verdict.reason in _UNCHECKED:
        return [], verdict
    if tip == worker.base:
        return [], verdict.with_note("no checks were run, because nothing was committed")
    done = worker.checkpoints.checks()
    if len(done) < len(wanted):
        checks = _Checks(worker, replace(workspace, start=tip))
        try:
            done = checks.all(done)
        except PlaceLostError:
            # Checks can be repeated; those that have ended are recorded.
            done = replace(checks, is_last_try=True).all(worker.checkpoints.checks())
    if len(done) == len(wanted):
        return done, judge_checks(verdict, done)
    why = f"{worker.cancel.why} before this worker's checks were done"
    if verdict.status is Status.SUCCESS:
        return done, Verdict(Status.FAILED, Reason.CANCELLED, why)
    return done, verdict.with_note(why)


@dataclass(frozen=True)
class _Checks:
    """The checks of one worker's commit."""

    worker: WorkerContext
    workspace: Workspace
    is_last_try: bool = False
    """Whether the first place of the checks was lost."""

    def all(self, done: Sequence[CheckResult]) -> list[CheckResult]:
        """Run the checks without a result until the worker is cancelled; return all results.

        Raises:
            PlaceLostError: The first place was lost.
        """
        root = self.worker.directory / CHECKED
        remove_tree(root)  # a process that died may have left a checkout
        place = None
        try:
            try:
                fresh = self._check_out(root)
                place = self._open(fresh)
                problem = self._set_up(fresh, place)
                run = partial(self._run, fresh, place) if problem is None else _unseen(problem)
            except EngineUnavailableError:
                raise
            except OSError as error:
                raise _unfinished(error) from error
            except OrchestratorError as error:
                if isinstance(error, PlaceLostError) and not self.is_last_try:
                    raise
                full = disk_full(error.stderr) if isinstance(error, GitCommandError) else None
                if full is not None:
                    raise _unfinished(full) from error
                run = _unseen(f"the commit could not be checked out ({error})")
            return self._rest(list(done), run)
        finally:
            remove_tree(root)
            if place is not None:
                # What cannot be removed here is removed at the end of the run.
                with suppress(OrchestratorError):
                    place.release()

    def _check_out(self, root: Path) -> Workspace:
        """Check out the worker's commit, with a new private git directory."""
        worker, run = self.worker, self.worker.run
        workspace = replace(self.workspace, confined_to=())
        root.mkdir()
        options = StoreOptions(
            base=worker.base,
            start=workspace.start,
            run_base=run.base,
            shallow=run.shallow,
            mode="bind",
            owner=workspace.user,
            excluded=worker.agent.ignored_files,
            extras=Extras(
                copies=run.request.copies,
                submodules=run.submodules,
                content=worker.content,
                shown=False,
            ),
        )
        store = make_store(run.repository, workspace.worktree, root, options)
        # The worker's writes to its caches are not visible to the checks either.
        caches = ready_caches(run.caches, root, workspace.user, run.mode)
        # protection: checks-see-no-shared-files
        # protection: checks-do-not-see-workers-cache-changes
        return replace(workspace, store=store, mode="bind", caches=caches, shared=(), session=None)

    def _open(self, fresh: Workspace) -> Place:
        """Open the place of all checks, and of the setup before them."""
        project = self.worker.config.project
        checks = [self._job(number) for number in range(1, len(project.checks) + 1)]
        for job in checks:
            left = self._findings(job.name).source
            left.mkdir(mode=0o700)
            os.chown(left, *fresh.user)
        setup = [self._setup] if project.setup else []
        jobs = [*setup, *checks]
        return open_check_place(self.worker, fresh, jobs, again=self.is_last_try)

    def _findings(self, check: str) -> BindMount:
        """Return the mount of the directory to which a check may write its SARIF file."""
        source = self.worker.directory / CHECKED / f"{check}-findings"
        return BindMount(source=source, target=CHECK_OUT, read_only=False)

    @property
    def _setup(self) -> Job:
        setup = setup_job(self.worker.settings)
        return replace(setup, stage="check", name="check-setup", title="setup")

    def _job(self, number: int) -> Job:
        """Return a check; the first one has the number 1."""
        worker, name = self.worker, f"check-{number}"
        asked = worker.config.project.checks[number - 1]
        mount = self._findings(name)
        # Of its own: no check can hand in findings for another one.
        findings = Part(name=f"{name}-findings", mount=mount, seen_by=frozenset({name}))
        return Job(
            stage="check",
            name=name,
            commands=(asked.run,),
            timeout=asked.timeout or None,
            access=worker.settings.access.checks,
            title=worker.run.redactor.text(asked.title),
            closed="checks" in worker.config.closed_stages,
            parts=(findings,),
        )

    def _set_up(self, fresh: Workspace, place: Place) -> str | None:
        config, cancel = self.worker.config, self.worker.cancel
        if not config.project.setup or cancel.stop_asked:
            return None
        work = Work(self.worker, fresh, place, self._setup, cancel)
        problem = problem_of(self.worker, work.job, work.done())
        return None if problem is None else f"the setup for the checks failed: {problem}"

    def _rest(self, done: list[CheckResult], run: Callable[[Job], Ending]) -> list[CheckResult]:
        """Run the checks without a result with a function; return all results."""
        cancel = self.worker.cancel
        wanted = self.worker.config.project.checks
        for number, asked in enumerate(wanted[len(done) :], start=len(done) + 1):
            if cancel.stop_asked:
                return done
            job = self._job(number)
            ending = run(job)
            if ending.stopped is not None and ending.stopped.reason is Reason.CANCELLED:
                return done
            failure = problem_of(self.worker, job, ending)
            done.append(
                CheckResult(
                    name=asked.title,
                    passed=failure is None,
                    exit_code=None if ending.exit_status is None else ending.exit_status.exit_code,
                    duration=round(ending.duration, 3),
                    log=str(stage_log(self.worker.directory, job.name)),
                    message=failure,
                )
            )
            with suppress(OSError):  # full disk: repeating the checks does no harm
                self.worker.checkpoints.note_checks(done)
        return done

    def _run(self, fresh: Workspace, place: Place, job: Job) -> Ending:
        """Run a check, store its SARIF file, and return how the check ended."""
        left = self._findings(job.name).source
        try:
            ending = Work(self.worker, fresh, place, job, self.worker.cancel).done()
            try:
                problem = _take_findings(place, job, left)
            except PlaceLostError as error:
                if not self.is_last_try:
                    raise
                return _unseen(error.message)(job)
            self._keep_findings(left / SARIF, job, problem)
        except OSError as error:
            raise _unfinished(error) from error
        finally:
            remove_tree(left)
        return ending

    def _keep_findings(self, written: Path, job: Job, problem: str | None) -> None:
        """Store the SARIF file of a check beside its log, without secrets."""
        kept = findings_file(stage_log(self.worker.directory, job.name))
        kept.unlink(missing_ok=True)
        data = b""
        if problem is None:
            try:
                # protection: sarif-files-of-checks-are-bounded
                data = read_limited(written, most=MOST_FINDINGS)
            except FileNotFoundError:
                return
            except OSError as error:
                problem = error.strerror
        of = f"worker {self.worker.number}: the findings of check `{job.title}`"
        if problem is not None:
            self.worker.run.emit(Notice(message=f"{of} were not read: {problem}"))
            return
        # protection: sarif-files-of-checks-have-no-secrets
        clean = self.worker.run.redactor.data(decode(data).encode("utf-8", "replace"))
        if len(clean) > _MOST_KEPT:
            size = f"{_MOST_KEPT // 1024**2} MiB"
            self.worker.run.emit(Notice(message=f"{of}: only those in the first {size} are read"))
        write_atomically(kept, clean[:_MOST_KEPT].decode("utf-8", "ignore"))


def _take_findings(place: Place, job: Job, into: Path) -> str | None:
    """Take a check's findings out of its place; return why this failed, or None.

    Raises:
        PlaceLostError: The place is gone.
        EngineUnavailableError: The engine cannot be reached.
    """
    try:
        for part in job.parts:
            place.take(part.name, into, limit=MOST_FINDINGS)
    except (EngineUnavailableError, PlaceLostError):
        raise
    except EngineError as error:
        return error.message
    return None


def _unfinished(error: OSError) -> UnfinishedError:
    """Return the error of a machine that cannot run the checks now, such as a full disk.

    The commit has not failed, and its checks can run later.
    """
    return UnfinishedError(f"the checks could not be run: {error}", key="work.unchecked")


def _unseen(problem: str) -> Callable[[Job], Ending]:
    """Return a function in place of `_run` for checks that cannot run."""
    return lambda _: Ending(started_at=None, duration=0.0, exit_status=None, error=problem)
