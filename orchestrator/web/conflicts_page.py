"""The page with the conflicts between the branches of a run."""

from collections.abc import Mapping
from functools import lru_cache

from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.git.repository import Repository
from orchestrator.landing.branches import Branch, read_branches
from orchestrator.landing.conflict_matrix import Conflicts, Pair, find_conflicts
from orchestrator.text.quantities import count
from orchestrator.text.sanitize import one_line
from orchestrator.web.rendering import Page
from orchestrator.web.view import View, run_values

MOST_COMPARED = 40
"""Maximum number of workers that the page compares with each other."""
_FILES = 8


def conflicts_page(view: View) -> Page:
    """Return the page that shows which branches of a run can be merged with each other."""
    values = run_values(view, tab="conflicts") | {
        "problem": "", "names": {}, "columns": (), "matrix": (), "pairs": (),
        "conflicting": 0, "head": "",
    }  # fmt: skip
    try:
        found = _conflicts(view)
    except OrchestratorError as error:
        return view.page("conflicts.html", values | {"problem": one_line(str(error), limit=500)})
    if found is not None and found.workers:
        values |= _matrix(found)
    return view.page("conflicts.html", values)


def _conflicts(view: View) -> Conflicts | None:
    ended = [worker.spec.worker_id for worker in view.snapshot.workers if worker.result]
    if not ended:
        return None
    repository = view.repository
    run_id = view.snapshot.run_id
    branches = [
        branch for branch in read_branches(repository, run_id).branches if not branch.is_empty
    ]
    ready = tuple(branch for branch in branches if branch.worker_id in ended)
    if len(ready) > MOST_COMPARED:
        raise ConfigError(
            f"{len(ready)} workers committed something: the page compares at most {MOST_COMPARED}",
            hint=f"compare the workers in a terminal: `orchestrator conflicts {run_id}`",
        )
    return _compared(repository, ready, run_id, repository.resolve("HEAD"))


@lru_cache(maxsize=8)
def _compared(
    repository: Repository, branches: tuple[Branch, ...], run_id: str, base: str
) -> Conflicts:
    return find_conflicts(repository, branches, run_id=run_id, base=base)


def _matrix(found: Conflicts) -> dict[str, object]:
    names = {0: "Base"} | {
        change.worker_id: _short(change.worker_id, change.name) for change in found.changes
    }
    pairs = {(pair.a, pair.b): pair for pair in found.pairs}
    numbers = list(found.workers)
    rows = [
        {
            "name": names[row],
            "cells": [
                _cell(pairs.get((min(row, column), max(row, column))), row, column)
                for column in numbers
            ],
        }
        for row in (0, *numbers)
    ]
    shown = [pair for pair in found.pairs if pair.files or not pair.is_clean]
    return {
        "names": names,
        "columns": numbers,
        "matrix": rows,
        "pairs": [_overlap(pair, names) for pair in sorted(shown, key=lambda pair: pair.is_clean)],
        "conflicting": len(found.conflicting),
        "head": found.base[:12],
    }


def _short(number: int, name: str | None) -> str:
    return f"{number} {one_line(name, limit=24)}" if name else str(number)


def _cell(pair: Pair | None, row: int, column: int) -> dict[str, str]:
    if row == column or pair is None:
        return {"tone": "none", "word": "", "title": ""}
    if not pair.is_clean:
        return {"tone": "bad", "word": pair.kind, "title": f"conflict ({pair.kind})"}
    if pair.files:
        return {
            "tone": "both",
            "word": "ok",
            "title": f"both changed {count(len(pair.files), 'file')}",
        }
    return {"tone": "good", "word": "ok", "title": "can be merged"}


def _overlap(pair: Pair, names: Mapping[int, str]) -> dict[str, object]:
    what = (
        "changed the same files, and can be merged" if pair.is_clean else f"conflict ({pair.kind})"
    )
    return {
        "tone": "success" if pair.is_clean else "danger",
        "names": f"{names[pair.a]} + {names[pair.b]}",
        "what": what,
        "files": [one_line(path, limit=200) for path in pair.files[:_FILES]],
        "more": max(0, len(pair.files) - _FILES),
    }
