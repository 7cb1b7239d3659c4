"""The events of a run, for Python programs; the package itself uses `base/events.py`."""

from orchestrator.base.events import *  # noqa: F403
