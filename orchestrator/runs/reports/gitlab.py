"""Render a run for GitLab: findings for a code quality report, and variables for later jobs."""

from collections import Counter

from orchestrator.runs.reports.as_json import to_json
from orchestrator.runs.reports.decisions import winner
from orchestrator.runs.reports.findings import findings
from orchestrator.runs.reports.model import RunReport
from orchestrator.runs.reports.plain_text import counts, state

_SEVERITIES = {"error": "major", "warning": "minor", "note": "info", "none": "info"}


def render_code_quality(report: RunReport) -> str:
    """Return the findings of failed checks as a code quality report."""
    issues = []
    seen: Counter[str] = Counter()
    for finding in findings(report):
        # GitLab shows only one finding of a fingerprint.
        seen[finding.fingerprint] += 1
        number = seen[finding.fingerprint]
        more = "" if number == 1 else f"-{number}"
        issues.append({
            "description": f"{finding.worker.title}: {finding.text}",
            "check_name": finding.rule,
            "fingerprint": finding.fingerprint + more,
            "severity": _SEVERITIES[finding.level],
            "location": {"path": finding.path, "lines": {"begin": finding.line}},
        })  # fmt: skip
    return to_json(issues)


def render_dotenv(report: RunReport) -> str:
    """Return variables for later jobs, as `NAME=value` lines that contain no text of workers."""
    number, best = counts(report), winner(report.judgement)
    values = {
        "RUN_ID": report.run_id,
        "STATUS": state(report),
        "PASSED": str(report.passed),
        "FAILED": str(number["failed"] + number["timeout"]),
        "COST": f"{report.cost:.6f}" if report.cost_known else "",
        "WINNER": str(best.worker_id) if best else "",
        "WINNER_COMMIT": best.commit if best else "",
    }
    return "".join(f"ORCHESTRATOR_{name}={value}\n" for name, value in values.items())
