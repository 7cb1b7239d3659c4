"""What a network plugin does elsewhere: enforce the network policies of the lab's namespace.

It knows policies that select pods by labels, and allow nothing, or public addresses and name
servers. Of connections to pods, it closes those from where the pods cannot connect to.
"""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.errors import EngineError
from tests.cluster.lab import NAMESPACE, Lab

_LOOK = 0.1
_CHAINS = (("INPUT", "src"), ("FORWARD", "src"), ("FORWARD", "dst"), ("OUTPUT", "dst"))
_OTHER = {"src": "dst", "dst": "src"}


class _Enforcer:
    def __init__(self, lab: Lab, after: float) -> None:
        self._lab, self._after = lab, after
        self._cluster = Cluster(kubeconfig=lab.directory / "kubeconfig", namespace=NAMESPACE)
        self._seen: dict[str, float] = {}
        self.closed: dict[str, tuple[str, ...]] = {}
        """Addresses of pods, and to which networks they cannot connect."""

    def look(self) -> None:
        """Close the network of all selected pods that have an address for long enough."""
        base = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
        policies = []
        for policy in self._cluster.request("GET", base)["items"]:
            described = policy["spec"]
            assert "ingress" not in described, described
            assert sorted(described["policyTypes"]) == ["Egress", "Ingress"]
            closed = _closed(described.get("egress", []))
            policies.append((described["podSelector"]["matchLabels"].items(), closed))
        pods = self._cluster.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        wanted = {
            pod["status"]["podIP"]: closed
            for pod in pods
            if "podIP" in pod["status"] and pod["status"]["phase"] in ("Pending", "Running")
            for selector, closed in policies
            if selector <= pod["metadata"].get("labels", {}).items()
        }
        now = time.monotonic()
        self._seen = {address: self._seen.get(address, now) for address in wanted}
        late = {address for address, since in self._seen.items() if now < since + self._after}
        for address in sorted(self.closed.keys() - wanted):
            self._rules("-D", address, self.closed.pop(address))
        for address in sorted(wanted.keys() - late - self.closed.keys()):
            self._rules("-A", address, wanted[address])
            self.closed[address] = wanted[address]

    def open(self) -> None:
        """Open the network of all pods again."""
        for address in sorted(self.closed):
            self._rules("-D", address, self.closed[address])

    def _rules(self, verb: str, address: str, networks: tuple[str, ...]) -> None:
        rules = [
            f"ebtables {verb} {chain} -p IPv4 --ip-{way} {address} --ip-{_OTHER[way]} {to} -j DROP"
            for chain, way in _CHAINS
            for to in networks
        ]
        for node in self._lab.nodes:
            network = f"--net=/run/netns/{self._lab.prefix}-n{node}"
            subprocess.run(["nsenter", network, "sh", "-ec", "\n".join(rules)], check=True)


def _closed(egress: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the networks that a policy closes. The lab has no name servers."""
    if not egress:
        return ("0.0.0.0/0",)
    public, names = egress
    ((block,), (servers,)) = public["to"], names["to"]
    assert (public.keys(), block["ipBlock"]["cidr"]) == ({"to"}, "0.0.0.0/0")
    assert servers["podSelector"] == {"matchLabels": {"k8s-app": "kube-dns"}}
    return tuple(block["ipBlock"]["except"])


@contextmanager
def enforced(lab: Lab, *, after: float = 0.0) -> Iterator[None]:
    """Enforce the policies, for every pod `after` seconds after it has an address."""
    enforcer, ended = _Enforcer(lab, after), threading.Event()

    def loop() -> None:
        while not ended.wait(_LOOK):
            with suppress(EngineError):
                enforcer.look()
        enforcer.open()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
