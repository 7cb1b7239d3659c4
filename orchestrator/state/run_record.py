"""The record of a run in the file `run.json`, and the inputs that are kept in memory instead.

The record has no values of the user's variables, and secrets in tasks are redacted. The complete
inputs are stored in memory (on a tmpfs) like the workers' secrets, for a process that resumes the
run, and removed at the run's end.
"""

import os
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.base.errors import ConfigError, EngineError
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Workflow
from orchestrator.state import secret_files
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_outline import RECORD, RunOutline, with_present_top

_SERVICE = {"env": True, "variables": True}
"""Names of the fields of a service whose values are not recorded."""
_INPUTS = "inputs.json"
_RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}")


class RunRecord(RunOutline):
    """The plan of a run, with all that other processes need."""

    config: ParallelConfig
    private: tuple[str, ...] = ()
    """Names of values that are not recorded: variables, `api_base`, `notify`, `tasks`, `setup`,
    `teardown`, `checks`.
    """
    workflow: Workflow | None = None
    """The workflow of the run, whose tasks name the workers; None without a workflow."""
    programs: dict[str, ParallelConfig] = Field(default={})
    """Settings of tasks that use another agent program, by the program's name."""
    warms: bool = False
    """Whether the run only fills the shared caches for other runs."""

    def public_json(self) -> str:
        """Return the record as JSON text, without values of variables, which may be secrets."""
        tasks = {
            place: {"settings": {"services": dict.fromkeys(task.settings.services, _SERVICE)}}
            for place, task in enumerate(self.workflow.tasks if self.workflow else ())
            if task.settings.services
        }
        without = {
            "config": _private_fields(self.config),
            "programs": {name: _private_fields(config) for name, config in self.programs.items()},
            "workflow": {"tasks": tasks},
        }
        # protection: values-of-variables-are-not-recorded
        return self.model_dump_json(indent=2, exclude=without)


def _private_fields(config: ParallelConfig) -> dict[str, Any]:
    """Return the parts of the settings whose values are not recorded."""
    return {
        "project": {"services": dict.fromkeys(config.project.services, _SERVICE)},
        "isolation": {"env": True},
        "api_base": True,
        "triggers": {"notify": True},
    }


def new_run_id() -> str:
    """Return a unique run id; ids sort by the time of their creation."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def is_run_id(text: str) -> bool:
    """Return whether a text has the form of a run id."""
    return _RUN_ID.fullmatch(text) is not None


def read_record(run: RunDirectory) -> RunRecord | None:
    """Read a run's record; return None if the record is missing or has an unknown format."""
    try:
        return with_present_top(
            RunRecord.model_validate_json((run.path / RECORD).read_bytes()), run
        )
    except (OSError, ValidationError):
        return None


def require_record(run: RunDirectory) -> RunRecord:
    """Read a run's record, which must exist.

    Raises:
        ConfigError: The record is missing or has an unknown format.
    """
    record = read_record(run)
    if record is None:
        raise ConfigError(
            f"the record of run {run.run_id} is missing or unreadable", key="run.unreadable"
        )
    return record


class Inputs(BaseModel):
    """All inputs of a run, with the values of variables."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64"
    )

    config: ParallelConfig
    workers: tuple[WorkerSpec, ...]
    workflow: Workflow | None = None
    programs: dict[str, ParallelConfig] = {}
    inherited_env: dict[str, str]
    secrets: dict[str, bytes]
    agent_config: bytes | None = None

    @property
    def environ(self) -> dict[str, str]:
        """Return the user's variables that the run needs, with their values."""
        secrets = {name: os.fsdecode(value) for name, value in self.secrets.items()}
        return {**self.inherited_env, **secrets}


def keep_inputs(run_id: str, inputs: Inputs, environ: Mapping[str, str]) -> bool:
    """Store the inputs in memory while the run is in progress; return whether that was possible."""
    try:
        root = secret_files.memory_root(environ)
        secret_files.keep_private(root, run_id, _INPUTS, inputs.model_dump_json().encode())
    except (ConfigError, EngineError, ValueError):
        # Variables that are not text cannot be stored either; the run continues without.
        return False
    return True


def read_inputs(run_id: str, environ: Mapping[str, str]) -> Inputs | None:
    """Return the stored inputs of a run; None if they are lost, as after a reboot."""
    content = secret_files.read_private(run_id, _INPUTS, environ)
    try:
        return None if content is None else Inputs.model_validate_json(content)
    except ValidationError:
        return None
