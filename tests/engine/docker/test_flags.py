"""Tests of container flags whose effect cannot be observed quickly, and of hostile images."""

import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit
from typing import Any

import docker
import pytest

from orchestrator.config.settings.container import Limits
from orchestrator.engine.docker import DockerEngine, firewall
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY, ROLE
from orchestrator.engine.interface.spec import Egress, TmpfsMount
from tests.support.containers import Run, Starter, bind, finish
from tests.support.errors import raises

pytestmark = pytest.mark.docker


@pytest.fixture
def meddling_image(client: docker.APIClient) -> Iterator[str]:
    """An image with a volume, an entry point, a health check and its own stop signal."""
    tag = f"orchestrator-test-{secrets.token_hex(4)}"
    source = client.create_container(BASE_IMAGE, "true", labels={MANAGED: "true"})["Id"]
    changes = ["VOLUME /volume", 'ENTRYPOINT ["/bin/echo", "entry"]', "HEALTHCHECK CMD /bin/true"]
    try:
        # `changes` of a commit cannot set a stop signal, but its configuration can.
        said = {"changes": "\n".join(changes), "conf": {"StopSignal": "SIGQUIT"}}
        client.commit(source, repository=tag, **said)
    finally:
        client.remove_container(source, force=True)
    yield tag
    client.remove_image(tag, force=True)


def host_config(client: docker.APIClient, container_id: str) -> dict[str, Any]:
    config: dict[str, Any] = client.inspect_container(container_id)["HostConfig"]
    return config


def test_flags_of_a_container(client: docker.APIClient, docker_start: Starter) -> None:
    host = host_config(client, docker_start("sleep", "300", cpus=0.5).id)
    assert host["NanoCpus"] == 500_000_000
    assert host["IpcMode"] == "private"
    assert host["LogConfig"]["Type"] == "none"
    assert not host["Privileged"]
    assert host["PidMode"] == host["UTSMode"] == ""
    assert host["Devices"] in ([], None)


def test_tmpfs_options_are_passed_explicitly(
    client: docker.APIClient, docker_start: Starter
) -> None:
    """Docker adds these options by default, but other daemons with the same API need not."""
    mounts = (TmpfsMount(target="/scratch", size=2 << 20),)
    told = host_config(client, docker_start("sleep", "300", mounts=mounts).id)["Tmpfs"]["/scratch"]
    assert {"nosuid", "nodev"} <= set(told.split(","))


def test_tmpfs_has_no_devices_no_setuid_and_few_inodes(docker_run: Run) -> None:
    task = "grep ' /scratch ' /proc/mounts; df -i /scratch | tail -1"
    mounts = (TmpfsMount(target="/scratch", size=2 << 20, inodes=50),)
    mount, files = docker_run("sh", "-c", task, mounts=mounts)[1].decode().splitlines()
    assert {"nosuid", "nodev"} <= set(mount.split()[3].split(","))
    assert files.split()[1] == "50"


def test_entrypoint_and_health_check_of_the_image_do_not_run(
    client: docker.APIClient, docker_start: Starter, meddling_image: str
) -> None:
    container = docker_start("echo", "ours", image=meddling_image)
    assert client.inspect_container(container.id)["Config"]["Healthcheck"] == {"Test": ["NONE"]}
    assert finish(container)[1] == b"ours\n"


def test_paused_container_can_be_killed_with_any_stop_signal(
    client: docker.APIClient, docker_start: Starter, meddling_image: str
) -> None:
    """The daemon resumes a paused container only for the stop signal of its image."""
    container = docker_start("sleep", "300", image=meddling_image)
    client.pause(container.id)
    container.kill("SIGTERM")
    assert container.wait(60).exit_code == 143


def test_volumes_of_the_image_are_bounded_and_removed(
    client: docker.APIClient, docker_start: Starter, meddling_image: str
) -> None:
    container = docker_start("grep", " /volume ", "/proc/mounts", image=meddling_image)
    mounts = client.inspect_container(container.id)["Mounts"]
    assert finish(container)[1].startswith(b"tmpfs /volume tmpfs rw,nosuid,nodev")
    assert mounts == []


def test_guard_has_only_the_network_capability(
    client: docker.APIClient, docker_engine: DockerEngine, docker_start: Starter,
    labels: dict[str, str], shared: Path,
) -> None:  # fmt: skip
    network = docker_engine.create_network(f"orchestrator-test-{secrets.token_hex(4)}", labels)
    docker_start(
        "sleep", "300", network=network, egress=Egress(image=BASE_IMAGE, allowed=()),
        env={"TOKEN": "of the worker"}, mounts=(bind(shared, "/data"),),
    )  # fmt: skip
    chosen = [f"{ROLE}=guard", f"{REPOSITORY}={labels[REPOSITORY]}"]
    (guard,) = client.containers(filters={"label": chosen})
    host = host_config(client, guard["Id"])
    assert (host["CapAdd"], host["CapDrop"]) == (["NET_ADMIN"], ["ALL"])
    assert (host["Memory"], host["PidsLimit"]) == (64 << 20, 16)
    assert (host["ReadonlyRootfs"], host["Privileged"]) == (True, False)
    assert client.inspect_container(guard["Id"])["Mounts"] == []
    assert not host.get("Tmpfs")
    assert "TOKEN" not in str(client.inspect_container(guard["Id"])["Config"]["Env"])


def test_guard_without_the_program_of_its_rules_is_not_ready(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path), "RULES": ""}
    shell = ("/bin/sh", "-c", firewall._SCRIPT)
    done = subprocess.run(shell, env=env, capture_output=True, check=False, timeout=60)
    assert done.returncode == 127
    assert done.stdout == b""


def test_container_does_not_start_without_active_rules(
    docker_engine: DockerEngine, docker_start: Starter, labels: dict[str, str]
) -> None:
    network = docker_engine.create_network(f"orchestrator-test-{secrets.token_hex(4)}", labels)
    nonsense = Egress(image=BASE_IMAGE, allowed=(("10.0.0.1", 10**9),))
    with raises("firewall.failed"):
        docker_start("true", network=network, egress=nonsense)
    assert [leftover.kind for leftover in docker_engine.leftovers(labels)] == ["network"]


@pytest.mark.parametrize("end", ["minimum", "maximum"])
def test_engine_enforces_the_smallest_and_the_largest_limits(
    client: docker.APIClient, docker_start: Starter, end: str
) -> None:
    kinds = {
        name: next((one for one in kind.get("anyOf", ()) if end in one), kind)
        for name, kind in Limits.model_json_schema()["properties"].items()
    }
    limits = Limits.model_validate({name: kind[end] for name, kind in kinds.items()})
    # The daemon refuses more CPUs than the machine has, as does the check before a run.
    cpus = min(limits.cpus or 0, 1)
    # Nor more open files than it may have itself.
    open_files = min(limits.open_files, getrlimit(RLIMIT_NOFILE)[1])
    container = docker_start(
        "sleep", "300", cpus=cpus, memory=limits.memory, pids=limits.pids,
        open_files=open_files, kept_output=limits.log_limit,
        mounts=(TmpfsMount(target="/tmp", size=limits.tmp),),
    )  # fmt: skip
    assert container.state().started_at is not None
    host = host_config(client, container.id)
    assert host["NanoCpus"] == round(cpus * 10**9) > 0
    assert (host["Memory"], host["PidsLimit"]) == (limits.memory, limits.pids)
    assert host["Ulimits"][0]["Hard"] == open_files
    assert host["LogConfig"]["Config"]["max-size"] == str(limits.log_limit)
