"""Tests of the waves that `--dry-run` prints."""

from orchestrator.config.workflow.drawing.text import wave_lines
from orchestrator.config.workflow.model import Task, Workflow


def lines(*tasks: Task, slots: int = 4) -> list[str]:
    return wave_lines(Workflow(name="w", tasks=tasks), slots)


def task(name: str, *after: str, **more) -> Task:
    return Task(id=name, task="t", depends_on=after, **more)


def test_waves_follow_the_dependencies():
    two = task("backend", "design"), task("frontend", "design")
    assert lines(task("design"), *two, task("deploy", "backend", "frontend")) == [
        "wave 1: design",
        "wave 2: backend, frontend (2 at a time)",
        "wave 3: deploy",
    ]


def test_tasks_of_a_wave_are_limited_by_the_slots():
    assert lines(task("a"), task("b"), task("c"), slots=2)[0] == "wave 1: a, b, c (2 at a time)"


def test_locks_complexities_and_exclusive_tasks_are_marked():
    assert lines(task("a", resources=("db",)), task("b", resources=("db",)), task("c"))[0] == (
        "wave 1: a [lock db], b [lock db], c (2 at a time)"
    )
    heavy = [task(name, complexity="medium") for name in "abc"]
    assert lines(*heavy)[0] == "wave 1: a [medium], b [medium], c [medium] (2 at a time)"
    alone = task("a", parallel=False, resources=("db",))
    assert lines(alone, task("b"))[0] == "wave 1: a [alone, lock db], b (1 at a time)"


def test_batches_are_listed_as_one():
    each = [task(f"move-{n}", "list", group="move") for n in range(5)]
    assert lines(task("list"), *each)[1].startswith("wave 2: move \N{MULTIPLICATION SIGN} 5 (4 at")
