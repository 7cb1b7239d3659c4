"""Tests of workers' port blocks: exclusive, and stable during a run."""

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestrator.base.events import Event, WorkerStarted
from orchestrator.base.results import Status
from orchestrator.config.settings.container import Isolation
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.runs.runner import ParallelRunner
from orchestrator.sandbox.network.ports import LOWEST, SIZE, PortBlocks
from orchestrator.state.run_directory import RunDirectory
from tests.support.errors import raises
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.runs import configured, shell_run

TWO = {"PORT": 3000, "API_PORT": 3010}


@pytest.fixture
def made() -> Iterator[list[PortBlocks]]:
    """Return a list of blocks that are released after the test."""
    found: list[PortBlocks] = []
    yield found
    for blocks in found:
        for number in range(1, 20):
            blocks.release(number)


@pytest.fixture
def blocks(tmp_path: Path, made: list[PortBlocks]) -> PortBlocks:
    return another(tmp_path, made)


def another(
    tmp_path: Path, made: list[PortBlocks], *, run: str = "run", repository: str = "/repo"
) -> PortBlocks:
    (tmp_path / run).mkdir(exist_ok=True)
    made.append(PortBlocks(RunDirectory(tmp_path / run), tmp_path / repository.strip("/")))
    return made[-1]


def test_block_contains_the_ports_in_the_requested_order(blocks: PortBlocks) -> None:
    published = blocks.of(1, TWO).host_ports()
    first = published[3000]
    assert published == {3000: first, 3010: first + 1}
    assert (first - LOWEST) % SIZE == 0
    assert LOWEST <= first < 32_768


def test_variables_contain_ports_and_urls(blocks: PortBlocks) -> None:
    first = blocks.of(1, TWO).host_ports()[3000]
    assert blocks.of(1, TWO).variables() == {
        "PORT": "3000",
        "HOST_PORT": str(first),
        "PORT_URL": f"http://127.0.0.1:{first}",
        "API_PORT": "3010",
        "HOST_API_PORT": str(first + 1),
        "API_PORT_URL": f"http://127.0.0.1:{first + 1}",
    }


def test_no_requested_port_reserves_nothing(tmp_path: Path) -> None:
    ports = PortBlocks(RunDirectory(tmp_path), tmp_path).of(1, {})
    assert (ports.host_ports(), ports.variables()) == ({}, {})
    assert list(tmp_path.iterdir()) == []


def test_blocks_never_overlap(tmp_path: Path, made: list[PortBlocks]) -> None:
    runs = [another(tmp_path, made, run=name) for name in ("one", "two", "three")]
    runs += [another(tmp_path, made, run="four", repository="/other")]
    firsts = [run.first_port(number) for run in runs for number in (1, 2, 3, 4)]
    assert len(set(firsts)) == 16


def test_next_run_gets_the_same_block(tmp_path: Path, made: list[PortBlocks]) -> None:
    before = another(tmp_path, made, run="one")
    first = before.first_port(1)
    before.release(1)
    assert another(tmp_path, made, run="two").first_port(1) == first


def test_resumed_run_keeps_its_blocks(tmp_path: Path, made: list[PortBlocks]) -> None:
    crowd = another(tmp_path, made, run="crowd")
    crowd.first_port(1)
    died = another(tmp_path, made)
    first = died.first_port(1)
    died.release(1)
    crowd.release(1)
    # A listener on the port may be the container of the dead run, which keeps its block.
    with socket.create_server(("127.0.0.1", first)):
        assert another(tmp_path, made).first_port(1) == first


