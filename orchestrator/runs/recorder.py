"""Record a run's events on disk, and pass them on to the caller and to notifications."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from orchestrator.events import Emit, Event, Notice, RunDone, RunStarted, WorkerDone
from orchestrator.record.status_file import StatusFile
from orchestrator.runs.claimed_run import ClaimedRun
from orchestrator.runs.notification_messages import notification
from orchestrator.state.run_record import RunRecord
from orchestrator.text.redact import Redactor
from orchestrator.text.sanitize import one_line

if TYPE_CHECKING:
    from orchestrator.runs.notifications import Notifier


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
        self._notifier = self._started_notifier(notify) if notify else None
        self._directory = claimed.directory
        self._outcome = claimed.outcome
        self._emit = emit
        self._redactor = redactor
        self._status = StatusFile(claimed.directory)
        self._broken = False

    def _started_notifier(self, target: str) -> "Notifier":
        # Imported here because most runs send no notifications.
        from orchestrator.runs.notifications import Notifier

        return Notifier(target, failed=self._not_notified)

    def __call__(self, event: Event) -> None:
        is_open = self._outcome.resumable
        is_result = isinstance(event, WorkerDone | RunDone)
        # Secrets were removed from results when they were written.
        event = event if is_result else self._redactor.model(event)
        # The result of a worker that a resumed run continues is not its last.
        if not (is_open and is_result):
            self._directory.log_event(event)
            self._status(event)
        self._tell(event)
        if self._notifier is None:
            return
        message = notification(self._directory.run_id, event, is_open=is_open)
        if message is not None:
            self._notifier.tell(message)

    def _tell(self, event: Event) -> None:
        """Call the caller's callback. If the callback raises an exception, never call it again."""
        if self._broken:
            return
        try:
            self._emit(event)
        # protection: raising-callback-does-not-stop-run
        except Exception as error:  # noqa: BLE001 - the caller's own code
            self._broken = True
            said = one_line(f"{type(error).__name__}: {error}")
            message = f"the callback `emit` raised {said} and is not called again in this run"
            self._directory.log_event(Notice(message=self._redactor.text(message)))

    def close(self) -> None:
        """Send the remaining notifications, for a few seconds at most."""
        if self._notifier is not None:
            self._notifier.close()

    def _not_notified(self, problem: str) -> None:
        self(Notice(message=f"a notification could not be sent ({problem})"))
