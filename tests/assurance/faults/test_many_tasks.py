"""Tests that memory and threads do not grow with the number of completed tasks."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cli import orchestrator, start
from tests.support.repository import git, make_repository

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]
_MIB = 1024**2


def measured(pid: int) -> tuple[int, int] | None:
    """Return the resident bytes and the threads of a process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    found = dict(line.split(":", 1) for line in lines)
    if "VmRSS" not in found:
        return None
    return int(found["VmRSS"].split()[0]) * 1024, int(found["Threads"])


def test_memory_and_threads_do_not_grow_with_completed_tasks(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    tasks, workers = 100, 10
    repo = make_repository(tmp_path / "repo")
    said = tmp_path / "said"
    with said.open("wb") as stdout:
        process = start(
            "parallel", "--agent-cli", "shell", "--network", "none", "--workers", str(workers),
            "--json", "--quiet", *(f"--task=echo {i} > f{i}" for i in range(tasks)), cwd=repo,
            env={"ORCHESTRATOR_MAX_WORKTREES": str(tasks)}, stdout=stdout,
        )  # fmt: skip
    runs = repo / ".git" / "orchestrator" / "runs"
    samples: list[tuple[int, int, int]] = []
    while process.poll() is None:
        done = len(list(runs.glob("*/worker-*/result.json")))
        if now := measured(process.pid):
            samples.append((done, *now))
        time.sleep(0.1)
    assert process.returncode == 0
    results = json.loads(said.read_text())["results"]
    assert [one["status"] for one in results] == ["success"] * tasks
    assert git(repo, "show", f"architect/parallel-{tasks}:f{tasks - 1}") == str(tasks - 1)
    early = [one for one in samples if workers <= one[0] < tasks // 2]
    late = [one for one in samples if tasks // 2 <= one[0]]
    memory = [max(memory for _, memory, _ in part) for part in (early, late)]
    threads = [max(threads for _, _, threads in part) for part in (early, late)]
    record_property("memory", f"{memory[0] / _MIB:.1f} MiB, then {memory[1] / _MIB:.1f} MiB")
    record_property("threads", f"{threads[0]}, then {threads[1]}")
    assert memory[1] < memory[0] + 4 * _MIB + tasks * 32 * 1024, memory
    # Each worker briefly has an additional thread, which either half of the samples may include.
    assert threads[1] <= threads[0] + workers, threads
    assert orchestrator("parallel-cleanup", "--purge", cwd=repo).returncode == 0
