"""Run agent adapters: parse an output, and build the command line of a program."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.agents import load_agent
from orchestrator.agents.base import AgentCommand, AgentOutcome, AgentOutput, AgentSettings
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.interface.protocol import ExitStatus

RECORDED = Path(__file__).parents[1] / "data" / "agents"
"""Recorded output of the real programs, in a directory for each adapter."""


def judge(agent: str, stdout: Path, stderr: Path, exit_code: int) -> AgentOutcome:
    """Return the outcome that an adapter derives from a program's output and exit code."""
    output = AgentOutput(stdout=stdout, stderr=stderr)
    return load_agent(agent).outcome(output, ExitStatus(exit_code=exit_code, oom_killed=False))


def judge_text(
    agent: str, directory: Path, stdout: str, *, exit_code: int, stderr: str = ""
) -> AgentOutcome:
    """Write an output to a directory, and return the outcome that an adapter derives from it."""
    out, err = directory / "out", directory / "err"
    out.write_text(stdout)
    err.write_text(stderr)
    return judge(agent, out, err, exit_code)


def json_text(*events: Mapping[str, Any]) -> str:
    """Return one JSON object per line."""
    return "".join(f"{json.dumps(event)}\n" for event in events)


def settings(**asked: Any) -> AgentSettings:
    """Return agent settings with these values, and defaults for the others."""
    return AgentSettings.of(ParallelConfig(tasks=("t",), **asked))


def command(
    name: str, /, task: str = "fix it", model: str | None = None, **asked: Any
) -> AgentCommand:
    """Return the command line with which an adapter starts its program."""
    spec = WorkerSpec(worker_id=1, task=task, model=model)
    return load_agent(name).command(spec, settings(**asked))
