"""Tests that an unfinished run of an earlier version is resumed and cleaned up."""

from pathlib import Path

import pytest

from tests.support.cli import orchestrator
from tests.support.old_state import restore_old_state
from tests.support.repository import git
from tests.support.runs import show

pytestmark = pytest.mark.docker


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return restore_old_state("2887ec5", tmp_path / "shop")


@pytest.mark.extra
def test_recorded_killed_run_is_resumed_retried_cleaned_up_and_restored(shop: Path) -> None:
    before = git(shop, "rev-parse", "architect/parallel-7")
    resumed = orchestrator("resume", "--json", cwd=shop)

    found = {one: (result["status"], result["reason"]) for one, result in resumed.results.items()}
    assert found == {7: ("success", None), 8: ("failed", "engine_error"), 9: ("success", None)}
    # The container of worker 8 is gone, but its earlier work is harvested.
    assert "container is gone" in resumed.results[8]["message"]
    assert show(shop, "architect/parallel-8:two.txt") == "two"
    assert show(shop, "architect/parallel-9:three.txt") == "three"
    # A worker that ended before the kill is not repeated.
    assert resumed.results[7]["commit"] == before

    retried = orchestrator("retry", "7", "--json", cwd=shop)
    assert retried.results[10]["status"] == "success", retried.stderr

    cleaned = orchestrator("parallel-cleanup", cwd=shop)
    assert cleaned.returncode == 0, cleaned.stderr
    assert git(shop, "branch", "--list", "architect/*") == ""
    assert orchestrator("restore", "8", cwd=shop).returncode == 0
    assert (shop / ".architect-parallel-8" / "two.txt").read_text() == "two\n"
