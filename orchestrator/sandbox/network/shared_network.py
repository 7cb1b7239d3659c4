"""The networks that the sandboxes of this process share, and who may reach what in them.

A network exists from the first sandbox that needs it to the last. Its helper, a container in the
host's network, closes this machine to it before any sandbox starts. When this process is gone, the
network stays as long as a sandbox uses it; the process of `deadlines.reaper` removes it then.
"""

import math
import os
import threading
from collections.abc import Hashable, Sequence
from contextlib import suppress
from functools import partial

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.threads import meanwhile
from orchestrator.config.network_access import Access
from orchestrator.config.settings.container import Network
from orchestrator.engine.egress import check_networks, check_runtime, egress_of, resolver_of
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.labels import NETWORK_ROLE, ROLE
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.interface.spec import Egress
from orchestrator.network.gateway.host_sets import HostSets
from orchestrator.network.gateway.package_managers import Machine
from orchestrator.sandbox.deadlines.removal import remove_all
from orchestrator.sandbox.home import Home
from orchestrator.sandbox.network.run_network import close_host

_known: dict[Hashable, "SharedNetwork"] = {}
_lock = threading.Lock()


def egress_for(
    network: Network,
    allow: Sequence[str],
    *,
    engine: ContainerEngine,
    features: EngineFeatures,
    runtime: str | None,
) -> Egress | None:
    """Return what a sandbox may reach; None without a network.

    Args:
        network: The kind of its network.
        allow: Hosts that it may reach, as those of workers.
        engine: The engine.
        features: What the engine can do.
        runtime: OCI runtime of the sandbox. Default: the engine's.

    Raises:
        ConfigError: An allowed host is invalid or cannot be resolved, or an allow-list is empty.
        UnsupportedError: The engine or the runtime cannot close such a network to this machine.
    """
    if network == "none":
        return None
    check_runtime(runtime)
    access = Access(network, tuple(allow))
    sets = HostSets(own={}, machine=Machine(environ=os.environ))
    egress = egress_of(access, sets=sets, resolve=resolver_of(engine))
    # protection: sandbox-without-closed-network-refused
    check_networks({access: egress}, features, runtime=runtime)
    return egress


class SharedNetwork:
    """A network for all sandboxes of this process that may reach the same. Threads may share it."""

    @classmethod
    def of(cls, engine: ContainerEngine, egress: Egress) -> "SharedNetwork":
        """Return the network of sandboxes that may reach the same hosts, which may not exist yet.

        Gateways, which tell hosts apart, have one network for all allow-lists.
        """
        key = (id(engine), egress.allowed, egress.hosts is None)
        with _lock:
            found = _known.get(key)
            if found is None:
                found = _known[key] = cls(engine, egress, key)
            return found

    def __init__(self, engine: ContainerEngine, egress: Egress, key: Hashable) -> None:
        """Store the arguments; nothing is created."""
        self._engine = engine
        self._egress = egress
        self._key = key
        self._users: set[object] = set()
        self._made: tuple[Home, str] | None = None
        self._lock = threading.Lock()

    def join(self, user: object) -> str:
        """Return the network's id for the engine; `leave` must be called with the same user.

        Args:
            user: Who needs the network: the directory of a sandbox, or any other object.

        Raises:
            EngineUnavailableError: The engine does not answer.
            EngineError: The network cannot be created, or not be closed to this machine.
            ConfigError: The state of sandboxes cannot be written.
        """
        with self._lock:
            if self._made is None:
                self._made = self._create()
            self._users.add(user)
            home, network = self._made
        if isinstance(user, Home):
            user.use_network(home.id)
        return network

    def leave(self, user: object) -> None:
        """Remove the network if no other user needs it; the user's container must be gone."""
        with self._lock:
            self._users.discard(user)
            # The directories of sandboxes that ended without us are gone.
            gone = {left for left in self._users if isinstance(left, Home) and left.is_gone}
            self._users -= gone
            if self._users or self._made is None:
                return
            home, self._made = self._made[0], None
            with _lock:
                _known.pop(self._key, None)
        # What cannot be removed now is removed when this process has ended.
        with suppress(OrchestratorError):
            if not remove_all(self._engine, self._engine.leftovers(home.all_labels)):
                home.remove()

    def _create(self) -> tuple[Home, str]:
        home = Home.create(engine=self._engine.name, seconds=math.inf, owned=True)
        name = f"orchestrator-sandboxes-{home.id}"
        labels = {**home.all_labels, ROLE: NETWORK_ROLE}
        try:
            # The rules for this machine name the network's bridge before it exists.
            with meanwhile(partial(self._engine.create_network, name, labels)) as network:
                # protection: host-closed-before-first-sandbox
                close_host(self._engine, name, (self._egress,), labels)
        except BaseException:
            with suppress(OrchestratorError):
                if not remove_all(self._engine, self._engine.leftovers(home.all_labels)):
                    home.remove()
            raise
        return home, network.result()
