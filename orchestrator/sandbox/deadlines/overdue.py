"""Kill containers of workers after their deadline, as a program: `python -m`."""

import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait

from orchestrator.base.errors import OrchestratorError
from orchestrator.engine import load_engine
from orchestrator.engine.interface.labels import MANAGED, PLACE, ROLE, RUN, WORKER
from orchestrator.engine.interface.protocol import ContainerEngine

_HELPERS = frozenset({"guard", "gateway", "holder", "service"})
"""Roles of containers that the run's process removes itself when the task has ended."""
_PATIENCE = 0.5
"""Seconds to wait for the engine's answers. A call waits for the container's end, but the next
worker's deadline does not.
"""
_ATTEMPTS = 20
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
    """Kill the running containers of some workers; return whether no call has failed so far.

    Containers that started later than `before`, in seconds since the epoch, are not killed; those
    of services and networks only with `helpers`. The engine may answer late: a call that needs
    longer than `_PATIENCE` continues, and is repeated if it fails.
    """

    def kill(found: str) -> bool:
        for _ in range(_ATTEMPTS):
            begun = time.monotonic()
            try:
                container = engine.adopt(found)
                started = None if container is None else container.state().started_at
                # protection: later-containers-are-left-alone
                if container is not None and started is not None and started.timestamp() <= before:
                    container.kill("SIGKILL")
            except OrchestratorError:
                if time.monotonic() - begun < _PATIENCE:
                    return False
                time.sleep(_PATIENCE)
            else:
                return True
        return False

    chosen = [
        left.id
        for left in engine.leftovers({MANAGED: "true", RUN: run_id})
        if left.kind == "container"
        and left.labels.get(WORKER) in workers
        # A place with volumes enforces deadlines itself; it packs the work after the task's end.
        and (PLACE not in left.labels or left.labels.get(ROLE) == "worker")
        and (helpers or left.labels.get(ROLE) not in _HELPERS)
    ]
    pool = ThreadPoolExecutor(_AT_ONCE)
    finished, _ = wait([pool.submit(kill, found) for found in chosen], timeout=_PATIENCE)
    pool.shutdown(wait=False)
    return all(future.result() for future in finished)


def main(arguments: Sequence[str]) -> int:
    """Kill the containers that lines of the standard input name; answer `done` or `failed`.

    A line has the latest start to kill (seconds since the epoch), `tasks` or `all`, and workers.

    Args:
        arguments: Engine name and run id, and the engine's address if it is known.
    """
    name, run_id, *address = arguments
    try:
        engine = load_engine(name, *address)
    except OrchestratorError:
        return 1
    try:
        for line in sys.stdin:
            before, which, *workers = line.split()
            done = kill_workers(
                engine, run_id, workers, before=float(before), helpers=which == "all"
            )
            sys.stdout.write("done\n" if done else "failed\n")
            sys.stdout.flush()
    except OrchestratorError:
        return 1
    finally:
        engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
