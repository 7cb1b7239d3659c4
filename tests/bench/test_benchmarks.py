"""Every benchmark runs, with the smallest possible sizes; its figures are not looked at."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = [pytest.mark.docker, pytest.mark.extra]


def tables(tmp_path: Path, name: str, *options: str) -> dict[str, list[list[str]]]:
    """Run a benchmark, and return the rows of its tables by their titles, without the heads."""
    done = subprocess.run(
        [sys.executable, str(HERE / name), *options],
        capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {}
    for title, table in re.findall(r"^### (.*)\n\n((?:\|.*\n)+)", done.stdout, re.MULTILINE):
        lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
        found[title] = [lines[0], *lines[2:]]
    return found


def test_history(tmp_path: Path) -> None:
    sizes = ("--commits", "3", "--files", "7", "--workers", "2", "--rounds", "1")
    found = tables(tmp_path, "bench_history.py", *sizes)
    shapes = found["3 commits, 7 files, network none"]
    assert [row[0] for row in shapes[1:]] == ["first run", "again", "one commit on", "2 workers"]
    assert all(float(row[4]) > 0 for row in shapes[1:])
    assert [row[0] for row in found["Disk space of the shared past"][1:]] == ["1", "2"]
    assert list(tmp_path.iterdir()) == []


def test_turns(tmp_path: Path) -> None:
    found = tables(tmp_path, "bench_turns.py", "--networks", "none", "--rounds", "1")
    ((_, row),) = found.values()
    assert row[0] == "none"
    assert all(float(value) > 0 for value in row[1:])
    assert list(tmp_path.iterdir()) == []


def test_transfer(tmp_path: Path) -> None:
    sizes = ("--workers", "2", "--files", "3", "--size", "100", "--rounds", "1")
    found = tables(tmp_path, "bench_transfer.py", *sizes)
    assert all(float(row[1]) > 0 for row in found["Streams and mounts"][1:])
    calls = [row[1] for row in found["Calls of a worker's place with streams"][1:]]
    assert "files: put" in calls
    assert list(tmp_path.iterdir()) == []


def test_tasks(tmp_path: Path) -> None:
    sizes = ("--tasks", "2", "--at-once", "2", "--starts", "2", "--networks", "none")
    found = tables(tmp_path, "bench_tasks.py", *sizes, "--rounds", "1")
    (row,) = found["2 tasks, 2 at once, no worktrees"][1:]
    assert row[0] == "none"
    starts = found["Time to the first command, 2 starts"][1:]
    assert [row[0] for row in starts] == [
        f"none, {slots} at once, {way}"
        for slots in (1, 2)
        for way in ("docker run", "orchestrator")
    ]
    assert all(0 < float(row[1]) <= float(row[2]) <= float(row[3]) for row in starts)
    assert list(tmp_path.iterdir()) == []
