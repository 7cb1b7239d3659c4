"""List the waves of a workflow: groups of tasks that do not depend on each other."""

from collections.abc import Sequence

from orchestrator.workflow.drawing.graph import Node, shape_of
from orchestrator.workflow.model import Task, Workflow
from orchestrator.workflow.order import Order, Shortage, TaskOutcome, no_shortage


def wave_lines(workflow: Workflow, slots: int, shortage: Shortage = no_shortage) -> list[str]:
    """Return a line for each wave of a workflow, with its tasks.

    Args:
        workflow: The workflow.
        slots: Maximum number of workers at the same time.
        shortage: Function that returns why the machine has no room for a task; None if it has.
    """
    nodes = shape_of(workflow).nodes
    lines = []
    for number, tasks in enumerate(workflow.waves()):
        names = ", ".join(_marked(node) for node in nodes if node.depth == number)
        together = (
            f" ({_together(workflow, tasks, slots, shortage)} at a time)" if len(tasks) > 1 else ""
        )
        lines.append(f"wave {number + 1}: {names}{together}")
    return lines


def _together(workflow: Workflow, tasks: Sequence[Task], slots: int, shortage: Shortage) -> int:
    """Return how many tasks of a wave can start at once when all earlier waves have succeeded."""
    waiting = {task.id for task in tasks}
    over = {task.id: TaskOutcome.SUCCEEDED for task in workflow.tasks if task.id not in waiting}
    return len(Order(workflow, shortage).next(waiting, (), over, free=slots).started)


def _marked(node: Node) -> str:
    marks = _marks(node.tasks[0])
    return f"{node.name} [{', '.join(marks)}]" if marks else node.name


def _marks(task: Task) -> Sequence[str]:
    alone = ["alone"] * (not task.parallel)
    locks = [f"lock {name}" for name in task.resources]
    return [*alone, *locks, *([task.complexity] if task.complexity else []), *_limits(task)]


def _limits(task: Task) -> Sequence[str]:
    """Return the CPU and memory limits that a task itself sets, which affect when it can start."""
    limits = task.settings.limits
    asked = limits.model_fields_set
    cpus = [f"{limits.cpus:g} CPUs"] if "cpus" in asked and limits.cpus is not None else []
    return [*cpus, *([f"{limits.memory // 1024**2} MiB"] if "memory" in asked else [])]
