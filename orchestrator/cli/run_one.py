"""`orchestrator run-one`: one task and one worker, for loops of a shell."""

import inspect
from typing import Any

from orchestrator.cli.commands.parallel import parallel

_OF_SEVERAL = frozenset(
    {
        *("task", "workers", "at_once", "models", "budget_total", "tokens_total"),
        *("stagger", "fail_fast", "fail_on"),
    }
)
"""Options of `parallel` that are about several workers."""
_SIGNATURE = inspect.signature(parallel)


def run_one(**given: Any) -> None:  # noqa: ANN401
    """Run one task in a git worktree and container of its own."""
    others = {name: _SIGNATURE.parameters[name].default for name in _OF_SEVERAL}
    parallel(**{**others, **given, "workers": "1"})


_KEPT = [one for name, one in _SIGNATURE.parameters.items() if name not in _OF_SEVERAL]
run_one.__signature__ = _SIGNATURE.replace(parameters=_KEPT)  # type: ignore[attr-defined]
run_one.__annotations__ = {one.name: one.annotation for one in _KEPT} | {"return": None}
