"""Tests that a queue with an agent for conflicts, killed at any step, is continued by the next."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.assurance.faults.counter import Tally, tally
from tests.assurance.faults.points import LANDING_POINTS
from tests.assurance.faults.world import World, in_engine
from tests.support.repository import git

pytestmark = [pytest.mark.docker, pytest.mark.extra]

RESOLVE = """bash -eu <<'T'
exec 3<>/dev/tcp/host.docker.internal/PORT
echo "resolve RUN/1" >&3; read -r -u 3 counted; exec 3>&-
echo resolving
sed -i '/^[<=>]\\{7\\}/d' a.txt
sleep 0.3
T
"""


@pytest.fixture(scope="module")
def counts() -> Iterator[Tally]:
    with tally() as found:
        yield found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Generate a test of one point in `make variants`, and of every point in `make faults`."""
    every = metafunc.config.getoption("--faults")
    metafunc.parametrize("point", LANDING_POINTS if every else ["after-land-agent-output"])


def test_killed_queue_is_continued_by_the_next(point: str, tmp_path: Path, counts: Tally) -> None:
    """The target is never between two commits, and the agent resolves the conflict once."""
    world = World(tmp_path, counts)
    shell = ("--agent-cli", "shell")
    tasks = ("echo one > a.txt", "echo two > a.txt", "echo three > three")
    words = [word for task in tasks for word in ("--task", task)]
    begun = world.orchestrator("parallel", *shell, "--network", "none", "--quiet", *words)
    assert begun.returncode == 0, begun.stderr
    before = git(world.repo, "rev-parse", "main")
    task = RESOLVE.replace("PORT", str(counts.port)).replace("RUN/", f"{tmp_path.name}/")
    queue = [
        "merge", "--queue", "--check", "test -e a.txt", "--on-conflict", "agent", *shell,
        "--resolver-task", task, "--allow", f"host.docker.internal:{counts.port}", "--json",
    ]  # fmt: skip

    crashed = world.crashing(point, *queue)

    assert crashed.returncode == -signal.SIGKILL, f"{point}: {crashed.stdout}\n{crashed.stderr}"
    at = git(world.repo, "rev-parse", "main")
    done = world.orchestrator(*queue)
    assert done.returncode == 0, done.stderr
    after = git(world.repo, "rev-parse", "main")
    assert at in (before, after)
    if at == before:
        assert (done.json["landed"], done.json["after"]) == ([1, 3, 2], after)
    assert git(world.repo, "show", "main:a.txt").split() == ["one", "two"]
    assert git(world.repo, "status", "--porcelain", "--untracked-files=no") == ""
    assert world.said("resolve", 1) == 1, counts
    undone = world.orchestrator("merge", "--undo")
    assert undone.returncode == 0, undone.stderr
    assert git(world.repo, "rev-parse", "main") == before
    removed = world.orchestrator("parallel-cleanup", "--purge")
    assert removed.returncode == 0, removed.stderr
    assert in_engine(world.repo) == []
    assert git(world.repo, "fsck", "--strict", "--no-dangling") == ""
    assert git(world.repo, "status", "--porcelain", "--untracked-files=no") == ""
