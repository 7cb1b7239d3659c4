"""Show long output in the user's pager, as git does."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress

from orchestrator.faces.cli.output.ci import guard
from orchestrator.faces.cli.output.messages import put

_NO_PAGER = ("", "cat")
_LESS = {"LESS": "FRX", "LV": "-c"}
"""What git sets too: less ends at once if everything fits on the screen, and shows colours."""


def show_paged(texts: Iterable[str], *, is_allowed: bool) -> None:
    """Print texts through the pager that git would use, or without one.

    The texts must be safe for a terminal, because a pager passes colours on.

    Args:
        texts: The texts, which are read only as far as the user reads them.
        is_allowed: Whether a pager may start; it never does if stdout is no terminal.
    """
    command = pager_of(os.environ) if is_allowed and sys.stdout.isatty() else None
    if command is None:
        for text in texts:
            put(text, sys.stdout)
        return
    # As git does, by the shell: the user's variable may contain arguments and quotes.
    pager = subprocess.Popen(  # noqa: S602 - a program that the user configured
        command, shell=True, stdin=subprocess.PIPE, env={**_LESS, **os.environ}
    )
    try:
        assert pager.stdin is not None  # noqa: S101
        with pager.stdin as pipe:
            for text in texts:
                line = guard(text, os.environ, terminal=True) + "\n"
                pipe.write(line.encode("utf-8", "replace"))
    except BrokenPipeError:
        pass  # the user has read enough
    finally:
        while pager.returncode is None:
            # The pager, which also receives an interrupt, decides whether it ends.
            with suppress(KeyboardInterrupt):
                pager.wait()


def pager_of(environ: Mapping[str, str]) -> str | None:
    """Return the command of the user's pager; None if there is none."""
    found = (environ[name] for name in ("GIT_PAGER", "PAGER") if name in environ)
    command = next(found, "less").strip()
    if command in _NO_PAGER or environ.get("TERM") == "dumb":
        return None
    try:
        program = next((word for word in shlex.split(command) if "=" not in word), "")
    except ValueError:
        return command
    return command if shutil.which(program) else None
