"""Compare and merge the branches of a run; checks and agents run in containers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from json import dumps
from pathlib import Path

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.derived import for_checks
from orchestrator.config.request import read_request
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine import Engine, engine_of_run
from orchestrator.repository.commits.changes import patch
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.check_run import Tester
from orchestrator.review.judging.pick import Note, silent
from orchestrator.review.judging.protected import Protection
from orchestrator.review.landing.branches import read_branches
from orchestrator.review.landing.conflict import Conflict
from orchestrator.review.landing.conflict_matrix import Conflicts, find_conflicts
from orchestrator.review.landing.land import undo as undo_merge
from orchestrator.review.landing.merge import Wish, merge_branches
from orchestrator.review.landing.merge_request import MergeOptions, MergeRequest
from orchestrator.review.landing.merged import Merged
from orchestrator.review.landing.queue import Answer, CommitTest
from orchestrator.review.landing.resolution import Resolver
from orchestrator.review.landing.semantic import PairTest, find_all_conflicts
from orchestrator.review.landing.target import find_target
from orchestrator.runs.purposes.commit_checks import ContainerTest
from orchestrator.runs.purposes.conflict_agent import ConflictAgent
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.landing_record import Landed
from orchestrator.state.run_outline import engine_used

MOST_DIFF = 64 * 1024**2
"""Maximum size in bytes of the patch that `diff` returns."""
_FILES = 5
_SAID = {"pass": "passed", "fail": "failed", "none": "gave no answer"}


class Merger:
    """Compares and merges the branches of runs; another thread can call `cancel`."""

    def __init__(
        self,
        root: Path | str | None = None,
        *,
        config: ParallelConfig | None = None,
        note: Note = silent,
    ) -> None:
        """Store the arguments.

        Args:
            root: Any directory in the repository. Default: the current directory.
            config: Settings of the containers in which checks run: image, limits, setup, services.
            note: Receives messages about the progress.
        """
        self._repository = Repository(Path(root) if root is not None else Path.cwd())
        self._config = config or ParallelConfig(tasks=("true",), agent_cli="shell")
        self._note = note
        self._cancelled, self._stops = False, list[Callable[[], None]]()

    def cancel(self, *, kill: bool = False) -> None:  # noqa: ARG002 - as for a run
        """Stop checks and agents; the call that waits for them fails and merges nothing."""
        self._cancelled = True
        for stop in self._stops:
            stop()

    def merge(
        self, request: MergeRequest, run: str | None = None, workers: Sequence[int] = ()
    ) -> Merged:
        """Merge the branches of a run into a branch of the user.

        Args:
            request: How the branches are merged.
            run: The run's id, or the beginning of it. Default: the newest run.
            workers: Numbers of the workers. Default: all workers that succeeded.

        Raises:
            BaseFailsError: The checks fail on the target before the merge.
            NotFitError: The target cannot be changed now; nothing was changed.
            OrchestratorError: A setting is wrong, git or Docker failed, or `cancel` was called.
        """
        branches = read_branches(self._repository, run, workers)
        named = bool(workers)
        wish = Wish(request=request, named=named, overrules_judgement=named)
        if not request.checks and request.on_conflict != "agent":
            return merge_branches(self._repository, branches, wish)
        used = engine_used(self._repository.state_dir, branches.run_id)
        with closing(engine_of_run(used)) as engine, self._stoppable():
            if request.checks:
                target = find_target(self._repository, request.into).commit
                instruments = self._config.judge.instruments
                protection = Protection(
                    self._repository, target, request.tests, branches.began, instruments
                )
                test, identity = self._test(request.checks, protection, engine)
                wish = replace(wish, test=test, tested_by=identity, doubt=protection.touches)
            if request.on_conflict == "agent":
                wish = replace(wish, resolver=self._resolver(request, engine))
            return merge_branches(self._repository, branches, wish)

    def conflicts(
        self, checks: Sequence[str] = (), run: str | None = None, workers: Sequence[int] = ()
    ) -> Conflicts:
        """Return which branches of a run cannot be merged with each other or with `HEAD`.

        Args:
            checks: Commands that must succeed on each pair that git can merge.
            run: The run's id, or the beginning of it. Default: the newest run.
            workers: Numbers of the workers. Default: all.

        Raises:
            OrchestratorError: There is no such run, git or Docker failed, or `cancel` was called.
        """
        branches = read_branches(self._repository, run, workers)
        changed = [branch for branch in branches.branches if not branch.is_empty]
        base = self._repository.resolve("HEAD")
        if not checks:
            return find_conflicts(self._repository, changed, run_id=branches.run_id, base=base)
        used = engine_used(self._repository.state_dir, branches.run_id)
        with closing(engine_of_run(used)) as engine, self._stoppable():
            free = Protection(self._repository, base, "free", branches.began)
            request = read_request(MergeRequest, {"checks": tuple(checks)})
            test, identity = self._test(request.checks, free, engine)
            pairs = PairTest(test=test, identity=identity)
            return find_all_conflicts(self._repository, branches, changed, base, pairs)

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._stops = []

    def _on_cancel(self, stop: Callable[[], None]) -> None:
        self._stops.append(stop)
        if self._cancelled:
            stop()

    def _test(
        self, checks: Sequence[str], protection: Protection, engine: Engine
    ) -> tuple[CommitTest, str]:
        """Return a function that tests commits in containers, and a text that identifies it."""
        commands = tuple(dict.fromkeys(checks))
        config, top = for_checks(self._config, commands), self._repository.top
        image = ParallelRunner(config, top).plan().image
        test = ContainerTest(config, commands, top, engine)
        self._on_cancel(test.cancel)
        tester = Tester(
            run=test.run_checks, identity=test.identity(engine.image_id(image) or image)
        )
        identity = [tester.identity, *protection.identity]
        return self._protect(test, commands, tester, protection), dumps(identity)

    def _protect(
        self,
        test: ContainerTest,
        commands: Sequence[str],
        tester: Tester,
        protection: Protection,
    ) -> CommitTest:
        """Return a test of a commit, first with the target's tests, then with the commit's tests.

        A commit passes only if its checks also report mutants of the target's tests as failed.
        """

        def test_twice(commit: str) -> Answer:
            protected = protection.of(commit)
            # protection: queue-tests-of-target-count
            if protected != commit:
                answer = run_and_note(protected, f"{commit[:12]} with the target's tests")
                if answer != "pass":
                    return answer
            answer = run_and_note(commit, commit[:12])
            return run_mutants(protected) if answer == "pass" else answer

        def run_and_note(commit: str, name: str) -> Answer:
            answer = test(commit)
            last = test.runs[-1] if test.runs else "none"
            self._note(f"checks on {name}: {_SAID[answer]} (run {last})")
            return answer

        told = set[str]()

        def run_mutants(commit: str) -> Answer:
            answer = protection.reports_failures(commit, commands, tester)
            for command in protection.untried:
                if command not in told:
                    said = one_line(command, limit=80)
                    self._note(f"nothing shows that `{said}` reports failing tests (no mutants)")
                told.add(command)
            if answer == "fail":
                self._note(f"checks on {commit[:12]}: they do not report tests that must fail")
            return answer

        return test_twice

    def _resolver(self, request: MergeRequest, engine: Engine) -> Resolver:
        if request.agent is None:
            raise ConfigError(
                "`on_conflict` is `agent`, but the option `agent` is not set", key="agent.missing"
            )
        agent = ConflictAgent(
            request.agent,
            self._repository.top,
            engine,
            checked=not request.checks,
            started=self._note_started,
        )
        self._on_cancel(agent.cancel)
        return Resolver(agent=agent, allowed=request.allowed)

    def _note_started(self, conflict: Conflict, attempt: int, run_id: str) -> None:
        paths = conflict.paths
        named = ", ".join(one_line(path) for path in paths[:_FILES])
        more = f" and {len(paths) - _FILES} more" if len(paths) > _FILES else ""
        self._note(
            f"worker {conflict.theirs.worker_id} conflicts in {named}{more}: "
            f"an agent resolves it (attempt {attempt}, run {run_id})"
        )


def merge(
    options: MergeOptions | None = None,
    root: Path | str | None = None,
    *,
    run: str | None = None,
    workers: Sequence[int] = (),
    config: ParallelConfig | None = None,
) -> Merged:
    """Merge the branches of a run into a branch; with checks, only merges that pass all checks.

    Args:
        options: How the branches are merged.
        root: Any directory in the repository. Default: the current directory.
        run: The run's id, or the beginning of it. Default: the newest run.
        workers: Numbers of the workers. Default: all workers that succeeded.
        config: Settings of the containers in which checks run. Default: settings of agent `shell`.

    Raises:
        OrchestratorError: Nothing could be merged, or the checks fail before the merge.
    """
    return Merger(root, config=config).merge(options or MergeOptions(), run, workers)


def conflicts(
    root: Path | str | None = None,
    *,
    run: str | None = None,
    workers: Sequence[int] = (),
    checks: Sequence[str] = (),
    config: ParallelConfig | None = None,
) -> Conflicts:
    """Return which branches of a run cannot be merged with each other or with `HEAD`.

    Args:
        root: Any directory in the repository. Default: the current directory.
        run: The run's id, or the beginning of it. Default: the newest run.
        workers: Numbers of the workers. Default: all.
        checks: Commands that must succeed on each pair that git can merge.
        config: Settings of the containers in which checks run. Default: settings of agent `shell`.

    Raises:
        OrchestratorError: There is no such run, or git or Docker failed.
    """
    return Merger(root, config=config).conflicts(checks, run, workers)


def diff(worker: int, root: Path | str | None = None, *, run: str | None = None) -> bytes:
    """Return the changes of a worker as a patch, cut after 64 MiB.

    Args:
        worker: Number of the worker.
        root: Any directory in the repository. Default: the current directory.
        run: The run's id, or the beginning of it. Default: the newest run with this worker.

    Raises:
        OrchestratorError: There is no such run or worker, or git failed.
    """
    repository = Repository(Path(root) if root is not None else Path.cwd())
    (branch,) = read_branches(repository, run, [worker]).branches
    return patch(repository, base=branch.base, tip=branch.commit, limit=MOST_DIFF)


def undo(
    root: Path | str | None = None, *, run: str | None = None, into: str | None = None
) -> Landed:
    """Undo the latest merge into a branch, if the branch has not moved since the merge.

    Args:
        root: Any directory in the repository. Default: the current directory.
        run: Only a merge of this run is undone. Default: a merge of any run.
        into: The branch. Default: the branch that is checked out.

    Raises:
        OrchestratorError: There is no such merge, or the branch or its files changed since.
    """
    repository = Repository(Path(root) if root is not None else Path.cwd())
    return undo_merge(repository, into=into, run_id=run)
