"""Tests of the cleanup after a run of hostile tasks whose orchestrator was killed."""

import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.assurance.attacks.attack import Attack, load
from tests.assurance.attacks.caller import Caller
from tests.assurance.attacks.campaign import (
    LIMITS,
    next_steps,
    set_trap,
    trap_times,
    variables,
)
from tests.assurance.attacks.leftovers import left_in_engine, left_worker_directories
from tests.assurance.attacks.target import HONEST, Target, make_target

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

ATTACKS = (
    "21-dotgit-file", "31-nested-uncommitted", "40-fifos", "45-undeletable", "53-store",
    "100-store-is-a-link", "102-deep-tree", "108-object-fifos", "110-head-links",
    "138-directory-swap",
)  # fmt: skip
READY = "REPORT ready"
DEADLINE = 300.0


@dataclass(frozen=True)
class Killed:
    """A run that was killed while its workers waited, after their attacks."""

    target: Target
    attacks: list[Attack]
    marks: Path
    traps: dict[Path, list[tuple[int, int]]]

    def orchestrator(self, *arguments: str) -> str:
        """Run an orchestrator command that must succeed in time."""
        python = self.target.caller.python
        command = (python, "-m", "orchestrator", *arguments)
        return self.target.caller.run(*command, cwd=self.target.path, timeout=DEADLINE)


def killed_run(caller: Caller) -> Killed:
    """Start a run, wait until all attacks are made, and kill the orchestrator."""
    target = make_target(caller, caller.home / "killed" / "run", "")
    marks = target.path.parent / "marks"
    marks.mkdir()
    attacks = [load(name) for name in ATTACKS]
    traps = [set_trap(marks, attack) for attack in attacks]
    caller.own(marks)
    killed = Killed(target, attacks, marks, {trap: trap_times(trap) for trap in traps})
    tasks = [attack.task(variables(target, marks, attack)) for attack in attacks]
    named = [word for task in tasks for word in ("--task", f"{task}\necho {READY}; sleep 600")]
    command = [
        caller.python, "-m", "orchestrator", "parallel", "--agent-cli", "shell", "--network",
        "none", "--workers", str(len(tasks)), "--timeout-per-worker", "600", *LIMITS, *named,
    ]  # fmt: skip
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with caller.popen(command, target.path, **quiet) as process:
        try:
            _await_ready(target.path / ".git" / "orchestrator" / "runs", len(tasks))
        finally:
            process.send_signal(signal.SIGKILL)
    return killed


def _await_ready(runs: Path, workers: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        logs = [path.read_text(errors="replace") for path in runs.glob("*/worker-*/stdout.log")]
        if sum(READY in log for log in logs) == workers:
            return
        time.sleep(0.1)
    raise AssertionError("the workers did not get ready")


@pytest.mark.parametrize("who", ["root", "user"])
def test_cleanup_after_a_killed_hostile_run_harms_nothing(
    everyone: dict[str, Caller], who: str
) -> None:
    if who not in everyone:
        # Only root can run commands as another user.
        assert set(everyone) == {"user"}
        return
    killed = killed_run(everyone[who])
    target, workers = killed.target, len(ATTACKS)
    assert len(left_in_engine(target)) >= workers

    # Remove one worker while all containers are running.
    one = killed.orchestrator("parallel-cleanup", "1")
    rest = killed.orchestrator("parallel-cleanup")
    restored = killed.orchestrator("restore")

    assert one.count("its work was committed before the removal") == 1
    assert rest.count("its work was committed before the removal") == workers - 1
    assert restored.count("restored worker") == sum(attack.honest for attack in killed.attacks)
    for number, attack in enumerate(killed.attacks, start=1):
        if attack.honest:
            assert (target.worktree(number) / HONEST).read_text() == "honest\n", attack.name
            assert target.worktree_harms(number) == [], attack.name
    harms = [harm for harm in target.harms(workers) if "refs/orchestrator/" not in harm]
    assert [*harms, *next_steps(target, workers), *target.broken_objects()] == []
    assert [str(trap) for trap, was in killed.traps.items() if trap_times(trap) != was] == []
    assert [name for name in ATTACKS if (killed.marks / name).exists()] == []
    _nothing_left(killed)


def _nothing_left(killed: Killed) -> None:
    killed.orchestrator("parallel-cleanup", "--purge")
    target = killed.target
    assert left_in_engine(target) == []
    assert list(target.path.glob(".architect-parallel-*")) == []
    assert left_worker_directories(target) == []
