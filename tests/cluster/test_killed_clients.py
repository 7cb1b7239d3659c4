"""The run's process is killed at each step that leaves something in the cluster, then resumed."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.lab import NAMESPACE, Lab
from tests.cluster.runs import COMMAND, begin, ended, present, running
from tests.support.live import eventually
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
_PLACE = "orchestrator.engine.kubernetes.pod_place:PodPlace"
_STEP = "orchestrator.engine.kubernetes.pod_step:PodStep"
_STATE = "orchestrator.state.worker.checkpoints:Checkpoints"
TARGETS = {
    "put": f"{_PLACE}.put",
    "create": f"{_PLACE}._create",
    "feed": f"{_PLACE}._feed",
    "send": f"{_PLACE}._send",
    "order": f"{_PLACE}._order",
    "launch": f"{_STATE}.note_launch",
    "start": f"{_STEP}.start",
    "following": f"{_PLACE}._order_following",
    "output": "orchestrator.sandbox.supervision.output:WorkerLog.write",
    "end": f"{_STEP}._end",
    "ending": f"{_STATE}.note_ending",
    "forget": f"{_STEP}.remove",
    "take": f"{_PLACE}.take",
    "accept": "orchestrator.repository.incoming.quarantine:accept_pack",
    "harvested": f"{_STATE}.note_harvested",
    "branch": "orchestrator.repository.repository:Repository.move_branch",
    "release": f"{_PLACE}.release",
    "removal": f"{_PLACE}.remove",
    "result": "orchestrator.state.run_directory:RunDirectory.write_result",
}
POINTS = [f"{when}-{name}" for name in TARGETS for when in ("before", "after")]
TASK = "echo up; echo x >> ran; sleep 4; exit 3"


def pods_made(lab: Lab, run_id: str) -> int:
    """Return how many pods the cluster made for a run's workers."""
    found = json.loads(lab.kubectl("get", "events", "-n", NAMESPACE, "-o", "json"))["items"]
    made = [event for event in found if event["reason"] == "SuccessfulCreate"]
    return sum(f"-{run_id}-1" in event["involvedObject"]["name"] for event in made)


LATE = [(point, 90) for point in ("after-create", "before-order", "after-start", "after-take")]


@pytest.mark.variants("after-launch-1")
@pytest.mark.parametrize(("point", "pause"), [*((point, 1) for point in POINTS), *LATE])
def test_killed_run_is_resumed_and_its_task_ran_once(
    lab: Lab, repo: Path, point: str, pause: float
) -> None:
    when, _, name = point.partition("-")
    settings = lab.directory / "kubeconfig-runner"
    words = (sys.executable, "-m", "tests.cluster.dying_run", TARGETS[name], when, "1")
    process = begin(repo, settings, *words, *COMMAND[3:], "--workers", "1", TASK)
    process.communicate(timeout=200)
    assert process.returncode == -signal.SIGKILL
    time.sleep(pause)
    resumed = begin(repo, settings, sys.executable, "-m", "orchestrator", "resume", "--json")
    result = ended(resumed)
    assert (result["status"], result["exit_code"], result["attempts"]) == ("failed", 3, 1), result
    assert git(repo, "show", f"{result['branch']}:ran") == "x"
    (run,) = (repo / ".git/orchestrator/runs").iterdir()
    assert pods_made(lab, run.name) == 1
    assert present(lab, repo, "jobs") == []


def test_run_that_is_never_resumed_leaves_nothing(lab: Lab, repo: Path) -> None:
    """The pod packs its work and waits, and then the cluster removes it."""
    settings = lab.directory / "kubeconfig-runner"
    module = "tests.cluster.hasty_run"
    words = (sys.executable, "-m", module, "5", "10", *COMMAND[3:])
    process = begin(repo, settings, *words, "--workers", "1", "--timeout-per-worker", "10", TASK)
    running(lab, repo)
    process.kill()
    process.communicate()
    kinds = "all,secrets,configmaps,pvc"

    def left() -> str:
        time.sleep(1)
        wanted = "orchestrator.managed=true,orchestrator.role=worker"
        names = lab.kubectl("get", kinds, "-n", NAMESPACE, "-l", wanted, "-o", "json")
        found = json.loads(names)["items"]
        paths = [str(thing["metadata"].get("annotations")) for thing in found]
        return "".join(path for path in paths if str(repo) in path)

    eventually(lambda: not left(), "the end of the Job")
