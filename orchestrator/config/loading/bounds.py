"""Bound the settings of files and tasks by what the user typed as options or variables.

A preset that the user typed counts as if each of its values was typed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from orchestrator.config.fields import (
    CLUSTER_FIELDS,
    CONTAINER_FIELDS,
    FIELDS,
    JUDGE_FIELDS,
    PROJECT_FIELDS,
    PROVIDERS,
    RUN_FIELDS,
    TRIGGER_FIELDS,
    FieldPath,
    Setting,
    is_size,
)
from orchestrator.config.loading.merge import merge
from orchestrator.config.settings.container import NETWORKS, Limits
from orchestrator.config.settings.presets import PRESETS
from orchestrator.config.settings.project import Service
from orchestrator.config.settings.run import MOST_EVER, ParallelConfig
from orchestrator.config.settings.values import DEFAULT_TIMEOUT

Wider = Callable[[Any, Any], bool]
"""Function of two values of a setting: whether the second grants more than the first."""
OPENNESS = (*NETWORKS, "shallow", "full")


def _is_more(typed: float, value: float) -> bool:
    return value > typed


def _is_less(typed: float, value: float) -> bool:
    return value < typed


def _is_longer(typed: float | None, value: float | None) -> bool:
    """Compare limits of which None and 0 mean no limit."""
    # protection: no-limit-is-more-than-any-limit
    return (value or inf) > (typed or inf)


def _is_more_open(typed: str, value: str) -> bool:
    return OPENNESS.index(value) > OPENNESS.index(typed)


def _gives_keys(typed: str, value: str) -> bool:
    return (typed, value) == ("broker", "env")


def _has_additions(typed: Sequence[str], value: Sequence[str]) -> bool:
    return not {*value} <= {*typed}


def _differs(typed: object, value: object) -> bool:
    return value != typed


def _has_fewer_checks(typed: Sequence[Any], value: Sequence[Any]) -> bool:
    return not {check.run for check in typed} <= {check.run for check in value}


def _leads_outside(typed: Sequence[str], value: Sequence[str]) -> bool:
    """Return whether patterns allow paths that are not below one of the typed patterns."""
    if any(path.startswith("!") for path in (*typed, *value)):
        return tuple(typed) != tuple(value)
    # protection: paths-are-compared-as-directories
    return not all(
        any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in typed)
        and ".." not in path.split("/")
        for path in value
    )


_FREE: Mapping[str, Mapping[str, FieldPath]] = {
    "Which work is done, by which program, in which container image.": {
        name: RUN_FIELDS[name] for name in ("tasks", "agent_cli", "models", "model", "agent")
    }
    | {"image": RUN_FIELDS["image"]},
    "Where the results are, and how long they are kept.": {
        name: RUN_FIELDS[name] for name in ("worktree_dir", "branch", "worktrees", "retention")
    },
    "When workers start, and when a run counts as failed.": {
        name: RUN_FIELDS[name]
        for name in ("stagger", "retry_delay", "retry_on", "retry_from", "fail_fast", "fail_on")
    }
    | {"providers": PROVIDERS},
    "The worker's own conversation, for a later turn of the same worker.": {
        "sessions": RUN_FIELDS["sessions"]
    },
    "The bound itself.": {"preset": RUN_FIELDS["preset"]},
    "How the same files get into the same containers.": {"transfer": CONTAINER_FIELDS["transfer"]},
    "Values of the author of the file, nothing of the user's.": {
        name: CONTAINER_FIELDS[name] for name in ("env", "ports", "allow_sets")
    }
    | {name: PROJECT_FIELDS[name] for name in ("dotenv", "caches", "setup", "teardown")},
    "Alerts, and files that do not come from a candidate.": {
        name: TRIGGER_FIELDS[name]
        for name in ("silence", "repeated_errors", "prompts", "on_trigger")
    }
    | dict(JUDGE_FIELDS),
    "Containers beside the worker; their limits are bounded by those of the worker.": {
        "services": PROJECT_FIELDS["services"]
    },
}
"""Settings that grant nothing, by the reason: a task's own value is used."""
WIDER: Mapping[FieldPath, Wider | None] = {
    **{field: None for group in _FREE.values() for field in group.values()},
    **{("limits", name): _is_more for name in Limits.model_fields},
    **{RUN_FIELDS[name]: _is_more for name in ("max_workers", "workers", "max_worktrees")},
    **{RUN_FIELDS[name]: _is_more for name in ("max_steps", "retries", "fix_checks")},
    RUN_FIELDS["rate_limit_wait"]: _is_more,
    **{RUN_FIELDS[name]: _is_longer for name in ("timeout_per_worker", "budget_per_worker")},
    **{
        RUN_FIELDS[name]: _is_longer
        for name in ("budget_total", "tokens_per_worker", "tokens_total")
    },
    **{RUN_FIELDS[name]: _differs for name in ("base", "context", "api_base", "agent_config")},
    RUN_FIELDS["include_uncommitted"]: _is_more,
    ("limits", "cpus"): _is_longer,
    ("limits", "idle_timeout"): _is_longer,
    **{
        CONTAINER_FIELDS[name]: _is_more_open
        for name in ("network", "setup_network", "check_network")
    },
    CONTAINER_FIELDS["history"]: _is_more_open,
    CONTAINER_FIELDS["keys"]: _gives_keys,
    **{CONTAINER_FIELDS[name]: _has_additions for name in ("allow", "setup_allow", "check_allow")},
    **{
        CONTAINER_FIELDS[name]: _has_additions
        for name in ("secrets", "copy", "git_read", "key_models", "prices")
    },
    **{CONTAINER_FIELDS[name]: _has_additions for name in ("allow_unenforced", "company")},
    CONTAINER_FIELDS["calls_per_minute"]: _is_longer,
    CONTAINER_FIELDS["read_only"]: _is_less,
    **{CONTAINER_FIELDS[name]: _differs for name in ("engine", "runtime")},
    **dict.fromkeys(CLUSTER_FIELDS.values(), _differs),
    TRIGGER_FIELDS["notify"]: _differs,
    TRIGGER_FIELDS["paths"]: _leads_outside,
    TRIGGER_FIELDS["enforce"]: _differs,
    PROJECT_FIELDS["setup_timeout"]: _is_longer,
    PROJECT_FIELDS["checks"]: _has_fewer_checks,
}
"""For each setting, which of two values grants more; None: the setting grants nothing."""
# protection: no-program-of-file-runs-under-preset-untrusted
_UNTRUSTED: tuple[FieldPath, ...] = (
    *(RUN_FIELDS[name] for name in ("include_uncommitted", "context", "agent_config")),
    *(CONTAINER_FIELDS[name] for name in ("setup_network", "check_network", "allow_unenforced")),
    *(CONTAINER_FIELDS[name] for name in ("allow", "setup_allow", "check_allow")),
    *(CONTAINER_FIELDS[name] for name in ("company", "secrets", "copy", "git_read")),
    CONTAINER_FIELDS["prices"],
    TRIGGER_FIELDS["notify"],
)
"""Settings that the preset `untrusted` bounds besides those that it sets: workers get nothing that
the user did not type, and no program runs on this machine.
"""
OF_THE_USER: frozenset[FieldPath] = frozenset({TRIGGER_FIELDS["notify"]})
"""Settings of which a variable is never bounded: it concerns the user, not the workers."""
_SERVICES = PROJECT_FIELDS["services"]
_CHECKS = PROJECT_FIELDS["checks"]
_SETS = CONTAINER_FIELDS["allow_sets"]
MACHINE_SETS = frozenset({"pip", "npm", "cargo", "go", "apt", "git"})
"""Sets of hosts that are read from this machine, unless a file defines them."""
_ALLOWED = tuple(CONTAINER_FIELDS[name] for name in ("allow", "setup_allow", "check_allow"))
_OF_SERVICES = (("limits", "cpus"), ("limits", "memory"), ("limits", "pids"))
_INSTEAD: Mapping[FieldPath, FieldPath] = {
    CONTAINER_FIELDS["setup_network"]: CONTAINER_FIELDS["network"],
    CONTAINER_FIELDS["setup_allow"]: CONTAINER_FIELDS["allow"],
    CONTAINER_FIELDS["check_allow"]: CONTAINER_FIELDS["allow"],
}
"""Settings whose value is that of another setting as long as they are not set themselves."""


