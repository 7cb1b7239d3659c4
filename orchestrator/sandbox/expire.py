"""Remove sandboxes whose time is over, and networks that none needs: `python -m … ID…`."""

import json
import sys
from collections.abc import Sequence

from orchestrator.base.errors import OrchestratorError
from orchestrator.engine import load_engine
from orchestrator.sandbox.deadlines.reaper import LEASE, overdue
from orchestrator.sandbox.deadlines.removal import remove_all
from orchestrator.sandbox.home import Home, sandboxes


def end(names: Sequence[str]) -> int:
    """Remove sandboxes with all of their containers; return the number of those that are left."""
    left = 0
    stuck: Sequence[object]
    # One may have been extended a moment ago, or its network be used.
    # protection: extended-sandbox-is-left-alone
    due = set(overdue(sandboxes())).intersection(names)
    for home in (Home(sandboxes() / name) for name in names if name in due):
        try:
            name = json.loads((home.path / LEASE).read_text())["engine"]
        except (OSError, ValueError):
            name = "docker"
        try:
            engine = load_engine(name)
            try:
                stuck = remove_all(engine, engine.leftovers(home.all_labels))
            finally:
                engine.close()
        except OrchestratorError as error:
            stuck = [error]
        if not stuck:
            home.remove()
        for problem in stuck:
            sys.stderr.write(f"{home.id}: {problem}\n")
        left += bool(stuck)
    return left


if __name__ == "__main__":
    sys.exit(end(sys.argv[1:]))
