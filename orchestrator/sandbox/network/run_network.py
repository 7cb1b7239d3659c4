"""Networks that workers or sandboxes share, closed to this machine, and that of a run."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace

from orchestrator.engine.interface.labels import HOST_ROLE, ROLE
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.interface.spec import Egress


def close_host(
    engine: ContainerEngine, network: str, known: Sequence[Egress], labels: Mapping[str, str]
) -> str | None:
    """Close this machine to a network, which need not exist yet, but for what containers may reach.

    Args:
        engine: The engine.
        network: Name of the network.
        known: What containers in the network may reach; at least one.
        labels: Labels of the network.

    Returns:
        Why each container needs a guard of its own; None if one helper filters all of them.

    Raises:
        EngineUnavailableError: The engine does not answer.
        EngineError: The host cannot be blocked on this machine; nothing is left behind.
    """
    allowed = dict.fromkeys(place for egress in known for place in egress.allowed)
    hosts = next((egress.hosts for egress in known if egress.hosts is not None), None)
    egress = replace(known[0], allowed=tuple(allowed), hosts=hosts)
    return engine.close_host(f"{network}-host", network, egress, {**labels, ROLE: HOST_ROLE})


class RunNetwork:
    """The network that a run's containers with network access use. Several threads may use it."""

    def __init__(
        self,
        network_id: str,
        closed: "Future[str | None]",
        *,
        workers: Collection[int] = (),
        remove: Callable[[], object] | None = None,
    ) -> None:
        """Store the arguments.

        Args:
            network_id: Id of the network.
            closed: Completes when the network is closed to this machine, or when this has failed;
                its result is then a notice.
            workers: Numbers of all workers of the run.
            remove: Removes the network when no worker needs it any more. Default: the network stays
                until the end of the run.
        """
        self.closed = closed
        self._id = network_id
        self._users = set(workers)
        self._remove = remove
        self._lock = threading.Lock()
        self._removal: threading.Thread | None = None

    def ready(self) -> str:
        """Return the network's id, once it is closed to this machine or this has failed.

        Raises:
            EngineUnavailableError: The engine cannot be reached.
        """
        # protection: no-container-starts-before-host-is-blocked
        self.closed.result()
        return self._id

    def leave(self, worker: int) -> None:
        """Record that a worker needs the network no more; after the last one, remove it.

        The containers of the worker that used the network must be gone.
        """
        with self._lock:
            # protection: network-stays-while-worker-may-need-it
            is_last = self._users == {worker}
            self._users.discard(worker)
            if is_last and self._remove is not None:
                self._removal = threading.Thread(target=self._remove, name="remove-network")
                self._removal.start()

    def come_back(self, worker: int) -> bool:
        """Record that a worker needs the network again; return False if it was removed."""
        with self._lock:
            if self._removal is not None:
                return False
            self._users.add(worker)
            return True

    def wait(self) -> None:
        """Wait until what was begun has ended: the preparation, and the removal."""
        wait([self.closed])
        with self._lock:
            removal = self._removal
        if removal is not None:
            removal.join()
