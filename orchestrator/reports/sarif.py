"""SARIF 2.1.0: the findings of failed checks, for code scanning of GitHub and other readers."""

import re
from collections.abc import Iterator
from urllib.parse import quote

from orchestrator.reports.as_json import to_json
from orchestrator.reports.findings import Finding, findings
from orchestrator.reports.model import RunReport
from orchestrator.results import Status

MOST = 5000
"""Maximum number of results; GitHub keeps the first 5,000 of a run."""
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_UNNAMED = re.compile(r"[^A-Za-z0-9_.-]+")


def render(report: RunReport) -> str:
    """Return the findings of a run as a SARIF log."""
    found = findings(report)
    shown = found[:MOST]
    rules = list(dict.fromkeys(finding.rule for finding in shown))
    more = [f"{len(found) - MOST} more findings are not listed"] if len(found) > MOST else []
    run = {
        "tool": {"driver": {"name": "orchestrator", "rules": [_rule(rule) for rule in rules]}},
        "automationDetails": {"id": f"orchestrator/{_name(report.name or 'parallel')}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": report.status is not None,
                "startTimeUtc": f"{report.started_at:%Y-%m-%dT%H:%M:%SZ}",
                "toolExecutionNotifications": [
                    {"level": "warning", "message": {"text": text}} for text in more
                ],
            }
        ],
        "results": list(_results(shown, rules)),
    }
    return to_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _rule(rule: str) -> dict[str, object]:
    return {"id": _name(rule), "name": _name(rule), "shortDescription": {"text": rule}}


def _name(text: str) -> str:
    """Return a text as an identifier that is the same in every run."""
    return _UNNAMED.sub("-", text).strip("-.") or "check"


def _results(found: list[Finding], rules: list[str]) -> Iterator[dict[str, object]]:
    for finding in found:
        partial = finding.worker.status is Status.PARTIAL
        yield {
            "ruleId": _name(finding.rule),
            "ruleIndex": rules.index(finding.rule),
            "level": "warning" if partial else "error",
            "message": {"text": f"{finding.worker.key}: {finding.text}"},
            "partialFingerprints": {"orchestrator/v1": finding.fingerprint},
            "locations": [{"physicalLocation": _place(finding)}],
        }


def _place(finding: Finding) -> dict[str, object]:
    column = {"startColumn": finding.column} if finding.column else {}
    return {
        "artifactLocation": {"uri": quote(finding.path), "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": finding.line, **column},
    }
