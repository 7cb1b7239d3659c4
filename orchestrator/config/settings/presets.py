"""Presets: named sets of default settings for a kind of work; explicit settings override them."""

from collections.abc import Mapping
from typing import Literal

Preset = Literal["untrusted", "ci", "trusted"]
_MIB = 1024**2
_GIB = 1024**3

PRESETS: Mapping[Preset, Mapping[str, Mapping[str, object]]] = {
    "untrusted": {
        "run": {"timeout_per_worker": 300.0, "rate_limit_wait": 0.0},
        "limits": {
            "cpus": 1.0,
            "memory": _GIB,
            "pids": 128,
            "open_files": 1024,
            "tmp": 256 * _MIB,
            "disk": _GIB,
            "inodes": 100_000,
            "log_limit": 100 * _MIB,
            "grace": 5.0,
        },
        "isolation": {"network": "none", "history": "shallow", "keys": "broker"},
    },
    "ci": {
        "run": {"timeout_per_worker": 1800.0, "worktrees": "end"},
        "limits": {
            "memory": 8 * _GIB,
            "pids": 2048,
            "open_files": 16_384,
            "tmp": 2 * _GIB,
            "disk": 16 * _GIB,
            "inodes": 2_000_000,
            "idle_timeout": 900.0,
        },
        "isolation": {"network": "open", "history": "full"},
    },
    "trusted": {
        "run": {"timeout_per_worker": 3600.0},
        "limits": {
            "memory": 16 * _GIB,
            "pids": 4096,
            "open_files": 16_384,
            "tmp": 4 * _GIB,
            "disk": 64 * _GIB,
            "inodes": 8_000_000,
            "log_limit": 4 * _GIB,
            "grace": 30.0,
        },
        "isolation": {"network": "open", "history": "full"},
    },
}
"""Values of each preset, by part of the configuration. All other settings keep their defaults."""
