"""Tests of lock files."""

from pathlib import Path

from orchestrator.base.files.lock_file import take_lock


def test_lock_is_held_by_one_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lock"
    first = take_lock(path)
    assert first is not None
    with first:
        assert take_lock(path) is None
    second = take_lock(path)
    assert second is not None
    second.close()
