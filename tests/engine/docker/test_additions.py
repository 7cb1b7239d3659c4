"""What the SDK, the daemon and an image add to a container: a list, with a reason for each."""

import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.docker.networks import bridge_of
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import GATEWAY, MANAGED, PORTS, SHARES
from orchestrator.engine.interface.spec import TmpfsMount
from tests.support.containers import USER, Starter, bind, finish
from tests.support.errors import raises

pytestmark = pytest.mark.docker

SECRET = "http://u:secret@10.9.8.7:3128"
OF_THE_USER = {
    "proxies": {"default": dict.fromkeys(("httpProxy", "httpsProxy", "ftpProxy"), SECRET)},
    "HttpHeaders": {"X-Secret": SECRET},
    "auths": {"registry.invalid": {"auth": "dTpzZWNyZXQ="}},
    "credHelpers": {"registry.invalid": "no-such-helper"},
    "detachKeys": "ctrl-x",
}
OF_THE_IMAGE = (
    "VOLUME /volume/", "VOLUME /data/sub", "EXPOSE 8080",
    'ENTRYPOINT ["/bin/echo", "entry"]', "HEALTHCHECK CMD /bin/true",
    "ENV ADDED=by-the-image", "USER 0:0", "WORKDIR /root", "ONBUILD RUN false",
    f"LABEL {GATEWAY}=forged {SHARES}=true {PORTS}=1:2 theirs=kept",
)  # fmt: skip

HOST_CONFIG: Mapping[str, Any] = {
    # From the specification.
    "NanoCpus": 500_000_000, "Memory": 64 << 20, "MemorySwap": 64 << 20, "PidsLimit": 50,
    "NetworkMode": "none", "CapAdd": None, "CapDrop": ["ALL"], "PortBindings": {},
    "Binds": None, "Runtime": "runc", "Init": True, "ReadonlyRootfs": True, "ExtraHosts": [],
    "LogConfig": {"Type": "none", "Config": {}},
    "Ulimits": [{"Name": "nofile", "Hard": 77, "Soft": 77}, {"Name": "core", "Hard": 0, "Soft": 0}],
    # Set by us, so that no daemon decides otherwise.
    "IpcMode": "private", "CgroupnsMode": "private", "ShmSize": 64 << 20,
    "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},
    "Dns": ["127.0.0.1"], "DnsSearch": ["."],
    # The daemon hides more of /proc and /sys than we could name for every kernel.
    "MaskedPaths": [
        "/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
        "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
        "/sys/firmware",
    ],
    "ReadonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
}  # fmt: skip
"""Settings of the container that are not empty, on the oldest supported daemon."""

CONFIG: Mapping[str, Any] = {
    "User": f"{USER}:{USER}", "Cmd": ["env"], "WorkingDir": "/", "StopSignal": "SIGTERM",
    "Healthcheck": {"Test": ["NONE"]}, "AttachStdout": True, "AttachStderr": True,
    # No port of a container is published unless the specification says so.
    "ExposedPorts": {"8080/tcp": {}},
    # Shown, and replaced by file systems in memory: the container has no other mounts.
    "Volumes": {"/volume/": {}, "/data/sub": {}},
}  # fmt: skip