def test_block_of_another_process_is_skipped(tmp_path: Path, made: list[PortBlocks]) -> None:
    first = another(tmp_path, made, run="one").first_port(1)
    made[0].release(1)
    script = (
        "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); "
        f"s.bind('\\0orchestrator-ports-{first}'); print('held', flush=True); input()"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert another(tmp_path, made, run="two").first_port(1) != first
        process.kill()
    assert another(tmp_path, made, run="three").first_port(1) == first


@pytest.mark.parametrize("place", [0, 1])
def test_block_with_a_listening_port_is_skipped(
    tmp_path: Path, made: list[PortBlocks], place: int
) -> None:
    before = another(tmp_path, made, run="one")
    first = before.first_port(1)
    before.release(1)
    with socket.create_server(("127.0.0.1", first + place)):
        assert another(tmp_path, made, run="two").first_port(1) != first


def test_no_free_block_is_an_error(blocks: PortBlocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.sandbox.network.ports._can_listen", lambda _: False)
    with raises("ports.exhausted"):
        blocks.first_port(1)


class CollidingEngine(LocalEngine):
    """Reports the first ports as in use, a number of times."""

    def __init__(self, scratch: Path, times: int) -> None:
        super().__init__(scratch)
        self.times = times
        self.taken: list[socket.socket] = []

    def create(self, spec: ContainerSpec) -> LocalContainer:
        if spec.ports and len(self.taken) < self.times:
            port = next(iter(spec.ports.values()))
            self.taken.append(socket.create_server(("127.0.0.1", port)))
        return super().create(spec)


def test_port_taken_at_the_last_moment_is_replaced(repo: Path, tmp_path: Path) -> None:
    engine = CollidingEngine(tmp_path / "engine", times=3)
    isolation = Isolation.model_validate({"ports": [3000]})
    try:
        (worker,) = shell_run(repo, engine, "echo $HOST_PORT", isolation=isolation).results
        taken = [server.getsockname()[1] for server in engine.taken]
    finally:
        for server in engine.taken:
            server.close()
    assert worker.status is Status.SUCCESS
    assert len(set(taken)) == 3
    assert worker.ports[3000] not in taken
    assert (Path(worker.log or "") / "stdout.log").read_text() == f"{worker.ports[3000]}\n"


def test_retry_keeps_the_ports(repo: Path, local_engine: LocalEngine) -> None:
    isolation = Isolation.model_validate({"ports": [3000], "env": {"API_PORT": "mine"}})
    task = "echo $HOST_PORT $API_PORT; exit 3"
    (worker,) = shell_run(
        repo, local_engine, task, isolation=isolation, retries=2, retry_delay=0
    ).results
    logs = Path(worker.log or "").parent.glob("worker-1*/stdout.log")
    assert [log.read_text() for log in logs] == [f"{worker.ports[3000]} mine\n"] * 3


def test_ended_worker_releases_its_block(repo: Path, local_engine: LocalEngine) -> None:
    """The block of worker 1 is free when worker 2 starts, although the run goes on."""
    firsts: list[int] = []
    released: list[bool] = []

    def look(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            firsts.append(event.ports[3000])
            if event.worker_id == 2:
                released.append(is_released(firsts[0]))

    isolation = Isolation.model_validate({"ports": [3000]})
    config = configured("true", "true", workers=1, isolation=isolation)
    ParallelRunner(config, repo, engine=local_engine, emit=look).execute()
    assert len(firsts) == 2
    assert released == [True]


def is_released(first: int) -> bool:
    """Return whether nobody holds the name that reserves a block."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        try:
            lock.bind(f"\0orchestrator-ports-{first}")
        except OSError:
            return False
    return True


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ([], {}),
        (["3000"], {"PORT": 3000}),
        ([1, 2, 3, 4], {"PORT": 1, "API_PORT": 2, "PORT_3": 3, "PORT_4": 4}),
        (["80", "VITE_PORT=81"], {"PORT": 80, "VITE_PORT": 81}),
        ({"API_PORT": 80}, {"API_PORT": 80}),
    ],
)
def test_names_of_ports(given: object, understood: Mapping[str, int]) -> None:
    assert Isolation.model_validate({"ports": given}).ports == understood


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([80, 80], "the same port is listed twice"),
        (["A_PORT=80", "A_PORT=81"], "`A_PORT` is defined twice"),
        ({"PATH": 80}, "uppercase and contain `PORT`"),
        ({"MY PORT": 80}, "uppercase and contain `PORT`"),
        ({"my_port": 80}, "uppercase and contain `PORT`"),
        ([0], "greater than or equal to 1"),
        (["PORT="], "valid integer"),
        (list(range(1, 12)), "at most 10 items"),
    ],
)
def test_invalid_ports_are_refused(given: object, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Isolation.model_validate({"ports": given})
