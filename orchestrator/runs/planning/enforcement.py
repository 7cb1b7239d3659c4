"""Find out once which limits the engine enforces, and refuse runs that need one that it does not.

What was found holds until the machine starts again or the engine changes.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.base.errors import UnsupportedError
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.files.shared import make_shared
from orchestrator.base.machine import boot_id
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.settings.values import Limit
from orchestrator.engine.interface.features import Enforcement, EngineFeatures
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.places.place import NetworkProver
from orchestrator.engine.probes.limits_probe import ProvenLimits, probe_limits, program
from orchestrator.repository.repository import Repository

_PROBES = "probes"
_LONGEST = 64 * 1024
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]")
_DELEGATE = (
    "for a rootless engine, cgroup v2 and `Delegate=cpu cpuset io memory pids` in the systemd unit "
    "`user@.service`; otherwise the kernel parameter `cgroup_enable=memory`"
)
_HELPS: Mapping[Limit, str] = {
    "memory": _DELEGATE,
    "cpus": _DELEGATE,
    "pids": _DELEGATE,
    "swap": "the kernel parameter `swapaccount=1`",
    "seccomp": "an engine and a kernel with seccomp",
}
"""The setting of the machine with which its engine enforces a limit."""
_POLICY = (
    "the objects of `orchestrator kubernetes manifest`, with `--deny` for networks of the cluster "
    "that have public addresses, and a network plugin that enforces network policies"
)


class _Found(BaseModel):
    """What an earlier process found out, and what it holds for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    proven: ProvenLimits


def proven_limits(
    engine: ContainerEngine,
    features: EngineFeatures,
    repository: Repository,
    runtime: str | None,
) -> ProvenLimits:
    """Return which limits the engine enforces, from an earlier test or from a container.

    Only a test that found all limits enforced is remembered: whoever changes the machine because a
    limit is missing does not wait for its next start.

    Args:
        engine: The engine, which has the base image.
        features: The engine's features.
        repository: The repository.
        runtime: The OCI runtime of the containers. Default: the engine's own.

    Raises:
        EngineError: The container could not be started, or did not answer as expected.
    """
    place = _place(features, repository, runtime)
    tests = sha256(program().encode()).hexdigest()[:16]
    key = f"{features.fingerprint} {features.version} {boot_id()} {runtime or ''} {tests}"
    # protection: what-is-remembered-is-of-this-engine-and-start
    if place is not None and (found := _read(place)) is not None and found.key == key:
        return found.proven
    proven = probe_limits(engine, str(repository.common_dir), runtime=runtime)
    # protection: only-enforced-limits-are-remembered
    if place is not None and proven.is_sound:
        with suppress(OSError):
            make_shared(place.parent)
            write_atomically(place, _Found(key=key, proven=proven).model_dump_json())
    return proven


def check_enforcement(
    engine: ContainerEngine,
    features: EngineFeatures,
    repository: Repository,
    every: Iterable[ParallelConfig],
) -> EngineFeatures:
    """Return the features with what containers showed of the limits.

    Args:
        engine: The engine, which has the base image.
        features: The engine's features.
        repository: The repository.
        every: The settings of each worker.

    Raises:
        UnsupportedError: The engine does not enforce a limit, and the settings do not allow this.
        EngineError: The limits could not be tested.
    """
    every = list(every)
    enforced = dict(features.enforced)
    needs_proof = any("network" not in config.isolation.allow_unenforced for config in every)
    prover = engine if isinstance(engine, NetworkProver) and needs_proof else None
    for isolation in (config.isolation for config in every):
        if not features.enforced:
            runtime = isolation.runtime or features.default_runtime or None
            proven = proven_limits(engine, features, repository, runtime)
            # Several runtimes: a limit that one of them does not enforce is not enforced.
            enforced |= {
                name: how for name, how in proven.enforced.items() if enforced.get(name) != "no"
            }
        known = dict(enforced)
        if prover is not None and "network" not in isolation.allow_unenforced:
            # Pods prove it, which takes a while, so what is known without them is refused first.
            known.pop("network", None)
        _refuse_missing(engine, features, known, isolation)
    if prover is not None:
        networks = frozenset(network for config in every for network in config.networks)
        reached = prover.prove_network(str(repository.common_dir), networks)
        # protection: network-counts-as-enforced-if-proven
        enforced["network"] = "no" if reached else "kernel"
        for config in every:
            _refuse_missing(engine, features, enforced, config.isolation, reached)
    return replace(features, enforced=enforced)


def _refuse_missing(
    engine: ContainerEngine,
    features: EngineFeatures,
    enforced: Mapping[Limit, Enforcement],
    isolation: Isolation,
    reached: str = "",
) -> None:
    missing = [name for name, how in enforced.items() if how == "no"]
    refused = [name for name in missing if name not in isolation.allow_unenforced]
    # protection: limit-that-is-not-enforced-refuses-run
    if refused:
        named = ", ".join(f"`{name}`" for name in refused)
        hint = unenforced_hint(refused, missing, in_cluster=isinstance(engine, NetworkProver))
        raise UnsupportedError(
            f"the engine ({features.version}) does not enforce these limits: {named}",
            key="limits.unenforced",
            hint="; ".join(filter(None, [reached, hint])),
        )


def unenforced_hint(
    refused: Sequence[Limit], missing: Sequence[Limit], *, in_cluster: bool = False
) -> str:
    """Return what helps if the engine does not enforce limits.

    Args:
        refused: Limits that the settings do not allow to be missing.
        missing: All limits that the engine does not enforce. The option names allowed ones, too,
            because it replaces the user's list.
        in_cluster: Whether the engine is a cluster.
    """
    settings: Mapping[Limit, str] = {"network": _POLICY} if in_cluster else _HELPS
    helps = dict.fromkeys(settings[name] for name in refused if name in settings)
    names = ",".join(missing)
    accept = f"`--allow-unenforced {names}` starts a run without these limits"
    every = f"`export ORCHESTRATOR_ALLOW_UNENFORCED={names}` is for all commands"
    return "; ".join([*(f"what helps: {setting}" for setting in helps), accept, every])


def _place(features: EngineFeatures, repository: Repository, runtime: str | None) -> Path | None:
    """Return the file in which the answers of an engine are; None if it cannot be recognised."""
    if not features.fingerprint or boot_id() is None:
        return None
    parts = (features.id or features.fingerprint, *filter(None, [runtime]))
    name = "-".join(_UNUSUAL.sub("_", part)[:80] for part in parts)
    return repository.state_dir / _PROBES / f"{name}.json"


def _read(place: Path) -> _Found | None:
    try:
        return _Found.model_validate_json(read_limited(place, most=_LONGEST))
    except (OSError, ValidationError):
        return None
