"""The ground that every test stands on: no user's configuration, no daemon by accident."""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import docker
import pytest

from orchestrator.cli.output.ci import CI_VARIABLES
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.labels import MANAGED, REPOSITORY
from orchestrator.engine.protocol import Leftover
from orchestrator.errors import EngineUnavailableError
from tests.support import cost
from tests.support.images import build_agent_image
from tests.support.local_engine import LocalEngine
from tests.support.repository import make_repository

POISON = "unix:///nonexistent/this-test-lacks-the-docker-mark.sock"
_DAEMON_MARKS = ("docker", "e2e", "bench")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for `make faults`: how many faults are injected at random instants.

    With any number every step of a run is tried too; without it a few are.
    """
    parser.addoption("--faults", type=int, default=0, metavar="N", help="faults to inject")


def pytest_configure() -> None:
    """Let signals through to what the tests start, also below `nohup` or a script's background."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Read no file for `-m fast` that has no fast test."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    asked = config.getoption("markexpr") == "fast"
    return True if asked and is_test and not cost.may_be_fast(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they cost, and begin with those that take longest."""
    cost.mark(items)
    cost.order(items)


def pytest_collection_finish() -> None:
    """Let no collection of garbage look through thousands of collected tests again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Hold a fast test to what its mark says."""
    with cost.guarded(item):
        return (yield)


@pytest.fixture(autouse=True)
def ground(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the caller's shell says of git and of a CI system.

    What it says of Docker too, without the mark for it.
    """
    for name in os.environ:
        if name.startswith("GIT_") or name in CI_VARIABLES:
            monkeypatch.delenv(name)
    if not any(request.node.get_closest_marker(mark) for mark in _DAEMON_MARKS):
        monkeypatch.setenv("DOCKER_HOST", POISON)
        request.getfixturevalue("home")


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory, and no system-wide git configuration."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


@pytest.fixture
def repo(tmp_path: Path, home: Path) -> Path:  # noqa: ARG001
    """A fresh repository with two commits."""
    return make_repository(tmp_path / "repo")


@pytest.fixture
def local_engine(tmp_path: Path) -> Iterator[LocalEngine]:
    """An engine of processes; the test fails if it leaves one."""
    engine = LocalEngine(tmp_path / "engine")
    yield engine
    left = engine.leftovers({})
    for leftover in left:
        engine.remove(leftover)
    assert left == []


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """The engine on this machine; without one the test fails, it is never skipped."""
    try:
        engine = DockerEngine()
    except EngineUnavailableError as error:
        pytest.fail(f"{error.message}; tests marked `docker` need a daemon", pytrace=False)
    yield engine
    engine.close()


@pytest.fixture
def client() -> Iterator[docker.APIClient]:
    """The daemon itself, to see what the engine made there."""
    client = docker.APIClient(version="auto")
    yield client
    client.close()


@pytest.fixture(scope="session")
def agent_image(docker_engine: DockerEngine) -> Callable[[str], str]:
    """Build an agent's image, up to minutes when it is not there: mind the test's timeout."""
    return partial(build_agent_image, docker_engine)


@pytest.fixture(scope="session", autouse=True)
def nothing_left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """At the end, hold that no container, network or volume of this session's is left."""
    yield
    if not any(item.get_closest_marker("docker") for item in request.session.items):
        return
    root = str(tmp_path_factory.getbasetemp().resolve())
    engine = DockerEngine()
    try:
        left = [
            leftover
            for leftover in engine.leftovers({MANAGED: "true"})
            # Others work with the same daemon: only repositories below our own directory count.
            if leftover.labels.get(REPOSITORY, "").startswith(f"{root}/")
        ]
        told = [_describe(leftover) for leftover in left]
        for leftover in left:
            engine.remove(leftover)
    finally:
        engine.close()
    assert not left, "left behind by this session:\n" + "\n".join(told)


def _describe(leftover: Leftover) -> str:
    head = f"{leftover.kind} {leftover.id} {dict(leftover.labels)}"
    if leftover.kind != "container":
        return head
    client = docker.APIClient(version="auto")
    try:
        return f"{head}\n  {client.inspect_container(leftover.id)['State']}"
    except docker.errors.NotFound:
        return f"{head} (gone meanwhile)"
    finally:
        client.close()
