"""The same attacks on what people do without an orchestrator: `docker run -v`, as root."""

import subprocess
import tempfile
import time
from pathlib import Path

import docker
import docker.errors

from tests.attacks.attack import Attack
from tests.attacks.caller import Caller
from tests.attacks.campaign import (
    Observation,
    looked_at,
    next_steps,
    set_trap,
    variables,
)
from tests.attacks.target import Target, make_target

IMAGE = "orchestrator/base:latest"
# Not a limit of Docker's: what keeps this machine alive while it is measured.
_SURVIVAL = ("--memory", "1g", "--memory-swap", "1g", "--pids-limit", "2000", "--network", "none")


def attack_plain(caller: Caller, place: Path, attack: Attack) -> Observation:
    """Run one attack in a container that has the repository mounted, then use git as ever."""
    target = make_target(caller, place, attack.repository)
    for number in (1, 2):
        branch = f"architect/parallel-{number}"
        target.git("worktree", "add", "-q", "-b", branch, str(target.worktree(number)), "main")
    target.remember()
    marks = place.parent / f"{place.name}-marks"
    marks.mkdir()
    trap = set_trap(marks, attack)
    before = looked_at(trap)
    observation = Observation(attack)
    output = _run(target, attack.task(variables(target, marks, attack)), observation)
    # What moves on its own branch is its own affair.
    target.refs.pop("refs/heads/architect/parallel-1", None)
    observation.harms += _afterwards(target, attack, output)
    if (marks / attack.name).exists():
        observation.harms.append("code of the task ran on the host")
    if looked_at(trap) != before:
        observation.harms.append("something on the host followed a link of the task's")
    subprocess.run(["rm", "-rf", str(place)], check=False)
    return observation


def _run(target: Target, task: str, observation: Observation) -> str:
    name = f"attack-plain-{time.monotonic_ns()}"
    command = [
        "docker", "run", "--rm", "--name", name, "--label", "orchestrator.managed=true", *_SURVIVAL,
        "-v", f"{target.path}:{target.path}", "-w", str(target.worktree(1)),
        "-e", "ORCHESTRATOR_WORKER_ID=1", IMAGE, "sh", "-c", "--", task,
    ]  # fmt: skip
    with tempfile.TemporaryFile() as output:
        try:
            subprocess.run(command, stdout=output, stderr=output, timeout=40, check=False)
        except subprocess.TimeoutExpired:
            observation.harms.append("it never ends")
        finally:
            _remove(name)
        output.seek(0)
        return output.read(50 << 20).decode(errors="replace")


def _remove(name: str) -> None:
    client = docker.APIClient(version="auto")
    try:
        client.remove_container(name, force=True)
    except docker.errors.NotFound:
        return
    finally:
        client.close()


def _afterwards(target: Target, attack: Attack, output: str) -> list[str]:
    harms = []
    for look in (
        lambda: target.harms(2),
        lambda: target.worktree_harms(1),
        lambda: attack.broken_rules(output),
        lambda: next_steps(target, 2),
        target.broken_objects,
    ):
        try:
            harms += look()
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            harms.append(f"git is broken: {str(error).splitlines()[-1][:80]}")
    return harms