def said_something(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries whose value is not empty, and those that are expected although empty."""
    return {key: value for key, value in values.items() if value or key in HOST_CONFIG}


@pytest.fixture
def hostile_image(client: docker.APIClient) -> Iterator[str]:
    tag = f"orchestrator-test-{secrets.token_hex(4)}"
    source = client.create_container(BASE_IMAGE, "true", labels={MANAGED: "true"})["Id"]
    try:
        # `changes` of a commit cannot set a stop signal, but its configuration can.
        client.commit(
            source, repository=tag, changes="\n".join(OF_THE_IMAGE), conf={"StopSignal": "SIGQUIT"}
        )
    finally:
        client.remove_container(source, force=True)
    yield tag
    client.remove_image(tag, force=True)


@pytest.fixture
def engine_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerEngine]:
    """Return an engine whose client has a configuration with secrets."""
    (tmp_path / "config.json").write_text(json.dumps(OF_THE_USER))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    engine = DockerEngine()
    yield engine
    engine.close()


def test_container_has_nothing_that_the_specification_does_not_name(
    client: docker.APIClient, engine_of_a_user: DockerEngine, docker_start: Starter,
    labels: dict[str, str], hostile_image: str, shared: Path,
) -> None:  # fmt: skip
    spec = docker_start.spec(
        "env", image=hostile_image, env={"OURS": "1"}, cpus=0.5, memory=64 << 20, pids=50,
        open_files=77, mounts=(bind(shared, "/own"), TmpfsMount(target="/tmp", size=1 << 20)),
    )  # fmt: skip
    container = engine_of_a_user.start(spec)
    seen = client.inspect_container(container.id)
    status, stdout, _ = finish(container)

    tmpfs = seen["HostConfig"].pop("Tmpfs")
    mounts = seen["HostConfig"].pop("Mounts")
    size = seen["HostConfig"].pop("ConsoleSize")
    allowed, filtered = seen["HostConfig"].pop("SecurityOpt")
    assert said_something(seen["HostConfig"]) == HOST_CONFIG
    assert (allowed, filtered.partition("=")[0]) == ("no-new-privileges", "seccomp")
    # The size of the terminal of whoever asks: there is none.
    assert (set(tmpfs), size) == ({"/tmp", "/volume", "/data/sub"}, [0, 0])
    assert "size=1073741824" in tmpfs["/volume"]
    assert mounts == [{"Type": "bind", "Source": str(shared), "Target": "/own"}]
    assert [(one["Type"], one["Destination"]) for one in seen["Mounts"]] == [("bind", "/own")]

    config = {key: value for key, value in seen["Config"].items() if value}
    assert config.pop("Hostname") == container.id[:12], "the container's own id"
    found = dict(line.split("=", 1) for line in config.pop("Env"))
    # An image's variables are those of its programs. Docker adds `PATH` if the image has none.
    assert found.keys() - {"PATH", "LANG", "DEBIAN_FRONTEND"} <= {"OURS", "ADDED"} | _of(client)
    kept = {key: value for key, value in config.pop("Labels").items() if value}
    assert kept.keys() - _labels(client) == {*labels, "theirs"}
    assert config.pop("Image") == hostile_image
    assert config == CONFIG

    (network,) = seen["NetworkSettings"]["Networks"]
    assert network == "none"
    assert not seen["NetworkSettings"]["Ports"]
    assert status.exit_code == 0
    assert "secret" not in f"{json.dumps(seen)} {stdout.decode()}"


def _of(client: docker.APIClient) -> set[str]:
    """Return the names of the variables of the base image."""
    config = client.inspect_image(BASE_IMAGE)["Config"]  # type: ignore[no-untyped-call]
    return {line.partition("=")[0] for line in config["Env"] or ()}


def _labels(client: docker.APIClient) -> set[str]:
    config = client.inspect_image(BASE_IMAGE)["Config"]  # type: ignore[no-untyped-call]
    return set(config["Labels"] or ())


def test_labels_of_an_image_name_no_gateway_of_others(
    docker_engine: DockerEngine, docker_start: Starter, hostile_image: str
) -> None:
    container = docker_start("sleep", "300", image=hostile_image)
    found = docker_engine.adopt(container.id)
    assert found is not None
    assert (found.gateway, found.shares_guard, dict(found.ports)) == (None, False, {})


def test_command_in_a_container_gets_nothing_of_the_users_configuration(
    engine_of_a_user: DockerEngine, docker_start: Starter
) -> None:
    container = docker_start("sleep", "300")
    process = engine_of_a_user.enter(container.id, ("env",))
    said = b"".join(chunk.data for chunk in process.output())
    process.close()
    assert b"HOME=" in said
    assert b"secret" not in said


def test_networks_have_no_options_but_ours(
    client: docker.APIClient, docker_engine: DockerEngine, docker_start: Starter,
    labels: dict[str, str],
) -> None:  # fmt: skip
    name = docker_start.spec("true").name
    opened = docker_engine.create_network(name, labels)
    closed = docker_engine.create_private_network(f"{name}-2", labels, addresses=2).id
    apart = {
        "com.docker.network.bridge.enable_icc": "false",
        "com.docker.network.bridge.name": bridge_of(name),
    }
    for network, internal, options in (
        (opened, False, apart),
        (closed, True, {"com.docker.network.bridge.inhibit_ipv4": "true"}),
    ):
        seen = client.inspect_network(network)
        assert (seen["Internal"], seen["Options"]) == (internal, options)
        assert not any(seen[key] for key in ("EnableIPv6", "Attachable", "Ingress", "ConfigOnly"))
        assert (seen["Driver"], seen["Labels"]) == ("bridge", labels)
        assert seen["IPAM"]["Driver"] == "default"
        assert not seen["IPAM"]["Options"]


def test_volume_of_an_image_hides_no_file_of_a_worker(
    docker_engine: DockerEngine, docker_start: Starter, labels: dict[str, str],
    hostile_image: str, shared: Path,
) -> None:  # fmt: skip
    spec = docker_start.spec("true", image=hostile_image, mounts=(bind(shared, "/data"),))
    with raises("image.volume", "/data/sub"):
        docker_engine.create(spec)
    assert docker_engine.leftovers(labels) == []


def test_image_without_a_command_is_named(client: docker.APIClient, docker_start: Starter) -> None:
    tag = f"orchestrator-test-{secrets.token_hex(4)}"
    client.import_image_from_data(b"\0" * 10240, repository=tag)  # type: ignore[no-untyped-call]
    try:
        with raises("image.no-command", tag):
            docker_start(image=tag, own_program=True)
    finally:
        client.remove_image(tag, force=True)
