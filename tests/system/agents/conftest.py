"""Fixtures with the real command line, the real agents and a scripted model."""

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

pytest.register_assert_rewrite(
    "tests.system.agents.agent_suite", "tests.system.agents.broker_suite"
)

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "docs" / "demo" / "sample"
_MODULES = "PYTHONPATH"
PROVIDERS = ("OPENAI", "ANTHROPIC", "DEEPSEEK")

Orchestrator = Callable[..., subprocess.CompletedProcess[str]]


def run_git(repository: Path, *arguments: str) -> str:
    """Run git in a repository and return its stdout."""
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True)
    return done.stdout


def caller_environment(home: Path, url: str) -> Mapping[str, str]:
    """Return the environment of a caller who set only the providers' variables."""
    known = ("PATH", "DOCKER_HOST", *forks.STARTED_WITH)
    keep = {n: value for n, value in os.environ.items() if n.startswith(known) and n != _MODULES}
    keys = {f"{provider}_API_KEY": f"key-of-{provider.lower()}" for provider in PROVIDERS}
    bases = {f"{provider}_API_BASE": url for provider in PROVIDERS}
    return {**keep, **keys, **bases, "HOME": str(home), "COLUMNS": "160"}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A repository with one commit of the demo's sample."""
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
    """A server with the test module's `SCENARIO`, which containers can reach."""
    with ModelServer(request.module.SCENARIO, host=bridge_gateway()) as server:
        yield server


@pytest.fixture
def variables(tmp_path: Path, model_server: ModelServer) -> Mapping[str, str]:
    """The environment of the caller."""
    return caller_environment(tmp_path, model_server.url)


@pytest.fixture
def orchestrator(shop: Path, variables: Mapping[str, str]) -> Iterator[Orchestrator]:
    """A function that runs the command line in the shop's repository."""

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        spare_probe(shop)
        done = forks.run("orchestrator", arguments, cwd=shop, env={**variables, **more})
        learn_of_overlays(shop)
        return done

    yield run
    run("parallel-cleanup", "--purge")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of the bridge on which nothing listens during the test."""
    with socket.socket() as taken:
        taken.bind((bridge_gateway(), 0))
        yield taken.getsockname()[1]
