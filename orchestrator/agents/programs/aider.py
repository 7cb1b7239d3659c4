"""Adapter of `aider` (aider-chat 0.86.2), which edits and commits files and prints plain text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.agents.base import (
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentProgress,
    AgentSettings,
    ProgressReader,
    unsupported_settings,
)
from orchestrator.agents.output.fields import as_line, as_summary
from orchestrator.agents.output.no_report import unreported
from orchestrator.agents.output.reset_times import retry_after
from orchestrator.agents.output.search import text_tail
from orchestrator.agents.programs import litellm
from orchestrator.agents.start import starter
from orchestrator.base.results import Reason, Status
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.images.names import worker_image
from orchestrator.engine.interface.protocol import ExitStatus

_MODEL: Final = "AIDER_MODEL"
_ENVIRONMENT: Final = {
    **litellm.ENVIRONMENT,
    "PYTHONUNBUFFERED": "1",
    # aider wraps lines at 80 columns, also those that this adapter parses.
    "COLUMNS": "1000",
    # The conversation is in the worker's log; history files would only litter the worktree.
    "AIDER_CHAT_HISTORY_FILE": "/dev/null",
    "AIDER_INPUT_HISTORY_FILE": "/dev/null",
}
_COMMAND: Final = (
    *("aider", "--yes-always", "--no-pretty", "--no-stream", "--no-fancy-input"),
    # These options stop aider from using the network or asking the user.
    *("--no-check-update", "--analytics-disable", "--no-show-release-notes"),
    *("--no-show-model-warnings", "--no-detect-urls"),
    # `.gitignore` belongs to the user; aider's files are kept out of commits without it.
    "--no-gitignore",
)
_TAIL: Final = 4 * 1024 * 1024
"""Number of bytes at the end of aider's output that are parsed: more than aider prints for four
model calls."""
_FIGURE: Final = r"\d{1,6}(?:\.\d{1,9})?"
_COST: Final = rf"Cost: \${_FIGURE} message, \$(?P<cost>{_FIGURE}) session\."
# Printed after each answer of the model. An answer can forge such a line, but would only falsify
# the worker's own figures.
_ANSWER: Final = re.compile(
    rf"^Tokens: (?P<sent>{_FIGURE}k?) sent,.*? (?P<received>{_FIGURE}k?) received\.(?:\s{_COST})?",
    re.MULTILINE,
)
_MORE_COST: Final = re.compile(_COST)
# Errors before such a line were overcome: a call that was retried, or a failed attempt to generate
# a commit message.
_GOT_OVER: Final = re.compile(r"^(?:Tokens: .* received\.|Commit [0-9a-f]{7,40} )", re.MULTILINE)
_OWN_LINE: Final = re.compile(
    r"^(?:Repo-map: |Added .+ to the chat|Tokens: |Cost: |Applied edit to |Commit [0-9a-f]{7,40} )"
    r".*",
    re.MULTILINE,
)
_LLM_ERROR: Final = re.compile(r"^litellm\.(?P<name>\w+): (?P<text>.*)", re.MULTILINE)
_TROUBLES: Final = {
    r"^(?P<line>Only \d+ reflections allowed, stopping\.)": (Status.PARTIAL, Reason.MAX_STEPS),
    r"^(?P<line>Model .* has hit a token limit!)": (Status.PARTIAL, Reason.CONTEXT_FULL),
    # aider prints unexpected exceptions and then exits with 0.
    r"^Traceback \(most recent call last\):$(?:\n(?:[ \t].*)?$)*\n(?P<line>.*)": (
        Status.FAILED,
        Reason.AGENT_ERROR,
    ),
}
_FAILED: Final = 1
"""aider's exit code for every error except invalid options; also used by `run_aider`."""
_SUCCESS: Final = AgentOutcome(status=Status.SUCCESS)


class AiderAgent:
    """Runs `aider --message` and parses its plain-text output, because aider writes no report."""

    name = "aider"
    image = worker_image("aider")
    inherited_env = (_MODEL, *litellm.INHERITED)
    ignored_files = (".aider*",)

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:
        """Return the name of the API key's variable if the provider needs it and it is missing."""
        return litellm.missing_key(model, _MODEL, environment)

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Reject profiles. Budgets and step limits are enforced by reading aider's output."""
        return unsupported_settings(settings, profiles=False)

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line that starts aider for a worker."""
        model = () if spec.model is None else ("--model", litellm.with_provider(spec.model))
        return AgentCommand(
            argv=(*starter(), *_COMMAND, *model, f"--message={spec.prompt}"),
            env=_ENVIRONMENT | litellm.own_server(settings.api_base),
            default_env={_MODEL: litellm.DEFAULT_MODEL},
        )

    def progress_reader(self) -> ProgressReader:
        """Return a reader that counts the model's answers and tokens, and reads the cost so far."""
        steps = tokens = 0

        def read(line: str) -> AgentProgress | None:
            nonlocal steps, tokens
            answer = _ANSWER.match(line)
            figures = answer or _MORE_COST.match(line)
            if figures is None:
                return None
            if answer is not None:
                steps += 1
                tokens += _tokens(answer["sent"]) + _tokens(answer["received"])
            return AgentProgress(cost=_session_cost([figures]), tokens=tokens or None, steps=steps)

        return read

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Return the outcome; aider exits with 0 after API errors, so its last lines decide."""
        text = text_tail(output.stdout, _TAIL)
        answers = list(_ANSWER.finditer(text))
        code = exit_status.exit_code
        end = unreported(output, code) if code or not answers else _SUCCESS
        trouble = _error_outcome(text, code) if code <= _FAILED else None
        tokens = summary = None
        if answers:
            parts = (answer[part] for answer in answers for part in ("sent", "received"))
            tokens = sum(map(_tokens, parts))
            # The model's last answer: the text after the last line that aider itself printed.
            before = text[: answers[-1].start()]
            ends = (match.end() for match in _OWN_LINE.finditer(before))
            summary = as_summary(before[max(ends, default=0) :])
        return replace(
            trouble or end,
            steps=len(answers),
            cost=_session_cost(answers),
            tokens=tokens,
            summary=summary,
        )


def _session_cost(lines: Sequence[re.Match[str]]) -> float | None:
    """Return the cost in the last of aider's cost lines, which is the total of the session."""
    costs = [float(line["cost"]) for line in lines if line["cost"]]
    return costs[-1] if costs else None


def _tokens(figure: str) -> int:
    return round(float(figure.removesuffix("k")) * (1000 if figure.endswith("k") else 1))


def _error_outcome(text: str, code: int) -> AgentOutcome | None:
    """Return the outcome for an error at the end of the output; None without an error."""
    end = text[max((match.end() for match in _GOT_OVER.finditer(text)), default=0) :]
    errors = list(_LLM_ERROR.finditer(end))
    if errors:
        reason = litellm.reason_of(errors[-1]["name"], errors[-1]["text"])
        message = errors[-1][0]
        return AgentOutcome(
            status=Status.FAILED,
            reason=reason,
            message=as_line(message),
            retry_after=retry_after(reason, message),
        )
    for pattern, (status, reason) in _TROUBLES.items() if code == 0 else ():
        match = re.search(pattern, end, re.MULTILINE)
        if match is not None:
            return AgentOutcome(status=status, reason=reason, message=as_line(match["line"]))
    return None
