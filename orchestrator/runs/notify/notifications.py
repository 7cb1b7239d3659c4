"""Choose the events of a run of which the user is notified, and send the notifications.

No other module sends notifications, and they are sent only to the program or URL that the user
configured.
"""

import json
import queue
import shlex
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.events import Event, Intervention, RunDone, WorkerDone
from orchestrator.base.outgoing import RequestFailedError
from orchestrator.base.results import Reason, Status, WorkerResult, ended_word
from orchestrator.base.text.sanitize import one_line
from orchestrator.runs.notify.webhooks import post, signing_key

DESKTOP = "desktop"
"""Target that shows notifications on the desktop of this machine."""
_TIMEOUT = 10.0
"""Maximum number of seconds that sending one notification may take."""
_LAST = 5.0
"""Maximum number of seconds that the end of a run waits for notifications which are still to be
sent.
"""
_MOST = 100
"""Maximum number of queued notifications; if the queue is full, the oldest is dropped."""
_FAILURES = (OSError, ValueError, subprocess.SubprocessError, OrchestratorError)
MOST_LISTED = 100
"""Maximum number of workers that the message at a run's end lists; the message's field `counts`
includes all workers.
"""
_LONGEST = 500
"""Maximum number of characters of a worker's own message in a notification."""
_FAILED = frozenset({Status.FAILED, Status.TIMEOUT})
_NOT_OF_ITS_OWN = frozenset({Reason.CANCELLED, Reason.DEPENDENCY})
"""Reasons of failures that a worker did not cause: cancellation, or failure of another task. Such
workers are only listed in the message at the run's end.
"""
Message = Mapping[str, object]


def notification(run_id: str, event: Event, *, is_open: bool = False) -> Message | None:
    """Return the notification for an event; None for events without notification.

    Args:
        run_id: The id of the run.
        event: The redacted event.
        is_open: Whether the run stopped before all workers ended, and can be resumed.
    """
    match event:
        case Intervention():
            text = f"run {run_id}: worker {event.worker_id} needs attention: {event.trigger}"
            return {"run_id": run_id, "text": text, **event.model_dump(mode="json")}
        case WorkerDone(result=result) if not is_open and result.status in _FAILED:
            if result.reason in _NOT_OF_ITS_OWN:
                return None
            # The worker's own text could contain markup.
            name = f" ({result.name})" if result.name else ""
            text = f"run {run_id}: worker {result.worker_id}{name} ended: {result.outcome}"
            return {"run_id": run_id, "type": "worker_failed", "text": text, **_worker(result)}
        case RunDone(result=result):
            others = [worker for worker in result.results if worker.status is not Status.SUCCESS]
            counts = Counter(worker.status.value for worker in result.results)
            succeeded = f"{counts[Status.SUCCESS.value]} of {len(result.results)} workers succeeded"
            ended = ended_word(result.status, result.results)
            return {
                "run_id": run_id,
                "type": "run_done",
                "text": f"run {result.run_id}: {ended}, {succeeded}",
                "status": result.status.value,
                "duration": result.duration,
                "cost": result.cost,
                "counts": {status.value: counts[status.value] for status in Status},
                "not_successful": [_worker(worker) for worker in others[:MOST_LISTED]],
                "resumable": is_open,
            }
        case _:
            return None


def _worker(result: WorkerResult) -> Message:
    message = None if result.message is None else one_line(result.message, limit=_LONGEST)
    return {
        "worker_id": result.worker_id,
        "name": result.name,
        "status": result.status.value,
        "reason": None if result.reason is None else result.reason.value,
        "message": message,
        "branch": result.branch,
        "attempts": result.attempts,
        "duration": result.duration,
        "cost": result.cost,
    }


class Notifier:
    """Sends notifications from a separate thread, so that the run never waits for them."""

    def __init__(self, target: str, *, failed: Callable[[str], None]) -> None:
        """Start the thread that sends notifications.

        Args:
            target: `http://...` or `https://...`, or a command line.
            failed: Called once, with the reason, when sending fails for the first time.
        """
        self._target = target
        self._failed: Callable[[str], None] | None = failed
        self._waiting: queue.Queue[Message | None] = queue.Queue(_MOST)
        self._closed = False
        self._once = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
        self._thread.start()

    def notify(self, run_id: str, event: Event, *, is_open: bool) -> None:
        """Send the notification for an event, if the event has one."""
        message = notification(run_id, event, is_open=is_open)
        if message is not None:
            self.tell(message)

    def tell(self, message: Message) -> None:
        """Add a message to the queue, dropping the oldest message if the queue is full."""
        self._put(message)

    def _put(self, message: Message | None) -> None:
        while True:
            try:
                self._waiting.put_nowait(message)
            except queue.Full:
                with suppress(queue.Empty):
                    self._waiting.get_nowait()
            else:
                return

    def close(self) -> None:
        """Send queued notifications, for a few seconds at most; report notifications not sent."""
        self._put(None)
        # protection: runs-end-does-not-wait-for-hanging-notifications
        self._thread.join(_LAST)
        self._closed = True
        if self._thread.is_alive():
            self._problem(f"the program or server took longer than {_LAST:g} s")

    def _work(self) -> None:
        while not self._closed and (message := self._waiting.get()) is not None:
            problem = send(self._target, json.dumps(message).encode())
            if problem is not None and not self._closed:
                self._problem(problem)

    def _problem(self, said: str) -> None:
        with self._once:
            failed, self._failed = self._failed, None
        if failed is not None:
            failed(said)


def send(target: str, message: bytes) -> str | None:
    """Send one message to a command or URL; return the error, if any, without the output."""
    try:
        if target.startswith(("http://", "https://")):
            post(target, message, key=signing_key())
            return None
        if target == DESKTOP:
            text = str(json.loads(message).get("text", ""))
            return _run(["notify-send", "--", "orchestrator", text], b"")
        # protection: notification-command-runs-without-shell
        return _run(shlex.split(target), message)
    except RequestFailedError as error:
        return str(error)
    except _FAILURES as error:
        # protection: targets-output-is-not-shown
        return type(error).__name__


def _run(command: Sequence[str], message: bytes) -> str | None:
    # protection: hanging-notification-command-is-killed
    done = subprocess.run(
        command,
        input=message,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_TIMEOUT,
        check=False,
        start_new_session=True,
    )
    return f"exit code {done.returncode}" if done.returncode else None
