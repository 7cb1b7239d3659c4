"""Remove containers, networks and volumes; continue after failures, and repeat attempts."""

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from orchestrator.base.errors import OrchestratorError
from orchestrator.engine.interface.labels import HOST_ROLE, MANAGED, ROLE, RUN, SANDBOX, WORKER
from orchestrator.engine.interface.protocol import ContainerEngine, Leftover

_AT_ONCE = 8
_ROUNDS = 4
"""Maximum number of further attempts to remove volumes and networks that are in use."""
_PAUSE = 0.5
"""Seconds before a further attempt."""
_ORDER = ("container", "volume", "network")
"""Kinds of engine objects in the order of removal: containers before the networks that they use."""


@dataclass(frozen=True)
class Stuck:
    """An engine object that could not be removed, and the reason."""

    leftover: Leftover
    problem: str

    def __str__(self) -> str:
        """Return the object and the engine's error."""
        return f"{self.leftover.kind} {self.leftover.id[:12]}: {self.problem}"


def remove_all(engine: ContainerEngine, leftovers: Iterable[Leftover]) -> list[Stuck]:
    """Remove engine objects, and return those that could not be removed.

    If a process was killed while it requested a container, the engine may still create the
    container later. Volumes and networks that this container uses can only be removed after it: all
    are removed in a further attempt, once the engine lists the container.
    """
    known = list(leftovers)
    stuck = _remove(engine, known)
    for _ in range(_ROUNDS):
        in_use = [entry.leftover for entry in stuck if entry.leftover.kind != "container"]
        if not in_use:
            break
        time.sleep(_PAUSE)
        # protection: containers-that-engine-creates-late-are-removed
        late = _late(engine, in_use, known)
        known += late
        # A stuck container is not tried again, because that could take a minute each time.
        stuck = [entry for entry in stuck if entry.leftover.kind == "container"]
        stuck += _remove(engine, [*late, *in_use])
    return stuck


def _late(
    engine: ContainerEngine, in_use: Iterable[Leftover], known: Iterable[Leftover]
) -> list[Leftover]:
    """Return the containers, except `known`, of the owners of volumes or networks `in_use`."""
    ids = {leftover.id for leftover in known}
    late: list[Leftover] = []
    for left in in_use:
        sandbox = left.labels.get(SANDBOX)
        owner = {RUN: left.labels.get(RUN, "")} if sandbox is None else {SANDBOX: sandbox}
        worker = left.labels.get(WORKER)
        owner |= {} if worker is None else {WORKER: worker}
        with suppress(OrchestratorError):
            found = engine.leftovers({MANAGED: "true", **owner})
            late += [left for left in found if left.kind == "container" and left.id not in ids]
            ids.update(left.id for left in late)
    return late


def _remove(engine: ContainerEngine, leftovers: Iterable[Leftover]) -> list[Stuck]:
    stuck: list[Stuck] = []

    def remove(leftover: Leftover) -> None:
        try:
            engine.remove(leftover)
        except OrchestratorError as error:
            stuck.append(Stuck(leftover, error.message))

    def place(leftover: Leftover) -> int:
        # The helper in the host's network is a member of no network that is removed.
        alone = leftover.labels.get(ROLE) == HOST_ROLE
        return _ORDER.index("network" if alone else leftover.kind)

    # In parallel, because the engine needs a minute to report an object that it cannot remove.
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="remove") as pool:
        for _, same in groupby(sorted(leftovers, key=place), key=place):
            list(pool.map(remove, same))
    return stuck
