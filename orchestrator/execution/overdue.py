"""Kill containers of workers after their deadline: `python -m orchestrator.execution.overdue`."""

import sys
from collections.abc import Sequence

from orchestrator.engine import load_engine
from orchestrator.engine.labels import MANAGED, RUN, WORKER
from orchestrator.engine.protocol import ContainerEngine
from orchestrator.errors import OrchestratorError


def kill_workers(
    engine: ContainerEngine, run_id: str, workers: Sequence[str], *, before: float
) -> bool:
    """Kill the running containers of some workers; return whether no container is left running.

    Containers that started later than `before`, in seconds since the epoch, are not
    killed.
    """
    done = True
    for worker in workers:
        for left in engine.leftovers({MANAGED: "true", RUN: run_id, WORKER: worker}):
            if left.kind != "container":
                continue
            try:
                container = engine.adopt(left.id)
                if container is None:
                    continue
                started = container.state().started_at
                if started is not None and started.timestamp() <= before:
                    container.kill("SIGKILL")
            except OrchestratorError:
                done = False
    return done


def main(arguments: Sequence[str]) -> int:
    """Kill the containers that the arguments name; return 0 for success, else 1.

    Args:
        arguments: Engine name, run id, latest start to kill (seconds since the epoch), workers.
    """
    name, run_id, before, *workers = arguments
    try:
        engine = load_engine(name)
    except OrchestratorError:
        return 1
    try:
        return 0 if kill_workers(engine, run_id, workers, before=float(before)) else 1
    except OrchestratorError:
        return 1
    finally:
        engine.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
