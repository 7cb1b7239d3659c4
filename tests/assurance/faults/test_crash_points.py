"""Tests of `resume` and `parallel-cleanup` after a kill at every step of a run."""

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.assurance.faults.counter import Tally, tally
from tests.assurance.faults.crash import HURRY
from tests.assurance.faults.points import GIT_POINTS, POINTS
from tests.assurance.faults.world import PlainWorld, World, running
from tests.support.live import eventually

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("broker_image")]
_MANY = 1500
_LONG_NAP = 3.0
_RESUMED = ("after-output",)
"""Points of the first test in `make test`."""
_LEFT = ("after-streams-output",)
"""Points of the last test in `make variants`."""
_CLEANED = ("after-output",)
"""Points of the second test in `make test`."""


@pytest.fixture(scope="module")
def counts() -> Iterator[Tally]:
    with tally() as found:
        yield found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    cleaned = metafunc.function is test_cleanup_after_a_kill_keeps_the_work
    few = _CLEANED if cleaned else _RESUMED
    if metafunc.function is test_nothing_runs_on_after_its_time:
        streams = [name for name, point in POINTS.items() if point.streams]
        metafunc.parametrize("point", streams if metafunc.config.getoption("--faults") else _LEFT)
        return
    chosen = metafunc.config.getoption("--worktrees")
    # Git is stopped while it writes certain files, which other arrangements do not have.
    shared = chosen in ("end", "none")
    cuts = (name for name, cut in GIT_POINTS.items() if not chosen or cut.is_shared == shared)
    metafunc.parametrize(
        "point", (*POINTS, *cuts) if metafunc.config.getoption("--faults") else few
    )


@pytest.fixture
def world(point: str, tmp_path: Path, counts: Tally, pytestconfig: pytest.Config) -> World:
    """Return a repository with a run that was killed at a point."""
    worktrees, mounts = map(pytestconfig.getoption, ("--worktrees", "--mounts"))
    is_usual = mounts == "overlay" and os.getuid() == 0
    return crash_run(point, tmp_path, counts, worktrees, is_usual=is_usual)


def test_resume_after_a_kill_completes_the_run(point: str, world: World) -> None:
    wanted = POINTS[point].outcome if point in POINTS else "whole"
    world.check_readable()
    done = world.orchestrator("resume", "--json", "--quiet")
    if wanted == "whole":
        assert done.returncode == 0, done.stderr
        world.check_whole(done.results)
        if point in POINTS and POINTS[point].stages:
            world.check_stages(once=point.startswith("after-note"))
        world.check_nothing_left()
        again = world.orchestrator("resume", "--json", "--quiet")
        assert (again.returncode, again.results) == (0, done.results), again.stderr
    else:
        assert done.returncode == 3, done.stderr
        assert [world.said("begin", number) for number in (1, 2)] == [0, 0]
    removed = world.orchestrator("parallel-cleanup", "--purge")
    assert removed.returncode == 0, removed.stderr
    world.check_nothing_left()
    world.check_removed()
    assert not list(world.repo.glob(".git/orchestrator/runs/*/*/artifacts"))


def test_cleanup_after_a_kill_keeps_the_work(world: World) -> None:
    check_cleanup(world, then=("resume", "--json", "--quiet"))


@pytest.mark.extra
def test_nothing_runs_on_after_its_time(
    point: str, tmp_path: Path, counts: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a client, what is left is files, until a cleanup collects the work."""
    monkeypatch.setenv(HURRY, "1")
    world = crash_run(point, tmp_path, counts, None, is_usual=os.getuid() == 0)
    eventually(lambda: running(world.repo) == [], "the end of all containers")
    check_cleanup(world)


def check_cleanup(world: World, *, then: Sequence[str] = ()) -> None:
    """Check that a cleanup keeps the work of a killed run, and leaves nothing else.

    Args:
        world: The repository.
        then: A command that must start nothing after the cleanup.
    """
    begun = [number for number in (1, 2) if world.said("begin", number)]
    wrote = [number for number in begun if world.said("wrote", number)]
    done = world.orchestrator("parallel-cleanup")
    assert done.returncode == 0, done.stdout + done.stderr
    world.check_nothing_left()
    world.check_removed()
    if then:
        world.orchestrator(*then)
        world.check_nothing_left()
    assert [world.said("begin", number) for number in begun] == [1] * len(begun)
    restored = world.orchestrator("restore")
    assert restored.returncode == 0 or not wrote, restored.stderr
    for number in wrote:
        # A task may be killed after its last file, but before it reports its end.
        ended = bool(world.said("end", number))
        world.check_files(f"architect/parallel-{number}", ended=ended, at_least=True)


def crash_run(
    point: str, root: Path, counts: Tally, worktrees: str | None, *, is_usual: bool
) -> World:
    """Run a command that is killed at a point.

    Args:
        point: The point.
        root: Directory of the repository.
        counts: Counts the reports of the tasks.
        worktrees: When worktrees are created; None for the time that reaches the point. At other
            times, a run that does not reach the point must end well.
        is_usual: Whether root mounts worktrees as overlays. If not, some points do not exist, such
            as a change of owner, and a run that does not reach the point must end well.
    """
    cut = GIT_POINTS.get(point)
    in_base = cut is not None and cut.many_in_base
    in_work = cut is not None and not cut.many_in_base
    make = PlainWorld if point in POINTS and POINTS[point].plain else World
    world = make(root, counts, files=_MANY * in_base, many=_MANY * in_work)
    private = point not in POINTS or POINTS[point].private
    nap = _LONG_NAP if "output" in point else 0.3
    stages = point in POINTS and POINTS[point].stages
    usual = (GIT_POINTS.get(point) or POINTS[point]).worktrees
    # The broker holds a key that no task uses.
    keys = ("--keys", "broker", "--env", "OPENAI_API_KEY")
    with_broker = point in POINTS and POINTS[point].broker
    rest = ("--worktrees", worktrees or usual, *(keys if with_broker else ()))
    if point in POINTS and POINTS[point].streams:
        rest = (*rest, "--transfer", "streams")
    command = world.parallel(nap=nap, private=private, stages=stages, rest=rest)
    if is_usual and worktrees in (None, usual):
        world.crash(point, command)
    else:
        done = world.crashing(point, *command)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return world
