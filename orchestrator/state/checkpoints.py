"""How far a worker has come, on disk: what a process that takes over must know.

In the worker's state directory, each written whole before the step that it stands for:

    prepared        its worktree and store are complete; the commit it starts from
    services        what holds the network of its services; when they are ready
    setup.json      how its setup ended; before the container goes
    container.json  what runs its task; before the start
    noticed.json    what somebody should look at, as it was noticed
    ending.json     how that ended; before the container goes
    teardown.json   how its teardown ended; before the container goes
    harvest.json    the commit that its branch is to have; before the branch moves
    checks.json     the checks of that commit which are done
    attempt.json    that result is not its last, there is to be another attempt
"""

import time
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from orchestrator.events import Stage
from orchestrator.files.atomic import write_atomically
from orchestrator.files.disk_usage import DiskUse
from orchestrator.git.quarantine import Harvested
from orchestrator.results import CheckResult, Noticed, WorkerResult
from orchestrator.state.endings import Ending

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_Kept = TypeVar("_Kept")
_ENDING = TypeAdapter(Ending)
_CHECKS = TypeAdapter(list[CheckResult])
_NOTICED = TypeAdapter(tuple[Noticed, ...])
_GIVEN_UP = "attempt.json"
_HARVESTED = TypeAdapter(Harvested)


class Launch(BaseModel):
    """A container that is about to be started."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    container: str
    boot: str
    at: float
    """Seconds since that boot: no change of the wall clock moves a deadline."""
    before: DiskUse
    """What lay in its directories before."""

    @classmethod
    def now(cls, container: str, *, before: DiskUse) -> "Launch":
        """Describe a container that is started at this moment."""
        return cls(container=container, boot=_boot(), at=_since_boot(), before=before)

    def starting_now(self) -> "Launch":
        """Return the same, with the time that the engine took for the start left out."""
        return self.model_copy(update={"at": _since_boot()})

    @property
    def age(self) -> float | None:
        """Seconds since then; None after another boot."""
        return _since_boot() - self.at if self.boot == _boot() else None


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _boot() -> str:
    return _BOOT.read_text().strip()


class Checkpoints:
    """One worker's, in its state directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def prepared(self) -> bool:
        """Whether its worktree and store are complete."""
        return (self._directory / "prepared").exists()

    def note_prepared(self, start: str) -> None:
        """Worktree and store are complete."""
        write_atomically(self._directory / "prepared", start)

    def start(self) -> str | None:
        """Return the commit that it starts from, if it is prepared."""
        try:
            return (self._directory / "prepared").read_text()
        except OSError:
            return None

    def launch(self) -> Launch | None:
        """Return what was about to be started, if anything was."""
        return self._read("container.json", TypeAdapter(Launch))

    def note_launch(self, container: str, *, before: DiskUse) -> Launch:
        """Note the container that is started next."""
        launch = Launch.now(container, before=before)
        write_atomically(self._directory / "container.json", launch.model_dump_json())
        return launch

    def ending(self) -> Ending | None:
        """Return how its container ended, if that was seen."""
        return self._read("ending.json", _ENDING)

    def note_ending(self, ending: Ending) -> None:
        """Keep how its container ended."""
        write_atomically(self._directory / "ending.json", _ENDING.dump_json(ending).decode())

    def noticed(self) -> tuple[Noticed, ...]:
        """Return what was noticed of the task while it ran."""
        return self._read("noticed.json", _NOTICED) or ()

    def note_noticed(self, noticed: tuple[Noticed, ...]) -> None:
        """Keep what was noticed: whoever takes over tells it in the result."""
        write_atomically(self._directory / "noticed.json", _NOTICED.dump_json(noticed).decode())

    def services(self) -> str | None:
        """Return the container that holds the network of its services, if they got ready."""
        try:
            return (self._directory / "services").read_text()
        except OSError:
            return None

    def note_services(self, holder: str) -> None:
        """Its services are ready."""
        write_atomically(self._directory / "services", holder)

    def forget_services(self) -> None:
        """They are gone, and with them what its setup did to them."""
        for name in ("setup.json", "services"):
            (self._directory / name).unlink(missing_ok=True)

    def stage(self, stage: Stage) -> Ending | None:
        """Return how a stage ended, if that was seen."""
        return self._read(f"{stage}.json", _ENDING)

    def note_stage(self, stage: Stage, ending: Ending) -> None:
        """Keep how a stage ended: it is not to be done again."""
        write_atomically(self._directory / f"{stage}.json", _ENDING.dump_json(ending).decode())

    def harvested(self) -> Harvested | None:
        """Return what was let in, if anything was."""
        return self._read("harvest.json", _HARVESTED)

    def note_harvested(self, harvested: Harvested) -> None:
        """Keep what is let in."""
        write_atomically(self._directory / "harvest.json", _HARVESTED.dump_json(harvested).decode())

    def checks(self) -> list[CheckResult]:
        """Return the checks that are done."""
        return self._read("checks.json", _CHECKS) or []

    def note_checks(self, checks: list[CheckResult]) -> None:
        """Keep how checks ended: they are not to be done again."""
        write_atomically(self._directory / "checks.json", _CHECKS.dump_json(checks).decode())

    def given_up(self) -> WorkerResult | None:
        """Return what this attempt came to, if there is to be another."""
        return self._read(_GIVEN_UP, TypeAdapter(WorkerResult))

    def note_given_up(self, result: WorkerResult) -> None:
        """Keep what this attempt came to: there is to be another."""
        self._directory.mkdir(exist_ok=True)
        write_atomically(self._directory / _GIVEN_UP, result.model_dump_json(indent=2))

    def _read(self, name: str, adapter: TypeAdapter[_Kept]) -> _Kept | None:
        try:
            return adapter.validate_json((self._directory / name).read_bytes())
        except (OSError, ValidationError):
            return None
