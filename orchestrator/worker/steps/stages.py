"""Run setup before the agent and teardown after it, each in a container of its own.

Unlike the agent's container, these containers may start again: a stage that was interrupted is
repeated, and a stage that has ended is recorded and never repeated.
"""

from dataclasses import dataclass

from orchestrator.base.results import Reason, Status
from orchestrator.engine.places.place import Place
from orchestrator.sandbox.supervision.cancel import CancelButton
from orchestrator.sandbox.supervision.verdict import Verdict
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.steps.container_specs import setup_job, teardown_job
from orchestrator.worker.steps.job import Work, problem_of
from orchestrator.worker.steps.services import Services
from orchestrator.worker.workspace.mounts import Workspace


@dataclass(frozen=True)
class _KilledAlone:
    """Cancel button of a teardown: a request to kill ends the teardown, one to stop does not."""

    button: CancelButton

    @property
    def stop_asked(self) -> bool:
        return self.button.kill_asked

    @property
    def kill_asked(self) -> bool:
        return self.button.kill_asked

    @property
    def why(self) -> str:
        return self.button.why


def set_up(
    worker: WorkerContext, workspace: Workspace, place: Place, services: Services
) -> Verdict | None:
    """Run the setup unless it has ended before; return why the agent cannot start, or None.

    Raises:
        EngineUnavailableError: The engine cannot be reached; a resumed run repeats the setup.
        OSError: The disk is full.
    """
    cancel, checkpoints = worker.cancel, worker.checkpoints
    known = checkpoints.stage("setup")
    if not worker.config.project.setup or (known is None and cancel.stop_asked):
        return None
    job = setup_job(worker.settings)
    work = Work(worker, workspace, place, job, cancel, services)
    ending = known or work.done(lambda ending: checkpoints.note_stage("setup", ending))
    problem = problem_of(worker, job, ending)
    if problem is None:
        return None
    problem = f"setup: {problem}"
    if ending.stopped is not None and ending.stopped.reason is Reason.CANCELLED:
        return Verdict(Status.FAILED, Reason.CANCELLED, problem)
    reason = Reason.SETUP_FAILED if ending.error is None else Reason.ENGINE_ERROR
    return Verdict(Status.FAILED, reason, problem)


def tear_down(
    worker: WorkerContext, workspace: Workspace, place: Place, services: Services
) -> tuple[str, ...]:
    """Run the teardown unless it has ended before; return notes for the user about problems.

    Raises:
        EngineUnavailableError: The engine cannot be reached; a resumed run repeats the teardown.
    """
    checkpoints = worker.checkpoints
    has_begun = checkpoints.stage("setup") is not None or checkpoints.launch() is not None
    if not worker.config.project.teardown or not has_begun:
        return ()
    known = checkpoints.stage("teardown")
    if known is None and checkpoints.harvest() is not None:
        return ()
    cancel = _KilledAlone(worker.cancel)
    if known is None and cancel.stop_asked:
        return ("the teardown was not run: the worker was killed",)
    job = teardown_job(worker.settings)
    work = Work(worker, workspace, place, job, cancel, services)
    try:
        ending = known or work.done(lambda ending: checkpoints.note_stage("teardown", ending))
    except OSError as error:
        return (f"the teardown was not run ({error})",)
    problem = problem_of(worker, job, ending)
    return () if problem is None else (f"teardown: {problem}",)
