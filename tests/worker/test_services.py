"""Tests of services beside workers, on the local engine: start, readiness, end.

The processes share the machine's network, so each test uses a free port.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.base.errors import EngineError, EngineUnavailableError
from orchestrator.base.events import Event, Notice, WorkerStarted
from orchestrator.base.results import Reason, RunResult, Status, WorkerResult
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.project import Project, Service
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import ROLE
from orchestrator.engine.interface.spec import ContainerSpec, TmpfsMount
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import all_runs
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.ports import free_port
from tests.support.runs import configured

SERVE = ("sh", "-c", 'echo "serving $GREETING"; exec python3 -m http.server -b 127.0.0.1 $PLACE')
FETCH = (
    "python3 -c \"import os, urllib.request as u; u.urlopen('http://127.0.0.1:'+os.environ['WEB_PORT'])"
    '" && echo $WEB_HOST $WEB_PORT $WEB_URL'
)


@pytest.fixture
def port() -> int:
    return free_port()


def described(**rest: Any) -> Service:
    return Service.model_validate({"image": BASE_IMAGE, "health_timeout": 100, **rest})


def with_services(*tasks: str, services: dict[str, Service], **rest: Any) -> ParallelConfig:
    return configured(*tasks, **{"project": Project(services=services), **rest})


@pytest.fixture
def run(repo: Path, local_engine: LocalEngine) -> Callable[..., RunResult]:
    def execute(*tasks: str, emit: Any = None, **rest: Any) -> RunResult:
        config = with_services(*tasks, **rest)
        return ParallelRunner(config, repo, engine=local_engine, emit=emit).execute()

    return execute


def stdout(worker: WorkerResult, name: str = "stdout.log") -> str:
    return (Path(worker.log or "") / name).read_text()


def test_service_is_ready_when_the_worker_starts(run: Callable[..., RunResult], port: int) -> None:
    service = described(
        command=SERVE,
        port=port,
        env={"PLACE": str(port), "GREETING": "you"},
        variables={"WEB_URL": "http://{host}:{port}/{x}"},
    )
    (worker,) = run(FETCH, services={"web": service}).results
    assert worker.status is Status.SUCCESS, worker.message
    assert stdout(worker) == f"web {port} http://web:{port}/{{x}}\n"
    assert "serving you" in stdout(worker, "service-web.log")


def test_variables_of_the_caller_override_those_of_services(run: Callable[..., RunResult]) -> None:
    services = {"my-db": described(command=("sleep", "60"), variables={"OWN": "theirs"})}
    isolation = Isolation(network="none", env={"OWN": "mine", "MY_DB_HOST": "elsewhere"})
    (worker,) = run("echo $OWN $MY_DB_HOST", services=services, isolation=isolation).results
    assert stdout(worker) == "mine elsewhere\n"


@pytest.mark.parametrize(
    ("service", "message"),
    [
        (
            {"command": ("sh", "-c", "echo one; echo 'no such \x1b[1mdisk'; echo; exit 3")},
            "service `db` ended (exit code 3): no such disk",
        ),
        ({"command": ("true",)}, "service `db` ended (exit code 0)"),
        (
            {"command": ("sh", "-c", "echo waiting; sleep 60"), "port": 1, "health_timeout": 5},
            "service `db` was not ready within 5 s: waiting",
        ),
        (
            {"command": ("sleep", "60"), "health": "exit 1", "health_timeout": 0.5},
            "service `db` was not ready within 0.5 s",
        ),
        (
            {"command": ("sleep", "60"), "health": "sleep 60", "health_timeout": 0.5},
            "service `db` was not ready within 0.5 s",
        ),
    ],
    ids=["it fails", "it ends well", "no port", "not healthy", "a check that hangs"],
)
def test_worker_fails_if_its_service_is_not_ready(
    run: Callable[..., RunResult], repo: Path, service: dict[str, Any], message: str
) -> None:
    health = None if "port" in service else "false"
    services = {"db": described(**{"health": health, **service})}
    (worker,) = run("touch ran", services=services).results
    assert (worker.status, worker.reason) == (Status.FAILED, Reason.SETUP_FAILED)
    assert worker.message == message
    assert worker.files_modified == []
    assert not (repo / "ran").exists()


def test_health_command_is_repeated_until_it_succeeds(
    run: Callable[..., RunResult], tmp_path: Path
) -> None:
    made = tmp_path / "made"
    start = ("sh", "-c", f"sleep 0.5; touch {made}; sleep 60")
    services = {"db": described(command=start, health=f"test -e {made}")}
    (worker,) = run(f"test -e {made}", services=services).results
    assert worker.status is Status.SUCCESS


def test_retry_starts_new_services(run: Callable[..., RunResult], tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    services = {"db": described(command=("sh", "-c", f"echo started >> {starts}; sleep 60"),
                                health=f"test -e {starts}")}  # fmt: skip
    (worker,) = run("exit 1", services=services, retries=2, retry_delay=0).results
    assert worker.attempts == 3
    assert starts.read_text() == "started\n" * 3


def test_failed_service_is_retried(run: Callable[..., RunResult], tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    start = ("sh", "-c", f"echo started >> {starts}; test $(wc -l < {starts}) = 2 && sleep 60")
    services = {"db": described(command=start, health=f"test $(wc -l < {starts}) = 2")}
    (worker,) = run("true", services=services, retries=1, retry_delay=0).results
    assert (worker.status, worker.attempts) == (Status.SUCCESS, 2)


def test_cancel_does_not_wait_for_services(
    repo: Path, local_engine: LocalEngine, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    health = f"touch {begun}; false"
    services = {"db": described(command=("sleep", "60"), health=health, health_timeout=60)}
    runner = ParallelRunner(with_services("true", services=services), repo, engine=local_engine)
    pressed = threading.Timer(0.1, lambda: press_when(begun, runner))
    pressed.start()
    (worker,) = runner.execute().results
    pressed.join()
    assert (worker.reason, worker.message) == (
        Reason.CANCELLED,
        "cancelled before this worker started",
    )


def press_when(begun: Path, runner: ParallelRunner) -> None:
    while not begun.exists():
        threading.Event().wait(0.02)
    runner.cancel()


@pytest.mark.parametrize(
    ("required", "code", "status", "reason"),
    [
        (True, 0, Status.FAILED, Reason.SERVICE_DIED),
        (True, 3, Status.FAILED, Reason.SERVICE_DIED),
        (False, 0, Status.SUCCESS, None),
        (False, 3, Status.FAILED, Reason.AGENT_FAILED),
    ],
)
def test_service_that_ends_before_the_task_is_in_the_result(
    run: Callable[..., RunResult], tmp_path: Path, required: bool, code: int, status: Status,
    reason: Reason | None,
) -> None:  # fmt: skip
    end = tmp_path / "end"
    start = (
        "sh",
        "-c",
        f"echo $$ > {end}.pid; until test -e {end}; do sleep 0.05; done; echo lost it; exit 4",
    )
    told: list[Event] = []
    service = described(command=start, health=f"test -s {end}.pid", required=required)
    wait = f"touch {end} work; while kill -0 $(cat {end}.pid); do sleep 0.05; done; sleep 0.3"
    task = f"{wait}; exit {code}"
    (worker,) = run(task, services={"db": service}, emit=told.append).results
    assert (worker.status, worker.reason) == (status, reason)
    assert "before the end of the task, service `db` ended (exit code 4): lost it" in str(
        worker.message
    )
    assert worker.files_modified == ["work"], "its work is kept"
    notices = [event.message for event in told if isinstance(event, Notice)]
    assert "worker 1: service `db` ended (exit code 4): lost it" in notices


def test_service_that_another_program_removes_is_in_the_result(
    repo: Path, local_engine: LocalEngine, tmp_path: Path
) -> None:
    def emit(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            (left,) = (one for one in local_engine.leftovers({}) if one.labels[ROLE] == "service")
            local_engine.remove(left)
            (tmp_path / "removed").touch()

    config = with_services(
        f"until test -e {tmp_path}/removed; do sleep 0.05; done",
        services={"db": described(command=("sleep", "60"), health="true")},
    )
    (worker,) = ParallelRunner(config, repo, engine=local_engine, emit=emit).execute().results
    assert worker.reason is Reason.SERVICE_DIED
    assert "service `db` was removed by another program" in str(worker.message)


def test_deadline_outranks_a_service_that_ended(
    run: Callable[..., RunResult], tmp_path: Path
) -> None:
    end = tmp_path / "end"
    start = ("sh", "-c", f"until test -e {end}; do sleep 0.05; done")
    service = described(command=start, health="true")
    (worker,) = run(
        f"touch {end}; sleep 60", services={"db": service}, timeout_per_worker=1.5
    ).results
    assert worker.reason is Reason.TIMEOUT
    assert "service `db` ended (exit code 0)" in str(worker.message)


def test_log_of_a_service_is_bounded_and_redacted(
    repo: Path, local_engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.worker.steps.services._LOG", 1000)
    monkeypatch.setenv("THE_TOKEN", "correct-horse-battery")
    said = "echo correct-horse-battery; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo end"
    said += f"; touch {tmp_path}/said"
    services = {
        "db": described(
            command=("sh", "-c", f"{said}; sleep 60"), health=f"test -e {tmp_path}/said"
        )
    }
    isolation = Isolation(network="none", secrets=("THE_TOKEN",))
    config = with_services("true", services=services, isolation=isolation)
    (worker,) = ParallelRunner(config, repo, engine=local_engine).execute().results
    log = stdout(worker, "service-db.log")
    assert log.startswith("[redacted:THE_TOKEN]\nxxx")
    assert len(log) == 1000


class OneOfTwo(LocalEngine):
    """An engine that creates one service, and fails for the next."""

    def create(self, spec: ContainerSpec) -> LocalContainer:
        if spec.labels[ROLE] == "service" and "second" in spec.name:
            raise EngineError("no room for it", key="engine.refusal")
        return super().create(spec)


def test_failed_creation_removes_the_other_services(repo: Path, tmp_path: Path) -> None:
    engine = OneOfTwo(tmp_path / "engine")
    services = {name: described(command=("sleep", "60")) for name in ("first", "second")}
    runner = ParallelRunner(with_services("true", services=services), repo, engine=engine)
    (worker,) = runner.execute().results
    assert (worker.reason, worker.message) == (
            Reason.ENGINE_ERROR, f"service `second` (image `{BASE_IMAGE}`): no room for it",
        )  # fmt: skip
    assert engine.leftovers({}) == []


class AwayEngine(LocalEngine):
    """An engine that is unavailable when a worker's container is created, for a time."""

    away = True

    def create(self, spec: ContainerSpec) -> LocalContainer:
        if self.away and spec.labels[ROLE] == "worker":
            raise EngineUnavailableError("gone", key="engine.unreachable")
        return super().create(spec)


