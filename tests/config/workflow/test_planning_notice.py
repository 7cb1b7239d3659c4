"""Tests of the notice about a task that is repeated by default."""

import pytest

from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.planning import notice_of_repetition


def test_repeated_task_causes_a_notice():
    config = ParallelConfig(tasks=("a", "b"))
    assert notice_of_repetition(config, workers_given=False) == (
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
def test_requested_repetition_causes_no_notice(config, workers_given):
    assert notice_of_repetition(config, workers_given=workers_given) is None
