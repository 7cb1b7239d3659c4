"""Random workflows, and the rules that every execution of them must keep."""

import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.config.workflow.model import Task, Workflow

_LOCKS = ("db", "net", "gpu")
_WEIGHTS = {"high": 10, "medium": 5, "low": 1}


def random_workflow(chance: random.Random, count: int) -> Workflow:
    """Return tasks that write files of their own, or all the same file; some tasks fail."""
    names = [f"t{number}" for number in range(count)]
    return Workflow(
        name="random",
        tasks=tuple(_task(chance, name, names[:place]) for place, name in enumerate(names)),
    )


def _task(chance: random.Random, name: str, before: Sequence[str]) -> Task:
    wanted = chance.choice([0, 0, 1, 1, 2, 3])
    # Dependencies are recent tasks, which creates long chains.
    near = before[-8:]
    file = "shared.txt" if chance.random() < 0.06 else f"{name}.txt"
    code = 1 if chance.random() < 0.08 else 0
    return Task.model_validate(
        {
            "id": name,
            "task": f"ls > {file}; echo {name} >> {file}; exit {code}",
            "depends_on": chance.sample(near, min(len(near), wanted)),
            "parallel": chance.random() > 0.02,
            "when": chance.choice(["on_success"] * 8 + ["always", "on_failure"]),
            "resources": chance.sample(_LOCKS, chance.choice([0, 0, 0, 1, 2])),
            "complexity": chance.choice([None, None, "low", "medium", "high"]),
        }
    )


def check_carried_out(flow: Workflow, results: Sequence[WorkerResult], *, slots: int) -> None:
    """Check, by the times that the engine reported, that every rule was kept."""
    done = {str(one.name): one for one in results}
    assert len(results) == len(done) == len(flow.tasks)
    assert done.keys() == flow.by_id.keys()
    ran = {name: _span(one) for name, one in done.items() if one.started_at is not None}
    for task in flow.tasks:
        _check_task(task, done, ran)
    _check_moments(flow, ran, slots)


def _span(one: WorkerResult) -> tuple[datetime, datetime]:
    assert one.started_at is not None
    return one.started_at, one.started_at + timedelta(seconds=one.duration)


def _check_task(
    task: Task,
    done: Mapping[str, WorkerResult],
    ran: Mapping[str, tuple[datetime, datetime]],
) -> None:
    result = done[task.id]
    failed = [name for name in task.depends_on if done[name].status is not Status.SUCCESS]
    if task.id in ran:
        assert task.when != "on_success" or not failed, task
        assert task.when != "on_failure" or failed, task
        # Start times are rounded to milliseconds.
        for name in task.depends_on:
            if name in ran:
                assert ran[name][1] <= ran[task.id][0] + timedelta(milliseconds=2), (name, task.id)
    elif result.status is Status.SUCCESS:
        assert (task.when, failed) == ("on_failure", []), task
    elif result.reason is Reason.DEPENDENCY:
        assert task.when == "on_success", task
        assert failed, task
    else:
        assert result.reason is Reason.CONFLICT, result.message
        assert len(task.depends_on) > 1, task


def _check_moments(
    flow: Workflow, ran: Mapping[str, tuple[datetime, datetime]], slots: int
) -> None:
    """Check the set of running tasks at each start."""
    for moment, _ in ran.values():
        now = [flow[name] for name, (begun, ended) in ran.items() if begun <= moment < ended]
        locks = [lock for task in now for lock in task.resources]
        assert len(now) <= slots
        assert len(locks) == len({*locks}), now
        assert len(now) == 1 or all(task.parallel for task in now), now
        assert sum(_WEIGHTS[task.complexity] for task in now if task.complexity) <= 10, now
