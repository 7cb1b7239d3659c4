"""Send notifications about a run to the user's own program or URL.

No other module sends notifications, and they are sent only to the target that the user configured.
"""

import json
import queue
import shlex
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.client import HTTPException

from orchestrator.errors import OrchestratorError
from orchestrator.runs.webhooks import post, signing_key

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
_FAILURES = (OSError, ValueError, HTTPException, subprocess.SubprocessError, OrchestratorError)
Message = Mapping[str, object]


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
            return _run(["notify-send", "--", "orchestrator", _text(message)], b"")
        # protection: notification-command-runs-without-shell
        return _run(shlex.split(target), message)
    except _FAILURES as error:
        # protection: targets-output-is-not-shown
        return type(error).__name__


def _text(message: bytes) -> str:
    return str(json.loads(message).get("text", ""))


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
