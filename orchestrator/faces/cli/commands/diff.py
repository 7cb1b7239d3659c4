"""`orchestrator diff`: print the changes of workers."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.quantities import count
from orchestrator.base.text.sanitize import lines, one_line
from orchestrator.faces.cli.landing_arguments import AllByDefault, run_and_workers
from orchestrator.faces.cli.output.ci import guard, is_job_log
from orchestrator.faces.cli.output.formats import name_of, table, terminal_width
from orchestrator.faces.cli.output.messages import put, tell
from orchestrator.faces.cli.output.streams import end_with_reader
from orchestrator.repository.commits.changes import patch_stream, stat_lines
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch, read_branches

_PIECE = 64 * 1024
"""Maximum number of bytes of a patch that are held in memory; longer lines are printed in parts."""
_COLOURS: Mapping[str, Mapping[str, Any]] = {
    "+++ ": {"bold": True}, "--- ": {"bold": True}, "diff --git ": {"bold": True},
    "@@ ": {"fg": "cyan"}, "+": {"fg": "green"}, "-": {"fg": "red"},
}  # fmt: skip
"""Styles of the lines of a patch on a terminal, by how a line starts."""
_ROWS = 1000
"""Maximum number of files of a worker that `--stat` lists."""


def diff(
    words: AllByDefault = None,
    stat: Annotated[
        bool,
        typer.Option(
            "--stat", help="Print the number of changed lines of each file instead of the patch."
        ),
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print only patches, without a line for each worker.")
    ] = False,
) -> None:
    """Show what workers changed since they started, as a patch.

    In a file or pipe, the patch is what `git apply` needs, byte for byte. On a terminal and in the
    log of a CI job, control sequences and commands for CI systems are made harmless.
    """
    wanted, numbers = run_and_workers(words)
    is_log = is_job_log(sys.stdout, os.environ)
    _check_raw(raw=raw, stat=stat, is_log=is_log)
    repository = Repository(Path.cwd())
    branches = read_branches(repository, wanted, numbers).branches
    end_with_reader()
    # protection: unchanged-patch-is-not-printed-in-ci-jobs
    is_exact = not (stat or is_log or sys.stdout.isatty())
    is_coloured = sys.stdout.isatty() and not is_log and "NO_COLOR" not in os.environ

    def texts() -> Iterator[str]:
        for branch in branches:
            if branch.status is None:
                tell(f"worker {branch.worker_id} {branch.sentence}: only its commits are shown")
            elif branch.is_empty:
                tell(f"worker {branch.worker_id} {branch.sentence}; it committed nothing")
            if len(branches) > 1 and not raw:
                yield f"{name_of(branch.worker_id, branch.title)}: {one_line(branch.task)}"
            if stat:
                yield _stat(repository, branch)
            elif is_exact:
                # Byte for byte: no text, so no pager shows it.
                base, tip = branch.base, branch.commit
                with patch_stream(repository, base=base, tip=tip, is_whole=True) as output:
                    shutil.copyfileobj(output, sys.stdout.buffer)
                    sys.stdout.flush()
            else:
                yield from _patch(repository, branch, is_coloured=is_coloured)

    show_paged(texts(), is_allowed=not is_log)
    if is_log and not stat:
        tell("the patch was changed for the job's log; `diff N > FILE` writes it unchanged")


def _check_raw(*, raw: bool, stat: bool, is_log: bool) -> None:
    if raw and stat:
        raise ConfigError("`--raw` cannot be used with `--stat`", key="option.conflict")
    # protection: raw-is-refused-in-ci-jobs
    if raw and is_log:
        raise ConfigError(
            "`--raw` is refused in the log of a CI job: the patch may contain commands for the CI "
            "system",
            key="output.unsafe",
            hint="write the patch to a file: `orchestrator diff N --raw > FILE`",
        )


def _patch(repository: Repository, branch: Branch, *, is_coloured: bool) -> Iterator[str]:
    base, tip = branch.base, branch.commit
    with patch_stream(repository, base=base, tip=tip, is_whole=False) as output:
        for piece in _pieces(output):
            # protection: printed-patch-is-sanitised
            text = lines(piece.decode("utf-8", "replace")).removesuffix("\n")
            yield "\n".join(map(_colour, text.split("\n"))) if is_coloured else text


def _colour(line: str) -> str:
    colour = next((colour for start, colour in _COLOURS.items() if line.startswith(start)), None)
    return line if colour is None else typer.style(line, **colour)


def _pieces(output: IO[bytes]) -> Iterator[bytes]:
    """Yield pieces of a patch that each consist of whole lines."""
    rest = b""
    while piece := output.read(_PIECE):
        whole, end, rest = (rest + piece).rpartition(b"\n")
        if end:
            yield whole
        elif rest:
            yield rest
            rest = b""
    if rest:
        yield rest


def _stat(repository: Repository, branch: Branch) -> str:
    rows = [("FILE", "ADDED", "REMOVED")]
    more = 0
    for added, gone, path in stat_lines(repository, base=branch.base, tip=branch.commit):
        if len(rows) > _ROWS:
            more += 1
        else:
            rows.append((one_line(path), f"+{added}", f"-{gone}"))
    rest = f"\nand {count(more, 'more file')}" if more else ""
    return table(rows, width=terminal_width(), shrink=0) + rest


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