@pytest.mark.parametrize("lost", [False, True])
def test_resumed_run_continues_its_services(repo: Path, tmp_path: Path, lost: bool) -> None:
    engine, starts, setups = AwayEngine(tmp_path / "engine"), tmp_path / "s", tmp_path / "t"
    start = ("sh", "-c", f"echo started >> {starts}; sleep 60")
    services = {"db": described(command=start, health=f"test -e {starts}")}
    project = Project(services=services, setup=(f"echo $DB_HOST >> {setups}",))
    config = configured("exit 3", project=project)
    (result,) = ParallelRunner(config, repo, engine=engine).execute().results
    assert (result.reason, setups.read_text()) == (Reason.ENGINE_ERROR, "db\n")
    left = {one.labels[ROLE]: one for one in engine.leftovers({})}
    assert set(left) == {"holder", "service"}

    engine.away = False
    if lost:
        engine.remove(left["service"])
    (run,) = all_runs(repo / ".git" / "orchestrator")
    (resumed,) = ResumedRun(run, engine=engine).execute().results
    assert resumed.reason is Reason.AGENT_FAILED
    assert starts.read_text() == "started\n" * (2 if lost else 1)
    assert setups.read_text() == "db\n" * (2 if lost else 1)
    assert engine.leftovers({}) == []


