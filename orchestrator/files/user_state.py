"""The user's directory for files that outlive a command and belong to no repository."""

import os
from pathlib import Path


def state_home() -> Path:
    """Return the directory, which need not exist."""
    given = os.environ.get("XDG_STATE_HOME")
    return Path(given or Path.home() / ".local" / "state") / "orchestrator"
