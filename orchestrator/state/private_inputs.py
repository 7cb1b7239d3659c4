"""Keep the secret inputs of a run in memory, for a process that resumes the run.

The record of a run on disk has no values of the user's variables, and secrets in tasks are
redacted. The complete inputs are stored in memory (on a tmpfs) like the workers' secrets, and
removed at the run's end.
"""

import os
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.config.run import ParallelConfig
from orchestrator.errors import ConfigError, EngineError
from orchestrator.state import secret_files
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workflow.model import Workflow

_FILE = "inputs.json"


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

    @property
    def environ(self) -> dict[str, str]:
        """Return the user's variables that the run needs, with their values."""
        secrets = {name: os.fsdecode(value) for name, value in self.secrets.items()}
        return {**self.inherited_env, **secrets}


def keep_inputs(run_id: str, inputs: Inputs, environ: Mapping[str, str]) -> bool:
    """Store the inputs in memory while the run is in progress; return whether that was possible."""
    try:
        root = secret_files.memory_root(environ)
        secret_files.keep_private(root, run_id, _FILE, inputs.model_dump_json().encode())
    except (ConfigError, EngineError, ValueError):
        # Variables that are not text cannot be stored either; the run continues without.
        return False
    return True


def read_inputs(run_id: str, environ: Mapping[str, str]) -> Inputs | None:
    """Return the stored inputs of a run; None if they are lost, as after a reboot."""
    content = secret_files.read_private(run_id, _FILE, environ)
    try:
        return None if content is None else Inputs.model_validate_json(content)
    except ValidationError:
        return None
