"""The system calls that a container of ours may make, as a seccomp profile for the daemon."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def profile() -> str:
    """Return the profile as the daemon takes it: one line of JSON."""
    text = files(__package__).joinpath("profile.json").read_text()
    return json.dumps(json.loads(text), separators=(",", ":"))


def is_supported(info: Mapping[str, Any]) -> bool:
    """Return whether the daemon, which `info` describes, can filter system calls."""
    return any("name=seccomp" in option for option in info.get("SecurityOptions") or ())