@dataclass(frozen=True, kw_only=True)
class Typed:
    """What the user typed, as a bound of other sources."""

    config: ParallelConfig
    settings: Mapping[FieldPath, Setting]
    """The bounded settings, each with the option or variable that bounds it."""
    of_preset: frozenset[FieldPath]
    """The settings that a preset bounds."""

    def reason(self, field: FieldPath) -> str:
        """Return what the user typed: "option `--network` is `none`"."""
        setting = self.settings[field]
        if setting.field != RUN_FIELDS["preset"]:
            return f"{setting.label} is `{value_text(setting.value)}`"
        bound = value_text(value_of(self.config, field), in_bytes=is_size(field)) or "nothing"
        return f"{setting.label} is `{setting.value}` (`{key_of(field)}`: {bound})"

    def excesses(self, config: ParallelConfig) -> Iterator[tuple[FieldPath, FieldPath]]:
        """Yield each bounded setting that grants more in `config`, and the setting to blame."""
        for field, wider in WIDER.items():
            if field not in self.settings or wider is None:
                continue
            if wider(value_of(self.config, field), value_of(config, field)):
                own = field not in _INSTEAD or getattr(getattr(config, field[0]), field[-1])
                yield field, field if own else _INSTEAD[field]
        for field in _OF_SERVICES:
            # protection: services-are-bounded-by-preset
            if field in self.of_preset and self._has_larger_service(config, field):
                yield field, _SERVICES
        for field in _ALLOWED:
            # protection: typed-sets-of-hosts-are-those-of-machine
            if field in self.of_preset and self._redefines_sets(config, field):
                yield field, _SETS
        if RUN_FIELDS["timeout_per_worker"] in self.of_preset:
            for field in self._slow(config):
                yield RUN_FIELDS["timeout_per_worker"], field

    def _slow(self, config: ParallelConfig) -> Iterator[FieldPath]:
        """Yield the settings of others whose commands may run longer than a worker."""
        longest = max(self.config.timeout_per_worker or inf, DEFAULT_TIMEOUT)
        project, own = config.project, self.config.project
        if any((check.timeout or inf) > longest for check in {*project.checks} - {*own.checks}):
            yield _CHECKS
        waits = (
            service
            for name, service in project.services.items()
            if own.services.get(name) != service
        )
        if any(service.health_timeout > longest for service in waits):
            yield _SERVICES

    def _redefines_sets(self, config: ParallelConfig, field: FieldPath) -> bool:
        """Return whether typed sets of hosts differ from those of this machine."""
        names = {entry[1:].partition("=")[0] for entry in value_of(self.config, field)
                 if entry.startswith("@")}  # fmt: skip
        sets = config.isolation.allow_sets
        return any(name in sets for name in names & MACHINE_SETS)

    def _has_larger_service(self, config: ParallelConfig, field: FieldPath) -> bool:
        """Return whether a service that the user did not type exceeds a limit of the worker."""
        name = field[-1]
        most = max(value_of(self.config, field) or 0, Service.model_fields[name].default)
        own = self.config.project.services
        return any(
            getattr(service, name) > most
            for key, service in config.project.services.items()
            if own.get(key) != service
        )


