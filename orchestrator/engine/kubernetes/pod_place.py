"""A place in a pod of a cluster: one Job, of which only the pod that was fed ever runs a step."""

import hashlib
import json
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from secrets import token_hex

from orchestrator.base.errors import (
    EngineError,
    StartCancelledError,
    UnsupportedError,
)
from orchestrator.base.files.bundle import bundle
from orchestrator.base.files.disk_usage import DiskUse
from orchestrator.config.settings.cluster import PodSettings
from orchestrator.engine.interface.labels import PLACE
from orchestrator.engine.interface.protocol import Container
from orchestrator.engine.kubernetes.cluster import Cluster, ClusterRefusedError, patient, remove_job
from orchestrator.engine.kubernetes.job_pod import JobPod, await_running, jobs
from orchestrator.engine.kubernetes.losses import end_of_place
from orchestrator.engine.kubernetes.network_proof import NetworkProof, await_reached
from orchestrator.engine.kubernetes.pod import (
    CHANNELS,
    FILES,
    PARTS,
    PORTER,
    RUNS,
    STATE,
    USAGE,
    check_pod,
    is_ordered,
    job,
    job_name,
    most_processes,
)
from orchestrator.engine.kubernetes.pod_network import broker_of, network_of
from orchestrator.engine.kubernetes.pod_services import (
    PodService,
    add_services,
    is_service,
    without_services,
)
from orchestrator.engine.kubernetes.pod_step import PodStep
from orchestrator.engine.kubernetes.port_forward import PortForward
from orchestrator.engine.places.in_place.archive import END
from orchestrator.engine.places.in_place.porter import FOLLOWS
from orchestrator.engine.places.part_files import (
    archive_of,
    described,
    is_file,
    source_of,
    take_part,
)
from orchestrator.engine.places.place import Entry, Part, PlaceSpec, Start, Step, Waiter
from orchestrator.network.gateway.allowed_host import BROKER_PORT

_BOOT = """\
import hashlib, json, os, sys
data = sys.stdin.buffer.read(int(sys.argv[2]))
if hashlib.sha256(data).hexdigest() != sys.argv[3]: sys.exit(3)
root = sys.argv[1]
if not os.path.exists(root + "/begin"):
    for name, text in json.loads(data).items():
        with open(root + "/" + name + ".half", "w") as file: file.write(text)
        os.replace(root + "/" + name + ".half", root + "/" + name)
    open(root + "/begin", "w").close()
print("begun")
"""
"""Program that writes the porter's program and specification, unless that was done before."""
_PIECE = 4 * 1024**2
_LOOK = 0.3
_GONE = 120.0