def test_teardown_reaches_the_services(run: Callable[..., RunResult], tmp_path: Path) -> None:
    teardown = (f"echo $DB_HOST > {tmp_path}/seen",)
    project = Project(services={"db": described(command=("sleep", "60"))}, teardown=teardown)
    run("exit 1", services={}, project=project)
    assert (tmp_path / "seen").read_text() == "db\n"


def test_setup_with_another_network_does_not_reach_the_services(
    run: Callable[..., RunResult], tmp_path: Path
) -> None:
    project = Project(
        services={"db": described(command=("sleep", "60"))},
        setup=(f"echo has ${{DB_HOST-nothing}} > {tmp_path}/seen",),
    )
    isolation = Isolation(network="none", setup_network="open")
    (worker,) = run("echo $DB_HOST", services={}, project=project, isolation=isolation).results
    assert (tmp_path / "seen").read_text() == "has nothing\n"
    assert stdout(worker) == "db\n"


class WritingDown(LocalEngine):
    """Records the specifications of its containers."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.specs: dict[str, ContainerSpec] = {}

    def create(self, spec: ContainerSpec) -> LocalContainer:
        self.specs[spec.labels[ROLE]] = spec
        return super().create(spec)


@pytest.mark.parametrize("network", ["none", "open"])
def test_specification_of_a_services_container(repo: Path, tmp_path: Path, network: str) -> None:
    engine = WritingDown(tmp_path / "engine")
    service = described(
        command=("sleep", "60"), cpus=0.5, memory="64m", pids=20, tmpfs=("/data",), env={"A": "b"}
    )
    # Setup uses the open network in both cases.
    isolation = Isolation.model_validate({"network": network, "setup_network": "open"})
    project = Project(services={"db": service}, setup=("true",))
    config = configured("true", project=project, isolation=isolation)
    (worker,) = ParallelRunner(config, repo, engine=engine).execute().results
    assert worker.status is Status.SUCCESS, worker.message

    holder, made, agent = (engine.specs[role] for role in ("holder", "service", "worker"))
    assert (holder.network == "none", holder.egress is None) == (network == "none",) * 2
    assert (holder.network, holder.egress) == (agent.network, agent.egress)
    assert holder.extra_hosts == {"db": "127.0.0.1"}
    assert (holder.user, holder.capabilities) == ("65534:65534", ())
    assert made.network_of == agent.network_of is not None
    assert (engine.specs["setup"].network_of == made.network_of) is (network == "open")
    assert made.capabilities == ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
    assert (made.cpus, made.memory, made.pids, made.env) == (0.5, 64 * 1024**2, 20, {"A": "b"})
    assert {mount.target for mount in made.mounts} == {"/tmp", "/run", "/data"}
    assert all(isinstance(mount, TmpfsMount) for mount in made.mounts)
    assert (made.user, made.workdir, made.own_program) == ("", "", True)


def test_variables_of_services_are_not_recorded(run: Callable[..., RunResult], repo: Path) -> None:
    service = described(
        command=("sleep", "60"), env={"A": "hidden-one"}, variables={"B": "hidden-two"}
    )
    result = run("true", services={"db": service})
    record = repo / ".git" / "orchestrator" / "runs" / result.run_id / "run.json"
    assert "hidden" not in record.read_text()
    assert '"variables of service db"' in record.read_text()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"services": {"DB": {"image": "a"}}}, "a service's name must be a lowercase host name"),
        (
            {"services": {"localhost": {"image": "a"}}},
            "a service's name must be a lowercase host name",
        ),
        ({"services": {"db": {}}}, "Field required"),
        (
            {"services": {"a": {"image": "a", "port": 80}, "b": {"image": "b", "port": 80}}},
            "two services must not use the same port",
        ),
        ({"services": {"a": {"image": "a", "tmpfs": ["data"]}}}, "should match pattern"),
    ],
)
def test_invalid_services_are_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Project.model_validate(asked)


@pytest.mark.parametrize(
    ("ports", "said"),
    [
        ({"PORT": 5432}, "port 5432 is already used by service `db`"),
        ({"DB_PORT": 80}, "`DB_PORT` is already the variable of service `db`"),
    ],
)
def test_common_port_of_worker_and_service_is_refused(ports: dict[str, int], said: str) -> None:
    isolation = Isolation.model_validate({"ports": ports})
    with pytest.raises(ValidationError, match=said):
        with_services("true", services={"db": described(port=5432)}, isolation=isolation)
