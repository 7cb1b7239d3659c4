"""The objects that an administrator applies once, and the rights that they give."""

import ipaddress
import json
from collections.abc import Iterator, Sequence
from enum import Enum
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

import yaml

from orchestrator.base.errors import ConfigError
from orchestrator.engine.interface.spec import CLOSED
from orchestrator.network.gateway.allowed_host import BROKER_PORT

_BINDING = """\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: orchestrator
  namespace: $namespace
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: orchestrator
subjects:
"""


ENFORCE = "pod-security.kubernetes.io/enforce"
"""Label of a namespace with the pods that it admits."""


class PodSecurity(Enum):
    """Kubernetes' standards of pods that a namespace can admit."""

    RESTRICTED = "restricted"
    BASELINE = "baseline"
    """Containers of services may start as root, with five capabilities."""


class Right(NamedTuple):
    """A right of the role `orchestrator`."""

    verb: str
    group: str
    resource: str
    """The resource, with its subresource as in `pods/exec`."""


def manifest(
    namespace: str,
    *,
    users: Sequence[str] = (),
    groups: Sequence[str] = (),
    pods: int,
    deny: Sequence[str] = (),
    pod_security: PodSecurity = PodSecurity.RESTRICTED,
) -> str:
    """Return the objects as YAML.

    Args:
        namespace: The namespace, which they create.
        users: Names of users who start runs.
        groups: Names of groups of such users.
        pods: How many pods the namespace can have.
        deny: IPv4 networks that workers with an open network cannot reach, besides `CLOSED`.
        pod_security: Which pods the cluster admits to the namespace.

    Raises:
        ConfigError: One of `deny` is no such network.
    """
    text = files(__package__).joinpath("manifest.yaml").read_text(encoding="utf-8")
    subjects = [("User", name) for name in users] + [("Group", name) for name in groups]
    if subjects:
        text += _BINDING
    made = Template(text).substitute(
        namespace=namespace,
        pods=pods,
        broker=BROKER_PORT,
        closed=json.dumps(_exceptions(deny)),
        pod_security=pod_security.value,
    )
    for kind, name in subjects:
        subject = {"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"}
        made += f"- {json.dumps(subject)}\n"
    return made


def _exceptions(deny: Sequence[str]) -> list[str]:
    """Return the networks that are closed to pods with an open network."""
    try:
        own = [ipaddress.IPv4Network(network) for network in deny]
        if not all(network.prefixlen for network in own):
            raise ValueError("`0.0.0.0/0` closes all networks")
    except ValueError as error:
        raise ConfigError(
            f"`--deny`: {error}",
            key="cluster.deny",
            hint="name an IPv4 network or address, such as `8.34.208.0/20`; pods reach nothing "
            "over IPv6",
        ) from error
    # protection: closed-networks-are-closed-to-open-pods
    return list(dict.fromkeys((*CLOSED, *map(str, own))))


def rights() -> Iterator[Right]:
    """Yield every right of the role."""
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(manifest("agents", pods=1)))
    for rule in next(found for found in objects if found["kind"] == "Role")["rules"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                yield Right(verb, rule["apiGroups"][0], resource)
