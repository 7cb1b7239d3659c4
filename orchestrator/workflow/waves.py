"""What could run at one time, in lines."""

from collections.abc import Iterable, Sequence

from orchestrator.workflow.model import Task, Workflow
from orchestrator.workflow.shape import Node, shape_of

_ROOM = {"high": 10, "medium": 5, "low": 1}
_ALL_ROOM = 10
"""How much of what says how complex it is runs at one time."""


def wave_lines(workflow: Workflow, slots: int) -> list[str]:
    """Say what would run, wave by wave.

    Args:
        workflow: What is to be carried out.
        slots: How many workers run at one time.
    """
    nodes = shape_of(workflow).nodes
    lines = []
    widest = 0
    for number, tasks in enumerate(workflow.waves(), 1):
        widest = max(widest, len(tasks))
        names = ", ".join(_marked(node) for node in nodes if node.depth == number - 1)
        together = f" ({at_one_time(tasks, slots)} at a time)" if len(tasks) > 1 else ""
        lines.append(f"wave {number}: {names}{together}")
    return [*lines, f"{len(workflow.tasks)} tasks in {len(lines)} waves, {widest} in the widest"]


def at_one_time(tasks: Iterable[Task], slots: int) -> int:
    """Count how many of them would be started at once: the first that find room."""
    held: set[str] = set()
    running, room = 0, _ALL_ROOM
    for task in tasks:
        needs = _ROOM[task.complexity] if task.complexity else 0
        if running == slots or held & {*task.resources} or needs > room:
            continue
        if not task.parallel:
            if running == 0:
                return 1
            continue
        held |= {*task.resources}
        room -= needs
        running += 1
    return running


def _marked(node: Node) -> str:
    marks = [*_marks(node.tasks[0])]
    return f"{node.name} [{', '.join(marks)}]" if marks else node.name


def _marks(task: Task) -> Sequence[str]:
    alone = ["alone"] * (not task.parallel)
    locks = [f"lock {name}" for name in task.resources]
    return [*alone, *locks, *([task.complexity] if task.complexity else [])]
