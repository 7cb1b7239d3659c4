"""Configure a run that repeats one worker of an earlier run."""

from collections.abc import Mapping

from orchestrator.config.run import ParallelConfig
from orchestrator.errors import ConfigError
from orchestrator.runs.reservation import COMMANDS, SERVICE_VARIABLES
from orchestrator.state.run_record import RunRecord
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workflow.planning import config_of

_SETTINGS = {"api_base": "ORCHESTRATOR_API_BASE", "notify": "ORCHESTRATOR_NOTIFY"}
"""Settings whose values are not recorded, each with the variable from which it is read."""
_REDACTED = "[redacted:"
_AGAIN = "start the task again with `orchestrator parallel`"


def settings_to_repeat(
    record: RunRecord, worker_id: int, environ: Mapping[str, str], *, base: str
) -> ParallelConfig:
    """Return the settings to repeat one worker alone, with the same task, model, base and settings.

    Args:
        record: The record of the earlier run.
        worker_id: The worker.
        environ: Environment variables, among them the values that are not recorded.
        base: The commit that the worker started from.

    Raises:
        ConfigError: A variable with a value that was not recorded is missing.
    """
    spec = next(spec for spec in record.workers if spec.worker_id == worker_id)
    _check_task(record, spec)
    config = _own(record, spec)
    private = set(record.private)
    names = sorted(private - {*_SETTINGS, "tasks"})
    settings = {name: variable for name, variable in _SETTINGS.items() if name in private}
    missing = [name for name in (*names, *settings.values()) if name not in environ]
    if missing:
        raise ConfigError(
            f"run {record.run_id} used values that are not recorded: "
            f"{', '.join(f'`{name}`' for name in missing)}",
            hint=_AGAIN
            if any(map(_is_no_variable, missing))
            else "set the variables in the environment",
        )
    env = {name: environ[name] for name in names}
    return config.model_copy(
        update={
            "tasks": (spec.task,),
            "models": () if spec.model is None else (spec.model,),
            "workers": 1,
            "base": base,
            "include_uncommitted": False,
            "api_base": environ[settings["api_base"]] if "api_base" in settings else None,
            "isolation": config.isolation.model_copy(update={"env": env}),
            "triggers": config.triggers.model_copy(
                update={"notify": environ[settings["notify"]] if "notify" in settings else None}
            ),
        }
    )


def _is_no_variable(name: str) -> bool:
    """Return whether a value that was not recorded is something else than a variable."""
    return name in ("workflow", *COMMANDS) or name.startswith(SERVICE_VARIABLES)


def _own(record: RunRecord, spec: WorkerSpec) -> ParallelConfig:
    """Return the settings that the worker's own task had in the earlier run."""
    if record.workflow is None or spec.name is None:
        return record.config
    task = record.workflow[spec.name]
    if task.inputs:
        raise ConfigError(
            f"task `{task.id}` uses the results of other tasks and cannot be repeated alone",
            hint=f"`orchestrator spec run FILE --after {record.run_id}` runs the tasks that "
            "did not succeed",
        )
    return config_of(record.config, task, record.programs)


def _check_task(record: RunRecord, spec: WorkerSpec) -> None:
    if "tasks" in record.private and _REDACTED in spec.task + spec.model_name:
        raise ConfigError(
            f"the task of worker {spec.worker_id} contained a secret, which is not recorded",
            hint=_AGAIN,
        )
