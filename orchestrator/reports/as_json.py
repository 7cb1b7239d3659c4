"""Render the whole model of a run as JSON, for programs."""

import json

from orchestrator.reports.model import RunReport


def render(report: RunReport) -> str:
    """Return the report as one JSON object."""
    return to_json(report.model_dump(mode="json"))


def to_json(value: object) -> str:
    """Return a value as JSON in ASCII, in which no CI system finds commands if a log shows it."""
    # `#` occurs only in strings, and no line of the JSON starts with a string's content.
    return json.dumps(value, indent=2).replace("##", r"\u0023\u0023") + "\n"
