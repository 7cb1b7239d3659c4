"""`orchestrator diff`: print the changes of workers."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated

import typer

from orchestrator.cli.landing_arguments import AllByDefault, run_and_workers
from orchestrator.cli.output.ci import in_ci
from orchestrator.cli.output.formats import called, table, terminal_width
from orchestrator.cli.output.messages import put, show
from orchestrator.errors import ConfigError
from orchestrator.git.changes import patch_stream, stat_lines
from orchestrator.git.repository import Repository
from orchestrator.landing.branches import Branch, read_branches
from orchestrator.text.quantities import count
from orchestrator.text.sanitize import lines, one_line

_PIECE = 64 * 1024
"""Maximum number of bytes of a patch that are held in memory; longer lines are printed in parts."""
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
        bool,
        typer.Option("--raw", help="Print control characters too, unless stdout is a terminal."),
    ] = False,
) -> None:
    """Show what workers changed since they started, as a patch.

    Terminal control sequences and commands for CI systems in the patch are made harmless.
    """
    wanted, numbers = run_and_workers(words)
    _check_raw(raw=raw, stat=stat)
    repository = Repository(Path.cwd())
    branches = read_branches(repository, wanted, numbers).branches
    for branch in branches:
        if len(branches) > 1 and not raw:
            show(f"{called(branch.worker_id, branch.title)}: {one_line(branch.task)}")
        if stat:
            show(_stat(repository, branch))
        else:
            _show_patch(repository, branch, raw=raw and not sys.stdout.isatty())


def _check_raw(*, raw: bool, stat: bool) -> None:
    if raw and stat:
        raise ConfigError("`--raw` cannot be used with `--stat`")
    if raw and in_ci(os.environ):
        raise ConfigError(
            "`--raw` is refused in a CI job: the patch may contain commands for the CI system",
            hint="write the patch to a file with `git diff --output FILE BASE BRANCH`",
        )


def _show_patch(repository: Repository, branch: Branch, *, raw: bool) -> None:
    with patch_stream(repository, base=branch.base, tip=branch.commit) as output:
        if raw:
            shutil.copyfileobj(output, sys.stdout.buffer)
            return
        for piece in _pieces(output):
            put(lines(piece.decode("utf-8", "replace")).removesuffix("\n"), sys.stdout)


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
