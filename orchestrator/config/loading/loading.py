"""Load settings: options take precedence over `ORCHESTRATOR_*` variables, files and defaults."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from orchestrator.base.errors import ConfigError, mistakes
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.derived import with_changes
from orchestrator.config.fields import CONTAINER_FIELDS, RUN_FIELDS, FieldPath, Setting
from orchestrator.config.loading.bounds import OF_THE_USER, Typed, bound_of, value_text
from orchestrator.config.loading.json_schema import json_schema
from orchestrator.config.loading.merge import merge, problems_of, problems_of_file, validate_texts
from orchestrator.config.loading.sources import (
    CONFIG_VARIABLE,
    Problems,
    from_environment,
    from_file,
    from_options,
)
from orchestrator.config.loading.untrusted_file import (
    NAME_IT,
    loosening_problems,
    out_of_bounds,
    stages_to_close,
)
from orchestrator.config.settings.container import CLUSTERS
from orchestrator.config.settings.run import (
    AUTO,
    MOST_EVER,
    ParallelConfig,
    StageKey,
    repository_config_files,
)
from orchestrator.config.sizing import room, this_machine

__all__ = [
    "FileCheck",
    "Settings",
    "check_file",
    "config_file",
    "json_schema",
    "load_config",
    "load_settings",
]

_OPTIONS_HINT = "run `orchestrator parallel --help` for the options and their values"
_VARIABLES_HINT = "run `orchestrator config schema` for the settings and their values"
_FILE_HINT = "fix the file, then check it with `orchestrator config validate{}`"
_TASK_HINT = 'pass a task as `orchestrator parallel "TASK"`, or several tasks with `--task`'
WIDER_HINT = "remove the setting, or allow it with an option of the command"
_CONTRADICTION_HINT = "a worker and its services share one network: change the port or the name"
_TASKS = RUN_FIELDS["tasks"]
_WORKERS = RUN_FIELDS["workers"]
_MAX_WORKERS = RUN_FIELDS["max_workers"]
_SOME_TASK = [Setting(field=_TASKS, value=["a task"], kind="option", name="--task")]
_AGENT_CLI = RUN_FIELDS["agent_cli"]
_ENGINE = CONTAINER_FIELDS["engine"]

Layers = tuple[list[Setting], ...]
"""Settings by source, in increasing precedence: file, block for an agent program in the file,
environment, options.
"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A run's configuration, and the settings that were merged into it."""

    config: ParallelConfig
    layers: Layers
    ignored: tuple[str, ...] = ()
    """Keys of a configuration file of AutomatosX that have no effect."""

    def settings_of(self, field: FieldPath) -> list[Setting]:
        """Return all values given for a field, in increasing precedence."""
        return [setting for layer in self.layers for setting in layer if setting.field == field]

    @property
    def bound(self) -> Typed:
        """What the user typed, which bounds the settings of a workflow's tasks."""
        return bound_of(*self.layers[2:])


@dataclass(frozen=True, kw_only=True)
class FileCheck:
    """Problems found in one configuration file."""

    problems: Problems
    named_only: Problems
    """Problems with settings that are accepted only from a file which the user named."""
    closed: tuple[StageKey, ...]
    """Stages whose commands run without network, variables and secrets unless the user names the
    file.
    """


def load_config(
    *,
    options: Mapping[str, object],
    environ: Mapping[str, str],
    top: Path | None,
    file: Path | None,
) -> ParallelConfig:
    """Merge and validate a run's configuration.

    Args:
        options: Values by setting name, as text or tuple of texts; None: not given. `env` holds
            `NAME=value` or `NAME` (the caller's value), `env_file` paths of files with such lines.
        environ: The caller's environment.
        top: The repository's top directory, where a configuration file may be.
        file: The configuration file named by an option, instead of the repository's own file.

    Raises:
        ConfigError: A setting is invalid. The message lists all problems of all sources.
    """
    return load_settings(options=options, environ=environ, top=top, file=file).config


