"""The record of a run, `run.json`: its plan, without the values of variables."""

import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.config.run import ParallelConfig
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workflow.model import Workflow

_SERVICE = {"env": True, "variables": True}
"""Fields of a service that are not recorded."""


class RunRecord(BaseModel):
    """The plan of a run, as needed by other processes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    created_at: datetime
    top: Path
    base: str
    engine: str
    config: ParallelConfig
    workers: tuple[WorkerSpec, ...]
    private: tuple[str, ...] = ()
    """What is not recorded: names of variables, `api_base`, `notify`, `tasks`, `setup`, `teardown`,
    `checks`.
    """
    workflow: Workflow | None = None
    """The workflow of the run; each worker's name is the id of its task."""
    programs: dict[str, ParallelConfig] = {}
    """Settings of tasks that use another agent program."""
    warms: bool = False
    """Whether the run creates the shared caches for other runs."""

    def public_json(self) -> str:
        """Return the record as JSON without the values of variables, which may be secrets."""
        without = {
            "config": _private_fields(self.config),
            "programs": {name: _private_fields(config) for name, config in self.programs.items()},
            "workflow": _private_fields_of_tasks(self.workflow),
        }
        return self.model_dump_json(indent=2, exclude=without)


def _private_fields(config: ParallelConfig) -> dict[str, Any]:
    """Return the fields of the settings that are not recorded."""
    return {
        "project": {"services": dict.fromkeys(config.project.services, _SERVICE)},
        "isolation": {"env": True},
        "api_base": True,
        "triggers": {"notify": True},
    }


def _private_fields_of_tasks(workflow: Workflow | None) -> dict[str, Any]:
    """Return the fields of a workflow that are not recorded."""
    tasks = {
        place: {"settings": {"services": dict.fromkeys(task.settings.services, _SERVICE)}}
        for place, task in enumerate(workflow.tasks if workflow else ())
        if task.settings.services
    }
    return {"tasks": tasks}


def new_run_id() -> str:
    """Return a unique run id that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def read_record(run: RunDirectory) -> RunRecord | None:
    """Read the plan of a run; return None if it is missing or has an unknown format."""
    try:
        return RunRecord.model_validate_json((run.path / "run.json").read_bytes())
    except (OSError, ValidationError):
        return None


def live_numbers(state_dir: Path) -> frozenset[int]:
    """Return the worker numbers of live runs, even if their branches are gone."""
    records = (read_record(run) for run in all_runs(state_dir) if run.is_live())
    return frozenset(spec.worker_id for record in records if record for spec in record.workers)
