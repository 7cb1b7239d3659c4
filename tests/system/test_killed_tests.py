"""What a command creates for a test is found by a cleanup, if the command was killed meanwhile."""

import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import docker
import pytest

from orchestrator.base.machine import own_command, process_mark
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.labels import MANAGED, PROCESS, REPOSITORY, RUN, for_a_moment
from orchestrator.faces.cli.app import run
from orchestrator.state.run_record import is_run_id
from tests.support.cli import orchestrator
from tests.support.containers import Starter

pytestmark = pytest.mark.docker


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> dict[str, Mapping[str, str]]:
    """Return the labels of all objects that are created from now on, by what created them."""
    found: dict[str, Mapping[str, str]] = {}

    def watch(kind: str) -> None:
        create = getattr(docker.APIClient, kind)

        def creates(self: docker.APIClient, *args: Any, **rest: Any) -> Any:
            found[f"{len(found)} {kind} {rest.get('name') or args}"] = rest.get("labels") or {}
            return create(self, *args, **rest)

        monkeypatch.setattr(docker.APIClient, kind, creates)

    for kind in ("create_container", "create_network", "create_volume"):
        watch(kind)
    return found


@pytest.mark.variants("mounts")
@pytest.mark.parametrize("transfer", ["mounts", "streams"])
def test_everything_that_is_created_can_be_found_by_a_cleanup(
    repo: Path, created: dict[str, Mapping[str, str]], monkeypatch: pytest.MonkeyPatch,
    docker_engine: DockerEngine, transfer: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(repo)
    monkeypatch.setenv("ORCHESTRATOR_TRANSFER", transfer)
    run(["doctor"])
    run(["init", "--yes"])
    run(["run-one", "--agent-cli", "shell", "--network", "open", "--quiet", "echo x > x"])
    run(["judge", "1", "--check", "true", "--quiet"])
    run(["exec", "1", "true"])
    docker_engine.resolve("localhost")
    own = str(repo / ".git")
    assert len(created) > 15
    for name, labels in created.items():
        assert labels.get(MANAGED) == "true", name
        of_run = is_run_id(labels.get(RUN, "")) and labels.get(REPOSITORY) == own
        assert of_run or labels.get(PROCESS) == process_mark(), (name, labels)
    orchestrator("parallel-cleanup", "--purge", cwd=repo)


def test_test_of_a_killed_command_is_removed_and_that_of_a_live_one_stays(
    repo: Path, docker_engine: DockerEngine
) -> None:
    labels = {MANAGED: "true", REPOSITORY: str(repo / ".git")}
    own = for_a_moment(labels[REPOSITORY], run="limits-live")
    live = Starter(docker_engine, own)("sleep", "300")
    try:
        with subprocess.Popen(
            own_command("doctor"), cwd=repo, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as command:
            deadline = time.monotonic() + 120
            while len(left := docker_engine.leftovers(labels)) < 2:
                assert time.monotonic() < deadline
                assert command.poll() is None
                time.sleep(0.01)
            command.send_signal(signal.SIGKILL)
        assert any(found.labels[RUN].startswith("limits-") for found in left)
        cleaned = orchestrator("parallel-cleanup", "--purge", cwd=repo)
        assert cleaned.returncode == 0
        assert "nothing to clean up" not in cleaned.stdout
        assert [found.id for found in docker_engine.leftovers(labels)] == [live.id]
    finally:
        live.remove()
