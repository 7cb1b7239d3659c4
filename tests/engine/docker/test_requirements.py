"""Tests that unsupported engines are refused by name, before anything is created.

`tests/support/recorded_engines.py` has what they answer.
"""

import socket
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import UnsupportedError
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.docker.address import Address
from orchestrator.engine.docker.requirements import check_address, fingerprint
from orchestrator.engine.interface.features import EngineFeatures
from tests.support.cli import Completed, orchestrator
from tests.support.recorded_engines import (
    DESKTOP,
    DOCKER,
    INFO,
    NEWEST,
    OLD_PODMAN,
    PODMAN,
    ROOTLESS,
    ROOTLESS_PODMAN,
    UNDELEGATED,
    UnixServer,
    answering,
    serving,
)
from tests.support.repository import git
from tests.support.ssh import FakeSsh


def tried(repo: Path, host: str, *command: str) -> Completed:
    return orchestrator(*command, cwd=repo, env={"DOCKER_HOST": host})


def features_of(folder: Path, version: dict[str, Any], info: dict[str, Any]) -> EngineFeatures:
    folder.mkdir(exist_ok=True)
    path = folder / "engine.sock"
    with serving(UnixServer(str(path), answering(version, info))):
        engine = DockerEngine(f"unix://{path}")
        try:
            return engine.check(images=(), runtime=None)
        finally:
            engine.close()


def untouched(repo: Path) -> bool:
    branches = git(repo, "branch", "--list", "architect/*")
    runs = list((repo / ".git" / "orchestrator" / "runs").glob("*"))
    return not branches and not runs and not list(repo.glob(".architect-*"))


PARALLEL = ("parallel", "--agent-cli", "shell", "true")


@pytest.mark.parametrize(
    ("version", "info", "overlay"),
    [
        (DOCKER, DESKTOP, False),
        (NEWEST, INFO, True),
        (DOCKER, ROOTLESS, True),
        (DOCKER, UNDELEGATED, True),
        (DOCKER, ROOTLESS_PODMAN, True),
    ],
    ids=["Desktop", "29", "rootless", "rootless without delegation", "rootless Podman"],
)
def test_recorded_engine_is_left_to_the_tests_in_containers(
    tmp_path: Path, version: dict[str, Any], info: dict[str, Any], overlay: bool
) -> None:
    features = features_of(tmp_path, version, info)
    assert (features.overlay, features.enforced) == (overlay, {})
    is_closed = info not in (ROOTLESS, UNDELEGATED, ROOTLESS_PODMAN)
    assert (features.open_network, features.gateways) == (is_closed, is_closed)
    assert features.address == f"unix://{tmp_path}/engine.sock"


def test_podman_is_known_again_although_its_id_changes(tmp_path: Path) -> None:
    def asked(number: int, version: dict[str, Any], **change: str) -> tuple[str, str]:
        info = INFO | {"ID": f"id-{number}", "DockerRootDir": "/var/lib/containers"} | change
        found = features_of(tmp_path / str(number), version, info)
        return found.id, found.fingerprint

    first = asked(1, PODMAN)
    assert asked(2, PODMAN) == first
    assert {*asked(3, PODMAN, DockerRootDir="/home/ann/storage")}.isdisjoint(first)
    assert asked(4, DOCKER)[0] == "id-4"


@pytest.mark.parametrize("version", [OLD_PODMAN, PODMAN], ids=["4.3", "5.4"])
def test_recorded_podman_is_named_and_has_no_gateways(
    tmp_path: Path, version: dict[str, Any]
) -> None:
    features = features_of(tmp_path, version, INFO | {"ServerVersion": version["Version"]})
    assert features.version == f"podman {version['Version']}"
    assert not features.gateways
    assert features_of(tmp_path / "docker", DOCKER, INFO).gateways


@pytest.mark.parametrize("change", ["ID", "Name", "KernelVersion", "SecurityOptions", "SwapLimit"])
def test_another_machine_or_configuration_has_another_fingerprint(change: str) -> None:
    assert fingerprint(INFO) == fingerprint({**INFO, "Containers": 7, "SystemTime": "now"})
    assert fingerprint(INFO) != fingerprint({**INFO, change: "another"})


def test_engine_without_tls_is_refused_without_connecting(repo: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        host = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        done = tried(repo, host, *PARALLEL)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert done.returncode == 3
    assert done.stderr.startswith(f"error: the address `{host}` has no TLS")
    assert "hint: reach it by ssh" in done.stderr
    assert "`unset DOCKER_HOST`" in done.stderr
    assert untouched(repo)


def test_machine_that_ssh_does_not_reach_is_an_error_in_one_line(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "ssh"
    place.mkdir()
    ssh = FakeSsh(place)
    ssh.fail()
    monkeypatch.setenv("PATH", ssh.path)
    done = tried(repo, "ssh://nobody@there.invalid", *PARALLEL)
    assert done.returncode == 7
    assert done.stderr.startswith("error: cannot connect to `there.invalid` by ssh: Permission")
    assert "\nhint: check that `ssh there.invalid docker version` works" in done.stderr
    cleaned = tried(repo, "ssh://nobody@there.invalid", "parallel-cleanup")
    assert cleaned.returncode == 0
    assert cleaned.stderr.startswith("nothing to clean up\n")
    assert untouched(repo)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("/run/docker.sock", "hint: export DOCKER_HOST=unix:///run/docker.sock"),
        ("~/docker.sock", "`DOCKER_HOST` is the path `~/docker.sock`"),
    ],
)
def test_path_in_place_of_an_address_is_refused(value: str, said: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        check_address(Address(value, "DOCKER_HOST"))
    assert said in f"{caught.value.message}\nhint: {caught.value.hint}"
