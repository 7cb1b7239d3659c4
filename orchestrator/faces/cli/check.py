"""A check of the machine, as `orchestrator doctor` shows it."""

from dataclasses import dataclass
from typing import Literal

from orchestrator.base.errors import OrchestratorError
from orchestrator.config.settings.values import Limit
from orchestrator.engine.interface.features import Enforcement

State = Literal["ok", "warn", "fail", "unknown"]
_MARKS = {"ok": "✓", "warn": "!", "fail": "✗", "unknown": "?"}


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check of the machine, and its result."""

    name: str
    state: State = "ok"
    detail: str
    hint: str | None = None
    exit_code: int = 0
    """Exit code of the command if this check fails."""
    limits: tuple[Limit, ...] = ()
    """The limits of containers that this check is about."""
    enforced: Enforcement | Literal["unknown"] | None = None
    """How these limits are enforced."""


def check_of_error(name: str, error: OrchestratorError) -> Check:
    """Return the check that ended with an error."""
    return Check(
        name=name, state="fail", detail=error.message, hint=error.hint, exit_code=error.exit_code
    )


def check_line(check: Check) -> str:
    """Return a line about a check, and its hint."""
    hint = f"\n    hint: {check.hint}" if check.hint else ""
    return f"{_MARKS[check.state]} {check.name}: {check.detail}{hint}"
