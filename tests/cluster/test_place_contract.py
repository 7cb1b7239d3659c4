"""The contract of places, for pods: that of `tests/engine/test_place_contract.py`, and more."""

import hashlib
import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from orchestrator.base.errors import PlaceLostError
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY, RUN
from orchestrator.engine.kubernetes.cluster import Cluster, remove_job
from orchestrator.engine.kubernetes.job_pod import jobs
from orchestrator.engine.kubernetes.pod import job_name
from orchestrator.engine.kubernetes.pod_place import PodPlace
from orchestrator.engine.places.place import Place, PlaceSpec, Start
from tests.cluster.cut_api import CutApi
from tests.cluster.lab import NAMESPACE, Lab
from tests.engine.test_place_contract import (  # noqa: F401 - collected here, with other fixtures
    NAP,
    SECRET,
    Places,
    part,
    test_a_line_of_100_mb_is_complete,
    test_a_part_arrives_byte_for_byte,
    test_a_part_may_be_a_file,
    test_a_place_without_an_order_ends_itself,
    test_a_second_order_is_refused_until_the_step_is_removed,
    test_a_step_sees_only_its_parts,
    test_deadline_and_following_steps_need_no_client,
    test_disk_limit_needs_no_client,
    test_kill_of_pid_1_from_outside_is_no_success,
    test_no_step_runs_before_its_start,
    test_no_step_traces_what_stops_it,
    test_of_two_clients_one_gets_the_step,
    test_out_of_memory_is_no_success,
    test_output_is_complete_and_its_streams_are_apart,
    test_output_is_resumed_at_the_same_byte,
    test_place_waits_for_collection_and_then_ends_itself,
    test_sigterm_reaches_the_command,
    test_what_cannot_be_taken_is_an_error_soon,
    test_what_is_taken_is_complete_and_unaltered,
    test_what_places_with_volumes_lack_is_refused,
    test_written_files_are_kept_and_others_brought_up_to_date,
)
from tests.support.dying_client import order_and_die

pytestmark = pytest.mark.cluster


class PodPlaces(Places):
    """Opens places in pods, with nothing but the rights of the role."""

    def __init__(self, cluster: Cluster, labels: Mapping[str, str], root: Path) -> None:
        self.cluster, self.labels, self._root = cluster, labels, root

    def open(self, spec: PlaceSpec, client: Cluster | None = None) -> Place:  # type: ignore[override]
        place = PodPlace(client or self.cluster, spec)
        place.put(spec.parts)
        return place

    def order_and_die(
        self, spec: PlaceSpec, start: Start, number: int
    ) -> "subprocess.Popen[bytes]":
        program = "tests.cluster.dying_client"
        return order_and_die(spec, "agent", start, number, program=program)

    def await_end(self, spec: PlaceSpec) -> None:
        until = time.monotonic() + 60
        while (found := self.pod(spec))["status"]["phase"] not in ("Failed", "Succeeded"):
            assert time.monotonic() < until, found["status"]
            time.sleep(0.3)
        assert found["status"]["phase"] == "Failed"

    def pod(self, spec: PlaceSpec) -> dict:
        """Return the pod of a place."""
        query = {"labelSelector": f"job-name={job_name(spec)}"}
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods"
        (found,) = self.cluster.request("GET", path, query=query)["items"]
        return found

    def jobs(self) -> list[str]:
        """Return the names of the Jobs of this test."""
        return [job["metadata"]["name"] for job in jobs(self.cluster, self.labels)]


@pytest.fixture
def places(runner: Cluster, tmp_path: Path) -> Iterator[PodPlaces]:
    labels = {MANAGED: "true", REPOSITORY: str(tmp_path / "repo"), RUN: secrets.token_hex(4)}
    made = PodPlaces(runner, labels, tmp_path)
    yield made
    for name in made.jobs():
        remove_job(runner, name)
    assert made.jobs() == []


@pytest.fixture
def every(places: PodPlaces) -> PodPlaces:
    return places


