"""Convert a workflow to a Mermaid flowchart for Markdown documents."""

import json
from collections.abc import Iterator

from orchestrator.text.sanitize import one_line
from orchestrator.workflow.drawing.graph import TIMES, Node, shape_of
from orchestrator.workflow.model import Workflow

_PLAIN = frozenset(f" ._-,/(){TIMES}")


def mermaid(workflow: Workflow) -> str:
    """Return a workflow as a Mermaid flowchart."""
    return "\n".join(_lines(workflow))


def _lines(workflow: Workflow) -> Iterator[str]:
    shape = shape_of(workflow)
    yield "---"
    yield f"title: {json.dumps(one_line(workflow.name))}"
    yield "---"
    yield "flowchart LR"
    for number, node in enumerate(shape.nodes):
        yield f"    n{number}{_box(node)}"
    for before, after in shape.edges:
        yield f"    n{before} --> n{after}"


def _box(node: Node) -> str:
    label = f'"{_escaped(node.name)}"'
    return f"[{label}]" if node.tasks[0].group is None else f"[[{label}]]"


def _escaped(text: str) -> str:
    """Replace characters that Mermaid or HTML could interpret by numeric character entities."""
    return "".join(
        char if char.isalnum() or char in _PLAIN else f"#{ord(char)};" for char in one_line(text)
    )