class PodPlace:
    """Implements `orchestrator.engine.places.place.Place` in a pod."""

    def __init__(
        self,
        cluster: Cluster,
        spec: PlaceSpec,
        *,
        settings: PodSettings | None = None,
        waiter: Waiter | None = None,
        network: NetworkProof | None = None,
    ) -> None:
        """Store the arguments; `put` creates the place, or opens it again.

        Args:
            cluster: The cluster.
            spec: The place.
            settings: The user's settings of pods. Default: none of them is set.
            waiter: Waits for the pod.
            network: Proves before the first order that the policy of the pod's network is enforced;
                None: nothing does.

        Raises:
            UnsupportedError: The place needs something that pods do not have.
        """
        check_pod(spec)
        self._cluster, self.spec, self._settings = cluster, spec, settings or PodSettings()
        self._parts, self._waiter, self._network = spec.parts, waiter or Waiter(), network
        self._broker = broker_of(spec)
        self._pod = JobPod(cluster, job_name(spec))
        self._files = self._pod.calls(FILES)
        self._ordered = without_services(spec)
        self._forward = PortForward(self._pod)
        self._unordered: set[str] = set()
        """Services whose handles were removed, although they run."""

    def put(self, parts: Sequence[Part]) -> None:
        """Send the files of parts that are new or have changed; create the pod if necessary."""
        with self._pod.losses():
            self._put(parts)

    def _put(self, parts: Sequence[Part]) -> None:
        self._parts = tuple(parts)
        if not self._pod.is_known:
            single = frozenset(part.name for part in parts if _is_single(part))
            self._create(single)
            self._await_start()
            self._feed(PORTER, _porter_spec(self._ordered))
            self._feed(FILES, _files_spec(self._ordered))
        arrived = self._files.call("measure")["arrived"]
        written = {part.name for part in self.spec.parts if not part.mount.read_only}
        for part in {part.name: part for part in parts if not part.in_memory}.values():
            if part.name in written and is_file(source_of(part)):
                raise UnsupportedError(
                    "steps cannot write to a single file of a place", key="place.single-file"
                )
            # What steps wrote is kept.
            if part.name not in written or part.name not in arrived:
                self._send(part, arrived)
        self._files.call("measure")

    @patient
    def _create(self, single: frozenset[str]) -> None:
        described = job(self._ordered, single, self._settings, self._cluster.version)
        images, restricted = self._settings.images, self._cluster.is_restricted
        add_services(described, self.spec, images=images, restricted=restricted)
        path = f"/apis/batch/v1/namespaces/{self._cluster.namespace}/jobs"
        until = time.monotonic() + _GONE
        while True:
            try:
                self._cluster.request("POST", path, described)
            except ClusterRefusedError as error:
                if error.reason != "AlreadyExists":
                    raise
                # Another process opened the place before, or this one, and the answer was lost.
                if jobs(self._cluster, {**self.spec.labels, PLACE: self.spec.name}):
                    return
                # It was deleted a moment ago.
                if time.monotonic() >= until:
                    raise
                time.sleep(_LOOK)
            else:
                return

    def _await_start(self) -> None:
        try:
            services = [step.name for step in self.spec.steps if is_service(step)]
            seconds = self._settings.start_within
            found = await_running(self._pod, (PORTER, FILES), self._waiter, seconds, services)
        except StartCancelledError:
            self.remove()
            raise
        self._pod.metadata = found["metadata"]

    @patient
    def _feed(self, container: str, spec: Mapping[str, object]) -> None:
        """Send a container its program and its specification, unless it has them."""
        program = bundle("orchestrator.engine.places.in_place.porter")
        data = json.dumps({"porter.py": program, "spec.json": json.dumps(spec)}).encode()
        digest = hashlib.sha256(data).hexdigest()
        command = ("python3", "-I", "-S", "-c", _BOOT, STATE, str(len(data)), digest)
        process = self._pod.attempt(container, command)
        try:
            process.write(data)
            answer = b"".join(chunk.data for chunk in process.output())
        finally:
            process.close()
        if process.exit_code or answer != b"begun\n":
            raise EngineError("the worker's pod cannot be prepared", key="pod.start")

    def _send(self, part: Part, arrived: Mapping[str, str]) -> None:
        """Send the files of a part, unless these are there already.

        Raises:
            EngineError: The files changed meanwhile, or could not be transferred.
            OSError: A file cannot be read.
        """
        source = source_of(part)
        known = described(source)
        if arrived.get(part.name) == known:
            return
        digest, size = hashlib.sha256(), 0
        for piece in _pieces(archive_of(source, "" if is_file(source) else "files")):
            self._files.send("append", part.name, str(size), data=piece)
            digest.update(piece)
            size += len(piece)
        self._files.call("unpack", part.name, str(size), digest.hexdigest(), known)

    # Steps

    def refresh(self, step: str) -> None:
        """Send the parts in memory again that have changed, and whose files still exist here."""
        arrived = self._files.call("measure")["arrived"]
        for part in self._parts:
            if part.in_memory and step in part.seen_by:
                with suppress(FileNotFoundError):
                    self._send(part, arrived)

    def order(self, step: str, start: Start) -> Container:
        """Give a step its command, which begins when the returned container is started.

        Services have run since the pod's start.
        """
        with self._pod.losses():
            return self._give(step, start)

    def _give(self, step: str, start: Start) -> Container:
        described = self.spec.step(step)
        is_ours = (start.network_of or self._pod.job).partition("/")[0] == self._pod.job
        egress = described.spec.egress
        # Elsewhere, a step with ports and without hosts needs a network that leads nowhere.
        is_closed = start.network == "none" or (egress is not None and egress.hosts == ())
        # protection: steps-have-network-of-their-pod
        if not (is_closed or start.network == network_of(self._ordered)) or not is_ours:
            raise UnsupportedError(
                "the steps of this place have another network", key="place.other-network"
            )
        # protection: first-order-waits-for-proof
        if self._network is not None:
            self._network.prove(self._pod, PORTER, network_of(self._ordered), self._waiter)
            self._network = None
        if self._broker is not None:
            target = f"tcp:{self._broker}:{BROKER_PORT}"
            await_reached(self._pod, PORTER, target, self._waiter)
            self._broker = None
        self._forward.listen(start.ports)
        if not is_ordered(described):
            self._unordered.discard(step)
            return self._service(described)
        answer = self._pod.porter.call("state", step)
        run = answer["run"]
        # A step that follows another one may have begun by itself.
        if described.after is None or answer["state"] in ("waiting", "ordered"):
            if run > RUNS:
                raise EngineError(
                    f"the pod has no further container for the step `{step}`",
                    key="pod.no-container",
                )
            memory = [part for part in self._parts if part.in_memory and step in part.seen_by]
            # The question also measures all files.
            arrived = self._files.call("measure")["arrived"] if memory else {}
            for part in memory:
                self._send(part, arrived)
            self._order(described, start, nonce=token_hex(8))
        found = self._step(step, run)
        found.before = partial(self._order_following, step)
        return found

    def _order(self, step: Step, start: Start, *, nonce: str) -> None:
        order = {
            "step": step.name,
            "nonce": nonce,
            "hold": nonce != FOLLOWS,
            "argv": start.command,
            "env": {**step.spec.env, **start.env},
            "workdir": step.spec.workdir,
        }
        self._pod.porter.send("order", data=json.dumps(order).encode())

    def _order_following(self, step: str) -> None:
        """Order the steps after a step, so that no client is needed."""
        for following in self.spec.steps:
            if following.after == step and following.spec.command:
                if self._pod.porter.call("state", following.name)["state"] == "waiting":
                    start = Start(command=following.spec.command)
                    self._order(following, start, nonce=FOLLOWS)
                self._order_following(following.name)

    def step(self, name: str) -> Container | None:
        """Return the container of a step; None if it was not ordered."""
        described = self.spec.step(name)
        if not is_ordered(described):
            return None if name in self._unordered else self._service(described)
        answer = self._pod.porter.call("state", name)
        return None if answer["state"] == "waiting" else self._step(name, answer["run"])

    def _step(self, name: str, run: int) -> PodStep:
        found = PodStep(self._pod, name, run)
        found.ports = self._forward.ports
        return found

    def _service(self, step: Step) -> PodService:
        """Return the container of a service; the porter is in the network that all share."""
        found = PodService(self._pod, step.name if is_service(step) else PORTER)
        found.ports = self._forward.ports
        found.then = partial(self._unordered.add, step.name)
        return found

    def listen(self, ports: Mapping[int, int]) -> None:
        """Let ports of this machine lead into the pod again, in another process."""
        self._forward.listen(ports)

    def address(self) -> str:
        """Return the address of the pod."""
        found = self._pod.status()["status"].get("podIP")
        if not found:
            raise end_of_place("its pod has no address")
        return str(found)

    # What steps wrote

    def usage(
        self, parts: Collection[str], *, most_files: int, seconds: float = math.inf
    ) -> DiskUse:
        """Return a measurement that is made now."""
        return self._files.usage(parts, most_files=most_files, seconds=seconds)

    def changed(self, part: str, *, most: int, seconds: float) -> Iterator[str]:
        """Yield paths of files whose inodes changed after the first files arrived."""
        yield from self._files.changed(part, most=most, seconds=seconds)

    def journal(self, after: int) -> list[Entry]:
        """Return what the porter recorded."""
        return self._pod.porter.journal(after)

    def take(self, part: str, into: Path, *, limit: int, partial: bool = False) -> int:
        """Let the files of a part be packed, and unpack them here."""
        return take_part(self._files, part, into, limit=limit, partial=partial)

    # The end

    def release(self) -> None:
        """Remove the place."""
        self.remove()

    def remove(self) -> None:
        """Delete the Job; the cluster ends its pod."""
        self._forward.close()
        self._pod.porter.close()
        self._files.close()
        patient(remove_job)(self._cluster, self._pod.job)