@pytest.mark.variants("0", "1", "6*", "30000000")
@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 30_000_000, 100_000_000])
def test_files_of_any_size_arrive_over_connections_that_break(
    places: PodPlaces, cut: CutApi, size: int
) -> None:
    tree, content = places.directory("tree"), os.urandom(size)
    (tree / "f").write_bytes(content)
    # Each piece, and the program of the pod, passes at once or again.
    cut.cut_up = 5_000_000 if size > 10**6 else 120_000
    place = places.open(places.spec(part("tree", tree, "/tree")), cut.client())
    said = places.run(place, "sh", "-c", "cat /tree/f | sha256sum; cp /tree/f /tree/g")[1]
    assert said.split()[0].decode() == hashlib.sha256(content).hexdigest()
    cut.cut_up, cut.cut_down = None, 50_000 + size // 5
    into = places.directory("into")
    place.take("tree", into, limit=3 * 10**8)
    assert (into / "f").read_bytes() == (into / "g").read_bytes() == content
    assert cut.cuts.total() >= (3 if size > 10**6 else 0)


def test_a_pod_that_is_deleted_is_no_success(places: PodPlaces, lab: Lab) -> None:
    spec = places.spec()
    place = places.open(spec)
    task = "trap 'exit 0' TERM; echo up; sleep 300 & wait"
    step = place.order("agent", Start(command=("sh", "-c", task)))
    step.start()
    assert next(step.logs()).data == b"up\n"
    lab.kubectl("delete", "pod", "-n", NAMESPACE, places.pod(spec)["metadata"]["name"])
    with pytest.raises(PlaceLostError) as caught:
        step.wait(60)
    assert caught.value.restarts


def test_nothing_is_left(places: PodPlaces, lab: Lab) -> None:
    own = places.directory("own")
    place = places.open(places.spec(part("own", own, "/own")))
    place.order("agent", NAP).start()
    assert len(places.jobs()) == 1
    place.remove()
    place.remove()
    assert places.jobs() == []
    kinds = "pods,jobs,secrets,configmaps,persistentvolumeclaims"
    wanted = f"orchestrator.run={places.labels[RUN]}"
    # This version of the kubelet needs a minute.
    until = time.monotonic() + 120
    while lab.kubectl("get", kinds, "-n", NAMESPACE, "-l", wanted, "-o", "name"):
        assert time.monotonic() < until
        time.sleep(1)


def test_secrets_are_in_no_object_and_on_no_disk(places: PodPlaces, lab: Lab) -> None:
    keys = places.directory("keys", token=SECRET)
    (keys / "token").chmod(0o400)
    memory = part("keys", keys, "/run/secrets", read_only=True, in_memory=True)
    place = places.open(places.spec(memory))
    task = f"cat /run/secrets/token >&2; echo up; sleep 300; echo {SECRET}"
    step = place.order("agent", Start(command=("sh", "-c", task), env={"TOKEN": SECRET}))
    step.start()
    assert b"".join(chunk.data for _, chunk in zip(range(2), step.logs(), strict=False))
    found = lab.kubectl("get", "all,secrets,configmaps,events", "-A", "-o", "json")
    assert json.loads(found)["items"]
    assert SECRET not in found
    database = lab.directory / "etcd"
    assert not any(SECRET.encode() in file.read_bytes() for file in _files(database))
    disks = [disk for node in lab.directory.glob("n*/kubelet/pods") for disk in _files(node)]
    shown = [f for f in disks if SECRET.encode() in f.read_bytes() and f.name != "agent.stderr"]
    # Memory of the node is mounted elsewhere: what is seen here is on a disk.
    assert shown == []


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]


def test_pods_are_hardened(places: PodPlaces) -> None:
    place = places.open(places.spec())
    task = "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; id -u; touch /new"
    status, said, problems = places.run(place, "sh", "-c", f"{task}; ls /var/run/secrets; true")
    values = dict(line.split(b":\t") for line in said.split(b"\n")[:4])
    assert int(values[b"CapEff"], 16) == int(values[b"CapBnd"], 16) == 0
    assert (values[b"NoNewPrivs"], values[b"Seccomp"]) == (b"1", b"2")
    assert b"Read-only file system" in problems
    assert b"No such file" in problems
    assert status.exit_code == 0
