"""`orchestrator spec validate` and `orchestrator spec schema`."""

from json import dumps

from orchestrator.base.text.sanitize import one_line
from orchestrator.config.workflow.model import Workflow
from orchestrator.config.workflow.parsing.dialects import json_schema
from orchestrator.config.workflow.parsing.reader import read_workflow
from orchestrator.faces.cli.output.messages import show, show_json
from orchestrator.faces.cli.spec_arguments import File, Variables
from orchestrator.faces.cli.workflow_file import tell_about, variables


def validate(file: File, var: Variables = None) -> None:
    """Check a workflow file and print every mistake."""
    reading = read_workflow(file, variables=variables(var or ()))
    tell_about(reading)
    show(summary(reading.workflow))


def schema() -> None:
    """Print the JSON Schema of workflow files, for editors and other tools."""
    show_json(dumps(json_schema(), indent=2))


def summary(workflow: Workflow) -> str:
    """Return a summary such as `Release: 7 tasks in 5 waves, at most 3 at the same time`."""
    waves = [len(wave) for wave in workflow.waves()]
    tasks = _count(len(workflow.tasks), "task")
    name = one_line(workflow.name, limit=200)
    return f"{name}: {tasks} in {_count(len(waves), 'wave')}, at most {max(waves)} at the same time"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
