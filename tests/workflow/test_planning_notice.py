"""When a task is repeated that nobody asked to repeat, people are told."""

import pytest

from orchestrator.config.run import ParallelConfig
from orchestrator.workflow.planning import repeated_task_notice


def test_the_default_number_of_workers_repeats_a_task():
    config = ParallelConfig(tasks=("a", "b"))
    assert repeated_task_notice(config, workers_given=False) == (
        "the first task runs 2 times because `--workers` defaults to 3; use `--workers 2` to "
        "run each task once"
    )


@pytest.mark.parametrize(
    ("config", "workers_given"),
    [
        (ParallelConfig(tasks=("a",), workers=3), True),
        (ParallelConfig(tasks=("a", "b", "c")), False),
        (ParallelConfig(tasks=("a", "b", "c", "d")), False),
        (ParallelConfig(tasks=("a",), models=("x", "y", "z")), False),
    ],
)
def test_what_was_asked_for_is_not_worth_a_word(config, workers_given):
    assert repeated_task_notice(config, workers_given=workers_given) is None
