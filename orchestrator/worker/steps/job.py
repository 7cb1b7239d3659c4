"""Run commands of a worker in a container of their own, such as setup, teardown or a check."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from orchestrator.agents.output.fields import describe_exit
from orchestrator.base.errors import EngineUnavailableError, OrchestratorError
from orchestrator.base.events import Notice, WorkerStageDone
from orchestrator.base.files.tail import end_of
from orchestrator.base.text.sanitize import last_output_line, one_line
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.engine.places.place import Place
from orchestrator.sandbox.supervision.cancel import CancelButton
from orchestrator.sandbox.supervision.launch import start_again
from orchestrator.sandbox.supervision.output import LogOptions, WorkerLog, stage_log
from orchestrator.sandbox.supervision.supervisor import attend
from orchestrator.state.secret_files import Secrets
from orchestrator.state.worker.endings import Ending
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.steps.container_specs import Job, job_limits, job_start
from orchestrator.worker.steps.grants import admit_setup, dismiss
from orchestrator.worker.steps.services import Services
from orchestrator.worker.workspace.mounts import Workspace

_PIECE = 64 * 1024
"""Maximum number of bytes of a log file that are read at once."""
_SHOWN = 100
"""Maximum number of characters of a command that a message shows."""


@dataclass(frozen=True)
class Work:
    """Runs one job of a worker."""

    worker: WorkerContext
    workspace: Workspace
    place: Place
    job: Job
    cancel: CancelButton
    services: Services | None = None
    """The services that the job can reach; None if there are none."""

    def done(self, note: Callable[[Ending], None] | None = None) -> Ending:
        """Run the job in a container, remove the container, and return how the job ended.

        Args:
            note: Function that records how the job ended, called before the container is removed.

        Raises:
            EngineUnavailableError: The engine cannot be reached; leftovers are removed later.
            OSError: The disk is full.
        """
        with WorkerLog(
            self.worker.directory,
            self.worker.number,
            LogOptions(
                limit=self.worker.config.limits.log_limit,
                redactor=self.worker.run.redactor,
                stage=self.job.name,
            ),
            emit=self.worker.run.emit,
            new_reader=lambda: lambda _: None,
        ) as log:
            ending = self._run_container(log, note)
        if log.failure is not None:
            what = f"worker {self.worker.number}: the log of {self.job.title} is incomplete"
            self.worker.run.emit(Notice(message=f"{what} ({log.failure.strerror})"))
        self.worker.run.emit(
            WorkerStageDone(
                worker_id=self.worker.number,
                stage=self.job.stage,
                name=self.job.title,
                duration=round(ending.duration, 3),
                problem=problem_of(self.worker, self.job, ending),
            )
        )
        return ending

    def _run_container(self, log: WorkerLog, note: Callable[[Ending], None] | None) -> Ending:
        worker, run, workspace = self.worker, self.worker.run, self.workspace
        step = self.place.spec.step(self.job.name)
        terms = job_limits(worker, workspace, self.place, self.job)
        # protection: no-secrets-in-memory-for-found-files-commands
        handed = Secrets(values={}, root=None) if self.job.closed else run.request.secrets
        given = handed.laid_out(run.directory.run_id, worker.number, workspace.user)
        token = None
        try:
            with given as secrets:
                if self.job.reads:
                    token = admit_setup(worker, self.place, step.name)
                start = job_start(worker, workspace, secrets, self.job, token)
                if self.services is not None:
                    start = self.services.connect(step, start)
                if start.network_of is not None or not _leads_nowhere(step.spec):
                    start = replace(start, network=worker.network_of(step))
                left = self.place.step(step.name) if run.resumed and step.after is None else None
                if left is not None:
                    left.remove()
                running = start_again(start, terms)
                own = start.network_of is None
                follower = worker.network_log.follow(running.container) if own else None
                try:
                    ending = attend(running, log=log, cancel=self.cancel, emit=run.emit)
                    if note is not None:
                        with suppress(OSError):  # full disk: repeating the job does no harm
                            note(ending)
                    if follower is not None:
                        follower.finish()
                finally:
                    running.container.remove()
        except EngineUnavailableError:
            raise
        except OrchestratorError as error:
            return Ending(started_at=None, duration=0.0, exit_status=None, error=error.message)
        finally:
            if token is not None:
                dismiss(worker)
        return ending


def problem_of(worker: WorkerContext, job: Job, ending: Ending) -> str | None:
    """Return a message about the failed command, with its last output; None for success."""
    how = _how(ending)
    if how is None:
        return None
    # The last command in the log, by the lines that announce commands.
    log, count = stage_log(worker.directory, job.name), len(job.commands)
    mark = re.compile(rb"\[%s (\d+)/%d\] " % (re.escape(job.name.encode()), count))
    turn = 0
    with suppress(OSError), log.open("rb") as file:
        while piece := file.readline(_PIECE):
            found = mark.match(piece)
            if found and int(found[1]) == turn + 1:
                turn += 1
    turn = min(max(turn, 1), count)
    command = worker.run.redactor.text(job.commands[turn - 1])
    said = last_output_line(end_of(log).decode("utf-8", "replace"))
    more = f": {said}" if said and not said.startswith(f"[{job.name} ") else ""
    return f"`{one_line(command, limit=_SHOWN)}` {how}{more}"


def _how(ending: Ending) -> str | None:
    """Return how the job failed, as part of a message; None for success."""
    if ending.error is not None:
        return f"ended without being observed ({ending.error})"
    if ending.stopped is not None:
        return f"was {ending.stopped.measured}"
    if ending.exit_status is None:
        return "ended without being observed"
    if ending.exit_status.oom_killed:
        return "was killed, because it needed more memory than its limit"
    code = ending.exit_status.exit_code
    if code == 0:
        return None
    lost = f" (it lost its network: {ending.lost_network})" if ending.lost_network else ""
    return describe_exit(code) + lost


def _leads_nowhere(spec: ContainerSpec) -> bool:
    """Return whether a container is better off without a network: its gateway allows no host."""
    egress = spec.egress
    is_closed = egress is not None and egress.hosts == () and not egress.learn
    return is_closed and spec.link is None
