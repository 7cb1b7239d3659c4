"""What ends mean that several agent programs share."""

from typing import Final

from orchestrator.agents.claims import describe_exit
from orchestrator.results import Reason, Status

HTTP_REASONS: Final = {401: Reason.AUTH, 403: Reason.AUTH, 429: Reason.RATE_LIMITED}
"""What it means that a model's API answered so; any other status is an error of the agent."""


def contradicted(exit_code: int) -> tuple[Status, Reason, str]:
    """Judge a success that the program's exit code does not confirm."""
    claim = f"reported success, but {describe_exit(exit_code)}"
    return Status.FAILED, Reason.AGENT_ERROR, claim
