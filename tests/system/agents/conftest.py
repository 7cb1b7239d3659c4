"""The real command line and the real agent, with a scripted model behind them."""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support import forks
from tests.support.bridge import bridge_gateway
from tests.support.cli import learn_of_overlays, spare_probe
from tests.support.model_server import ModelServer

pytest.register_assert_rewrite("tests.system.agents.agent_suite")

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "docs" / "demo" / "sample"
_MODULES = "PYTHONPATH"
PROVIDERS = ("OPENAI", "ANTHROPIC", "DEEPSEEK")

Orchestrator = Callable[..., subprocess.CompletedProcess[str]]


def run_git(repository: Path, *arguments: str) -> str:
    """Run git there and give what it prints."""
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout


def caller_environment(home: Path, url: str) -> Mapping[str, str]:
    """Give the environment of a caller who set the providers' own variables and nothing else."""
    known = ("PATH", "DOCKER_HOST", *forks.STARTED_WITH)
    keep = {n: value for n, value in os.environ.items() if n.startswith(known) and n != _MODULES}
    keys = {f"{provider}_API_KEY": f"key-of-{provider.lower()}" for provider in PROVIDERS}
    bases = {f"{provider}_API_BASE": url for provider in PROVIDERS}
    return {**keep, **keys, **bases, "HOME": str(home), "COLUMNS": "160"}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Make a repository with one commit out of the demo's sample."""
    repository = tmp_path / "shop"
    shutil.copytree(SAMPLE, repository, ignore=shutil.ignore_patterns("__pycache__"))
    run_git(repository, "init", "--quiet", "--initial-branch", "main")
    run_git(repository, "config", "user.name", "Ann")
    run_git(repository, "config", "user.email", "ann@localhost")
    run_git(repository, "add", "--all")
    run_git(repository, "commit", "--quiet", "--message", "A corner shop")
    return repository


@pytest.fixture
def model_server(request: pytest.FixtureRequest) -> Iterator[ModelServer]:
    """Serve the test module's `SCENARIO` where containers reach it."""
    with ModelServer(request.module.SCENARIO, host=bridge_gateway()) as server:
        yield server


@pytest.fixture
def orchestrator(shop: Path, tmp_path: Path, model_server: ModelServer) -> Iterator[Orchestrator]:
    """Give a function that runs the command line in the shop's repository."""
    environment = caller_environment(tmp_path, model_server.url)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        spare_probe(shop)
        done = forks.run("orchestrator", arguments, cwd=shop, env=environment)
        learn_of_overlays(shop)
        return done

    yield run
    run("parallel-cleanup", "--purge")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Give a port of the bridge that nobody listens on, as long as the test goes on."""
    with socket.socket() as taken:
        taken.bind((bridge_gateway(), 0))
        yield taken.getsockname()[1]
