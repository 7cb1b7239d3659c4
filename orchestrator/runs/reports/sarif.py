"""Render findings of checks and of a judgement as SARIF 2.1.0, for code scanning by CI systems.

CI systems recognise a finding by its rule and fingerprint: both are the same in every run.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from orchestrator.base.text.sanitize import one_line
from orchestrator.base.text.version import __version__
from orchestrator.review.judging.judgement import FlagKind
from orchestrator.runs.reports.as_json import to_json
from orchestrator.runs.reports.findings import findings
from orchestrator.runs.reports.model import RunReport

MOST = 5000
"""Maximum number of results in a SARIF log; GitHub keeps the first 5,000."""
FLAGS: Mapping[FlagKind, tuple[str, str]] = {
    "empty": ("ORC-A001", "The candidate changed nothing"),
    "tests_weakened": ("ORC-A002", "A check passes only with the candidate's own tests"),
    "tests_removed": ("ORC-A003", "Tests of the base were removed"),
    "new_skips": ("ORC-A004", "Tests that ran on the base are skipped"),
    "nothing_ran": ("ORC-A005", "Tests that ran on the base did not run"),
    "forged": ("ORC-A006", "A check does not report a test that must fail"),
    "instrument_changed": ("ORC-A007", "A file that controls the tests was changed"),
    "literal_echo": ("ORC-A008", "The change contains a value of the tests"),
    "suppressed": ("ORC-A009", "The change silences a tool"),
    "needs_new_tests": ("ORC-A010", "A check passes only with the candidate's new tests"),
    "needs_own_configuration": (
        "ORC-A011",
        "A check passes only with the candidate's configuration files",
    ),
    "scope": ("ORC-A012", "A file outside of the task's paths was changed"),
    "unproved": ("ORC-A013", "Nothing proves that a check tests the candidate"),
    "touches_runner": ("ORC-A014", "New code touches the test runner"),
}
"""For each kind of finding that a judgement makes about a worker: id and description of its SARIF
rule."""
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_UNNAMED = re.compile(r"[^A-Za-z0-9_.-]+")
_TEXT = 500


@dataclass(frozen=True)
class _Result:
    rule: str
    """Id of the SARIF rule: the check's name or a kind of finding."""
    about: str
    """Description of the result's rule."""
    level: Literal["none", "note", "warning", "error"]
    text: str
    fingerprint: str
    path: str
    line: int = 1
    column: int | None = None

    def to_json(self, index: int) -> dict[str, object]:
        column = {"startColumn": self.column} if self.column else {}
        uri = quote(self.path, errors="replace")
        place = {
            "artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": self.line, **column},
        }
        return {
            "ruleId": self.rule,
            "ruleIndex": index,
            "level": self.level,
            "message": {"text": self.text},
            "partialFingerprints": {"orchestrator/v1": self.fingerprint},
            "locations": [{"physicalLocation": place}],
        }


def render(report: RunReport) -> str:
    """Return the findings of a run as a SARIF log."""
    found, notifications = _findings(report)
    if len(found) > MOST:
        notifications.append(("warning", f"{len(found) - MOST} more findings are not listed"))
    shown = found[:MOST]
    rules = {result.rule: result.about for result in shown}
    positions = {rule: number for number, rule in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "orchestrator",
                "version": __version__,
                "rules": [
                    {"id": rule, "shortDescription": {"text": about}}
                    for rule, about in rules.items()
                ],
            }
        },
        "automationDetails": {"id": f"orchestrator/{_name(report.name or 'parallel')}/"},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": report.status is not None,
                "startTimeUtc": f"{report.started_at:%Y-%m-%dT%H:%M:%SZ}",
                "toolExecutionNotifications": [
                    {"level": level, "message": {"text": text}} for level, text in notifications
                ],
            }
        ],
        "results": [result.to_json(positions[result.rule]) for result in shown],
    }
    return to_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _findings(report: RunReport) -> tuple[list[_Result], list[tuple[str, str]]]:
    """Return the findings about files, and level and text of those that concern no file."""
    unread = Counter[str]()
    found = [
        _Result(
            rule=_name(finding.rule),
            about=finding.rule,
            level=finding.level,
            text=f"{finding.worker.title}: {finding.text}",
            fingerprint=finding.fingerprint,
            path=finding.path,
            line=finding.line,
            column=finding.column,
        )
        for finding in findings(report, unread)
    ]
    # A result must have a file: what excludes a candidate as a whole is shown at the first file
    # that it changed.
    changed = {(report.run_id, worker.worker_id): next(iter(worker.result.files_modified), "")
               for worker in report.workers if worker.result}  # fmt: skip
    notifications = [("warning", f"not read: {n} {what}") for what, n in unread.items()]
    for candidate in report.judgement.ranking if report.judgement else ():
        first = changed.get((candidate.run_id, candidate.worker_id), "")
        for flag in candidate.flags:
            rule, about = FLAGS[flag.flag]
            level: Literal["error", "note"] = "error" if flag.out else "note"
            text = one_line(flag.message, limit=_TEXT)
            path = flag.file or (first if flag.out else "")
            if not path:
                text = f"{rule} worker {candidate.worker_id}: {text}"
                notifications.append((level, text))
                continue
            identity = "\0".join((rule, path, text)).encode("utf-8", "replace")
            found.append(
                _Result(
                    rule=rule,
                    about=about,
                    level=level,
                    text=f"worker {candidate.worker_id}: {text}",
                    fingerprint=hashlib.sha256(identity).hexdigest(),
                    path=path,
                    line=flag.line or 1,
                )
            )
    return found, notifications


def _name(text: str) -> str:
    """Return a text as an identifier that is the same in every run."""
    return _UNNAMED.sub("-", text).strip("-.") or "check"
