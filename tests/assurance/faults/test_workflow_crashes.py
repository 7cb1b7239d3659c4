"""Tests that a resumed workflow runs each task once, with the results it depends on."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.assurance.faults.counter import Tally, tally
from tests.assurance.faults.points import FLOW_POINTS
from tests.assurance.faults.world import World
from tests.support.repository import git

pytestmark = [pytest.mark.docker, pytest.mark.extra]

TASK = """bash -eu <<'T'
say() {
  exec 3<>/dev/tcp/host.docker.internal/PORT
  echo "$1 RUN/$ORCHESTRATOR_WORKER_ID" >&3
  read -r -u 3 counted; exec 3>&-
}
say begin
ls > saw-$ORCHESTRATOR_TASK_ID.txt
sleep 0.3
say end
T
"""
NEEDS = {
    "one": [], "two": ["one"], "three": ["one"], "four": ["two", "three"], "five": ["four"],
}  # fmt: skip
BEFORE = {
    "one": set(),
    "two": {"one"},
    "three": {"one"},
    "four": {"one", "two", "three"},
    "five": {"one", "two", "three", "four"},
}


@pytest.fixture(scope="module")
def counts() -> Iterator[Tally]:
    with tally() as found:
        yield found


def manifest(root: Path, counts: Tally) -> Path:
    text = TASK.replace("PORT", str(counts.port)).replace("RUN/", f"{root.name}/")
    tasks = [{"id": name, "task": text, "depends_on": needs} for name, needs in NEEDS.items()]
    tasks[3]["reduce"] = ["two", "three"]
    path = root / "flow.json"
    path.write_text(json.dumps({"name": "flow", "tasks": tasks}))
    return path


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Generate a test of one point in `make variants`, and of every point in `make faults`."""
    every = metafunc.config.getoption("--faults")
    metafunc.parametrize("point", FLOW_POINTS if every else ["after-flow-start"])


def test_resumed_workflow_runs_each_task_once(point: str, tmp_path: Path, counts: Tally) -> None:
    world = World(tmp_path, counts)
    crashed = world.crashing(
        point, "spec", "run", str(manifest(tmp_path, counts)), "--agent-cli", "shell", "--json",
        "--quiet", "--allow", f"host.docker.internal:{counts.port}",
    )  # fmt: skip
    assert crashed.returncode == -signal.SIGKILL, crashed.stderr
    done = world.orchestrator("resume", "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    results = {one["name"]: one for one in done.json["results"]}
    assert results.keys() == NEEDS.keys()
    for number, (name, result) in enumerate(results.items(), start=1):
        assert (world.said("begin", number), world.said("end", number)) == (1, 1), counts
        assert (result["status"], result["files_modified"]) == ("success", [f"saw-{name}.txt"])
        saw = git(world.repo, "show", f"{result['branch']}:saw-{name}.txt").split()
        seen = {entry[4:-4] for entry in saw if entry.startswith("saw-")}
        assert seen - {name} == BEFORE[name]
    world.check_nothing_left()
