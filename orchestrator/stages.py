"""What runs around the agent, in containers of its own: setup before it, teardown behind it.

Unlike the agent's, these containers may be started over again: what was cut short is removed and
repeated, what has ended is noted and never done twice.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agents.claims import describe_exit
from orchestrator.checkpoints import Checkpoints
from orchestrator.containers import stage_container, stage_terms
from orchestrator.context import RunContext
from orchestrator.errors import EngineUnavailableError, OrchestratorError
from orchestrator.events import Stage, WorkerStageDone
from orchestrator.execution import CancelButton, attend, start_again
from orchestrator.judge import Ending, Verdict
from orchestrator.logs import WorkerLog, stage_log
from orchestrator.plan import WorkerSpec
from orchestrator.results import Reason, Status
from orchestrator.sanitize import one_line
from orchestrator.services import Services
from orchestrator.session import cancel_of
from orchestrator.tail import last_line
from orchestrator.workspace import Workspace

_MARK = re.compile(rb"\[(?:setup|teardown) (\d+)/\d+\] ")
_PIECE = 64 * 1024
"""Bytes of a log that are looked at at once."""
_SHOWN = 100
"""Characters of a command in a message."""


@dataclass(frozen=True)
class _KilledAlone:
    """Behind a worker that is to stop there is time to tidy up, until somebody has none left."""

    button: CancelButton

    @property
    def asked(self) -> bool:
        return self.button.killed

    @property
    def killed(self) -> bool:
        return self.button.killed

    @property
    def why(self) -> str:
        return self.button.why


def set_up(
    run: RunContext,
    spec: WorkerSpec,
    workspace: Workspace,
    checkpoints: Checkpoints,
    services: Services,
) -> Verdict | None:
    """Make a worktree ready for the agent, unless that was done; say why there can be no agent.

    Raises:
        EngineUnavailableError: The engine went away; setup is repeated by whoever resumes the run.
        OSError: There is no room for its log.
    """
    cancel = cancel_of(run, spec)
    known = checkpoints.stage("setup")
    if not run.config.project.setup or (known is None and cancel.asked):
        return None
    ending, problem = _Stage(run, spec, workspace, checkpoints, services, "setup", cancel).outcome()
    if problem is None:
        return None
    if ending.stopped is not None and ending.stopped.reason is Reason.CANCELLED:
        return Verdict(Status.FAILED, Reason.CANCELLED, problem)
    reason = Reason.SETUP_FAILED if ending.error is None else Reason.ENGINE_ERROR
    return Verdict(Status.FAILED, reason, problem)


def tear_down(
    run: RunContext,
    spec: WorkerSpec,
    workspace: Workspace,
    checkpoints: Checkpoints,
    services: Services,
) -> tuple[str, ...]:
    """Tidy up behind the agent, unless that was done; what goes wrong is a note.

    Raises:
        EngineUnavailableError: The engine went away; it is repeated by whoever resumes the run.
    """
    if not run.config.project.teardown or not _has_begun(checkpoints):
        return ()
    cancel = _KilledAlone(cancel_of(run, spec))
    if checkpoints.stage("teardown") is None:
        if checkpoints.harvested() is not None:
            return ()
        if cancel.asked:
            return ("there was no teardown: the worker was killed",)
    try:
        _, problem = _Stage(
            run, spec, workspace, checkpoints, services, "teardown", cancel
        ).outcome()
    except OSError as error:
        return (f"there was no teardown ({error})",)
    return () if problem is None else (problem,)


def _has_begun(checkpoints: Checkpoints) -> bool:
    return checkpoints.stage("setup") is not None or checkpoints.launch() is not None


@dataclass(frozen=True)
class _Stage:
    """One stage of one worker."""

    run: RunContext
    spec: WorkerSpec
    workspace: Workspace
    checkpoints: Checkpoints
    services: Services
    stage: Stage
    cancel: CancelButton

    def outcome(self) -> tuple[Ending, str | None]:
        """Give how it ended, now or when it was noted, and what is wrong with that."""
        known = self.checkpoints.stage(self.stage)
        if known is not None:
            return known, self._problem(known)
        with self._open_log() as log:
            ending = self._carried_out(log)
        problem = self._problem(ending)
        self.run.emit(
            WorkerStageDone(
                worker_id=self.spec.worker_id,
                stage=self.stage,
                duration=round(ending.duration, 3),
                problem=problem,
            )
        )
        return ending, problem

    def _open_log(self) -> WorkerLog:
        return WorkerLog(
            self._directory,
            self.spec.worker_id,
            emit=self.run.emit,
            new_reader=lambda: lambda _: None,
            limit=self.run.config.limits.log_limit,
            redactor=self.run.redactor,
            stage=self.stage,
        )

    @property
    def _directory(self) -> Path:
        return self.run.directory.worker(self.spec.worker_id)

    def _carried_out(self, log: WorkerLog) -> Ending:
        """Run it in a container, of which nothing is left; note how it ended."""
        run, spec, workspace = self.run, self.spec, self.workspace
        run_id = run.directory.run_id
        terms = stage_terms(run, spec, workspace, self.stage)
        try:
            with run.secrets.laid_out(run_id, spec.worker_id, workspace.user) as secrets:
                described = self.services.beside(
                    stage_container(run, spec, workspace, secrets, self.stage)
                )
                container, launched = start_again(run.engine, described, terms)
                try:
                    ending = attend(
                        container, terms, launched, log=log, cancel=self.cancel, emit=run.emit
                    )
                    self._note(ending)
                finally:
                    container.remove()
        except EngineUnavailableError:
            raise
        except OrchestratorError as error:
            return Ending(started_at=None, duration=0.0, exit_status=None, error=error.message)
        return ending

    def _note(self, ending: Ending) -> None:
        with suppress(OSError):  # a full disk: to do it over again is no harm
            self.checkpoints.note_stage(self.stage, ending)

    def _problem(self, ending: Ending) -> str | None:
        how = _how(ending)
        if how is None:
            return None
        project = self.run.config.project
        commands = project.setup if self.stage == "setup" else project.teardown
        log = stage_log(self._directory, self.stage)
        command = self.run.redactor.text(commands[_turn(log, len(commands)) - 1])
        shown = one_line(command, limit=_SHOWN)
        said = one_line(last_line(log).decode("utf-8", "replace"))
        more = f": {said}" if said and not said.startswith(f"[{self.stage} ") else ""
        return f"{self.stage}: `{shown}` {how}{more}"


def _how(ending: Ending) -> str | None:
    """Say how it ended, unless it ended well."""
    if ending.error is not None:
        return f"was not seen to its end ({ending.error})"
    if ending.stopped is not None:
        return f"was {ending.stopped.measured.removeprefix('stopped: ')}"
    if ending.exit_status is None:
        return "was not seen to its end"
    if ending.exit_status.oom_killed:
        return "was killed: it needed more memory than its limit"
    code = ending.exit_status.exit_code
    return None if code == 0 else describe_exit(code)


def _turn(log: Path, count: int) -> int:
    """Tell which of so many commands a log ends with: each line that says so is the next one's."""
    turn = 0
    with suppress(OSError), log.open("rb") as file:
        while piece := file.readline(_PIECE):
            found = _MARK.match(piece)
            if found and int(found[1]) == turn + 1:
                turn += 1
    return min(max(turn, 1), count)
