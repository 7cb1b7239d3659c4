"""The engine of a cluster: places in pods, and nothing else.

The context of the user's kubectl chooses the cluster, and the context's namespace is where workers
run. What a cluster cannot do yet is refused; nothing is ignored.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import NoReturn

from orchestrator.base.errors import (
    EngineError,
    ImageNotFoundError,
    NotRunningError,
    UnsupportedError,
)
from orchestrator.config.settings.cluster import PodSettings
from orchestrator.config.settings.values import Limit
from orchestrator.engine.images.registry import references
from orchestrator.engine.interface.diagnosis import Finding
from orchestrator.engine.interface.features import Enforcement, EngineFeatures
from orchestrator.engine.interface.image_protocol import ImageInfo
from orchestrator.engine.interface.inner_command import GRACE
from orchestrator.engine.interface.protocol import (
    InnerProcess,
    Leftover,
    Measurement,
    PrivateNetwork,
    TerminalSize,
)
from orchestrator.engine.interface.spec import ContainerSpec, Egress
from orchestrator.engine.kubernetes.cluster import (
    CHOOSE_NAMESPACE,
    Cluster,
    ClusterRefusedError,
    remove_job,
)
from orchestrator.engine.kubernetes.diagnosis import (
    apply_command,
    diagnose,
    image_problem,
    push_hint,
)
from orchestrator.engine.kubernetes.job_pod import JobPod, jobs
from orchestrator.engine.kubernetes.manifest import ENFORCE
from orchestrator.engine.kubernetes.network_proof import NetworkProof
from orchestrator.engine.kubernetes.pod_network import network_of
from orchestrator.engine.kubernetes.pod_place import PodPlace
from orchestrator.engine.kubernetes.pod_services import UNORDERED, PodService
from orchestrator.engine.kubernetes.pod_step import PodStep
from orchestrator.engine.places.place import Place, PlaceSpec, Waiter

_MANY = 1_000_000
"""A cluster says neither how many CPUs nor how much memory it has: its scheduler decides."""
_AGENT = "agent"
_SIZED_MEMORY = (1, 22)
"""Version of the cluster from which on file systems in memory have a size."""


class KubernetesEngine:
    """See `orchestrator.engine.interface.protocol.ContainerEngine`."""

    name = "kubernetes"

    def __init__(self, address: str = "") -> None:
        """Read the configuration of kubectl; nothing is sent.

        Args:
            address: Name of a context. Default: the current one.

        Raises:
            ConfigError: The configuration cannot be read, or the context has no namespace.
        """
        self._cluster = Cluster(context=address or None)
        self._network = NetworkProof(self._cluster)
        self._settings = PodSettings()
        self._is_proven = False

    def configure(self, settings: PodSettings) -> None:
        """Use settings for new pods, with the names of images that were pushed to the registry."""
        pushed = references(settings.registry) if settings.registry else {}
        names = {"images": {**pushed, **settings.images}}
        self._settings = settings.model_copy(update=names)

    def check(self, *, images: tuple[str, ...], runtime: str | None) -> EngineFeatures:  # noqa: ARG002
        """Check that the cluster answers, and that images of ours were pushed to the registry.

        Only the cluster knows whether it has other images, and the runtime.
        """
        for image in images:
            # protection: images-that-were-not-pushed-are-refused
            if problem := image_problem(self._settings, image):
                hint = push_hint(self._settings)
                raise ImageNotFoundError(problem, key="image.not-pushed", hint=hint)
        version = self._cluster.request("GET", "/version")
        path = f"/api/v1/namespaces/{self._cluster.namespace}"
        try:
            namespace = self._cluster.request("GET", path)
        except ClusterRefusedError as error:
            if error.status not in (403, 404):
                raise
            name = self._cluster.namespace
            closed = ", or you have no rights in it" if error.status == 403 else ""
            # No manifest can be made for the namespace `default`.
            apply = f"`{apply_command(name)}`, as an administrator; " if name != "default" else ""
            raise EngineError(
                f"the namespace `{name}` does not exist{closed}: {error.message}",
                key="cluster.namespace",
                hint=f"{apply}`{CHOOSE_NAMESPACE}` chooses another namespace",
            ) from error
        release = str(version.get("gitVersion", ""))
        with suppress(KeyError, ValueError):
            # Minor versions of hosted clusters are such as `31+`.
            number = int(str(version["major"])), int(str(version["minor"]).rstrip("+"))
            self._cluster.version = number
        found = str(namespace["metadata"]["uid"])
        labels = namespace["metadata"].get("labels") or {}
        self._cluster.is_restricted = labels.get(ENFORCE) == "restricted"
        return EngineFeatures(
            overlay=False,
            runtimes=(),
            cpus=_MANY,
            memory=_MANY * 1024**3,
            version=f"kubernetes {release}",
            transfer="streams",
            knows_images=False,
            limits_services=False,
            networks=False,
            addresses=True,
            id=found,
            address=self._cluster.context,
            fingerprint=f"{found} {release}",
            enforced=_limits(self._cluster.version),
        )

    def prove_network(self, repository: str, networks: Collection[str]) -> str:
        """Find out whether the network policies are enforced; if so, every pod proves it, too."""
        why = self._network.begin(repository, networks, self._settings)
        self._is_proven = not why
        return why

    def diagnose(self, repository: str, images: tuple[str, ...]) -> Iterator[Finding]:
        """Yield what was found out about rights, images and the network policy."""
        return diagnose(self._cluster, self.prove_network, repository, images, self._settings)

    def open_place(self, spec: PlaceSpec, *, waiter: Waiter | None = None) -> Place:
        """Create a place, or open it again."""
        # protection: pods-of-workers-prove-policy
        proof = self._network if self._is_proven and network_of(spec) != "broker" else None
        return PodPlace(self._cluster, spec, settings=self._settings, waiter=waiter, network=proof)

    def adopt(self, container_id: str) -> PodStep | PodService | None:
        """Return a handle of a step's container; of a Job, that of its agent.

        Raises:
            PlaceLostError: The Job has another pod now, or none that can go on.
        """
        job, step, run, uid = [*container_id.split("/"), "", "", ""][:4]
        pod = JobPod(self._cluster, job)
        found = pod.find()
        if found is None:
            return None
        pod.metadata = {**found["metadata"], **({"uid": uid} if uid else {})}
        pod.status()
        if run == str(UNORDERED):
            return PodService(pod, step)
        return PodStep(pod, step or _AGENT, int(run or pod.porter.call("state", _AGENT)["run"]))

    def enter(
        self,
        container_id: str,
        command: tuple[str, ...],
        *,
        terminal: TerminalSize | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        grace: float = GRACE,  # noqa: ARG002  # only needed with what is refused
        stays: bool = False,
    ) -> InnerProcess:
        """Start a command in the container of a step, or of a Job's agent."""
        wanted = {
            "input without a terminal": stdin,
            "commands of another user": user is not None,
            "directories of commands": cwd is not None,
            "timeouts of commands": timeout is not None,
            "commands that stay": stays,
        }
        for what, is_wanted in wanted.items():
            if is_wanted:
                _refuse(what)
        step = self.adopt(container_id)
        if step is None:
            raise NotRunningError("the worker's pod is gone", key="container.not-running")
        variables = (f"{name}={value}" for name, value in (env or {}).items())
        return step.enter(("env", *variables, *command), terminal)

    def usage(self, labels: Mapping[str, str]) -> list[Measurement]:  # noqa: ARG002
        """Return nothing: the cluster's API has no measurements."""
        return []

    def leftovers(self, labels: Mapping[str, str]) -> list[Leftover]:
        """List the Jobs that have all of the given labels."""
        return [
            Leftover(
                kind="container",
                id=str(job["metadata"]["name"]),
                labels=job["metadata"].get("annotations") or {},
            )
            for job in jobs(self._cluster, labels)
        ]

    def remove(self, leftover: Leftover) -> None:
        """Delete a Job with its pods."""
        remove_job(self._cluster, leftover.id.partition("/")[0])

    def image_id(self, image: str) -> str | None:  # noqa: ARG002
        """Return None: only nodes know their images."""
        return None

    def image_info(self, image: str) -> ImageInfo | None:  # noqa: ARG002
        """Return None: only nodes know their images."""
        return None

    def exposed_ports(self, image: str) -> tuple[int, ...]:  # noqa: ARG002
        """Return nothing: only nodes know their images."""
        return ()

    def has_command(self, image: str) -> bool:  # noqa: ARG002
        """Return True: a container whose image has no command fails, and the node says why."""
        return True

    def close(self) -> None:
        """Remove the pod that helps to prove that others have no network."""
        self._network.end()

    def create_network(self, name: str, labels: Mapping[str, str]) -> str:  # noqa: ARG002
        """Return the open network, which every pod has whose label chooses its policy."""
        return "open"

    def close_host(
        self,
        name: str,  # noqa: ARG002
        network: str,  # noqa: ARG002
        egress: Egress,  # noqa: ARG002
        labels: Mapping[str, str],  # noqa: ARG002
    ) -> str | None:
        """Do nothing: the policy closes the nodes, and pods prove that."""
        return None

    # What a cluster cannot do yet

    def create(self, spec: ContainerSpec) -> NoReturn:  # noqa: ARG002
        """Refuse: all containers of a pod are created at once."""
        _refuse("single containers")

    def start(self, spec: ContainerSpec) -> NoReturn:  # noqa: ARG002
        """Refuse: all containers of a pod are created at once."""
        _refuse("single containers")

    def commit(
        self,
        container_id: str,  # noqa: ARG002
        name: str,  # noqa: ARG002
        labels: Mapping[str, str],  # noqa: ARG002
    ) -> NoReturn:
        """Refuse: a cluster makes no images."""
        _refuse("images of containers")

    def create_private_network(
        self,
        name: str,  # noqa: ARG002
        labels: Mapping[str, str],  # noqa: ARG002
        *,
        addresses: int,  # noqa: ARG002
    ) -> PrivateNetwork:
        """Refuse: the credential broker has the address of its pod."""
        _refuse("networks")


def _refuse(what: str) -> NoReturn:
    raise UnsupportedError(
        f"the engine `kubernetes` does not support {what} yet",
        key="engine.unsupported",
        hint="leave it out, or use an engine of this machine",
    )


def _limits(version: tuple[int, int]) -> dict[Limit, Enforcement]:
    """Return how the limits of pods are enforced.

    Whether a network policy is enforced cannot be seen in the API: pods have to prove it.
    """
    # protection: network-of-pods-is-not-claimed
    return {
        "memory": "kernel",
        "cpus": "kernel",
        "disk": "watched",
        "inodes": "watched",
        "tmp": "kernel" if version >= _SIZED_MEMORY else "no",
        "tmp_inodes": "no",
        "pids": "kernel",
        "open_files": "kernel",
        "swap": "no",
        "read_only_root": "kernel",
        "no_new_privileges": "kernel",
        "capabilities": "kernel",
        "seccomp": "kernel",
        "network": "no",
    }
