"""Render the whole model of a run as JSON, for programs."""

import json

from pydantic_core import to_jsonable_python

from orchestrator.runs.reports.model import RunReport


def render(report: RunReport) -> str:
    """Return the report as one JSON object."""
    values = {
        "run_id": report.run_id,
        "name": report.name,
        "state": report.state,
        "status": report.status,
        "base": report.base,
        "engine": report.engine,
        "top": report.top,
        "directory": report.directory,
        "slots": report.slots,
        "started_at": report.started_at,
        "ended_at": report.ended_at,
        "until": report.until,
        "duration": report.duration,
        "workers": [
            {
                "worker_id": worker.worker_id,
                "key": worker.key,
                "name": worker.name,
                "task": worker.spec.task,
                "agent": worker.agent,
                "model": worker.spec.model_name,
                "branch": worker.spec.branch,
                "required": worker.spec.required,
                "depends_on": worker.depends_on,
                "state": worker.state,
                "result": worker.result,
                "attempts": worker.attempts,
                "alerts": worker.alerts,
                "phases": [phase._asdict() for phase in worker.phases],
                "started_at": worker.started_at,
                "container": worker.container,
                "steps": worker.steps or 0,
                "cost": worker.cost or 0.0,
                "cost_known": worker.cost is not None,
                "is_critical": worker.is_critical,
                "directory": worker.directory,
            }
            for worker in report.workers
        ],
        "pauses": [pause._asdict() for pause in report.pauses],
        "notices": report.notices,
        "critical_path": report.critical_path,
        "judgement": report.judgement,
        "merged": report.merged,
    }
    return to_json(to_jsonable_python(values))


def to_json(value: object) -> str:
    """Return a value as JSON in ASCII, in which no CI system finds commands if a log shows it."""
    # `#` occurs only in strings, and no line of the JSON starts with a string's content.
    # protection: no-ci-commands-in-json-reports
    return json.dumps(value, indent=2).replace("##", r"\u0023\u0023") + "\n"
