"""The record of a run, `run.json`: its plan, without the values of variables."""

import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.config.run import ParallelConfig
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workflow.model import Workflow

_SERVICE = {"env": True, "variables": True}
"""What is not written down of a service."""


class RunRecord(BaseModel):
    """The plan of a run, as another process needs it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    created_at: datetime
    top: Path
    base: str
    engine: str
    config: ParallelConfig
    workers: tuple[WorkerSpec, ...]
    private: tuple[str, ...] = ()
    """What is not written down here: names of variables, `api_base`, `notify`, `tasks`, `setup`,
    `teardown`, `checks`."""
    workflow: Workflow | None = None
    """Whose tasks the workers have, each by its name."""
    programs: dict[str, ParallelConfig] = {}
    """The wishes for tasks with an agent program of their own."""
    warms: bool = False
    """Whether it makes the caches that other runs find."""


def _private(config: ParallelConfig) -> dict[str, Any]:
    """Name what of the wishes is not written down."""
    return {
        "project": {"services": dict.fromkeys(config.project.services, _SERVICE)},
        "isolation": {"env": True},
        "api_base": True,
        "triggers": {"notify": True},
    }


def _hidden(workflow: Workflow | None) -> dict[str, Any]:
    """Name what of a workflow is not written down."""
    tasks = {
        place: {"settings": {"services": dict.fromkeys(task.settings.services, _SERVICE)}}
        for place, task in enumerate(workflow.tasks if workflow else ())
        if task.settings.services
    }
    return {"tasks": tasks}


def new_run_id() -> str:
    """Return an id that sorts by time and does not repeat."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
