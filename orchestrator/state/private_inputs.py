"""What a run was given that may be secret: kept in memory for whoever takes the run over.

The record of a run names no value of the caller's variables, and its tasks have their secrets taken
out. All of that lies, whole, beside the workers' secrets on a tmpfs, and is gone with the run.
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
    """Everything a run was asked to do, values included."""

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
        """The caller's variables, as far as the run needs them."""
        secrets = {name: os.fsdecode(value) for name, value in self.secrets.items()}
        return {**self.inherited_env, **secrets}


def keep_inputs(run_id: str, inputs: Inputs, environ: Mapping[str, str]) -> bool:
    """Keep them for as long as the run goes on; False where there is no memory to keep them in."""
    try:
        root = secret_files.memory_root(environ)
        secret_files.write_private(root, run_id, _FILE, inputs.model_dump_json().encode())
    except (ConfigError, EngineError, ValueError):
        # Variables that are no text cannot be kept either: the run itself goes on without.
        return False
    return True


def read_inputs(run_id: str, environ: Mapping[str, str]) -> Inputs | None:
    """Return what was kept, or None after a restart of the machine."""
    content = secret_files.read_private(run_id, _FILE, environ)
    try:
        return None if content is None else Inputs.model_validate_json(content)
    except ValidationError:
        return None
