"""Restrict configuration files that were found in the repository and not named by the user.

Such a file was written by the authors of the repository, whom the user may not trust. The file may
describe the work. It must not give workers anything that belongs to the user, raise their limits,
or loosen their isolation.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from orchestrator.base.text.name_templates import leads_outside
from orchestrator.config.fields import (
    CLUSTER_FIELDS,
    CONTAINER_FIELDS,
    PROJECT_FIELDS,
    RUN_FIELDS,
    TRIGGER_FIELDS,
    FieldPath,
    Setting,
)
from orchestrator.config.loading.bounds import WIDER, value_of
from orchestrator.config.settings.container import NETWORKS, Limits
from orchestrator.config.settings.run import ParallelConfig, StageKey
from orchestrator.config.settings.values import DEFAULT_TIMEOUT

NAME_IT = "pass `--config {}` if you trust the author of that file"

# protection: only-from-named-file
NAMED_ONLY: frozenset[FieldPath] = frozenset(
    {
        *(RUN_FIELDS[name] for name in ("agent_config", "api_base", "context", "image")),
        *(RUN_FIELDS[name] for name in ("include_uncommitted", "agent_cli", "base", "tasks")),
        *(RUN_FIELDS[name] for name in ("fail_on", "retry_on")),
        *(CONTAINER_FIELDS[name] for name in ("allow", "allow_sets", "check_allow", "setup_allow")),
        *(CONTAINER_FIELDS[name] for name in ("copy", "env", "runtime", "secrets")),
        *(CONTAINER_FIELDS[name] for name in ("calls_per_minute", "git_read", "key_models")),
        *(CONTAINER_FIELDS[name] for name in ("allow_unenforced", "company", "engine", "prices")),
        *CLUSTER_FIELDS.values(),
        TRIGGER_FIELDS["notify"],
        PROJECT_FIELDS["services"],
    }
)
"""Settings that are accepted only from a file which the user named. They decide which API receives
the user's keys, what workers get, which programs run on this machine, or for which agent program,
task and commit the keys are used (stashes and private branches are commits too), or what counts as
a failure.
"""
STAGES: Mapping[StageKey, FieldPath] = {
    "setup": PROJECT_FIELDS["setup"],
    "teardown": PROJECT_FIELDS["teardown"],
    "checks": PROJECT_FIELDS["checks"],
}
"""Settings with commands that a configuration file may contain even if the user did not name it;
the commands then run without network, variables and secrets.
"""

_OPEN = (*NETWORKS, "shallow", "full")
_UNCHOSEN_CPUS = 2.0
# protection: reach-of-discovered-files
_REACH: Mapping[str, Callable[[Any], float]] = {
    "cpus": lambda cpus: cpus or _UNCHOSEN_CPUS,
    "timeout_per_worker": lambda seconds: seconds or inf,
    "idle_timeout": lambda seconds: seconds or inf,
    "setup_timeout": lambda seconds: seconds or inf,
    "network": _OPEN.index,
    # An unset `setup_network` of a discovered file means that its commands have no network.
    "setup_network": lambda network: _OPEN.index(network or "none"),
    "check_network": _OPEN.index,
    "read_only": lambda read_only: not read_only,
    "checks": lambda checks: max([DEFAULT_TIMEOUT, *(check.timeout or inf for check in checks)]),
    "history": _OPEN.index,
    "keys": ("broker", "env").index,
    # Workers that share a checkout have the same user, if the caller is root.
    "worktrees": lambda when: when != "start",
}
"""For some settings, a function from the value to a number that grows with the permissions which
the value grants. The values of all other settings are such numbers themselves.
"""
# protection: bounds-of-discovered-files
BOUNDED: tuple[FieldPath, ...] = (
    *(("limits", name) for name in Limits.model_fields),
    *(("isolation", name) for name in ("network", "read_only", "history", "keys")),
    CONTAINER_FIELDS["setup_network"],
    CONTAINER_FIELDS["check_network"],
    RUN_FIELDS["max_workers"],
    RUN_FIELDS["max_worktrees"],
    RUN_FIELDS["worktrees"],
    *(RUN_FIELDS[name] for name in ("max_steps", "retries", "fix_checks")),
    *(RUN_FIELDS[name] for name in ("rate_limit_wait", "timeout_per_worker")),
    PROJECT_FIELDS["setup_timeout"],
    PROJECT_FIELDS["checks"],
)
_RESTRICTIONS = (TRIGGER_FIELDS["paths"], TRIGGER_FIELDS["enforce"])
"""Settings that only restrict a worker: without a value, everything is granted."""
_PRESET = RUN_FIELDS["preset"]


def out_of_bounds(settings: Sequence[Setting]) -> list[str]:
    """Return a problem for each setting that is accepted only from a file that the user named."""
    # protection: discovered-file-cannot-place-worktrees-outside
    return [
        f"{setting.label} is not accepted from a file that was found in the repository"
        for setting in settings
        if setting.field in NAMED_ONLY or _leads_outside(setting)
    ]


def _leads_outside(setting: Setting) -> bool:
    """Return whether a setting would place worktrees outside of the repository."""
    return setting.field == RUN_FIELDS["worktree_dir"] and leads_outside(str(setting.value))


def loosening_problems(
    settings: Sequence[Setting], config: ParallelConfig, without: ParallelConfig
) -> list[str]:
    """Return a problem for each setting of a file in the repository that loosens isolation.

    `config` is the configuration with the file's settings, and `without` is without them.
    """
    by_field = {setting.field: setting for setting in settings}
    wider = (field for field in BOUNDED if _reach(config, field) > _reach(without, field))
    # In order, and each preset only once even if it loosens several settings.
    # protection: discovered-file-cannot-name-looser-preset
    candidates = (by_field.get(field, by_field.get(_PRESET)) for field in wider)
    blamed = {id(setting): setting for setting in candidates}
    return [
        f"{setting.label} gives workers more permissions or larger limits than they have "
        "without the file"
        for setting in blamed.values()
        if setting is not None
    ]


def wider_settings(config: ParallelConfig, without: ParallelConfig) -> Iterator[FieldPath]:
    """Yield each setting of a client or a workflow that grants more than the user's settings.

    The source has the trust of a file that the user did not name, except for its tasks. It can also
    not change commands of the project, such as checks.

    Args:
        config: The settings with those of the source.
        without: The user's settings.
    """
    fixed = {*NAMED_ONLY, *STAGES.values()} - {RUN_FIELDS["tasks"]}
    for field, wider in WIDER.items():
        mine, given = value_of(without, field), value_of(config, field)
        if field in _RESTRICTIONS and not mine:
            continue
        # protection: settings-of-clients-grant-no-more
        is_wider = wider is not None and wider(mine, given)
        # protection: settings-of-clients-reach-no-further
        reaches_further = field in BOUNDED and _reach(config, field) > _reach(without, field)
        # protection: only-user-decides
        if is_wider or reaches_further or (field in fixed and given != mine):
            yield field


def stages_to_close(file: Sequence[Setting], stronger: Sequence[Setting]) -> tuple[StageKey, ...]:
    """Return the stages whose commands come from `file`, a file that the user did not name.

    Args:
        file: The file's settings.
        stronger: The settings of the environment and the options.
    """
    from_file = {setting.field for setting in file} - {setting.field for setting in stronger}
    return tuple(stage for stage, field in STAGES.items() if field in from_file)


def _reach(config: ParallelConfig, field: FieldPath) -> float:
    part = getattr(config, field[0]) if len(field) > 1 else config
    value = getattr(part, field[-1])
    return float(_REACH.get(field[-1], float)(value))
