"""Write a workflow as text: its tasks in waves, or a Mermaid flowchart for Markdown documents."""

import json
import textwrap

from orchestrator.base.text.sanitize import one_line
from orchestrator.config.workflow.drawing.graph import TIMES, Node, shape_of
from orchestrator.config.workflow.model import Workflow
from orchestrator.config.workflow.order import Order, Shortage, TaskOutcome, no_shortage

_UNLIMITED = 100_000
_PLAIN = frozenset(f" ._-,/(){TIMES}")


def listing(workflow: Workflow, *, width: int | None = None) -> str:
    """Return a line for each task, grouped by waves, with the tasks that it waits for.

    Args:
        workflow: The workflow.
        width: Columns of the terminal; longer lines are continued. Default: unlimited.
    """
    shape = shape_of(workflow).nodes
    nodes = sorted(shape, key=lambda node: node.depth)
    names = [node.name for node in shape]
    widest = max(map(len, names))
    indent = len(str(nodes[-1].depth + 1)) + 2
    lines: list[str] = []
    wave = -1
    for node in nodes:
        mark = "" if node.depth == wave else str(node.depth + 1)
        wave = node.depth
        after = ", ".join(names[number] for number in node.after)
        lines += textwrap.wrap(
            f"{node.name:{widest}}  after {after}" if after else node.name,
            width or _UNLIMITED,
            initial_indent=f"{mark:{indent}}",
            subsequent_indent=" " * (indent + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


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
        names = ", ".join(_with_marks(node) for node in nodes if node.depth == number)
        together = ""
        if len(tasks) > 1:
            # As many as can start when all earlier waves have succeeded.
            waiting = {task.id for task in tasks}
            over = {
                task.id: TaskOutcome.SUCCEEDED for task in workflow.tasks if task.id not in waiting
            }
            choice = Order(workflow, shortage).next(waiting, (), over, free=slots)
            together = f" ({len(choice.started)} at a time)"
        lines.append(f"wave {number + 1}: {names}{together}")
    return lines


def _with_marks(node: Node) -> str:
    """Return a node's name with what affects when it can start, such as limits of its own."""
    task = node.tasks[0]
    limits = task.settings.limits
    asked = limits.model_fields_set
    marks = [
        *(["alone"] if not task.parallel else []),
        *(f"lock {name}" for name in task.resources),
        *([task.complexity] if task.complexity else []),
        *([f"{limits.cpus:g} CPUs"] if "cpus" in asked and limits.cpus is not None else []),
        *([f"{limits.memory // 1024**2} MiB"] if "memory" in asked else []),
    ]
    return f"{node.name} [{', '.join(marks)}]" if marks else node.name


def mermaid(workflow: Workflow) -> str:
    """Return a workflow as a Mermaid flowchart."""
    shape = shape_of(workflow)
    lines = ["---", f"title: {json.dumps(one_line(workflow.name))}", "---", "flowchart LR"]
    for number, node in enumerate(shape.nodes):
        # Characters that Mermaid or HTML could interpret become numeric character entities.
        label = "".join(
            char if char.isalnum() or char in _PLAIN else f"#{ord(char)};"
            for char in one_line(node.name)
        )
        box = f'["{label}"]' if node.tasks[0].group is None else f'[["{label}"]]'
        lines.append(f"    n{number}{box}")
    lines += [f"    n{before} --> n{after}" for before, after in shape.edges]
    return "\n".join(lines)