def load_settings(
    *,
    options: Mapping[str, object],
    environ: Mapping[str, str],
    top: Path | None,
    file: Path | None,
    task_needed: bool = True,
) -> Settings:
    """Merge and validate a run's configuration, and record the source of each setting.

    Args:
        options: Values by setting name, as in `load_config`.
        environ: The caller's environment.
        top: The repository's top directory.
        file: The configuration file named by an option.
        task_needed: Whether a configuration without a task is an error.

    Raises:
        ConfigError: A setting is invalid. The message lists all problems of all sources.
    """
    problems: Problems = []
    path, named = config_file(environ, top, file)
    # protection: linked-configuration-file-refused
    found_in = None if named else top
    ignored: list[str] = []
    read = from_file(path, problems, top=found_in, ignored=ignored) if path else []
    file_layer = _number_auto(read)
    environment_problems: Problems = []
    environment_layer = _number_auto(from_environment(environ, environment_problems))
    in_options: Problems = []
    option_layer = _number_auto(from_options(options, environ, in_options))
    most = _most_workers(file_layer, environment_layer)
    in_cluster = [] if most else _most_in_cluster(file_layer, environment_layer, option_layer)
    most = most or in_cluster
    problems += problems_of_file(_bound(file_layer, most))
    hint = _file_hint(path if named else None) if problems else _VARIABLES_HINT
    # protection: forbidden-keys-of-discovered-file-refused
    refused = [] if named else out_of_bounds(file_layer)
    problems += environment_problems
    problems += problems_of(_bound(environment_layer, most), validate_texts)
    in_options += problems_of(_bound(option_layer, most), validate_texts)
    layers = _for_program(file_layer, [*in_cluster, *environment_layer], option_layer)
    hint = NAME_IT.format(path) if refused else _OPTIONS_HINT if in_options else hint
    problems += refused + in_options
    if task_needed and not _any_task(layers):
        problems.append("no task was given")
        hint = _TASK_HINT
    if problems:
        raise mistakes(problems, hint, key="configuration.invalid")
    # protection: discovered-file-is-restricted
    config = _merge(layers) if named else _merge_found_file(layers, path)
    # protection: no-file-beyond-preset-that-was-typed
    wider = _beyond_presets(config, layers)
    if wider:
        raise mistakes(wider, WIDER_HINT, key="limits.widened")
    settings = Settings(config=config, layers=layers, ignored=tuple(ignored))
    given = settings.settings_of(_WORKERS)
    if not (given and isinstance(given[-1].value, _Auto)):
        return settings
    jobs = max(len(config.tasks), len(config.models)) if _any_task(layers) else config.max_workers
    machine = this_machine()
    workers = min(jobs, room(config, cpus=machine.cpus, memory=machine.memory))
    return replace(settings, config=with_changes(config, workers=workers, auto_workers=True))


def _most_workers(*layers: list[Setting]) -> list[Setting]:
    """Return the `max_workers` that takes precedence, which limits `workers` of every source.

    The result is a list with this setting; empty if it is not given or not valid.
    """
    given = [setting for layer in layers for setting in layer if setting.field == _MAX_WORKERS]
    text = str(given[-1].value) if given else ""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_EVER:
        return []
    return [Setting(field=_MAX_WORKERS, value=int(text), kind="option", name="max_workers")]


def _most_in_cluster(*layers: list[Setting]) -> list[Setting]:
    """Return a `max_workers` that limits nothing if the engine is a cluster, which has a queue."""
    given = [setting.value for layer in layers for setting in layer if setting.field == _ENGINE]
    if not given or given[-1] not in CLUSTERS:
        return []
    return [Setting(field=_MAX_WORKERS, value=MOST_EVER, kind="option", name="max_workers")]


def _bound(layer: list[Setting], most: list[Setting]) -> list[Setting]:
    return layer if any(setting.field == _MAX_WORKERS for setting in layer) else [*layer, *most]


class _Auto(int):
    """Placeholder number for `workers: auto`, used until the machine's capacity is known."""


def _number_auto(layer: list[Setting]) -> list[Setting]:
    return [
        replace(setting, value=_Auto(1))
        if (setting.field, setting.value) == (_WORKERS, AUTO)
        else setting
        for setting in layer
    ]


def check_file(path: Path, *, top: Path | None = None) -> FileCheck:
    """Check a configuration file alone, without the environment and options.

    Args:
        path: The file.
        top: The repository's top if the file was discovered in it; None: the user named the file.
    """
    problems: Problems = []
    settings = _number_auto(from_file(path, problems, top=top))
    problems += problems_of_file(settings)
    named_only = out_of_bounds(settings)
    closed = stages_to_close(settings, ())
    if problems:
        return FileCheck(problems=problems, named_only=named_only, closed=closed)
    for program in dict.fromkeys((None, *(setting.program for setting in settings))):
        general, own = _split(settings, program)
        try:
            named_only += _loosening_problems((general, own))
        except ConfigError as error:
            problems.append(f"{path}: {error.message}")
    named_only = list(dict.fromkeys(named_only))
    return FileCheck(problems=problems, named_only=named_only, closed=closed)


