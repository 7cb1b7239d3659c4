"""Run commands of a worker in a container of their own, such as setup, teardown or a check."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from orchestrator.agents.output.fields import describe_exit
from orchestrator.config.network_access import Access
from orchestrator.engine.spec import ContainerSpec
from orchestrator.errors import EngineUnavailableError, OrchestratorError
from orchestrator.events import WorkerStageDone
from orchestrator.execution.cancel import CancelButton
from orchestrator.execution.launch import start_again
from orchestrator.execution.output import LogOptions, WorkerLog, stage_log
from orchestrator.execution.supervisor import attend
from orchestrator.files.tail import end_of
from orchestrator.state.endings import Ending
from orchestrator.state.secret_files import Secrets
from orchestrator.text.sanitize import last_output_line, one_line
from orchestrator.worker.checked_run import CheckedSettings
from orchestrator.worker.container_specs import Job, job_container, job_limits
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.grants import admit_setup, dismiss
from orchestrator.worker.services import Services
from orchestrator.workspace.mounts import Workspace

_PIECE = 64 * 1024
"""Maximum number of bytes of a log file that are read at once."""
_SHOWN = 100
"""Maximum number of characters of a command that a message shows."""


def setup_job(settings: CheckedSettings) -> Job:
    """Return the job that runs the setup commands."""
    return _stage_job(settings, "setup", settings.config.project.setup, settings.access.setup)


def teardown_job(settings: CheckedSettings) -> Job:
    """Return the job that runs the teardown commands."""
    commands = settings.config.project.teardown
    return _stage_job(settings, "teardown", commands, settings.access.teardown)


def _stage_job(
    settings: CheckedSettings,
    stage: Literal["setup", "teardown"],
    commands: tuple[str, ...],
    access: Access,
) -> Job:
    return Job(
        stage=stage,
        name=stage,
        commands=commands,
        timeout=settings.config.project.setup_timeout or None,
        access=access,
        closed=stage in settings.config.closed_stages,
        reads=stage == "setup" and settings.access.setup_reads,
    )


@dataclass(frozen=True)
class Work:
    """Runs one job of a worker."""

    worker: WorkerContext
    workspace: Workspace
    job: Job
    cancel: CancelButton
    services: Services | None = None
    """The services that the job can reach; None if there are none."""

    @property
    def log(self) -> Path:
        """Return the file with the whole output of the job."""
        return stage_log(self.worker.directory, self.job.name)

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
        self.worker.run.emit(
            WorkerStageDone(
                worker_id=self.worker.number,
                stage=self.job.stage,
                name=self.job.title,
                duration=round(ending.duration, 3),
                problem=self.problem(ending),
            )
        )
        return ending

    def _run_container(self, log: WorkerLog, note: Callable[[Ending], None] | None) -> Ending:
        worker, run, workspace = self.worker, self.worker.run, self.workspace
        terms = job_limits(worker, workspace, self.job)
        # protection: no-secrets-for-found-files-commands
        handed = Secrets(values={}, root=None) if self.job.closed else run.request.secrets
        given = handed.laid_out(run.directory.run_id, worker.number, workspace.user)
        token = None
        try:
            with given as secrets:
                token = admit_setup(worker) if self.job.reads else None
                described = job_container(worker, workspace, secrets, self.job, token=token)
                if self.services is not None:
                    described = self.services.network_of(described)
                described = _without_empty_network(described)
                running = start_again(run.engine, described, terms)
                own = described.network_of is None
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

    def problem(self, ending: Ending) -> str | None:
        """Return a message about the failed command, with its last output; None for success."""
        how = _how(ending)
        if how is None:
            return None
        # The last command in the log, by the lines that announce commands.
        count = len(self.job.commands)
        mark = re.compile(rb"\[%s (\d+)/%d\] " % (re.escape(self.job.name.encode()), count))
        turn = 0
        with suppress(OSError), self.log.open("rb") as file:
            while piece := file.readline(_PIECE):
                found = mark.match(piece)
                if found and int(found[1]) == turn + 1:
                    turn += 1
        turn = min(max(turn, 1), count)
        command = self.worker.run.redactor.text(self.job.commands[turn - 1])
        said = last_output_line(end_of(self.log).decode("utf-8", "replace"))
        more = f": {said}" if said and not said.startswith(f"[{self.job.name} ") else ""
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


def _without_empty_network(spec: ContainerSpec) -> ContainerSpec:
    """Return the specification, without a network if the network's gateway allows no host."""
    egress = spec.egress
    leads_nowhere = egress is not None and egress.hosts == () and not egress.learn
    if spec.network_of is not None or spec.link is not None or not leads_nowhere:
        return spec
    return replace(spec, network="none", egress=None)
