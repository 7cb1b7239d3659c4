"""The seccomp profile: the system calls that containers are allowed to make."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def profile() -> str:
    """Return the seccomp profile as the daemon expects it: JSON on one line."""
    text = files(__package__).joinpath("profile.json").read_text()
    return json.dumps(json.loads(text), separators=(",", ":"))


def is_supported(info: Mapping[str, Any]) -> bool:
    """Return whether the daemon can filter system calls; `info` is its answer to `/info`."""
    return any("name=seccomp" in option for option in info.get("SecurityOptions") or ())
