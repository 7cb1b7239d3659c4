"""Where the broker of a run is: in a network with its workers, or in a place with an address.

It is recorded, so that another process can resume the run.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from orchestrator.base.files.atomic import write_private

_PLACE = "broker.json"
_OWN = 2
"""Index of the broker's address in its network's addresses; the workers' addresses follow."""


@dataclass(frozen=True, kw_only=True)
class BrokerNetwork:
    """The network of a run's broker and its workers."""

    id: str
    subnet: IPv4Network

    @property
    def address(self) -> str:
        """Return the broker's IP address."""
        return str(self.subnet[_OWN])

    def address_of(self, index: int) -> str:
        """Return the IP address of a worker; the first one has the index 0."""
        return str(self.subnet[_OWN + 1 + index])


@dataclass(frozen=True, kw_only=True)
class NotedPlace:
    """The place of a run's broker; one that is lost is replaced by the one with the next number."""

    number: int = 1
    address: str = ""
    """Empty if the broker was never there."""


def note_place(run: Path, place: NotedPlace) -> None:
    """Record the broker's place in a run's directory, for another process that resumes the run."""
    write_private(run / _PLACE, json.dumps(vars(place)).encode())


def read_place(run: Path) -> NotedPlace:
    """Return the place of the broker as it was recorded."""
    try:
        noted = json.loads((run / _PLACE).read_text())
        return NotedPlace(number=int(noted["number"]), address=str(noted["address"]))
    except (OSError, ValueError, KeyError, TypeError):
        return NotedPlace()


def note_network(state: Path, network: BrokerNetwork) -> None:
    """Record the broker's network, so that another process can resume the run."""
    noted = {"id": network.id, "subnet": str(network.subnet)}
    # The broker can write to this directory, and may have put a link there.
    write_private(state / "network.json", json.dumps(noted).encode())


def read_network(state: Path, existing: Collection[str]) -> BrokerNetwork | None:
    """Return the network of the broker as it was recorded, if it still exists.

    Args:
        state: The broker's directory in the run's directory.
        existing: Ids of the networks that the engine has.
    """
    try:
        noted = json.loads((state / "network.json").read_text())
        found = BrokerNetwork(id=str(noted["id"]), subnet=IPv4Network(noted["subnet"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.id in existing else None
