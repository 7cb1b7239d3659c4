"""Variants of a test: `make test` runs the variants that a mark names, `make test-all` every one.

A test that is repeated for each arrangement of a worktree, or for each step of an operation, has
the mark `variants` with patterns of the parameters that are enough to find a broken change. The
other combinations are run by `make variants`, and by naming a test with its parameters.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase

import pytest

OPTION = "--every-variant"


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove the variants from `items` that only `make variants` runs.

    Raises:
        pytest.UsageError: The patterns of a mark match no variant of a test.
    """
    if config.getoption(OPTION) or any("[" in name for name in config.args):
        return
    kept = [item for item in items if _is_kept(item)]
    _check(items, kept)
    config.hook.pytest_deselected(items=[item for item in items if not _is_kept(item)])
    items[:] = kept


def _is_kept(item: pytest.Item) -> bool:
    mark, call = item.get_closest_marker("variants"), getattr(item, "callspec", None)
    if mark is None or call is None:
        return True
    return any(fnmatchcase(call.id, pattern) for pattern in mark.args)


def _check(items: Iterable[pytest.Item], kept: Iterable[pytest.Item]) -> None:
    lost = {_function(item) for item in items} - {_function(item) for item in kept}
    if lost:
        raise pytest.UsageError(f"the mark `variants` leaves no variant of {sorted(lost)[0]}")


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]
