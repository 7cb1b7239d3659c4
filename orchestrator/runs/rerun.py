"""Describe a run that does one worker of an earlier run over again."""

from collections.abc import Mapping

from orchestrator.config.run import ParallelConfig
from orchestrator.errors import ConfigError
from orchestrator.state.run_record import RunRecord
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workflow.planning import config_of

_SETTINGS = {"api_base": "ORCHESTRATOR_API_BASE", "notify": "ORCHESTRATOR_NOTIFY"}
"""Settings that the record names without their values, and the variables that have them."""
_REDACTED = "[redacted:"


def same_again(
    record: RunRecord, worker_id: int, environ: Mapping[str, str], *, base: str
) -> ParallelConfig:
    """Return the configuration of one worker by itself: same task, model, base and settings.

    Args:
        record: The earlier run's.
        worker_id: Its worker.
        environ: Has what the record keeps no values of.
        base: What that started from.

    Raises:
        ConfigError: Something of that is missing.
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
            f"run {record.run_id} was given values that are written down nowhere: "
            f"{', '.join(f'`{name}`' for name in missing)}",
            hint="set them in the environment",
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


def _own(record: RunRecord, spec: WorkerSpec) -> ParallelConfig:
    """Return a worker's own configuration."""
    if record.workflow is None or spec.name is None:
        return record.config
    task = record.workflow[spec.name]
    if task.inputs:
        raise ConfigError(
            f"task `{task.id}` goes by what came of others: it cannot be done over by itself",
            hint=f"`orchestrator spec run FILE --after {record.run_id}` does what did not succeed",
        )
    return config_of(record.config, task, record.programs)


def _check_task(record: RunRecord, spec: WorkerSpec) -> None:
    if "tasks" in record.private and _REDACTED in spec.task + spec.model_name:
        raise ConfigError(
            f"the task of worker {spec.worker_id} held a secret, which is written down nowhere",
            hint="give the task again: `orchestrator parallel`",
        )
