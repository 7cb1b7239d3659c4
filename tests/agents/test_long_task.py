"""Tests of tasks that are longer than one argument may be."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.agents import load_agent
from orchestrator.agents.base import LONGEST_WORD, AgentSettings
from orchestrator.agents.settings_check import check_length
from orchestrator.agents.start import on_stdin
from orchestrator.base.errors import ConfigError
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.run import ParallelConfig
from tests.support.errors import raises

TASK = "-e '%s' \\n $HOME\n" + "\u20ac" * 300_000 + "\n\n"


def test_long_task_is_passed_on_stdin_unchanged(tmp_path: Path) -> None:
    argv = on_stdin(TASK, ("sh", "-c", 'cat; printf "|%s" "$@"', "sh", "one", "--two"))
    assert max(len(word.encode()) for word in argv) <= LONGEST_WORD
    done = subprocess.run(argv, capture_output=True, env={"HOME": str(tmp_path)}, check=True)
    assert done.stdout.decode() == f"{TASK}|one|--two"


@pytest.mark.parametrize(("name", "end"), [("claude", None), ("codex", "-"), ("opencode", None)])
def test_programs_that_read_stdin_accept_long_tasks(name: str, end: str | None) -> None:
    config = ParallelConfig(tasks=("x" * 500_000,), agent_cli=name)
    settings = AgentSettings.of(config)
    agent = load_agent(name)
    argv = agent.command(WorkerSpec(worker_id=1, task=config.tasks[0], model=None), settings).argv
    assert max(map(len, argv)) <= LONGEST_WORD
    assert "--" not in argv
    if end is not None:
        assert argv[-1] == end
    check_length(config, agent)


@pytest.mark.parametrize("name", ["architect", "gemini", "aider", "mini"])
def test_programs_that_need_an_argument_refuse_long_tasks(name: str) -> None:
    agent = load_agent(name)
    with raises("task.too-long", f"`{name}`"):
        check_length(ParallelConfig(tasks=("x" * 200_000,), agent_cli=name), agent)
    check_length(ParallelConfig(tasks=("x" * 130_000,), agent_cli=name), agent)


def test_task_over_the_kernels_limit_is_refused() -> None:
    config = ParallelConfig(tasks=("x" * 1024**2,), agent_cli="shell")
    with pytest.raises(ConfigError, match="a program accepts 1048576 at most"):
        check_length(config, load_agent("shell"))
