"""Derive an outcome from the exit code and the last errors of a program, not from its report."""

import re
from pathlib import Path
from typing import Final

from orchestrator.agents.base import AgentOutcome, AgentOutput
from orchestrator.agents.output.fields import describe_exit
from orchestrator.agents.output.search import last_line, text_tail
from orchestrator.base.results import Reason, Status
from orchestrator.base.text.sanitize import output_line

_SIGNALLED: Final = 128
_TAIL: Final = 16 * 1024
_LAST: Final = 8 * 1024
_LIMITS: Final = {
    # A fork bomb may end before it can be measured; its error messages are the only evidence.
    "pids": (
        "Cannot fork",  # dash
        "fork: Resource temporarily unavailable",  # bash, git
        "can't start new thread",  # Python
        "BlockingIOError: [Errno 11]",
        "spawn EAGAIN",  # Node.js
    ),
    "open_files": ("Too many open files", "EMFILE"),
    # The worktree has a different limit; this message comes only from the tmpfs mounts.
    "tmp": ("No space left on device", "ENOSPC"),
}
_COMPLAINT: Final = re.compile(r"^error: .*", re.MULTILINE | re.IGNORECASE)


def unreported(output: AgentOutput, exit_code: int, *, steps: int = 0) -> AgentOutcome:
    """Return the outcome of an agent without a report, from its exit code and stderr."""
    if exit_code == 0:
        return AgentOutcome(
            status=Status.PARTIAL,
            reason=Reason.NO_REPORT,
            message="the agent exited with 0, but printed no report",
            steps=steps,
        )
    message = None
    # If a signal ended the program, its earlier output does not explain why.
    if exit_code <= _SIGNALLED:
        complaints = _COMPLAINT.findall(text_tail(output.stderr, _TAIL))
        message = output_line(complaints[-1]) if complaints else None
        message = message or last_line(output.stderr)
    return AgentOutcome(
        status=Status.FAILED,
        reason=Reason.AGENT_ERROR,
        message=message or describe_exit(exit_code),
        steps=steps,
    )


HTTP_REASONS: Final = {401: Reason.AUTH, 403: Reason.AUTH, 429: Reason.RATE_LIMITED}
"""Reasons of failures by HTTP status of the model's API; other statuses are agent errors."""


def contradicted(exit_code: int) -> tuple[Status, Reason, str]:
    """Return the failure of an agent that claimed success but exited with another code than 0."""
    claim = f"the agent reported success, but {describe_exit(exit_code)}"
    return Status.FAILED, Reason.AGENT_ERROR, claim


def limits_named(stderr: Path) -> tuple[str, ...]:
    """Return the limits that a program's last errors mention: `pids`, `open_files`, `tmp`."""
    tail = text_tail(stderr, _LAST)
    return tuple(
        limit for limit, phrases in _LIMITS.items() if any(phrase in tail for phrase in phrases)
    )
