"""What the kernel counted for a container is exact, whatever its processes do."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.base.machine import is_in_memory
from orchestrator.engine.docker import DockerEngine, counters
from orchestrator.engine.docker.counters import Readings, control_groups
from orchestrator.engine.interface.counters import Counters
from orchestrator.engine.interface.protocol import Container
from tests.support.containers import Run, Starter, finish

MIB = 2**20
ID = "ab" * 32
OLD = {
    "cpuacct": {"cpuacct.usage": "2500000000\n"},
    "memory": {
        "memory.max_usage_in_bytes": "4096000\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
    },
    "pids": {"pids.events": "max 7\n"},
}
NEW = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n",
    "memory.peak": "4096000\n",
    "memory.events": "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n",
    "pids.events": "max 7\n",
}
EXPECTED = Counters(cpu_time=2.5, peak_memory=4_096_000, memory_kills=3, refused_processes=7)


def written(root: Path, files: dict[str, str]) -> Path:
    root.mkdir(parents=True)
    for name, text in files.items():
        (root / name).write_text(text)
    return root


def read(groups: Mapping[str, Path]) -> Counters:
    readings = Readings(groups)
    readings.is_exact = readings.look()
    readings.close()
    return readings.counters()


def test_both_versions_of_control_groups_are_read(tmp_path: Path) -> None:
    old = {name: written(tmp_path / "v1" / name, files) for name, files in OLD.items()}
    assert read(old) == EXPECTED
    new = written(tmp_path / "v2", NEW)
    assert read({"": new}) == EXPECTED
    assert read({**old, "": new}) == EXPECTED, "v1 serves the controllers that it has"


def test_deleted_files_on_disk_that_are_open_are_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "ROOT", tmp_path)
    written(tmp_path / "docker" / ID, {"cgroup.procs": f"{os.getpid()}\n{2**22 + 1}\n"})
    before = counters.deleted_size(ID)
    with ExitStack() as stack:
        file = stack.enter_context((tmp_path / "deleted").open("wb"))
        stack.enter_context(os.fdopen(os.dup(file.fileno()), "wb"))
        memory = stack.enter_context(os.fdopen(os.memfd_create("memory"), "wb"))
        for opened in (file, memory, stack.enter_context((tmp_path / "kept").open("wb"))):
            opened.write(bytes(MIB))
            opened.flush()
        assert counters.deleted_size(ID) == before
        (tmp_path / "deleted").unlink()
        on_disk = 0 if is_in_memory(tmp_path) else MIB
        assert on_disk <= counters.deleted_size(ID) - before < on_disk + MIB
        assert counters.deleted_size("another") == 0
    assert counters.deleted_size(ID) == before


def test_what_the_kernel_does_not_keep_is_unknown_and_says_so(tmp_path: Path) -> None:
    new = written(tmp_path / "v2", NEW)
    (new / "memory.peak").unlink()
    found = read({"": new})
    assert (found.peak_memory, found.cpu_time) == (None, 2.5)
    assert found.missing == "the kernel does not count peak_memory"
    assert read({"": tmp_path / "removed"}) == Counters(missing=counters.GONE)


def test_last_reading_is_kept_and_says_how_old_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = written(tmp_path / "v2", {**NEW, "memory.peak": "1\n"})
    readings = Readings({"": new})
    assert readings.counters() == Counters(missing=counters.GONE)
    assert readings.look()
    (new / "memory.peak").write_text(NEW["memory.peak"])
    assert readings.look()
    assert len(readings.told) == 2
    now = counters.time.monotonic()
    monkeypatch.setattr(counters.time, "monotonic", lambda: now + 2)
    assert readings.look()
    monkeypatch.setattr(counters.time, "monotonic", lambda: now + 2.05)
    assert readings.counters() == replace(
        EXPECTED, missing="what the container used in its last 0.05 s"
    )
    # The command has ended, or was killed.
    assert readings.look(is_last=True)
    monkeypatch.setattr(counters.time, "monotonic", lambda: now + 2.2)
    assert readings.counters() == EXPECTED
    readings.close()
    assert not readings.look(is_last=True)
    monkeypatch.setattr(counters.time, "monotonic", lambda: now + 5.05)
    late = readings.counters()
    assert late == replace(EXPECTED, missing="what the container used in its last 3.00 s")
    readings.is_exact = True
    assert readings.counters() == EXPECTED


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (f"0::/system.slice/docker-{ID}.scope\n", {"": f"system.slice/docker-{ID}.scope"}),
        (
            f"5:cpu,cpuacct:/docker/{ID}\n3:memory:/docker/{ID}\n0::/docker/{ID}\n",
            {name: f"{name}/docker/{ID}".lstrip("/") for name in ("cpu", "cpuacct", "memory", "")},
        ),
        (
            f"0::/machine.slice/libpod-{ID}.scope/container/below\n",
            {"": f"machine.slice/libpod-{ID}.scope"},
        ),
        (f"0::/docker/{ID}/init.scope\n", {"": f"docker/{ID}"}),
        # Another process has the id by now, or the container is not one of this machine.
        ("0::/user.slice\n1:name=systemd:/init.scope\n", {}),
    ],
    ids=["v2", "v1", "crun", "systemd inside", "another process"],
)
def test_control_groups_are_those_of_the_container(listed: str, expected: dict[str, str]) -> None:
    groups = control_groups(listed, ID)
    assert groups == {name: counters.ROOT / path for name, path in expected.items()}


@pytest.mark.extra
@pytest.mark.docker
@pytest.mark.parametrize("tasks", [8, pytest.param(50, marks=pytest.mark.extra)])
def test_short_tasks_are_all_counted(docker_run: Run, tasks: int) -> None:
    def run(number: int) -> Counters:
        return docker_run(*(("sleep", "0.05") if number % 5 else ("true",)))[0].counters

    with ThreadPoolExecutor(5) as pool:
        found = list(pool.map(run, range(tasks)))
    assert {one.missing for one in found} == {None}
    assert all(one.cpu_time and one.peak_memory for one in found)


@pytest.mark.docker
def test_counters_are_the_kernels(docker_run: Run) -> None:
    """The peak is of a moment, the CPU time of processes that are gone, and each kill counts."""
    task = (
        f"python3 -c 'bytes({30 * MIB})'; "
        "python3 -c 'import time\nwhile time.process_time() < 0.5: pass'; "
        f"python3 -c 'bytearray({200 * MIB})'; python3 -c 'bytearray({200 * MIB})'; exit 3"
    )
    status, _, _ = docker_run("sh", "-c", task, memory=64 * MIB)
    seen = status.counters
    assert (status.exit_code, status.oom_killed, seen.memory_kills) == (3, True, 2)
    assert seen.peak_memory == 64 * MIB
    assert seen.cpu_time is not None
    assert 0.5 <= seen.cpu_time < 5
    assert seen.refused_processes == 0


@pytest.mark.docker
@pytest.mark.parametrize(
    ("task", "refused"),
    [
        # Signals to the first process, and to all others; the output is closed first.
        ("exec >/dev/null 2>&1; kill -9 1; kill -9 -1", 0),
        # The files of the control group are read-only, and so is the mount.
        (
            "for f in /sys/fs/cgroup/memory/memory.max_usage_in_bytes /sys/fs/cgroup/memory.peak "
            "/sys/fs/cgroup/pids/pids.max; do echo 0 > $f; done; mkdir /sys/fs/cgroup/memory/x; "
            "umount /sys/fs/cgroup; cat > /proc/1/fd/1 < /dev/null",
            0,
        ),
        ("bomb() { bomb | bomb & }; bomb; sleep 0.3; kill -9 -1", 1),
        # Children that keep the output open, stopped and in sessions of their own.
        ("for i in 1 2 3; do setsid sleep 300 & done; kill -STOP -1", 0),
    ],
    ids=["kills", "writes", "forks", "stops"],
)
def test_no_worker_changes_or_hides_a_counter(
    docker_start: Starter, task: str, refused: int
) -> None:
    grown = f"python3 -c 'bytearray({20 * MIB})'; "
    container = docker_start("bash", "-c", grown + task, memory=64 * MIB, pids=30)
    try:
        status = container.wait(3)
    except TimeoutError:
        container.kill("SIGKILL")
        status = container.wait(60)
    seen = status.counters
    assert seen.missing is None
    assert seen.peak_memory is not None
    assert 20 * MIB < seen.peak_memory <= 64 * MIB
    assert seen.cpu_time
    assert seen.memory_kills == 0
    assert bool(seen.refused_processes) == bool(refused)


@pytest.mark.docker
def test_counters_of_a_container_that_another_process_started(
    docker_engine: DockerEngine, docker_start: Starter
) -> None:
    container = docker_start("sleep", "1", kept_output=1 * MIB)
    again = docker_engine.adopt(container.id)
    assert again is not None
    assert finish(again)[0].counters.missing is None
    late = docker_engine.adopt(container.id)
    assert late is not None
    assert finish(late)[0].counters == Counters(missing=counters.UNWATCHED)


REMOVER = """
import os, sys, time
groups = sys.argv[1:]
def first(g):
    try: return open(g + "/cgroup.procs").read().strip()
    except OSError: return ""
