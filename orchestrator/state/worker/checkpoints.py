"""The progress of one worker on disk, from which another process can resume the run.

The worker's state directory has these files. Each is written atomically; `before` names the step
that follows the write:

    prepared        worktree and private git directory are complete; contains the start commit
    services        the services are ready; names the container that owns their network
    setup.json      how the setup ended; before its container is removed
    container.json  the container of the task; before its start
    noticed.json    alerts for which the user should look at the worker
    ending.json     how the task's container ended; before it is removed
    teardown.json   how the teardown ended; before its container is removed
    harvest.json    the new commit of the branch; before the branch moves
    checks.json     the finished checks of that commit
    shown           the worktree for the user, created after the worker's end, is complete
    last.json       the result of the last attempt alone, if there were other attempts
    attempt.json    the attempt's result, if there will be another attempt
"""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from orchestrator.base.events import Stage
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.disk_usage import DiskUse
from orchestrator.base.machine import boot_id, uptime
from orchestrator.base.results import CheckResult, Noticed, WorkerResult
from orchestrator.repository.incoming.packed_work import Harvested
from orchestrator.state.worker.endings import Ending

_UNKNOWN = "unknown"
"""Boot of a machine that does not say which boot it is."""
_Kept = TypeVar("_Kept")
_ENDING = TypeAdapter(Ending)
_CHECKS = TypeAdapter(list[CheckResult])
_NOTICED = TypeAdapter(tuple[Noticed, ...])
_GIVEN_UP = "attempt.json"
_HARVESTED = TypeAdapter(Harvested)


class Launch(BaseModel):
    """A container at the moment before its start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    container: str
    boot: str
    at: float
    """Time of the start in seconds since the machine's boot, unaffected by changes of the wall
    clock.
    """
    before: DiskUse
    """Disk usage of the container's directories before the container's start."""

    @classmethod
    def now(cls, container: str, *, before: DiskUse) -> "Launch":
        """Return the record of a container that starts now; `before` is its current disk usage."""
        return cls(container=container, boot=boot_id() or _UNKNOWN, at=uptime(), before=before)

    def starting_now(self) -> "Launch":
        """Return a copy with the current time as the start, to exclude the time of the creation."""
        return self.model_copy(update={"at": uptime()})

    @property
    def age(self) -> float | None:
        """Return the seconds since the container's start; None if the machine was rebooted."""
        return uptime() - self.at if self.boot == boot_id() else None


class Checkpoints:
    """Reads and writes the checkpoints of one worker (files that record its progress)."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def is_prepared(self) -> bool:
        """Return whether the worker's worktree and private git directory are complete."""
        return (self._directory / "prepared").exists()

    def note_prepared(self, start: str) -> None:
        """Record that the worker's worktree and private git directory are complete."""
        write_atomically(self._directory / "prepared", start)

    def start(self) -> str | None:
        """Return the commit that the worker starts from; None if the worktree is not complete."""
        try:
            return (self._directory / "prepared").read_text()
        except OSError:
            return None

    @property
    def is_shown(self) -> bool:
        """Return whether the worktree for the user was created after the worker's end."""
        return (self._directory / "shown").exists()

    def note_shown(self) -> None:
        """Record that the worktree for the user was created after the worker's end."""
        write_atomically(self._directory / "shown", "")

    def launch(self) -> Launch | None:
        """Return the record of the task's container; None if the container was not started."""
        return self._read("container.json", TypeAdapter(Launch))

    def note_launch(self, container: str, *, before: DiskUse) -> Launch:
        """Record the task's container immediately before its start, and return the record."""
        launch = Launch.now(container, before=before)
        write_atomically(self._directory / "container.json", launch.model_dump_json())
        return launch

    def ending(self) -> Ending | None:
        """Return how the task's container ended; None if no end was recorded."""
        return self._read("ending.json", _ENDING)

    def note_ending(self, ending: Ending) -> None:
        """Record how the task's container ended."""
        write_atomically(self._directory / "ending.json", _ENDING.dump_json(ending).decode())

    def alerts(self) -> tuple[Noticed, ...]:
        """Return the alerts that were recorded while the task ran."""
        return self._read("noticed.json", _NOTICED) or ()

    def note_noticed(self, noticed: tuple[Noticed, ...]) -> None:
        """Record alerts, so that a process that resumes the run can add them to the result."""
        write_atomically(self._directory / "noticed.json", _NOTICED.dump_json(noticed).decode())

    def services(self) -> str | None:
        """Return the id of the container with the services' network; None if they are not ready."""
        try:
            return (self._directory / "services").read_text()
        except OSError:
            return None

    def note_services(self, holder: str) -> None:
        """Record that the services are ready; container `holder` owns their network."""
        write_atomically(self._directory / "services", holder)

    def forget_services(self) -> None:
        """Remove the records of services and setup, so that both are repeated."""
        for name in ("setup.json", "services"):
            (self._directory / name).unlink(missing_ok=True)

    def stage(self, stage: Stage) -> Ending | None:
        """Return how a stage (such as the setup) ended; None if no end was recorded."""
        return self._read(f"{stage}.json", _ENDING)

    def note_stage(self, stage: Stage, ending: Ending) -> None:
        """Record how a stage (such as the setup) ended, so that it is not repeated."""
        write_atomically(self._directory / f"{stage}.json", _ENDING.dump_json(ending).decode())

    def harvest(self) -> Harvested | None:
        """Return the result of importing the worker's commits; None if they were not imported."""
        return self._read("harvest.json", _HARVESTED)

    def note_harvested(self, harvested: Harvested) -> None:
        """Record the result of importing the worker's commits."""
        write_atomically(self._directory / "harvest.json", _HARVESTED.dump_json(harvested).decode())

    def checks(self) -> list[CheckResult]:
        """Return the results of finished checks."""
        return self._read("checks.json", _CHECKS) or []

    def note_checks(self, checks: list[CheckResult]) -> None:
        """Record the results of checks, so that they are not repeated."""
        write_atomically(self._directory / "checks.json", _CHECKS.dump_json(checks).decode())

    def attempt_result(self) -> WorkerResult | None:
        """Return the result of a failed attempt that will be retried; otherwise None."""
        return self._read(_GIVEN_UP, TypeAdapter(WorkerResult))

    def note_given_up(self, result: WorkerResult) -> None:
        """Record the result of a failed attempt that will be retried."""
        self._directory.mkdir(exist_ok=True)
        write_atomically(self._directory / _GIVEN_UP, result.model_dump_json(indent=2))

    def forget_given_up(self) -> None:
        """Remove that record, if no other attempt follows after all."""
        (self._directory / _GIVEN_UP).unlink(missing_ok=True)

    def last_result(self) -> WorkerResult | None:
        """Return the result of the last attempt alone; None if there was only one attempt."""
        return self._read("last.json", TypeAdapter(WorkerResult))

    def note_last(self, result: WorkerResult) -> None:
        """Record the result of the last attempt alone, before the result of all attempts."""
        write_atomically(self._directory / "last.json", result.model_dump_json(indent=2))

    def _read(self, name: str, adapter: TypeAdapter[_Kept]) -> _Kept | None:
        try:
            return adapter.validate_json((self._directory / name).read_bytes())
        except (OSError, ValidationError):
            return None
