"""Tests of the checks that compare a workflow's tasks with the settings of the run."""

from orchestrator.base.errors import ConfigError
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Task
from orchestrator.config.workflow.planning import check_results
from tests.support.errors import raises


def config(agent: str) -> ParallelConfig:
    return ParallelConfig.model_validate({"tasks": ("-",), "agent_cli": agent, "workers": 1})


def task(*, inserted: tuple[int, ...]) -> Task:
    return Task(id="sum", task="echo {{results}}", results_at=inserted)


def test_results_are_not_inserted_into_a_shell_command() -> None:
    with raises("task.results-in-command"):
        check_results(config("shell"), [task(inserted=(0,))])


def is_refused(agent: str, *inserted: int) -> bool:
    """Return whether results at these positions in a task are refused."""
    try:
        check_results(config(agent), [task(inserted=inserted)])
    except ConfigError:
        return True
    return False


def test_results_are_inserted_into_a_prompt_and_escaped_marks_stay() -> None:
    assert not is_refused("claude", 0)
    assert not is_refused("shell")
    assert is_refused("shell", 0)
