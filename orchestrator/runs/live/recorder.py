"""Record the events of a run that this process carries out, and pass them on."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.base.events import UNSENT, Emit, Event, Notice, RunDone, RunStarted, WorkerDone
from orchestrator.base.text.redact import Redactor
from orchestrator.base.text.sanitize import one_line
from orchestrator.state.record.status_file import StatusFile
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import RunRecord
from orchestrator.worker.context import RunOutcome

if TYPE_CHECKING:
    from orchestrator.runs.notify.notifications import Notifier


@dataclass(frozen=True)
class ClaimedRun:
    """The record, directory and workers of a run whose lease (lock file) this process holds."""

    record: RunRecord
    directory: RunDirectory
    outcome: RunOutcome = field(default_factory=RunOutcome)


def announce(recorder: "Recorder", record: RunRecord, notices: Iterable[str]) -> None:
    """Emit the first events of a run that starts or continues."""
    recorder(
        RunStarted(
            run_id=record.run_id,
            base=record.base,
            workers=record.workers,
            slots=min(record.config.workers, len(record.workers)),
        )
    )
    for notice in notices:
        recorder(Notice(message=notice))


class Recorder:
    """Removes secrets from events, records them, and sends them to caller and notifications."""

    def __init__(
        self, claimed: ClaimedRun, emit: Emit, redactor: Redactor, *, notify: str | None = None
    ) -> None:
        self._directory = claimed.directory
        self._outcome = claimed.outcome
        self._emit = emit
        self._redactor = redactor
        self._status = StatusFile(claimed.directory)
        self._broken = False
        self._notifier: Notifier | None = None
        if notify:
            # Imported here because most runs send no notifications.
            from orchestrator.runs.notify import notifications

            self._notifier = notifications.Notifier(notify, failed=self._not_notified)

    def __call__(self, event: Event) -> None:
        is_open = self._outcome.resumable
        is_result = isinstance(event, WorkerDone | RunDone)
        # Secrets were removed from results when they were written.
        event = event if is_result else self._redactor.model(event)
        # The result of a worker that a resumed run continues is not its last.
        if not (is_open and is_result):
            self._directory.log_event(event)
            self._status(event)
        try:
            if not self._broken:
                self._emit(event)
        # protection: raising-callback-does-not-stop-run
        except Exception as error:  # noqa: BLE001 - the caller's own code
            self._broken = True
            said = one_line(f"{type(error).__name__}: {error}")
            message = f"the callback `emit` raised {said} and is not called again in this run"
            self._directory.log_event(Notice(message=self._redactor.text(message)))
        if self._notifier is not None:
            self._notifier.notify(self._directory.run_id, event, is_open=is_open)

    def close(self) -> None:
        """Send the remaining notifications, for a few seconds at most."""
        if self._notifier is not None:
            self._notifier.close()

    def _not_notified(self, problem: str) -> None:
        self(Notice(message=f"{UNSENT} ({problem})"))
