"""Describe the plan of a run, as `--dry-run` prints it."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.container import Limits
from orchestrator.config.settings.presets import Preset


class RunPlan(BaseModel):
    """The workers and settings with which a run would start now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str
    top: Path
    workers: tuple[WorkerSpec, ...]
    worktrees: str
    image: str
    timeout: float | None
    preset: Preset | None
    limits: Limits
    network: str
    allow: tuple[str, ...]
    runtime: str | None
    history: str
    ports: dict[str, int]
    services: dict[str, str]
    """Image of each service, by the service's name."""
    caches: tuple[str, ...]
    setup: tuple[str, ...]
    teardown: tuple[str, ...]
    checks: tuple[str, ...]
    """Names of the checks."""
    keys: str = "env"
    """Where the API keys of models are: `env` (in workers' environments) or `broker`."""
    env: tuple[str, ...]
    """Names of all variables in the containers, including variables inherited from the user."""
    secrets: tuple[str, ...]
    notices: tuple[str, ...]
