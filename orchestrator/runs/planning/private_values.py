"""Read again, from the environment, the values that the record of a run does not have."""

from collections.abc import Mapping

from orchestrator.base.errors import ConfigError
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.runs.planning.reservation import COMMANDS, SERVICE_VARIABLES
from orchestrator.state.run_record import RunRecord

AGAIN = "start the task again with `orchestrator parallel`"
_SETTINGS = {"api_base": "ORCHESTRATOR_API_BASE", "notify": "ORCHESTRATOR_NOTIFY"}
"""Settings whose values are not recorded, each with the variable from which it is read."""


def with_private_values(
    config: ParallelConfig, record: RunRecord, environ: Mapping[str, str]
) -> ParallelConfig:
    """Return settings of a recorded run with the values that are not recorded.

    Args:
        config: The settings of the run, or of one of its tasks.
        record: The record of the run.
        environ: Environment variables, among them the values that are not recorded.

    Raises:
        ConfigError: A variable with a value that was not recorded is missing.
    """
    private = set(record.private)
    names = sorted(private - {*_SETTINGS, "tasks"})
    settings = {name: variable for name, variable in _SETTINGS.items() if name in private}
    missing = [name for name in (*names, *settings.values()) if name not in environ]
    if missing:
        others = (*COMMANDS, "workflow")
        are_variables = not any(
            name in others or name.startswith(SERVICE_VARIABLES) for name in missing
        )
        raise ConfigError(
            f"run {record.run_id} used values that are not recorded: "
            f"{', '.join(f'`{name}`' for name in missing)}",
            key="value.unrecorded",
            hint="set the variables in the environment" if are_variables else AGAIN,
        )
    env = {name: environ[name] for name in names}
    return config.model_copy(
        update={
            "api_base": environ[settings["api_base"]] if "api_base" in settings else None,
            "isolation": config.isolation.model_copy(update={"env": env}),
            "triggers": config.triggers.model_copy(
                update={"notify": environ[settings["notify"]] if "notify" in settings else None}
            ),
        }
    )
