"""Remove sandboxes whose time is over: `python -m orchestrator.sandbox.expire ID…`."""

import json
import sys
from collections.abc import Sequence

from orchestrator.base.errors import OrchestratorError
from orchestrator.engine import load_engine
from orchestrator.sandbox.deadlines.reaper import LEASE, is_over
from orchestrator.sandbox.home import Home, sandboxes


def end(names: Sequence[str]) -> int:
    """Remove sandboxes with their containers; return the number of those that are left."""
    left = 0
    for home in (Home(sandboxes() / name) for name in names):
        try:
            lease = json.loads((home.path / LEASE).read_text())
        except (OSError, ValueError):
            lease = {"engine": "docker", "address": ""}
        else:
            # It may have been extended a moment ago.
            # protection: extended-sandbox-is-left-alone
            if not is_over(lease):
                continue
        try:
            engine = load_engine(lease["engine"], lease["address"])
            try:
                for found in engine.leftovers(home.labels):
                    engine.remove(found)
            finally:
                engine.close()
            home.remove()
        except OrchestratorError as error:
            sys.stderr.write(f"{home.id}: {error}\n")
            left += 1
    return left


if __name__ == "__main__":
    sys.exit(end(sys.argv[1:]))
