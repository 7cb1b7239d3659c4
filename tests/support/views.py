"""What views of a run show, fed with events by hand."""

from orchestrator.cli.output.views import PlainView
from orchestrator.events import Event


def plain(*events: Event) -> list[str]:
    """Return the lines that the plain view writes for some events."""
    lines: list[str] = []
    view = PlainView(lines.append)
    for event in events:
        view(event)
    return lines
