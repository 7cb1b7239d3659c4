"""Tests of what engines with Docker's API accept, and of what they list."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest
from docker.types import Mount

from orchestrator.config.settings.container import Isolation
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.docker.arguments import create_arguments
from orchestrator.engine.docker.container import remove_container
from orchestrator.engine.docker.dialect import Dialect, dialect_of, labelled
from orchestrator.engine.docker.seccomp import profile
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.repository.repository import Repository
from orchestrator.worker.workspace import overlay_probe
from tests.support.recorded_engines import DOCKER, INFO, OLD_PODMAN, PODMAN

UNKNOWN = 'container create: unknown mount option "%s": invalid mount option'
NO_PROFILE = "container create: opening seccomp profile failed: open %s: no such file or directory"

NO_LIMIT = "crun: setrlimit `RLIMIT_NPROC`: Operation not permitted: OCI permission denied"
ENDING = "cannot remove container 8 as it could not be stopped: container state improper: stopped"


class Client:
    """An engine that refuses options as Podman 4.3.1 does, in these words."""

    create_host_config = docker.APIClient.create_host_config
    _version = "1.41"

    def __init__(
        self, *, sees_paths: bool = True, problem: str = "", most: int = 1 << 20, own: int = 1 << 22
    ) -> None:
        self.sees_paths, self.problem = sees_paths, problem
        self.most, self.own = most, own
        """Processes of one user that the kernel allows, and that a container gets by default."""
        self.left: list[str] = []
        self.ends = 0
        """How often a container is about to end when it is to be removed."""

    def create_container(self, *_: object, host_config: Any, **__: object) -> dict[str, str]:
        if self.problem:
            raise docker.errors.APIError("500", explanation=self.problem)
        for options in (host_config.get("Tmpfs") or {}).values():
            for option in options.split(","):
                if option.partition("=")[0] in ("nr_inodes", "uid", "gid"):
                    raise docker.errors.APIError("500", explanation=UNKNOWN % option)
        for option in host_config.get("SecurityOpt") or ():
            file = option.removeprefix("seccomp=")
            if not (self.sees_paths and file.startswith("/")):
                raise docker.errors.APIError("500", explanation=NO_PROFILE % file)
        self.wanted = [limit["Hard"] for limit in host_config.get("Ulimits") or ()]
        self.left.append("made")
        return {"Id": "made"}

    def start(self, container: str) -> None:
        assert container in self.left
        if max(self.wanted, default=self.own) > self.most:
            raise docker.errors.APIError("500", explanation=NO_LIMIT)

    def wait(self, container: str) -> None:
        assert container in self.left

    def remove_container(self, container: str, **_: object) -> None:
        if self.ends:
            self.ends -= 1
            raise docker.errors.APIError("500", explanation=ENDING)
        self.left.remove(container)


def asked(client: Client, version: dict[str, Any] = OLD_PODMAN, **info: Any) -> Dialect:
    return dialect_of(client, version, {**INFO, **info})  # type: ignore[arg-type]


def test_docker_accepts_everything_and_is_not_asked() -> None:
    refusing = Client(problem="must not be asked")
    assert asked(refusing, DOCKER) == Dialect(seccomp=profile())
    assert asked(refusing, DOCKER, SecurityOptions=[]) == Dialect()


@pytest.mark.parametrize("version", [OLD_PODMAN, PODMAN], ids=["4.3", "5.4"])
def test_what_podman_refuses_is_left_out(version: dict[str, Any]) -> None:
    client = Client()
    found = asked(client, version, Plugins={"Log": ["k8s-file", "none", "journald"]})
    assert (found.tmpfs_inodes, found.tmpfs_owner, found.log_driver) == (False, False, "json-file")
    assert found.processes
    assert not found.archives_enter_mounts
    assert client.left == []


def test_profile_is_a_path_where_the_engine_sees_it_and_else_the_engines_own() -> None:
    path = asked(Client()).seccomp
    assert path is not None
    assert path.endswith("/seccomp/profile.json")
    assert asked(Client(sees_paths=False)).seccomp is None


@pytest.mark.parametrize(
    ("most", "own", "found"),
    [
        # Podman 5.8 sets what its own process may have, which depends on the machine's memory.
        (15562, 15562, None),
        (1 << 20, 1 << 20, None),
        # Podman 4.3 sets a constant.
        (1 << 20, 1 << 22, 16384),
        (15562, 1 << 22, 4096),
        (2000, 1 << 22, 1024),
    ],
)
def test_rootless_engine_sets_no_more_processes_than_it_may(
    most: int, own: int, found: int | None
) -> None:
    client = Client(most=most, own=own)
    assert asked(client, PODMAN, Rootless=True).processes == found
    assert client.left == []


def test_other_refusals_are_errors() -> None:
    with pytest.raises(docker.errors.APIError):
        asked(Client(problem="no space left on device"))


@pytest.mark.parametrize(
    ("image", "given"),
    [
        ({}, None),
        ({"Healthcheck": None}, None),
        ({"Healthcheck": {"Test": ["CMD", "true"]}}, {"test": ["NONE"]}),
    ],
)
def test_health_check_is_switched_off_only_in_an_image_that_has_one(
    image: dict[str, Any], given: dict[str, Any] | None
) -> None:
    """Podman 5.8 starts a timer of systemd for a health check that is switched off."""
    spec = ContainerSpec(
        name="one", image="any", command=("true",), user="1:1", workdir="/", labels={}
    )
    arguments = create_arguments(Client(), spec, Dialect(), image)  # type: ignore[arg-type]
    assert arguments["healthcheck"] == given


def test_container_that_ends_meanwhile_is_removed() -> None:
    client = Client()
    client.left, client.ends = ["made"], 2
    remove_container(client, "made")  # type: ignore[arg-type]
    assert client.left == []


def test_listed_objects_without_all_labels_are_left_out() -> None:
    """Podman 4.3.1 lists volumes with any of several labels: removing them would hit others."""
    ours, others = {"managed": "true", "run": "1"}, {"managed": "true", "run": "2"}
    listed = [
        {"Labels": ours},
        {"Labels": others},
        {"Labels": None},
        {"Labels": {**ours, "a": "b"}},
    ]
    assert labelled(listed, ours) == [listed[0], listed[3]]
    assert labelled(None, ours) == []


@pytest.mark.extra
@pytest.mark.docker
def test_worker_owns_its_files_though_the_engine_gives_volumes_to_root(
    docker_engine: DockerEngine, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Podman 5.8 gives them to root at each archive for a container that does not run."""
    client: Any = docker_engine._client
    send, given = client.put_archive, []

    def sends(container: str, path: str, data: Any) -> Any:
        done = send(container, path, data)
        found = client.inspect_container(container)
        if found["State"]["Running"]:
            return done
        mounts = found["Mounts"]
        volumes = {mount["Name"]: f"/v{number}" for number, mount in enumerate(mounts)}
        host = client.create_host_config(
            mounts=[Mount(to, name, type="volume") for name, to in volumes.items()]
        )
        own = client.create_container(
            BASE_IMAGE, ["chown", "0:0", *volumes.values()], user="0", host_config=host
        )["Id"]
        client.start(own)
        assert client.wait(own)["StatusCode"] == 0
        client.remove_container(own)
        given.append(path)
        return done

    monkeypatch.setattr(client, "put_archive", sends)
    dialect = replace(docker_engine._dialect, archives_enter_mounts=False)
    monkeypatch.setitem(docker_engine.__dict__, "_dialect", dialect)
    features = docker_engine.check(images=(), runtime=None)
    isolation = Isolation(transfer="streams")
    way = overlay_probe.tested_way(docker_engine, features, Repository(repo), isolation)
    assert way == "streams"
    assert len(given) > 3
