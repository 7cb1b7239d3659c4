"""Kill containers of workers after their deadline: `python -m orchestrator.execution.overdue`."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from orchestrator.engine import load_engine
from orchestrator.engine.labels import MANAGED, ROLE, RUN, WORKER
from orchestrator.engine.protocol import ContainerEngine
from orchestrator.errors import OrchestratorError

_HELPERS = frozenset({"guard", "gateway", "holder", "service"})
"""Roles of containers that the run's process removes itself when the task has ended."""
_AT_ONCE = 16
"""Maximum number of containers that are killed at the same time."""


def kill_workers(
    engine: ContainerEngine,
    run_id: str,
    workers: Sequence[str],
    *,
    before: float,
    helpers: bool = True,
) -> bool:
    """Kill the running containers of some workers; return whether no container is left running.

    Containers that started later than `before`, in seconds since the epoch, are not killed; those
    of services and networks only with `helpers`.
    """

    def kill(found: str) -> bool:
        try:
            container = engine.adopt(found)
            started = None if container is None else container.state().started_at
            if container is not None and started is not None and started.timestamp() <= before:
                container.kill("SIGKILL")
        except OrchestratorError:
            return False
        return True

    chosen = [
        left.id
        for left in engine.leftovers({MANAGED: "true", RUN: run_id})
        if left.kind == "container"
        and left.labels.get(WORKER) in workers
        and (helpers or left.labels.get(ROLE) not in _HELPERS)
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return all(list(pool.map(kill, chosen)))


def main(arguments: Sequence[str]) -> int:
    """Kill the containers that a line of the standard input names; return 0 for success, else 1.

    The line has the latest start to kill (seconds since the epoch), `tasks` or `all`, and the
    workers. Without a line, nothing is killed.

    Args:
        arguments: Engine name and run id.
    """
    name, run_id = arguments
    try:
        engine = load_engine(name)
    except OrchestratorError:
        return 1
    try:
        words = sys.stdin.readline().split()
        if not words:
            return 0
        before, which, *workers = words
        done = kill_workers(engine, run_id, workers, before=float(before), helpers=which == "all")
    except OrchestratorError:
        return 1
    finally:
        engine.close()
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
