"""Tests of the dead man's switch, with a command that records whom it would kill."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.engine.interface.labels import MANAGED, ROLE, RUN, WORKER
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.sandbox.deadlines import dead_man_process, dead_man_switch
from orchestrator.sandbox.deadlines.dead_man_process import Switch
from orchestrator.sandbox.deadlines.dead_man_switch import DeadMan
from orchestrator.sandbox.deadlines.overdue import kill_workers
from tests.support.live import PATIENCE, eventually
from tests.support.local_engine import LocalContainer, LocalEngine

SECRET = "of-the-caller"


class Killer:
    """A run's directory, and a stand-in for the killing command."""

    def __init__(self, run: Path) -> None:
        self.run = run
        run.mkdir()
        self.sign()
        self._said = run / "killed"
        program = run / "kill"
        program.write_text(
            f"#!/bin/sh\nwhile read before which workers; do\n"
            f"[ ! -e {run}/broken ] || exit 1\n"
            f"env > {run}/env; pwd > {run}/place; echo $which > {run}/which\n"
            f'printf "%s " $workers >> {self._said}; echo done\ndone\n'
        )
        program.chmod(0o700)
        self.command = [str(program)]

    def sign(self, owner: str = "1") -> None:
        """Write the signature of a switch that takes over the run."""
        (self.run / "lease").write_text(owner)

    def fails(self, *, over: bool = False) -> None:
        """Make the command fail from now on, or succeed."""
        (self.run / "broken").unlink() if over else (self.run / "broken").touch()

    @property
    def killed(self) -> list[str]:
        """The workers that the command was called for."""
        return self._said.read_text().split() if self._said.exists() else []

    def switch(self) -> Switch:
        return Switch(self.run / "lease", self.run / dead_man_switch.LOG, self.command)


@pytest.fixture
def killer(tmp_path: Path) -> Killer:
    return Killer(tmp_path / "run")


