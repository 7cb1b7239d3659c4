"""Tests of the assignment of tasks and models to workers."""

import pytest

from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.planning import job_count, plan_workers

CASES = [
    # tasks, models, workers, what each worker gets
    ("a", "", 1, ["a:default"]),
    ("a", "", 3, ["a:default", "a:default", "a:default"]),
    ("ab", "", 3, ["a:default", "b:default", "a:default"]),
    ("abcd", "", 2, ["a:default", "b:default", "c:default", "d:default"]),
    ("abc", "xyz", 3, ["a:x", "b:y", "c:z"]),
    ("abc", "x", 3, ["a:x", "b:default", "c:default"]),
    ("a", "xyz", 2, ["a:x", "a:y", "a:z"]),
    ("ab", "xyz", 1, ["a:x", "b:y", "a:z"]),
]


@pytest.mark.parametrize(("tasks", "models", "workers", "expected"), CASES)
def test_tasks_and_models_are_assigned_to_workers(
    tasks: str, models: str, workers: int, expected: list[str]
) -> None:
    config = ParallelConfig(tasks=tuple(tasks), models=tuple(models), workers=workers)
    planned = plan_workers(config)
    assert [f"{worker.task}:{worker.model_name}" for worker in planned] == expected
    assert [worker.worker_id for worker in planned] == list(range(1, len(expected) + 1))
    assert job_count(config) == len(expected)


def test_names_contain_the_workers_number() -> None:
    config = ParallelConfig(tasks=("a",), workers=2)
    first, second = plan_workers(config, first=7)
    assert (first.worker_id, second.worker_id) == (7, 8)
    assert (first.directory, first.branch) == (".architect-parallel-7", "architect/parallel-7")
    assert first.model is None
