"""Tests of the precedence of variables of the agent, the caller and the user."""

from pathlib import Path

import pytest

from orchestrator.agents.base import AgentCommand, AgentSettings
from orchestrator.agents.programs.shell import ShellAgent
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.runs.runner import ParallelRunner
from tests.support.local_engine import LocalEngine


class Talkative(ShellAgent):
    inherited_env = ("A", "B", "C", "E")

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:  # noqa: ARG002
        by_default = dict.fromkeys(("A", "B", "C", "D"), "default")
        asked = dict.fromkeys(("B", "C"), "agent")
        return AgentCommand(argv=("sh", "-c", spec.task), env=asked, default_env=by_default)


def test_precedence_of_variables(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ABCE":
        monkeypatch.setenv(name, "caller")
    config = ParallelConfig(
        tasks=('test "$A $B $C $D $E" = "caller agent user default caller"',),
        workers=1,
        isolation=Isolation(env={"C": "user"}),
    )
    (result,) = ParallelRunner(config, repo, engine=local_engine, agent=Talkative()).run()
    assert result.status == "success", result.message
