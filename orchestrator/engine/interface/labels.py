"""Names of the labels that all containers, networks and volumes of the orchestrator have."""

from orchestrator.base.machine import process_mark

MANAGED = "orchestrator.managed"


RUN = "orchestrator.run"


WORKER = "orchestrator.worker"


REPOSITORY = "orchestrator.repository"


DEADLINE = "orchestrator.deadline"


ROLE = "orchestrator.role"


HOST_ROLE = "host"
"""Role of the container that closes this machine to a network, and filters its containers."""


NETWORK_ROLE = "network"
"""Role of a network that the workers of a run, or the sandboxes of a process, share."""


SERVICE = "orchestrator.service"


SANDBOX = "orchestrator.sandbox"
"""Label of all objects of a sandbox: its id. Those of a network of sandboxes have the network's."""


GATEWAY = "orchestrator.gateway"
"""Label of the container that owns a worker's network: the name of the gateway's container."""


PORTS = "orchestrator.ports"
"""Label of the container that owns a worker's network: the ports that its gateway publishes, as
`3000:20010` (port in the container, port of this machine), separated by spaces.
"""


SHARES = "orchestrator.shares-network"
"""Label of a container that uses the network of another container; the other one ends later."""


FILTER = "orchestrator.filter"
"""Label of a container whose network is filtered without a guard: the destinations that stay
reachable, as JSON.
"""


PROCESS = "orchestrator.process"
"""Label of an object that one process needs for a moment, and removes: the mark of the process. A
cleanup removes those of processes that are gone.
"""


def for_a_moment(repository: str = "", *, run: str = "", role: str = "probe") -> dict[str, str]:
    """Return the labels of objects that this process needs for a moment, such as for a test.

    Args:
        repository: The repository's git common directory, if there is one.
        run: Name of the test, or id of the run that it is for.
        role: Role of the objects.
    """
    labels = {MANAGED: "true", RUN: run, REPOSITORY: repository}
    # protection: objects-of-moment-name-their-process
    return {name: value for name, value in labels.items() if value} | {
        ROLE: role, PROCESS: process_mark()
    }  # fmt: skip


PLACE = "orchestrator.place"
"""Label of all containers and volumes of a place with volumes: the place's name."""


def place_name(run_id: str, worker: int, *, earlier: int = 0) -> str:
    """Return the name of a worker's place, with which the names of its objects begin.

    Args:
        run_id: Id of the run.
        worker: Number of the worker.
        earlier: Number of earlier attempts, whose places may still be on a node that is cut off.
    """
    return f"orchestrator-{run_id}-{worker}" + (f"-again-{earlier}" if earlier else "")


STEP = "orchestrator.step"
"""Label of a step's container in a place with volumes: the step's name."""


DIGEST = "orchestrator.digest"
"""Label of a volume with files that several places of a run share: the digest of the files."""