def _porter_spec(spec: PlaceSpec) -> dict[str, object]:
    """Return what the porter knows of a place."""
    return {
        "channels": CHANNELS,
        "usage": USAGE,
        "parts": {},
        "memory": {},
        "start_within": spec.start_within,
        "collect_within": spec.collect_within,
        "steps": {step.name: {**asdict(step.limits), "after": step.after} for step in spec.steps},
        "started": [],
    }


def _files_spec(spec: PlaceSpec) -> dict[str, object]:
    """Return what the container with the files knows of a place."""
    written = {part.name for part in spec.parts if not part.mount.read_only}
    limited = {
        step.name: [name for name in step.limits.limited if name in written] for step in spec.steps
    }
    names = {part.name for part in spec.parts}
    parts = {name: f"{PARTS}/{name}/files" for name in sorted(names)}
    most = {step.name: most_processes(spec, step) for step in spec.steps}
    return {"parts": parts, "usage": USAGE, "limited": limited, "processes": most}


def _is_single(part: Part) -> bool:
    """Return whether a part is one file; the files of a part in memory may come later."""
    try:
        return is_file(source_of(part))
    except FileNotFoundError:
        if part.in_memory:
            return False
        raise


def _pieces(archive: Iterator[bytes]) -> Iterator[bytes]:
    gathered = bytearray()
    for data in chain(archive, [END]):
        gathered += data
        while len(gathered) >= _PIECE:
            yield bytes(gathered[:_PIECE])
            del gathered[:_PIECE]
    if gathered:
        yield bytes(gathered)