while not all(map(first, groups)): time.sleep(0.001)
while groups:
    for group in list(groups):
        try: os.rmdir(group)
        except FileNotFoundError: groups.remove(group)
        except OSError: pass
        else: groups.remove(group)
"""


@contextmanager
def removed_at_once(container: Container) -> Iterator[None]:
    """Remove the container's control groups as soon as they are empty, sooner than systemd does."""
    roots = [counters.ROOT / name for name in ("memory", "pids", "cpuacct")]
    roots = [root for root in roots if root.exists()] or [counters.ROOT]
    places = (str(root / "docker" / container.id) for root in roots)
    with subprocess.Popen((sys.executable, "-c", REMOVER, *places)) as remover:
        try:
            yield
            assert remover.wait(20) == 0
        finally:
            remover.kill()


GROWN = f"python3 -c 'bytearray({30 * MIB})'; "


@pytest.mark.docker
@pytest.mark.skipif(os.getuid() != 0, reason="removes control groups, as systemd does")
@pytest.mark.parametrize(
    ("task", "ends", "kills", "refused"),
    [
        (f"{GROWN} sleep 1", "", 0, False),
        (f"{GROWN} exit 3", "", 0, False),
        (f"{GROWN} sleep 1; tail /dev/zero", "", 1, False),
        (f"{GROWN} exec tail /dev/zero", "", 1, False),
        (f"{GROWN} tail /dev/zero; tail /dev/zero; sleep 1; exit 3", "", 2, False),
        (f"{GROWN} exec bash -c 'for i in $(seq 40); do sleep 9 & done; sleep 1'", "", 0, True),
        (f"{GROWN} sleep 1; echo ready; sleep 60", "SIGKILL", 0, False),
        (f"{GROWN} sleep 1; echo ready; sleep 60", "SIGTERM", 0, False),
        (f"{GROWN} sleep 1; echo ready; sleep 60", "another", 0, False),
        (f"{GROWN} sleep 1; kill -9 $$; sleep 60", "", 0, False),
    ],
    ids=[
        "success", "exit", "memory of a child", "memory of the command", "two kills",
        "processes", "killed", "asked to end", "killed by another program", "kills itself",
    ],
)  # fmt: skip
def test_counters_outlive_their_control_group(
    docker_engine: DockerEngine, docker_start: Starter, task: str, ends: str, kills: int,
    refused: bool,
) -> None:  # fmt: skip
    container = docker_engine.create(
        docker_start.spec("bash", "-c", task, memory=64 * MIB, pids=20)
    )
    try:
        with removed_at_once(container):
            container.start()
            said = container.logs()
            if ends:
                assert b"ready" in next(said).data
            if ends == "another":
                docker_engine._client.kill(container.id)
            elif ends:
                container.kill(ends)  # type: ignore[arg-type]
            status = container.wait(30)
    finally:
        container.remove()
    seen = status.counters
    assert status.oom_killed == (kills > 0)
    assert seen.peak_memory
    assert seen.cpu_time
    # What it used a second before its end is known, however busy the machine is.
    if "sleep 1" in task:
        assert seen.peak_memory > 25 * MIB
        assert bool(seen.refused_processes) == refused
    if seen.missing is None:
        assert seen.peak_memory > 25 * MIB
        assert (seen.memory_kills, bool(seen.refused_processes)) == (kills, refused)
    else:
        assert seen.missing.startswith("what the container used in its last ")