def bound_of(*layers: Sequence[Setting]) -> Typed:
    """Return the bound that the given layers are for all weaker sources.

    Args:
        layers: Valid settings that the user typed, in increasing precedence.
    """
    given = {setting.field: setting for layer in layers for setting in layer}
    preset = given.get(RUN_FIELDS["preset"])
    of_preset = frozenset() if preset is None else frozenset(bounded_by(str(preset.value)))
    # The user's secrets are added to those of a file, unless a preset was typed.
    bounding = {
        field: setting
        for field, setting in given.items()
        if field in of_preset or field != CONTAINER_FIELDS["secrets"]
    }
    # What a weaker source allows for the number of workers is checked elsewhere.
    valid = {"tasks": ("-",), "max_workers": MOST_EVER}
    least = [
        Setting(field=RUN_FIELDS[name], value=value, kind="option", name="-")
        for name, value in valid.items()
    ]
    return Typed(
        config=merge((least, *layers)),
        settings={**{field: preset for field in of_preset if preset}, **bounding},
        of_preset=of_preset,
    )


def bounded_by(name: str) -> Iterator[FieldPath]:
    """Yield the settings that a preset bounds."""
    for part, values in next(PRESETS[key] for key in PRESETS if key == name).items():
        for key in values:
            yield (key,) if part == "run" else (part, key)
    # protection: preset-bounds-hosts-and-secrets
    if name == "untrusted":
        yield from _UNTRUSTED


def value_of(config: ParallelConfig, field: FieldPath) -> Any:  # noqa: ANN401
    """Return the value that is in force for a setting."""
    part = getattr(config, field[0]) if len(field) > 1 else config
    own = getattr(part, field[-1])
    if field == CONTAINER_FIELDS["setup_network"]:
        return config.setup_network
    return own or value_of(config, _INSTEAD[field]) if field in _INSTEAD else own


def key_of(field: FieldPath) -> str:
    """Return a setting's key in files."""
    return next(key for key, path in FIELDS.items() if path == field)


def value_text(value: object, *, in_bytes: bool = False) -> str:
    """Return a value as text for a message."""
    if isinstance(value, (tuple, list)):
        return ", ".join(getattr(item, "run", str(item)) for item in value)
    if in_bytes and isinstance(value, int):
        return f"{value // 1024**2}m"
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
