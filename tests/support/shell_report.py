"""Commands that report figures of their own, as the adapter `shell` reads them."""

import json
import shlex

from orchestrator.agents.programs.shell import REPORT


def reporting(**said: object) -> str:
    """Return a command that prints a report."""
    return "echo " + shlex.quote(json.dumps({"type": REPORT, **said}))
