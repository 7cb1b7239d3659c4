"""`orchestrator conflicts`: show which branches of a run cannot be merged."""

from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.quantities import count
from orchestrator.base.text.sanitize import one_line
from orchestrator.faces.cli.landing_arguments import AllByDefault, run_and_workers
from orchestrator.faces.cli.options import Config, Json
from orchestrator.faces.cli.output.formats import table, terminal_width, title_of
from orchestrator.faces.cli.output.messages import show, show_json, tell
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch, read_branches
from orchestrator.review.landing.conflict_matrix import Conflicts, Pair, find_conflicts

FOUND = 1
_ROWS = 40
"""Maximum number of files in the printed table."""
_FILES = 5
"""Maximum number of files that are named for a pair of branches."""
_BASE = "base"

Check = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="CMD",
        help="Command that must succeed on each pair of branches that merges cleanly; repeatable.",
    ),
]


def conflicts(
    words: AllByDefault = None, check: Check = None, config: Config = None, json: Json = False
) -> None:
    """Show which workers of a run changed the same files, and which cannot be merged.

    Every branch is merged with every other one and with the checked-out commit, as a trial: no file
    and no ref changes. The exit code is 1 if there is a conflict.
    """
    if config is not None and not check:
        raise ConfigError("`--config` requires `--check`", key="option.incomplete")
    wanted, numbers = run_and_workers(words)
    repository = Repository(Path.cwd())
    run = read_branches(repository, wanted, numbers)
    if check:
        # Imported here because nothing else of this command needs the engine and the runs.
        from orchestrator.faces.cli.merging_run import find_tested_conflicts

        found = find_tested_conflicts(repository, run.run_id, numbers, check, config)
    else:
        changed = [branch for branch in run.branches if not branch.is_empty]
        base = repository.resolve("HEAD")
        found = find_conflicts(repository, changed, run_id=run.run_id, base=base)
    if json:
        show_json(dumps(found.model_dump(mode="json"), indent=2))
    else:
        _show(found)
        _tell_others(found, run.branches)
    if found.conflicting:
        raise typer.Exit(FOUND)


def _tell_others(found: Conflicts, branches: Sequence[Branch]) -> None:
    if found.failing:
        alone = ", ".join(map(str, found.failing))
        tell(f"workers whose own commits fail the checks: {alone}")
    unfinished = [
        f"{branch.worker_id} ({branch.state})" for branch in branches if branch.status is None
    ]
    if unfinished:
        tell(f"workers without a result, whose later work is not compared: {', '.join(unfinished)}")
    empty = [
        str(branch.worker_id)
        for branch in branches
        if branch.is_empty and branch.status is not None
    ]
    if empty:
        tell(f"workers that committed nothing: {', '.join(empty)}")


def _show(found: Conflicts) -> None:
    if not found.workers:
        tell(f"no worker of run {found.run_id} has committed anything")
        return
    workers: dict[str, dict[int, str]] = {}
    for change in found.changes:
        for path, letter in change.files.items():
            workers.setdefault(path, {})[change.worker_id] = letter
    order = sorted(workers, key=lambda path: (-len(workers[path]), path))
    names = {change.worker_id: title_of(change.worker_id, change.name) for change in found.changes}
    rows = [("FILE", *names.values())]
    rows += [
        (one_line(path), *(workers[path].get(number, "") for number in names))
        for path in order[:_ROWS]
    ]
    if len(order) > _ROWS:
        rows.append((f"and {count(len(order) - _ROWS, 'more file')}", *("" for _ in names)))
    lines = [table(rows, width=terminal_width(), shrink=0), ""]
    shown = [pair for pair in found.pairs if pair.files or not pair.is_clean]
    if shown:
        rows = [(f"{pair.a or _BASE} + {pair.b}", _result(pair)) for pair in shown]
        lines += [table([("PAIR", "RESULT"), *rows], width=terminal_width()), ""]
    said = count(len(found.conflicting), "conflict") if found.conflicting else "no conflicts"
    lines.append(
        f"{count(len(found.workers), 'worker')}, {count(len(found.pairs), 'pair')}: {said}"
    )
    show("\n".join(lines))


def _result(pair: Pair) -> str:
    if pair.kind == "unknown":
        return "git could not merge the commits within its limits"
    named = ", ".join(one_line(path) for path in pair.files[:_FILES])
    more = f" and {len(pair.files) - _FILES} more" if len(pair.files) > _FILES else ""
    if pair.kind == "semantic":
        both = f"; both changed {named}{more}" if named else ""
        return f"conflict (semantic): the checks fail{both}"
    if pair.is_clean:
        return f"clean; both changed {named}{more}"
    return f"conflict ({pair.kind}): {named}{more}"
