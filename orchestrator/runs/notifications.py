"""Tell a program or a web address of the user's what happened in a run.

The gate to both, which no other module opens: what is told goes nowhere but where the user said.
"""

import json
import queue
import shlex
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException

_TIMEOUT = 10.0
"""Seconds that one notification may take."""
_LAST = 5.0
"""Seconds that the end of a run waits for those under way."""
_MOST = 100
"""Notifications that wait; for one more, the oldest is dropped."""
Message = Mapping[str, object]


class Notifier:
    """Tells one after the other, from a thread of its own: a run waits for none."""

    def __init__(self, target: str, *, failed: Callable[[str], None]) -> None:
        """Begin.

        Args:
            target: `http://...` or `https://...`, or a command line.
            failed: Is told why one did not arrive, the first time.
        """
        self._target = target
        self._failed: Callable[[str], None] | None = failed
        self._waiting: queue.Queue[Message | None] = queue.Queue(_MOST)
        self._closed = False
        self._once = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
        self._thread.start()

    def tell(self, message: Message) -> None:
        """Put a message into the queue; the oldest one makes room where there is none."""
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
        """Wait a moment for the messages under way; say so where some are left."""
        self._put(None)
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
    """Send one message, in bounded time; say what was wrong, without the target's own words."""
    try:
        if target.startswith(("http://", "https://")):
            _post(target, message)
            return None
        return _run(target, message)
    except (OSError, ValueError, HTTPException, subprocess.SubprocessError) as error:
        return type(error).__name__


def _post(address: str, message: bytes) -> None:
    request = urllib.request.Request(  # noqa: S310  # of a kind that was looked at
        address, message, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT):  # noqa: S310
        pass


def _run(command: str, message: bytes) -> str | None:
    done = subprocess.run(
        shlex.split(command),
        input=message,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_TIMEOUT,
        check=False,
        start_new_session=True,
    )
    return f"exit code {done.returncode}" if done.returncode else None
