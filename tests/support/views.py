"""Output of the views of a run, for given events."""

from orchestrator.base.events import Event
from orchestrator.faces.cli.output.views import PlainView


def plain(*events: Event) -> list[str]:
    """Return the lines that the plain view prints for some events."""
    lines: list[str] = []
    view = PlainView(lines.append)
    for event in events:
        view(event)
    return lines
