"""Fixtures and hooks of all tests: no user configuration, and no Docker daemon without a mark."""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import docker
import pytest

from orchestrator.base.errors import EngineUnavailableError, OrchestratorError
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY
from orchestrator.engine.interface.protocol import Leftover
from orchestrator.faces.cli.output.ci import CI_VARIABLES
from tests.support import cost, variants
from tests.support.images import build_agent_image, build_broker_image
from tests.support.local_engine import LocalEngine
from tests.support.own_daemon import Daemon
from tests.support.repository import make_repository

POISON = "unix:///nonexistent/this-test-lacks-the-docker-mark.sock"
_DAEMON_MARKS = ("docker", "e2e", "bench")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose how much is tested, and in which arrangements of worktrees.

    `--faults` is the number of faults that are injected at random times. With any number,
    every step of a run is tested too; without the option only a few steps are.
    """
    parser.addoption(
        "--worktrees", choices=("start", "end", "none"),
        help="when the worktrees of attacked and crashed runs are created",
    )  # fmt: skip
    parser.addoption(
        "--mounts", choices=("overlay", "bind"), default="overlay",
        help="how the worktrees of crashed runs are mounted",
    )  # fmt: skip
    parser.addoption("--faults", type=int, default=0, metavar="N", help="faults to inject")
    parser.addoption(
        "--elsewhere", choices=("tls", "ssh"),
        help="run containers on a second daemon, as on another machine that is reached this way",
    )  # fmt: skip
    parser.addoption(variants.OPTION, action="store_true", help="run every variant of a test")


def pytest_configure() -> None:
    """Restore default signal handlers, which `nohup` and background jobs of scripts disable."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `-m fast`, skip files without fast tests."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    asked = config.getoption("markexpr") == "fast"
    return True if asked and is_test and not cost.may_be_fast(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select variants of tests, set the mark `fast` by cost, and run the slowest tests first."""
    variants.select(config, items)
    cost.mark(items)
    cost.order(items)


def pytest_collection_finish() -> None:
    """Exclude the collected tests from later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test with the mark `fast` that starts a process or opens a connection."""
    with cost.guarded(item):
        return (yield)


@pytest.fixture(autouse=True)
def isolate_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove variables of git and of CI systems; without a Docker mark, also hide the daemon."""
    monkeypatch.delenv("COLUMNS", raising=False)
    for name in os.environ:
        if name.startswith("GIT_") or name in CI_VARIABLES:
            monkeypatch.delenv(name)
    if any(request.node.get_closest_marker(mark) for mark in _DAEMON_MARKS):
        probes = request.getfixturevalue("proven_engine")
        monkeypatch.setattr("tests.support.repository.probes", probes)
    else:
        monkeypatch.setenv("DOCKER_HOST", POISON)
        request.getfixturevalue("home")


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home directory; git reads no system-wide configuration."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return home


@pytest.fixture
def repo(tmp_path: Path, home: Path) -> Path:  # noqa: ARG001
    """Return a new repository with two commits."""
    return make_repository(tmp_path / "repo")


@pytest.fixture
def local_engine(tmp_path: Path) -> Iterator[LocalEngine]:
    """Return an engine that runs containers as processes; fail if a container is left over."""
    engine = LocalEngine(tmp_path / "engine")
    yield engine
    left = engine.leftovers({})
    for leftover in left:
        engine.remove(leftover)
    assert left == []


@pytest.fixture(scope="session")
def elsewhere(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Daemon | None]:
    """Start the daemon of `--elsewhere`, which sees no file of a test, and let commands use it."""
    way = request.config.getoption("--elsewhere")
    if way is None:
        yield None
        return
    # Imported here because a test that uses them is not fast.
    from tests.support.own_daemon import by_tls, own_daemon
    from tests.support.sshd import ssh_server

    with ExitStack() as stack:
        short = Path(stack.enter_context(TemporaryDirectory(prefix="orc-", dir="/var/tmp")))
        hidden = (tmp_path_factory.getbasetemp(),)
        daemon = stack.enter_context(own_daemon(short / "d", hidden=hidden, tls=True))
        variables = by_tls(daemon)
        if way == "ssh":
            server = stack.enter_context(ssh_server(short / "ssh", daemon))
            variables = {"DOCKER_HOST": server.url, "PATH": server.path}
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in variables.items():
            patch.setenv(name, value)
        yield daemon


@pytest.fixture(scope="session")
def docker_engine(elsewhere: Daemon | None) -> Iterator[DockerEngine]:  # noqa: ARG001
    """Return the Docker engine of this machine; without a daemon the test fails."""
    try:
        engine = DockerEngine()
    except EngineUnavailableError as error:
        pytest.fail(f"{error.message}; tests marked `docker` need a daemon", pytrace=False)
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def proven_engine(
    docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory
) -> Path | None:
    """Test the limits of containers once, and return the directory with the answer."""
    # Imported here because fast tests should not wait for it.
    from orchestrator.engine.images.names import BASE_IMAGE
    from orchestrator.repository.repository import Repository
    from orchestrator.runs.planning.enforcement import proven_limits

    tested = Repository(make_repository(tmp_path_factory.mktemp("proven") / "repo"))
    with suppress(OrchestratorError):  # the base image may be missing
        features = docker_engine.check(images=(BASE_IMAGE,), runtime=None)
        proven_limits(docker_engine, features, tested, None)
        return tested.state_dir / "probes"
    return None


@pytest.fixture
def client(elsewhere: Daemon | None) -> Iterator[docker.APIClient]:
    """Return a client of the Docker daemon, to inspect what the engine created."""
    # Tests of places also run on the engine that `DOCKER_HOST` names, such as Podman.
    url = os.environ.get("DOCKER_HOST") if elsewhere is None else elsewhere.url
    client = docker.APIClient(version="auto", base_url=url)
    yield client
    client.close()


@pytest.fixture(scope="session")
def agent_image(docker_engine: DockerEngine) -> Callable[[str], str]:
    """Return a function that builds an agent's image, which may take minutes."""
    return partial(build_agent_image, docker_engine)


@pytest.fixture(scope="session")
def broker_image(docker_engine: DockerEngine) -> str:
    """Return the name of the credential broker's image, which is built on first use."""
    return build_broker_image(docker_engine)


@pytest.fixture(scope="session", autouse=True)
def check_nothing_left(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    elsewhere: Daemon | None,  # noqa: ARG001  # its daemon ends later
):
    """Check at the end of the session that no container, network or volume is left."""
    yield
    if not any(item.get_closest_marker("docker") for item in request.session.items):
        return
    root = str(tmp_path_factory.getbasetemp().resolve())
    engine = DockerEngine()
    try:
        left = [
            leftover
            for leftover in engine.leftovers({MANAGED: "true"})
            # The daemon may be shared: only repositories in the directory of this session count.
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