class TestWhatItDecides:
    """Decisions of the switch at simulated times."""

    @pytest.fixture
    def now(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
        # Whole seconds: the differences of other times would be rounded.
        passed = [1000.0]
        monkeypatch.setattr(dead_man_process, "uptime", lambda: passed[0])

        def sleep(seconds: float) -> None:
            passed[0] += seconds

        return sleep

    def running(self, switch: Switch, worker: int, seconds: float) -> None:
        switch.take(f"running {worker} {dead_man_process.uptime() + seconds}")

    def test_overdue_worker_is_killed_while_the_process_lives(
        self, killer: Killer, now: Callable[[float], None]
    ) -> None:
        """A process that hangs or is stopped does not watch its workers."""
        switch = killer.switch()
        self.running(switch, 1, 5)
        self.running(switch, 2, 50)
        assert 0 < switch.rest() <= 5
        now(6)
        assert switch.rest() == 0
        switch.act()
        switch.act()
        assert killer.killed == ["1"]
        assert (
            "workers 1: killed after their deadline"
            in (killer.run / dead_man_switch.LOG).read_text()
        )

    def test_command_is_loaded_before_the_deadline_and_ends_unused(
        self, killer: Killer, now: Callable[[float], None]
    ) -> None:
        """Loading it takes longer than a worker may live after its deadline."""
        switch = killer.switch()
        self.running(switch, 1, dead_man_process.LEAD + 5)
        switch.act()
        assert switch._loaded is None
        now(5)
        switch.act()
        assert switch._loaded is not None
        process, *_ = switch._loaded
        switch.take("idle 1")
        eventually(lambda: (switch.act(), has_ended(process))[1], "its end")
        assert killer.killed == []

    def test_command_that_is_loaded_serves_several_deadlines(
        self, killer: Killer, now: Callable[[float], None]
    ) -> None:
        switch = killer.switch()
        self.running(switch, 1, 1)
        self.running(switch, 2, 2)
        loaded = list[object]()
        for _ in range(3):
            switch.act()
            loaded.append(switch._loaded)
            now(1)
        assert killer.killed == ["1", "2"]
        assert loaded[0] == loaded[1] == loaded[2]

    def test_services_outlive_a_task_that_is_killed_while_the_process_lives(
        self, killer: Killer, now: Callable[[float], None]
    ) -> None:
        """The process needs them for the teardown; if it dies, they are killed later."""
        switch = killer.switch()
        self.running(switch, 1, 5)
        now(6)
        switch.act()
        assert (killer.run / "which").read_text() == "tasks\n"
        switch.leave_alone()
        assert not switch.is_done
        now(dead_man_process.RESUME + 1)
        switch.act()
        assert (killer.run / "which").read_text() == "all\n"
        assert switch.is_done

    def test_idle_unlimited_and_ended_workers_are_left_alone(
        self, killer: Killer, now: Callable[[float], None]
    ) -> None:
        switch = killer.switch()
        for worker in (1, 2):
            self.running(switch, worker, 5)
        switch.take("idle 1")
        switch.take("running 2 -")
        self.running(switch, 3, 5)
        switch.take("forget")
        now(1000)
        switch.act()
        assert killer.killed == []
        switch.leave_alone()
        assert switch.is_done

    @pytest.mark.parametrize("is_there", [True, False])
    def test_starting_container_gets_additional_time(
        self, killer: Killer, now: Callable[[float], None], is_there: bool
    ) -> None:
        """The deadline counts from the start, which the engine may delay."""
        switch = killer.switch()
        switch.take(f"starting 1 {dead_man_process.uptime() + 5}")
        if not is_there:
            switch.leave_alone()
        now(6)
        switch.act()
        assert killer.killed == ([] if is_there else ["1"])
        assert (switch.rest() > 1) is is_there or switch.is_done
        now(dead_man_process.SLOW)
        switch.act()
        assert killer.killed == ["1"]

    def test_services_are_killed_a_while_after_the_process_died(
        self, killer: Killer, now: Callable[[float], None]
    ) -> None:
        switch = killer.switch()
        switch.take("idle 1")
        now(1000)
        switch.leave_alone()
        switch.act()
        assert (killer.killed, switch.is_done) == ([], False)
        now(dead_man_process.RESUME + 1)
        switch.act()
        assert (killer.killed, switch.is_done) == (["1"], True)

    def test_switch_ends_when_a_resumed_run_has_its_own(
        self, killer: Killer, now: Callable[[float], None]
    ) -> None:
        switch = killer.switch()
        self.running(switch, 1, 5)
        switch.leave_alone()
        assert not switch.is_done
        killer.switch().take("idle 1")
        now(6)
        switch.act()
        assert (killer.killed, switch.is_done) == ([], True)

    def test_switch_continues_after_a_failed_resume(
        self, killer: Killer, now: Callable[[float], None]
    ) -> None:
        """A resume that was killed or refused started no switch: the containers still run."""
        switch = killer.switch()
        self.running(switch, 1, 5)
        switch.leave_alone()
        killer.sign("2")
        killer.switch()
        now(6)
        switch.act()
        assert (killer.killed, switch.is_done) == (["1"], True)

    def test_full_disk_does_not_end_the_switch(
        self, killer: Killer, now: Callable[[float], None]
    ) -> None:
        (killer.run / dead_man_process.MARK).mkdir()
        switch = killer.switch()
        self.running(switch, 1, 5)
        switch.leave_alone()
        now(6)
        switch.act()
        assert killer.killed == ["1"]

    def test_failed_command_is_retried_after_a_pause(
        self, killer: Killer, now: Callable[[float], None]
    ) -> None:
        switch = killer.switch()
        self.running(switch, 1, 5)
        switch.leave_alone()
        now(6)
        killer.fails()
        switch.act()
        assert 1 < switch.rest() < 3
        killer.fails(over=True)
        switch.act()
        assert killer.killed == []
        now(3)
        switch.act()
        assert (killer.killed, switch.is_done) == (["1"], True)

    def test_attempts_become_rare_if_the_engine_never_comes_back(
        self, killer: Killer, now: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        attempts = list[float]()

        def spawn(*_: object, **__: object) -> int:
            attempts.append(dead_man_process.uptime())
            raise FileNotFoundError

        monkeypatch.setattr(dead_man_process.os, "posix_spawn", spawn)
        switch = killer.switch()
        self.running(switch, 1, 5)
        switch.leave_alone()
        shutil.rmtree(killer.run)
        assert switch.is_lost
        for _ in range(2 * 3600 // 10):
            switch.act(at_once=switch.is_lost)
            now(10)
        pauses = [later - earlier for earlier, later in pairwise(attempts)]
        assert pauses[0] <= 10
        assert pauses == sorted(pauses)
        assert 300 <= pauses[-1] <= 310
        before = len(attempts)
        switch.end_pause()
        switch.act(at_once=True)
        assert len(attempts) == before + 1


class TestTheProcess:
    """The switch's process, started as by a run."""

    @pytest.fixture
    def switch(self, killer: Killer, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeadMan]:
        launch = subprocess.Popen

        def start(words: list[str], **rest: object) -> "subprocess.Popen[bytes]":
            # The preceding words are the interpreter, the program, the lease and the log.
            at = words.index("-P") - 1
            return launch([*words[:at], *killer.command], **rest)  # type: ignore[call-overload,no-any-return]

        monkeypatch.setattr(dead_man_switch.subprocess, "Popen", start)
        monkeypatch.setenv("TOKEN", SECRET)
        monkeypatch.setenv("DOCKER_HOST", "unix:///somewhere")
        switch = DeadMan("docker", killer.run)
        yield switch
        switch.close(forget=True)
        eventually(lambda: pid_of(killer) is None, "its end")

    def test_switch_kills_after_the_process_died(self, killer: Killer, switch: DeadMan) -> None:
        switch.running(7, 0.5)
        process = pid_of(killer)
        assert process is not None
        assert os.getsid(process) not in (os.getsid(0), 0)
        assert os.getpgid(process) != os.getpgid(0)
        assert Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1] != str(
            os.getpid()
        )
        switch.close(forget=False)
        eventually(lambda: killer.killed, "the kill")
        assert killer.killed == ["7"]
        given = (killer.run / "env").read_text()
        assert "DOCKER_HOST=unix:///somewhere" in given
        assert SECRET not in given
        assert (killer.run / "place").read_text() == "/\n"
        eventually(lambda: pid_of(killer) is None, "its end")

    def test_start_of_a_container_does_not_wait_for_the_switch(
        self, killer: Killer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waited = list[int]()

        class Launcher(subprocess.Popen[bytes]):
            def wait(self, timeout: float | None = None) -> int:
                waited.append(self.pid)
                return super().wait(timeout)

        monkeypatch.setattr(dead_man_switch.subprocess, "Popen", Launcher)
        switch = DeadMan("docker", killer.run)
        switch.starting(1, 300)
        assert waited == []
        switch.running(1, 300)
        assert len(waited) == 1
        switch.close(forget=True)
        eventually(lambda: pid_of(killer) is None, "its end")
        assert len(waited) == 1

    def test_switch_ends_with_the_run_without_killing(
        self, killer: Killer, switch: DeadMan
    ) -> None:
        switch.running(1, 300)
        switch.idle(1)
        switch.running(2, 300)
        switch.close(forget=True)
        eventually(lambda: pid_of(killer) is None, "its end")
        assert killer.killed == []

    def test_killed_switch_is_replaced(self, killer: Killer, switch: DeadMan) -> None:
        switch.running(1, 4)
        first = pid_of(killer)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        eventually(lambda: has_ended(first), "its death")
        switch.running(2, 60)
        eventually(lambda: killer.killed, "what the first one knew of")
        assert killer.killed == ["1"]

    @pytest.mark.parametrize("state", ["running 1 300", "idle 1"])
    def test_run_that_cannot_be_resumed_is_killed_at_once(
        self, killer: Killer, switch: DeadMan, state: str
    ) -> None:
        """For example, a CI system kills a job and removes its checkout."""
        switch.running(1, 300)
        if state.startswith("idle"):
            switch.idle(1)
        (killer.run / "lease").unlink()
        switch.running(2, 300)
        assert killer.killed == [], "the run has not been lost"
        switch.close(forget=False)
        eventually(lambda: len(killer.killed) >= 2, "the kill")
        assert killer.killed == ["1", "2"]

    def test_signal_after_the_processes_death_kills_at_once(
        self, killer: Killer, switch: DeadMan
    ) -> None:
        """A stopped service loses all its processes, so no process would act later."""
        switch.running(1, 300)
        process = pid_of(killer)
        assert process is not None
        os.kill(process, signal.SIGTERM)
        switch.running(2, 300)
        eventually(lambda: not pending(process), "its reading of the signal")
        # The kill of an overdue worker proves that the switch has acted since the signal.
        switch.running(3, 0.1)
        eventually(lambda: killer.killed, "the kill of the overdue worker")
        assert (pid_of(killer), killer.killed) == (process, ["3"]), "no other kill"
        switch.close(forget=False)
        eventually(lambda: len(killer.killed) == 4, "the other kills, and that of services")
        assert killer.killed == ["3", "1", "2", "3"]


def pending(process: int) -> bool:
    """Return whether a signal has not been delivered yet."""
    status = Path(f"/proc/{process}/status").read_text()
    return bool(int(status.partition("ShdPnd:")[2].split()[0], 16))


def has_ended(process: int) -> bool:
    """Return whether a process has closed its files, which it does last."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


def pid_of(killer: Killer) -> int | None:
    """Return the id of the process that watches a run."""
    wanted = str(killer.run / "lease").encode()
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            if place.name.isdecimal() and wanted in (place / "cmdline").read_bytes().split(b"\0"):
                return int(place.name)
    return None


def test_process_of_the_switch_is_small(killer: Killer) -> None:
    """The kernel kills the largest process first when memory is short."""
    switch = DeadMan("docker", killer.run)
    switch.running(1, 300)
    process = pid_of(killer)
    assert process is not None
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    switch.close(forget=True)
    eventually(lambda: pid_of(killer) is None, "its end")
    assert pages * os.sysconf("SC_PAGE_SIZE") < 16 << 20


def test_only_containers_started_before_are_killed(
    local_engine: LocalEngine,
) -> None:
    """A later container was started by a process that has resumed the run."""

    def start(name: str, worker: str, role: str = "worker") -> LocalContainer:
        return local_engine.start(
            ContainerSpec(
                name=name, image="orchestrator/base:latest", command=("sleep", "60"), user="",
                workdir="/tmp", labels={MANAGED: "true", RUN: "r", WORKER: worker, ROLE: role},
            )
        )  # fmt: skip

    late, other = start("late", "1"), start("other", "2")
    service = start("service", "1", role="service")
    moment = datetime.now(UTC).timestamp()
    time.sleep(0.05)
    later = start("later", "1")
    assert kill_workers(local_engine, "r", ["1"], before=moment, helpers=False)
    assert late.wait(PATIENCE).exit_code == 137
    assert service.state().ended_at is None
    assert kill_workers(local_engine, "r", ["1"], before=moment)
    assert service.wait(PATIENCE).exit_code == 137
    assert other.state().ended_at is None
    assert later.state().ended_at is None
    for container in (late, other, later, service):
        container.remove()
