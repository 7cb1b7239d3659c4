"""Tests of SIGINT, SIGTERM and SIGHUP in every phase of a run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.assurance.faults.counter import Tally, tally
from tests.assurance.faults.world import World

pytestmark = pytest.mark.docker
PHASES = {
    "planning": "before-planning",
    "reserved": "after-keep-inputs",
    "worktrees": "before-add-worktree",
    "start": "before-start",
    "running": "after-output",
    "harvest": "before-pack",
    "update": "before-update",
    "clean-up": "before-sweep",
}
CODES = {"SIGINT": 130, "SIGTERM": 143, "SIGHUP": 129}
_IN_SHORT = (("running", ("SIGTERM", "SIGTERM")),)
"""Phase and signals that `make test` tests; `make faults` tests all."""
_WHOLE = {"clean-up", "update", "harvest"}
"""Phases after the end of a worker."""


@pytest.fixture(scope="module")
def counts() -> Iterator[Tally]:
    with tally() as found:
        yield found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" not in metafunc.fixturenames:
        return
    cases = [(phase, (name,)) for phase in PHASES for name in CODES]
    cases += [(phase, ("SIGTERM", "SIGTERM")) for phase in PHASES]
    if not metafunc.config.getoption("--faults"):
        cases = list(_IN_SHORT)
    metafunc.parametrize(("phase", "name"), cases, ids=["-".join([a, *b]) for a, b in cases])


def test_interrupted_run_loses_no_work(
    phase: str, name: tuple[str, ...], tmp_path: Path, counts: Tally
) -> None:
    world = World(tmp_path, counts)
    arguments = world.parallel(nap=20.0 if phase in ("start", "running") else 0.3)
    assert world.interrupt(PHASES[phase], name, arguments) == CODES[name[0]]
    world.check_nothing_left()
    ended = [number for number in (1, 2) if world.said("end", number)]
    assert bool(ended) >= (phase in _WHOLE)
    for number in (1, 2):
        assert world.said("begin", number) <= 1
        for run in world.runs:
            result = run.result(number)
            assert result is not None
            world.check_result(number, result.model_dump(mode="json"), may_fail=True, lossy=False)
    done = world.orchestrator("parallel-cleanup")
    assert done.returncode == 0, done.stderr
    world.check_nothing_left()
    world.check_removed()