def config_file(
    environ: Mapping[str, str], top: Path | None, file: Path | None
) -> tuple[Path | None, bool]:
    """Return the path of the configuration file, if any, and whether the user named the file.

    Args:
        environ: The caller's environment.
        top: The repository's top directory.
        file: The file named by an option.
    """
    if file is not None:
        return file, True
    if environ.get(CONFIG_VARIABLE):
        return Path(environ[CONFIG_VARIABLE]), True
    files = repository_config_files(top) if top else ()
    return next((path for path in files if os.path.lexists(path)), None), False


def _for_program(file: list[Setting], environment: list[Setting], options: list[Setting]) -> Layers:
    """Return settings by precedence, without a file's settings for unused agent programs."""
    chosen = str(ParallelConfig.model_fields["agent_cli"].default)
    for setting in (*_split(file, None)[0], *environment, *options):
        if setting.field == _AGENT_CLI:
            chosen = str(setting.value)
    return *_split(file, chosen), environment, options


def _split(file: list[Setting], program: str | None) -> tuple[list[Setting], list[Setting]]:
    general = [setting for setting in file if setting.program is None]
    if program is None:
        return general, []
    return general, [setting for setting in file if setting.program == program]


def _merge_found_file(layers: Layers, path: Path | None) -> ParallelConfig:
    """Merge settings; refuse those of a found file that loosen isolation or raise limits."""
    problems = _loosening_problems(layers)
    if problems:
        raise mistakes(problems, NAME_IT.format(path), key="configuration.untrusted")
    general, of_program, *stronger = layers
    closed = stages_to_close([*general, *of_program], [s for layer in stronger for s in layer])
    # protection: commands-of-discovered-file-are-confined
    return with_changes(_merge(layers), closed_stages=closed)


def _loosening_problems(layers: Layers) -> Problems:
    general, of_program, *stronger = layers
    tasks = [setting for setting in general if setting.field == _TASKS]
    return loosening_problems([*general, *of_program], _merge(layers), _merge((tasks, *stronger)))


def _beyond_presets(config: ParallelConfig, layers: Layers) -> Problems:
    """Return a problem for each setting that grants more than a preset of a stronger source."""
    general, of_program, environment, options = layers
    file = [*general, *of_program]
    problems: dict[FieldPath, str] = {}
    if config.preset is None:
        return []
    for strong, weak in (((options,), [*file, *environment]), ((environment, options), file)):
        given = {
            setting.field: setting
            for setting in weak
            if not (setting.kind == "environment" and setting.field in OF_THE_USER)
        }
        bound = bound_of(*strong)
        for field, blamed in bound.excesses(config):
            setting = given.get(blamed)
            if setting is not None and field in bound.of_preset:
                value = "" if setting.secret else f" is `{value_text(setting.value)}`"
                text = f"{setting.label}{value}, but {bound.reason(field)}"
                problems.setdefault(blamed, one_line(text, limit=400))
    return list(problems.values())


def _any_task(layers: Layers) -> bool:
    return any(setting.field == _TASKS for layer in layers for setting in layer)


def _file_hint(named: Path | None) -> str:
    if named is not None and not named.exists():
        return "correct the path, or write a file with `orchestrator init`"
    return _FILE_HINT.format(f" {shlex.quote(str(named))}" if named else "")


def _merge(layers: Layers) -> ParallelConfig:
    try:
        return merge(layers if _any_task(layers) else (_SOME_TASK, *layers))
    except ValidationError as error:
        problems = [item["msg"].removeprefix("Value error, ") for item in error.errors()]
        raise mistakes(problems, _CONTRADICTION_HINT, key="settings.conflict") from error


def check_contradictions(config: ParallelConfig) -> None:
    """Check that a task's settings do not contradict those that it gets from the run.

    Raises:
        ConfigError: Two settings contradict each other.
    """
    try:
        ParallelConfig.model_validate(dict(config))
    except ValidationError as error:
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(problem, key="settings.conflict", hint=_CONTRADICTION_HINT) from error
