"""What a network plugin does elsewhere: enforce the network policies of the lab's namespace.

It knows policies that select pods by labels and allow nothing, and no others.
"""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from orchestrator.engine.kubernetes.cluster import Cluster
from orchestrator.errors import EngineError
from tests.cluster.lab import NAMESPACE, Lab

_LOOK = 0.1
_CHAINS = (("INPUT", "src"), ("FORWARD", "src"), ("FORWARD", "dst"), ("OUTPUT", "dst"))


class _Enforcer:
    def __init__(self, lab: Lab, after: float) -> None:
        self._lab, self._after = lab, after
        self._cluster = Cluster(kubeconfig=lab.directory / "kubeconfig", namespace=NAMESPACE)
        self._seen: dict[str, float] = {}
        self.closed: set[str] = set()

    def look(self) -> None:
        """Close the network of all selected pods that have an address for long enough."""
        base = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
        selectors = []
        for policy in self._cluster.request("GET", base)["items"]:
            described = policy["spec"]
            assert not {"ingress", "egress"} & described.keys(), described
            assert sorted(described["policyTypes"]) == ["Egress", "Ingress"]
            selectors.append(described["podSelector"]["matchLabels"].items())
        pods = self._cluster.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        wanted = {
            pod["status"]["podIP"]
            for pod in pods
            if "podIP" in pod["status"] and pod["status"]["phase"] in ("Pending", "Running")
            for selector in selectors
            if selector <= pod["metadata"].get("labels", {}).items()
        }
        now = time.monotonic()
        self._seen = {address: self._seen.get(address, now) for address in wanted}
        late = {address for address, since in self._seen.items() if now < since + self._after}
        for address in sorted(wanted - late - self.closed):
            self._rules("-A", address)
        for address in sorted(self.closed - wanted):
            self._rules("-D", address)
        self.closed = wanted - late

    def open(self) -> None:
        """Open the network of all pods again."""
        for address in sorted(self.closed):
            self._rules("-D", address)

    def _rules(self, verb: str, address: str) -> None:
        for node in self._lab.nodes:
            network = f"--net=/run/netns/{self._lab.prefix}-n{node}"
            for chain, way in _CHAINS:
                rule = [verb, chain, "-p", "IPv4", f"--ip-{way}", address, "-j", "DROP"]
                subprocess.run(["nsenter", network, "ebtables", *rule], check=True)


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
