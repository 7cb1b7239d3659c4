"""The `aider` program (aider-chat 0.86.2): edits files and commits; prints text for people only."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.agents import litellm
from orchestrator.agents.base import (
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentProgress,
    AgentSettings,
    ProgressReader,
)
from orchestrator.agents.launcher import starter
from orchestrator.agents.output.fields import described, summarized
from orchestrator.agents.output.no_report import unreported
from orchestrator.agents.output.reset_times import retry_after
from orchestrator.agents.output.search import text_tail
from orchestrator.agents.unsupported import unsupported_settings
from orchestrator.engine.images.names import worker_image
from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Reason, Status
from orchestrator.worker_spec import WorkerSpec

_MODEL: Final = "AIDER_MODEL"
_ENVIRONMENT: Final = {
    **litellm.ENVIRONMENT,
    "PYTHONUNBUFFERED": "1",
    # It breaks lines at 80 columns, those that are read here too.
    "COLUMNS": "1000",
    # The conversation is in the worker's log; two files of it in the worktree help nobody.
    "AIDER_CHAT_HISTORY_FILE": "/dev/null",
    "AIDER_INPUT_HISTORY_FILE": "/dev/null",
}
_COMMAND: Final = (
    *("aider", "--yes-always", "--no-pretty", "--no-stream", "--no-fancy-input"),
    # None of these asks the network or the user for anything.
    *("--no-check-update", "--analytics-disable", "--no-show-release-notes"),
    *("--no-show-model-warnings", "--no-detect-urls"),
    # `.gitignore` is the user's; its own files are kept out of commits without it.
    "--no-gitignore",
)
_TAIL: Final = 4 * 1024 * 1024
"""Bytes of its output that are read: it asks the model four times at most."""
_FIGURE: Final = r"\d{1,6}(?:\.\d{1,9})?"
_COST: Final = rf"Cost: \${_FIGURE} message, \$(?P<cost>{_FIGURE}) session\."
# Printed after each answer of the model. What the model says could look the same: it would only
# lie about its own figures.
_ANSWER: Final = re.compile(
    rf"^Tokens: (?P<sent>{_FIGURE}k?) sent,.*? (?P<received>{_FIGURE}k?) received\.(?:\s{_COST})?",
    re.MULTILINE,
)
_MORE_COST: Final = re.compile(_COST)
# What went wrong before it counts no more: a call that was tried again, or one that was to write
# the message of a commit.
_GOT_OVER: Final = re.compile(r"^(?:Tokens: .* received\.|Commit [0-9a-f]{7,40} )", re.MULTILINE)
_OWN_LINE: Final = re.compile(
    r"^(?:Repo-map: |Added .+ to the chat|Tokens: |Cost: |Applied edit to |Commit [0-9a-f]{7,40} )"
    r".*",
    re.MULTILINE,
)
_LLM_ERROR: Final = re.compile(r"^litellm\.(?P<name>\w+): (?P<text>.*)", re.MULTILINE)
_TROUBLES: Final = {
    r"^(?P<said>Only \d+ reflections allowed, stopping\.)": (Status.PARTIAL, Reason.MAX_STEPS),
    r"^(?P<said>Model .* has hit a token limit!)": (Status.PARTIAL, Reason.CONTEXT_FULL),
    # It prints what it did not expect, and ends well.
    r"^Traceback \(most recent call last\):$(?:\n(?:[ \t].*)?$)*\n(?P<said>.*)": (
        Status.FAILED,
        Reason.AGENT_ERROR,
    ),
}
_FAILED: Final = 1
"""Its exit code for all that is no wrong option; also `inside` gives it when it has ended it."""
_SUCCESS: Final = AgentOutcome(status=Status.SUCCESS)


@dataclass(frozen=True)
class _Figures:
    steps: int
    cost: float | None
    tokens: int | None


class AiderAgent:
    """Runs `aider --message` and reads its text, with care: there is no report."""

    name = "aider"
    image = worker_image("aider")
    inherited_env = (_MODEL, *litellm.INHERITED)
    ignored_files = (".aider*",)

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:
        """Name the key of the model's provider, if it is known and a key is all that is missing."""
        return litellm.missing_key(model, _MODEL, environment)

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Keep a budget and steps by what it prints; it has no profiles."""
        return unsupported_settings(settings, profiles=False)

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line."""
        model = () if spec.model is None else ("--model", litellm.with_provider(spec.model))
        return AgentCommand(
            argv=(*starter(), *_COMMAND, *model, f"--message={spec.task}"),
            env=_ENVIRONMENT | litellm.own_server(settings.api_base),
            default_env={_MODEL: litellm.DEFAULT_MODEL},
        )

    def progress_reader(self) -> ProgressReader:
        """Count its answers and their tokens, and read what they cost so far."""
        steps = tokens = 0

        def read(line: str) -> AgentProgress | None:
            nonlocal steps, tokens
            answer = _ANSWER.match(line)
            told = answer or _MORE_COST.match(line)
            if told is None:
                return None
            if answer is not None:
                steps += 1
                tokens += _tokens(answer["sent"]) + _tokens(answer["received"])
            return AgentProgress(cost=_session_cost([told]), tokens=tokens or None, steps=steps)

        return read

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Judge by its last words: its exit code is 0 whatever the model's API said."""
        said = text_tail(output.stdout, _TAIL)
        answers = list(_ANSWER.finditer(said))
        figures = _figures(answers)
        code = exit_status.exit_code
        judged = unreported(output, code) if code or not figures.steps else _SUCCESS
        trouble = _trouble(said, code) if code <= _FAILED else None
        return replace(
            trouble or judged, steps=figures.steps, cost=figures.cost, tokens=figures.tokens,
            summary=_last_words(said[: answers[-1].start()]) if answers else None,
        )  # fmt: skip


def _last_words(said: str) -> str | None:
    """Return the last answer of the model: what stands between the program's own lines."""
    ends = (match.end() for match in _OWN_LINE.finditer(said))
    return summarized(said[max(ends, default=0) :])


def _figures(answers: Sequence[re.Match[str]]) -> _Figures:
    parts = (answer[part] for answer in answers for part in ("sent", "received"))
    tokens = sum(map(_tokens, parts)) if answers else None
    return _Figures(len(answers), _session_cost(answers), tokens)


def _session_cost(told: Sequence[re.Match[str]]) -> float | None:
    """Return the last figure: it is a sum already."""
    costs = [float(found["cost"]) for found in told if found["cost"]]
    return costs[-1] if costs else None


def _tokens(figure: str) -> int:
    return round(float(figure.removesuffix("k")) * (1000 if figure.endswith("k") else 1))


def _trouble(said: str, code: int) -> AgentOutcome | None:
    """Find what went wrong at the end, if it says so."""
    end = said[max((match.end() for match in _GOT_OVER.finditer(said)), default=0) :]
    errors = list(_LLM_ERROR.finditer(end))
    if errors:
        reason = litellm.reason_of(errors[-1]["name"], errors[-1]["text"])
        said = errors[-1][0]
        return AgentOutcome(
            status=Status.FAILED,
            reason=reason,
            message=described(said),
            retry_after=retry_after(reason, said),
        )
    for pattern, (status, reason) in _TROUBLES.items() if code == 0 else ():
        found = re.search(pattern, end, re.MULTILINE)
        if found is not None:
            return AgentOutcome(status=status, reason=reason, message=described(found["said"]))
    return None
