"""Load settings from options, variables and a file, and return the reported mistakes."""

from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.config.loading.loading import load_config
from orchestrator.config.settings.run import ParallelConfig

DOCUMENTED = """\
parallel_runs:
  workers: 3               # 1-10
  agent: build              # Default agent
  max_steps: 50             # Steps per worker
  budget_per_worker: null    # USD per worker
  timeout_per_worker: null   # Seconds per worker
"""


def load(options=None, *, environ=None, file=None, top=None) -> ParallelConfig:
    options = {"tasks": ("t",), **(options or {})}
    return load_config(options=options, environ=environ or {}, top=top, file=file)


def mistakes(options=None, *, environ=None, file=None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(options, environ=environ, file=file)
    assert caught.value.exit_code == 3
    lines = caught.value.message.splitlines()
    if len(lines) == 1:
        return lines
    assert lines[0] == f"{len(lines) - 1} mistakes in the configuration:"
    return [line.removeprefix("  ") for line in lines[1:]]


def write(directory: Path, text: str, name: str = "orchestrator.yaml") -> Path:
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path
