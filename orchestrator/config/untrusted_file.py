"""What a configuration file may not do when nobody named it: it came with the repository.

Whoever wrote the repository wrote that file too, and may be nobody the user trusts. It may say what
a run does; it hands out nothing of the user's, and makes no worker larger or more open.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from orchestrator.config.container import Limits
from orchestrator.config.fields import (
    CONTAINER_FIELDS,
    PROJECT_FIELDS,
    RUN_FIELDS,
    TRIGGER_FIELDS,
    FieldPath,
    Setting,
)
from orchestrator.config.run import ParallelConfig, StageKey
from orchestrator.config.values import DEFAULT_TIMEOUT
from orchestrator.text.name_templates import leads_outside

NAME_IT = "pass `--config {}` if you trust who wrote that file"

NAMED_ONLY: frozenset[FieldPath] = frozenset(
    {
        *(RUN_FIELDS[name] for name in ("api_base", "context", "image", "include_uncommitted")),
        *(RUN_FIELDS[name] for name in ("agent_cli", "base", "tasks")),
        *(CONTAINER_FIELDS[name] for name in ("allow", "copy", "env", "runtime", "secrets")),
        TRIGGER_FIELDS["notify"],
        PROJECT_FIELDS["services"],
    }
)
"""Keys that are for a file which the user named: where keys go to, what a worker gets, what is run
on this machine, and what is done with the keys: by which program, for which task, on which commit
(stashes and private branches are commits too)."""
STAGES: Mapping[StageKey, FieldPath] = {
    "setup": PROJECT_FIELDS["setup"],
    "teardown": PROJECT_FIELDS["teardown"],
    "checks": PROJECT_FIELDS["checks"],
}
"""Commands that a repository's file may give, and that are then `closed_stages` of the run."""

_OPEN = ("none", "open", "shallow", "full")
_UNCHOSEN_CPUS = 2.0
_REACH: Mapping[str, Callable[[Any], float]] = {
    "cpus": lambda cpus: cpus or _UNCHOSEN_CPUS,
    "timeout_per_worker": lambda seconds: seconds or inf,
    "idle_timeout": lambda seconds: seconds or inf,
    "setup_timeout": lambda seconds: seconds or inf,
    "network": _OPEN.index,
    # Nothing given is the worker's own network, and none for the commands of a repository's file.
    "setup_network": lambda network: _OPEN.index(network or "none"),
    "check_network": _OPEN.index,
    "read_only": lambda read_only: not read_only,
    "checks": lambda checks: max([DEFAULT_TIMEOUT, *(check.timeout or inf for check in checks)]),
    "history": _OPEN.index,
}
"""How far a value reaches, where that is not the value itself."""
BOUNDED: tuple[FieldPath, ...] = (
    *(("limits", name) for name in Limits.model_fields),
    *(("isolation", name) for name in ("network", "read_only", "history")),
    CONTAINER_FIELDS["setup_network"],
    CONTAINER_FIELDS["check_network"],
    RUN_FIELDS["max_workers"],
    RUN_FIELDS["max_worktrees"],
    PROJECT_FIELDS["setup_timeout"],
    PROJECT_FIELDS["checks"],
)
_PRESET = RUN_FIELDS["preset"]
_OF_PRESETS = tuple(RUN_FIELDS[name] for name in ("timeout_per_worker", "rate_limit_wait"))
"""Bounded where a preset was asked for, which has its own."""


def out_of_bounds(settings: Sequence[Setting]) -> list[str]:
    """List the settings of a repository's file that are for a named file alone."""
    return [
        f"{setting.label} is not taken from a file that came with the repository"
        for setting in settings
        if setting.field in NAMED_ONLY or _leads_outside(setting)
    ]


def _leads_outside(setting: Setting) -> bool:
    """Check whether worktrees would lie outside of the repository that the file came with."""
    return setting.field == RUN_FIELDS["worktree_dir"] and leads_outside(str(setting.value))


def loosened(
    settings: Sequence[Setting], config: ParallelConfig, without: ParallelConfig
) -> list[str]:
    """List the settings of a repository's file by which a worker may do more than without it.

    Args:
        settings: The file's.
        config: What all layers come to.
        without: What they come to without the file.
    """
    bounded = BOUNDED if without.preset is None else (*BOUNDED, *_OF_PRESETS)
    by_field = {setting.field: setting for setting in settings}
    wider = (field for field in bounded if _reach(config, field) > _reach(without, field))
    # In order, and a preset once for all that it widens.
    blamed = {id(one): one for one in (by_field.get(f, by_field.get(_PRESET)) for f in wider)}
    return [
        f"{setting.label} would let a worker do more than it may without that file"
        for setting in blamed.values()
        if setting is not None
    ]


def closed_stages(file: Sequence[Setting], stronger: Sequence[Setting]) -> tuple[StageKey, ...]:
    """List the stages whose commands are those of a repository's file.

    Args:
        file: The file's settings.
        stronger: Those of variables and options.
    """
    theirs = {setting.field for setting in file} - {setting.field for setting in stronger}
    return tuple(stage for stage, field in STAGES.items() if field in theirs)


def _reach(config: ParallelConfig, field: FieldPath) -> float:
    part = getattr(config, field[0]) if len(field) > 1 else config
    value = getattr(part, field[-1])
    return float(_REACH.get(field[-1], float)(value))
