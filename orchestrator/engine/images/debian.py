"""Build a root file system from Debian packages with mmdebstrap, in place of a registry's image."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from orchestrator.base.errors import ImageBuildError
from orchestrator.base.text.sanitize import output_line
from orchestrator.base.text.split_lines import lines_of_output

SUITE = "trixie"
_TIMEOUT = 900.0
_GRACE = 10.0
_LAST_LINES = 15
_HINT = (
    "`apt-get install mmdebstrap`, or use your own image: `orchestrator image build --base IMAGE`"
)
# Files that containers do not need. debian:trixie-slim omits the same paths.
_WITHOUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*")


def bootstrap(tarball: Path, packages: Sequence[str], *, timeout: float = _TIMEOUT) -> None:
    """Write a minimal Debian root file system with `packages` to `tarball`.

    Raises:
        ImageBuildError: mmdebstrap is missing, failed, or took longer than `timeout` seconds.
    """
    program = shutil.which("mmdebstrap")
    if program is None:
        raise ImageBuildError(
            "cannot bootstrap an image: `mmdebstrap` is missing",
            key="mmdebstrap.missing",
            hint=_HINT,
        )
    with tempfile.TemporaryFile() as log:
        code = _run([program, *_arguments(tarball, packages)], log=log, timeout=timeout)
        if code != 0:
            how = (
                f"did not finish within {timeout:.0f} s"
                if code is None
                else f"ended with exit code {code}"
            )
            raise ImageBuildError(
                f"cannot bootstrap an image: `mmdebstrap` {how}\n{_tail(log)}",
                key="mmdebstrap.failed",
                hint=_HINT,
            )


def _arguments(tarball: Path, packages: Sequence[str]) -> list[str]:
    return [
        # Users other than root need a user namespace to unpack files that belong to root.
        f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
        "--variant=minbase",
        f"--include={','.join(packages)}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in _WITHOUT),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        # mmdebstrap copies these two files from the host.
        '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
        SUITE,
        str(tarball),
    ]


def _run(command: list[str], *, log: IO[bytes], timeout: float) -> int | None:
    """Run a command, and return its exit code; None if it was killed after the timeout."""
    # A new session, so that one signal ends the command and all its children.
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    # On SIGTERM mmdebstrap unmounts its file systems.
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    lines = lines_of_output(log.read().decode(errors="replace"))
    return "\n".join(f"  {output_line(line)}" for line in lines[-_LAST_LINES:])
