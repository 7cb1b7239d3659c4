"""The user's directory for files that outlive a command and belong to no repository."""

import os
from pathlib import Path


def state_home() -> Path:
    """Return the directory for files of the user that outlive a command; it need not exist."""
    given = os.environ.get("XDG_STATE_HOME")
    return Path(given or Path.home() / ".local" / "state") / "orchestrator"
