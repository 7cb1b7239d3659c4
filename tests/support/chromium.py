"""Drive Debian's Chromium by the DevTools protocol over a pipe.

It reaches files and servers of this machine only.
"""

import base64
import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.live import eventually

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
_PIPE = 64 * 1024


class Page:
    """A page of the browser, with everything that it reported."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": number, "method": method, "params": parameters, **session}
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def open(self, page: Path | str, *, width: int = 1400, theme: str = "light") -> None:
        """Load a file or an address in a window of this width, and wait until it is complete."""
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self.events.clear()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not self.of("Page.loadEventFired"):
            self.events.append(self._next())

    def of(self, *methods: str) -> list[dict[str, Any]]:
        """Return the events of these kinds since the page was opened."""
        return [event["params"] for event in self.events if event.get("method") in methods]

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        try:
            eventually(lambda: bool(self.value(expression)), expression)
        except AssertionError as error:
            shown = self.value(
                "location.pathname + '\\n' + document.body?.innerText.slice(0, 3000)"
            )
            raise AssertionError(f"{error}; the page shows:\n{shown}") from None

    def picture(self, path: Path) -> None:
        """Write a picture of the visible part of the page."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """End the browser."""
        self._session = None
        # A busy machine may close the pipe before the answer.
        with suppress(AssertionError, OSError):
            self.call("Browser.close")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._reading, _PIPE)
            assert piece, "the browser ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Run Chromium with a new profile during the block; yield a page."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    command = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    words = ["chromium", *FLAGS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        ["bash", "-c", command, "bash", *words],
        pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        page = Page(ours_in, ours_out)
        yield page
        page.close()
    finally:
        os.close(ours_out)
        os.close(ours_in)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
