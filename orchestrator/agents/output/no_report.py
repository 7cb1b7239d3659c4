"""What the end of an agent program means that printed no report: it broke, or was killed."""

import re
from typing import Final

from orchestrator.agents.base import AgentOutcome, AgentOutput
from orchestrator.agents.output.fields import describe_exit
from orchestrator.agents.output.search import last_line, text_tail
from orchestrator.results import Reason, Status
from orchestrator.text.sanitize import one_line

_SIGNALLED: Final = 128
_TAIL: Final = 16 * 1024
_COMPLAINT: Final = re.compile(r"^error: .*", re.MULTILINE | re.IGNORECASE)


def unreported(output: AgentOutput, exit_code: int, *, steps: int = 0) -> AgentOutcome:
    """Judge by the exit code, and let stderr say why.

    Args:
        output: What it printed.
        exit_code: Of the program.
        steps: Those that were counted all the same.
    """
    if exit_code == 0:
        return AgentOutcome(
            status=Status.PARTIAL,
            reason=Reason.NO_REPORT,
            message="ended well, but printed no report",
            steps=steps,
        )
    # What was said before a signal is not why it ended.
    said = None if exit_code > _SIGNALLED else _complaint(output) or last_line(output.stderr)
    return AgentOutcome(
        status=Status.FAILED,
        reason=Reason.AGENT_ERROR,
        message=said or describe_exit(exit_code),
        steps=steps,
    )


def _complaint(output: AgentOutput) -> str | None:
    found = _COMPLAINT.findall(text_tail(output.stderr, _TAIL))
    return one_line(found[-1]) if found else None


HTTP_REASONS: Final = {401: Reason.AUTH, 403: Reason.AUTH, 429: Reason.RATE_LIMITED}
"""What it means that a model's API answered so; any other status is an error of the agent."""


def contradicted(exit_code: int) -> tuple[Status, Reason, str]:
    """Judge a success that the program's exit code does not confirm."""
    claim = f"reported success, but {describe_exit(exit_code)}"
    return Status.FAILED, Reason.AGENT_ERROR, claim
