"""Tests of several orchestrator processes that start in one repository at the same time."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.assurance.faults.counter import Tally, tally
from tests.assurance.faults.world import World
from tests.support.cli import start
from tests.support.repository import git

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def counts() -> Iterator[Tally]:
    with tally() as found:
        yield found


def run_together(world: World, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Run commands that start at the same time; return their exit codes, stdout and stderr."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = [start(*one, cwd=world.repo, env=world.environ(), **pipes) for one in commands]
    ended = []
    for process in running:
        stdout, stderr = process.communicate(timeout=500)
        ended.append((process.returncode, stdout.decode(), stderr.decode()))
    return ended


@pytest.mark.parametrize("runs", [2, 4])
def test_runs_that_start_together_have_distinct_resources(
    runs: int, tmp_path: Path, counts: Tally
) -> None:
    world = World(tmp_path, counts)
    ended = run_together(world, *[world.parallel(rest=("--ports", "3000"))] * runs)
    assert [code for code, _, _ in ended] == [0] * runs, [said for _, _, said in ended]
    results = {one["worker_id"]: one for _, said, _ in ended for one in json.loads(said)["results"]}
    world.check_whole(results, workers=2 * runs)
    assert len({one["branch"] for one in results.values()}) == 2 * runs
    assert len({one["worktree_path"] for one in results.values()}) == 2 * runs
    assert len({port for one in results.values() for port in one["ports"].values()}) == 2 * runs
    world.check_nothing_left()


def test_only_one_of_two_processes_resumes_a_run(tmp_path: Path, counts: Tally) -> None:
    world = World(tmp_path, counts)
    world.crash("after-output", world.parallel(nap=4.0))
    ended = run_together(world, *[["resume", "--json", "--quiet"]] * 2)
    (_, said, _), (_, _, refused) = sorted(ended)
    assert sorted(code for code, _, _ in ended) == [0, 3], ended
    assert "is in progress in process" in refused
    world.check_whole({one["worker_id"]: one for one in json.loads(said)["results"]})
    world.check_nothing_left()
    refs = git(world.repo, "for-each-ref", "--format=%(refname)", "refs/orchestrator").splitlines()
    assert [ref for ref in refs if "/kept/" not in ref] == []


def test_run_resumed_during_its_cleanup_loses_no_work(tmp_path: Path, counts: Tally) -> None:
    world = World(tmp_path, counts)
    world.crash("after-output", world.parallel(nap=4.0))
    run_together(world, ["resume", "--json", "--quiet"], ["parallel-cleanup"])
    world.check_nothing_left()
    world.orchestrator("resume", "--json", "--quiet")
    begun = [world.said("begin", number) for number in (1, 2)]
    # One worker had printed something when the run was killed; the cleanup may have removed
    # the other worker before its task began.
    assert begun in ([1, 1], [1, 0], [0, 1])
    done = world.orchestrator("parallel-cleanup")
    assert done.returncode == 0, done.stderr
    world.check_nothing_left()
    for number, times in zip((1, 2), begun, strict=True):
        if times:
            world.check_backup(number, lossy=False)
