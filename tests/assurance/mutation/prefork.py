"""Run pytest in forks of a process that has imported libraries, but nothing of the project.

`Prefork` starts this file as a program, which reads a request from each line of its standard
input: a JSON object with the `arguments` of pytest, the file `output` for what it prints, and the
`timeout` in seconds. It answers with the exit code of pytest, or `null` if pytest was killed at the
timeout.
"""

import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_LIBRARIES = (
    "concurrent.futures.thread", "docker", "humanize", "pydantic", "pytest",
    "rich.console", "rich.table", "sqlite3", "tenacity", "typer", "typer.testing", "yaml",
)  # fmt: skip


class Prefork:
    """A process that runs tests of a copy of the repository, in one fork after the other."""

    def __init__(self, root: Path, output: Path) -> None:
        """Start the process.

        Args:
            root: The copy, whose modules are imported.
            output: File for the output of the last tests.
        """
        self.output = output
        env = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            # The option -P prevents that modules of this directory hide libraries.
            [sys.executable, "-P", __file__], cwd=root, env=env | {"TEST_PATIENCE": "20"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def run(self, arguments: Sequence[str], timeout: float) -> int | None:
        """Return the exit code of pytest, or `None` if it did not end within `timeout` seconds."""
        request = {"arguments": arguments, "output": str(self.output), "timeout": timeout}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        found: int | None = json.loads(self._process.stdout.readline())
        return found


def answer(arguments: Sequence[str], output: str, timeout: float) -> int | None:
    """Run pytest in a fork, and return its exit code, or `None` after the timeout."""
    child = os.fork()
    if not child:
        _test(arguments, output)
    process = os.pidfd_open(child)
    try:
        ended, _, _ = select.select([process], [], [], timeout)
        with suppress(ProcessLookupError):
            # Processes that the tests started and left are in the same group.
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    finally:
        os.close(process)
    return os.waitstatus_to_exitcode(status) if ended else None


def _test(arguments: Sequence[str], output: str) -> None:
    code = 3
    try:
        os.setpgid(0, 0)
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (file, 1), (file, 2)):
            os.dup2(source, target)
        code = int(importlib.import_module("pytest").main(list(arguments)))
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def main() -> None:
    """Answer each request."""
    for library in _LIBRARIES:
        importlib.import_module(library)
    for line in sys.stdin:
        request = json.loads(line)
        code = answer(request["arguments"], request["output"], request["timeout"])
        sys.stdout.write(f"{json.dumps(code)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
