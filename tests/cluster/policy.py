"""What a network plugin does elsewhere: enforce the network policies of the lab's namespace.

It knows policies that select pods by labels, and allow nothing, public addresses and name servers,
or TCP ports of other pods. Of connections to pods, it closes those from where the pods cannot
connect to, and those of pods that a policy of ingress does not name.
"""

import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from orchestrator.base.errors import EngineError
from orchestrator.engine.kubernetes.cluster import Cluster
from tests.cluster.lab import NAMESPACE, Lab

_LOOK = 0.1
_CHAINS = (("INPUT", "src"), ("FORWARD", "src"), ("FORWARD", "dst"), ("OUTPUT", "dst"))
_OTHER = {"src": "dst", "dst": "src"}
_PODS = "172.30.0.0/16"
Rule = tuple[str, ...]
"""A chain, what happens, and which packets are meant."""


class _Enforcer:
    def __init__(self, lab: Lab, after: float) -> None:
        self._lab, self._after = lab, after
        self._cluster = Cluster(kubeconfig=lab.directory / "kubeconfig", namespace=NAMESPACE)
        self._seen: dict[str, float] = {}
        self._set: set[Rule] = set()

    def look(self) -> None:
        """Set the rules of all selected pods that have an address for long enough."""
        base = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
        policies = [policy["spec"] for policy in self._cluster.request("GET", base)["items"]]
        found = self._cluster.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        pods = {
            pod["status"]["podIP"]: pod["metadata"].get("labels", {})
            for pod in found
            if "podIP" in pod["status"] and pod["status"]["phase"] in ("Pending", "Running")
        }
        now = time.monotonic()
        self._seen = {address: self._seen.get(address, now) for address in pods}
        wanted = {
            rule
            for policy in policies
            for address in _chosen(policy, pods)
            if now >= self._seen[address] + self._after
            for rule in _rules(policy, address, pods)
        }
        # What is allowed comes first, and is there before the rest is closed.
        added = sorted(wanted - self._set, key=lambda rule: rule[1] == "DROP")
        self._change(("-I" if rule[1] == "ACCEPT" else "-A", rule) for rule in added)
        self._change(("-D", rule) for rule in self._set - wanted)
        self._set = wanted

    def open(self) -> None:
        """Open the network of all pods again."""
        self._change(("-D", rule) for rule in self._set)

    def _change(self, changes: Iterable[tuple[str, Rule]]) -> None:
        rules = [
            f"ebtables {verb} {chain} -p IPv4 {' '.join(packets)} -j {what}"
            for verb, (chain, what, *packets) in changes
        ]
        for node in self._lab.nodes if rules else ():
            network = f"--net=/run/netns/{self._lab.prefix}-n{node}"
            subprocess.run(["nsenter", network, "sh", "-ec", "\n".join(rules)], check=True)


def _chosen(peer: dict[str, Any], pods: dict[str, dict[str, str]]) -> list[str]:
    """Return the addresses of the pods that a policy or a rule of it names."""
    (found,) = peer["podSelector"].items()
    if found[0] == "matchExpressions":
        ((key, values),) = [
            (one["key"], one["values"]) for one in found[1] if one["operator"] == "In"
        ]
        return [address for address, labels in pods.items() if labels.get(key) in values]
    return [address for address, labels in pods.items() if found[1].items() <= labels.items()]


def _rules(policy: dict[str, Any], address: str, pods: dict[str, dict[str, str]]) -> Iterator[Rule]:
    """Yield the rules of a policy for a pod. They have no memory, so answers need rules too."""
    closed = _closed(policy)
    for allowed in policy.get("egress", ()):
        (peer,) = allowed["to"]
        if peer.keys() == {"podSelector"}:
            for other in _chosen(peer, pods):
                yield from _both(address, other, allowed["ports"])
    for allowed in policy.get("ingress", ()):
        (peer,) = allowed["from"]
        for other in _chosen(peer, pods):
            yield from _both(other, address, allowed["ports"])
    for chain, way in _CHAINS:
        if way == "dst" or "Egress" in policy["policyTypes"]:
            for network in closed:
                yield (chain, "DROP", f"--ip-{way}", address, f"--ip-{_OTHER[way]}", network)


def _closed(policy: dict[str, Any]) -> list[str]:
    """Return the networks that a policy closes. The lab has no name servers."""
    if "Egress" not in policy["policyTypes"]:
        # Answers to what the pod asks elsewhere come from no pod.
        return [_PODS]
    for allowed in policy.get("egress", ()):
        (peer,) = allowed["to"]
        if "ipBlock" in peer:
            assert (allowed.keys(), peer["ipBlock"]["cidr"]) == ({"to"}, "0.0.0.0/0")
            return list(peer["ipBlock"]["except"])
    return ["0.0.0.0/0"]


def _both(source: str, target: str, ports: list[dict[str, Any]]) -> Iterator[Rule]:
    ((protocol, port),) = [(one["protocol"], str(one["port"])) for one in ports]
    assert protocol == "TCP"
    tcp = ("--ip-proto", "tcp")
    for chain in ("INPUT", "FORWARD", "OUTPUT"):
        yield (chain, "ACCEPT", "--ip-src", source, "--ip-dst", target, *tcp, "--ip-dport", port)
        yield (chain, "ACCEPT", "--ip-src", target, "--ip-dst", source, *tcp, "--ip-sport", port)


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
