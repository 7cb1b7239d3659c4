"""Tests of runs with a fault at a random moment: no work is lost, and nothing is left behind."""

import os
import random
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import docker
import pytest

from orchestrator.engine.interface.labels import REPOSITORY, WORKER
from tests.assurance.faults.counter import tally
from tests.assurance.faults.world import World
from tests.support.cli import start
from tests.support.own_daemon import own_daemon

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]
WORKERS = 3
_SPAN = 9.0
"""Seconds from the start within which a fault is injected: the duration of a run."""
_ROOM = 1024**3
_SIGNALS = {"SIGTERM": 143, "SIGHUP": 129, "SIGINT": 130}
_EVERY_KIND = (
    "kill", "SIGTERM", "container removed", "disk full", "daemon killed", "SIGINT",
    "kill", "SIGHUP", "container killed", "container paused", "daemon restarted",
)  # fmt: skip
_BY_ROOT = ("disk full", "daemon killed", "daemon restarted")
"""Kinds that only root can inject: file systems are mounted and network namespaces created."""
KINDS = tuple(kind for kind in _EVERY_KIND if os.getuid() == 0 or kind not in _BY_ROOT)
WORKTREES = ("start", "end", "none")
"""Arrangements of a run, one for each round of all kinds of faults."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--faults")))


class Fault:
    """The fault of one run."""

    def __init__(self, kind: str, rng: random.Random, root: Path) -> None:
        self.kind = kind
        self._rng = rng
        self._root = root
        self.hit: set[int] = set()
        """Workers that may have failed because of the fault."""

    def inject(self, world: World, process: "subprocess.Popen[bytes]") -> None:
        """Inject the fault, and wait for the process to end."""
        time.sleep(self._rng.uniform(0, _SPAN))
        if self.kind == "kill":
            process.kill()
        elif self.kind in _SIGNALS:
            self.hit = set(range(1, WORKERS + 1))
            process.send_signal(signal.Signals[self.kind])
        elif self.kind == "disk full":
            self.hit = set(range(1, WORKERS + 1))
            self._fill_disk(world, process)
        else:
            self._fault_container(world, process)
        process.wait(200)

    def _fill_disk(self, world: World, process: "subprocess.Popen[bytes]") -> None:
        filler = world.repo.parent / "filler"
        with filler.open("wb", buffering=0) as file:
            free = os.statvfs(filler).f_bavail * os.statvfs(filler).f_frsize
            with suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, free)
            with suppress(OSError):
                file.seek(0, os.SEEK_END)
                while True:
                    file.write(b"x" * 4096)
        process.wait(200)
        filler.unlink()

    def _fault_container(self, world: World, process: "subprocess.Popen[bytes]") -> None:
        client = docker.APIClient(version="auto", **docker.utils.kwargs_from_env())
        try:
            while process.poll() is None:
                found = client.containers(filters={"label": f"{REPOSITORY}={world.repo}/.git"})
                if found:
                    chosen = self._rng.choice(found)
                    number = chosen["Labels"].get(WORKER)
                    # The network's helper serves all: workers that start later are refused.
                    self.hit = {int(number)} if number else set(range(1, WORKERS + 1))
                    with suppress(docker.errors.APIError):
                        self._inject_into(client, chosen["Id"])
                    return
                time.sleep(0.05)
        finally:
            client.close()

    def _inject_into(self, client: docker.APIClient, container: str) -> None:
        if self.kind == "container killed":
            client.kill(container)
        elif self.kind == "container removed":
            client.remove_container(container, force=True)
        else:
            client.pause(container)
            time.sleep(self._rng.uniform(0.5, 4))
            client.unpause(container)


def test_run_with_a_fault_at_a_random_moment_loses_no_work(
    seed: int, tmp_path: Path, record_property: Callable[[str, object], None],
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rng = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    worktrees = WORKTREES[seed // len(KINDS) % len(WORKTREES)]
    record_property("fault", kind)
    if kind.startswith("daemon"):
        _fault_daemon(kind, rng, tmp_path, monkeypatch, worktrees)
        return
    place = request.getfixturevalue("small_disk") if kind == "disk full" else tmp_path
    with tally() as counts:
        world = World(place, counts)
        fault = Fault(kind, rng, place)
        with started_run(world, worktrees) as process:
            fault.inject(world, process)
        check_recovery(world, fault.hit, rng, lossy=kind == "disk full")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one gigabyte."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", f"size={_ROOM}", "tmpfs", str(place))
    subprocess.run(mount, check=True)
    yield place
    subprocess.run(("umount", "--lazy", str(place)), check=True)


@contextmanager
def started_run(world: World, worktrees: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a run of three workers."""
    rest = ("--worktrees", worktrees)
    with (world.repo.parent / "said").open("wb") as said:
        process = start(
            *world.parallel(workers=WORKERS, nap=1.0, rest=rest), cwd=world.repo,
            env=world.environ(), stdout=said, stderr=said,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _fault_daemon(
    kind: str, rng: random.Random, root: Path, monkeypatch: pytest.MonkeyPatch, worktrees: str
) -> None:
    keeps = rng.random() < 0.5
    with tempfile.TemporaryDirectory(prefix="orc-") as short:
        place = Path(short) / "d"
        with own_daemon(place, keeps_containers=keeps) as daemon:
            monkeypatch.setenv("DOCKER_HOST", daemon.url)
            with tally(daemon.address, daemon.network) as counts:
                world = World(root, counts)
                with started_run(world, worktrees) as process:
                    time.sleep(rng.uniform(1, _SPAN))
                    daemon.end(signal.SIGKILL if kind == "daemon killed" else signal.SIGTERM)
                    time.sleep(rng.uniform(0, 3))
                    daemon.start()
                    process.wait(200)
                check_recovery(world, set(range(1, WORKERS + 1)), rng)
            monkeypatch.delenv("DOCKER_HOST")


def check_recovery(world: World, hit: set[int], rng: random.Random, *, lossy: bool = False) -> None:
    """Resume or clean up, and check that no work is lost and nothing is left behind."""
    world.check_readable()
    begun_by = {number for number in range(1, WORKERS + 1) if world.said("begin", number)}
    if rng.random() < 0.6:
        done = world.orchestrator("resume", "--json", "--quiet")
        if "results" in done.json:
            for number, result in done.results.items():
                world.check_result(number, result, may_fail=number in hit, lossy=lossy)
            world.check_nothing_left()
        else:
            # The run was killed before it could be resumed.
            assert done.returncode == 3, done.stderr
            assert not begun_by, done.stderr
    removed = world.orchestrator("parallel-cleanup")
    assert removed.returncode == 0, removed.stdout + removed.stderr
    world.check_nothing_left()
    for number in range(1, WORKERS + 1):
        assert world.said("begin", number) <= 1
        world.check_backup(number, lossy=lossy)
