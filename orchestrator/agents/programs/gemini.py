"""Adapter of the `gemini` program (Gemini CLI 0.61.0), started as `gemini --prompt`."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from orchestrator.agents.base import (
    SESSION,
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentProgress,
    AgentSettings,
    ProgressReader,
    SessionFiles,
    unsupported_settings,
)
from orchestrator.agents.output.fields import (
    Claims,
    Count,
    Text,
    as_line,
    as_summary,
    describe_exit,
    fields,
)
from orchestrator.agents.output.no_report import HTTP_REASONS, contradicted, unreported
from orchestrator.agents.output.reset_times import retry_after
from orchestrator.agents.output.search import find_report, json_lines, parse_object
from orchestrator.agents.sessions import UUID, first_text
from orchestrator.base.results import Reason, Status
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.images.names import worker_image
from orchestrator.engine.interface.protocol import ExitStatus

# `gemini` reads its settings only from files, and ignores system-wide settings that root does not
# own. It does not start without a key, although a custom server may not need one.
_WITH_SETTINGS: Final = (
    "sh",
    "-c",
    'home="${GEMINI_CLI_HOME:-$HOME}/.gemini"; mkdir -p "$home"; '
    'printf %s "$0" > "$home/settings.json"; '
    '[ -z "${GOOGLE_GEMINI_BASE_URL:-}" ] || export GEMINI_API_KEY="${GEMINI_API_KEY:-none}"; '
    'exec "$@"',
)
_COMMAND: Final = (
    "gemini",
    "--output-format=stream-json",
    # The container is the sandbox, and no user can answer questions.
    "--yolo",
    "--skip-trust",
)
_ENVIRONMENT: Final = {
    # Without this variable, `gemini` starts a second process: the first uses memory, does not
    # pass on SIGTERM, and hides the exit status of the second.
    "GEMINI_CLI_NO_RELAUNCH": "1",
}
_KEY: Final = "GEMINI_API_KEY"
_BASE_URL: Final = "GOOGLE_GEMINI_BASE_URL"
_VERSION: Final = re.compile(r"/v1(beta)?$")
_ATTEMPTS: Final = 3
"""Number of attempts per request of `gemini`. Its default of 10 would take four minutes without any
output.
"""

_RESULT_KEYS: Final = frozenset({"type", "status", "stats"})
_ERROR_KEYS: Final = frozenset({"error"})
"""Keys of the object that `gemini` prints on stderr if it ends without a result."""
_MARKS: Final = (b'"assistant"', b'"tool_use"', b'"tool_result"', b'"error"')
_LONGEST_ANSWER: Final = 4096

# The exit code is one of the program's own, or the lower eight bits of an HTTP status.
_MAX_TURNS: Final = 53
_INVALID_REQUEST: Final = 400 % 256
_EXITS: Final = {
    41: Reason.AUTH,
    **{status % 256: reason for status, reason in HTTP_REASONS.items()},
}
_SIGNALLED: Final = 128
_API_ERROR: Final = re.compile(r"\[API Error: (?P<text>.*)\]", re.DOTALL)
_WRONG_KEY: Final = "API key"
"""Text of the error that Google returns for an invalid API key."""
# Errors that `gemini` reports while it runs before it exits with 0.
_LIMIT_WARNING: Final = "Maximum session turns exceeded"
_LOOP_WARNING: Final = "Loop detected"


class _Error(Claims):
    message: Text = None


class _Stats(Claims):
    total_tokens: Count = None


class _Result(Claims):
    status: Text = None
    error: Annotated[_Error, BeforeValidator(fields)] = Field(default_factory=_Error)
    stats: Annotated[_Stats, BeforeValidator(fields)] = Field(default_factory=_Stats)


class GeminiAgent:
    """Runs `gemini --prompt` and parses the last line of its JSON stream."""

    name = "gemini"
    image = worker_image("gemini")
    inherited_env = (_KEY, _BASE_URL, "GEMINI_MODEL")
    ignored_files: tuple[str, ...] = ()
    session_files = SessionFiles(
        kept=(
            ".gemini/tmp/workspace/chats/session-*.jsonl",
            ".gemini/tmp/workspace/tool-outputs/session-{id}/*",
        ),
        id=UUID,
        chosen=True,
    )

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:  # noqa: ARG002
        """Return the name of the API key's variable if neither key nor custom server is set."""
        return None if any(environment.get(name) for name in (_KEY, _BASE_URL)) else _KEY

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Reject profiles, budgets and token limits; `gemini` reports no cost while it runs."""
        return unsupported_settings(settings, profiles=False, cost=False, tokens=False)

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line, with `--prompt=TASK` because a task may start with a dash."""
        model = () if spec.model is None else ("--model", spec.model)
        settings_of_gemini = {
            # Without this setting, `gemini` rejects a custom base URL as an invalid way to log in.
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "model": {"maxSessionTurns": settings.max_steps},
            "general": {
                "maxAttempts": _ATTEMPTS,
                "enableAutoUpdate": False,
                "enableAutoUpdateNotification": False,
            },
            "privacy": {"usageStatisticsEnabled": False},
        }
        session = settings.session
        env = _ENVIRONMENT | ({} if session is None else {"GEMINI_CLI_HOME": SESSION})
        option = "--resume" if session is not None and session.continued else "--session-id"
        named = () if session is None or session.id is None else (option, session.id)
        if settings.api_base is not None:
            # `gemini` appends the version itself.
            env[_BASE_URL] = _VERSION.sub("", settings.api_base.rstrip("/"))
        return AgentCommand(
            argv=(
                *_WITH_SETTINGS,
                json.dumps(settings_of_gemini),
                *_COMMAND,
                *model,
                *named,
                f"--prompt={spec.prompt}",
            ),
            env=env,
        )

    def session_id(self, output: AgentOutput) -> str | None:
        """Return the id of the session in the first event."""
        return first_text(output, "session_id", event="init")

    def progress_reader(self) -> ProgressReader:
        """Return a reader of the program's output that counts the model's answers."""
        return _EventReader().read

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Return the outcome by the last line of output, or else by exit code and stderr."""
        story = _EventReader()
        for event in json_lines(output.stdout, *_MARKS):
            story.add(event)
        fields_read = find_report(output.stdout, _RESULT_KEYS)
        if fields_read is None:
            return _without_result(output, exit_status.exit_code, steps=story.steps)
        result = _Result.model_validate(fields_read)
        status, reason, message = _verdict(result, story, exit_status.exit_code)
        return AgentOutcome(
            status=status,
            reason=reason,
            message=as_line(message),
            steps=story.steps,
            tokens=result.stats.total_tokens,
            summary=as_summary(story.words),
            retry_after=retry_after(reason, result.error.message),
        )


class _EventReader:
    """Tracks the events that `gemini` prints: count of answers, last answer's text, errors."""

    def __init__(self) -> None:
        self.steps = 0
        self.words = ""
        self.error: str | None = None
        self._answering = False

    def read(self, line: str) -> AgentProgress | None:
        """Process a line of stdout; return the progress if it changed, else None."""
        return AgentProgress(steps=self.steps) if self.add(parse_object(line) or {}) else None

    def add(self, event: Mapping[str, object]) -> bool:
        """Process an event; return whether it starts a new answer."""
        kind, is_answer = event.get("type"), event.get("role") == "assistant"
        if kind == "tool_result":
            self._answering = False
        elif kind == "error":
            self.error = str(event.get("message"))[:_LONGEST_ANSWER]
        begins = kind == "tool_use" or (kind == "message" and is_answer)
        another = begins and not self._answering
        if another:
            self.steps, self.words, self._answering = self.steps + 1, "", True
        if kind == "message" and is_answer:
            self.words = (self.words + str(event.get("content")))[:_LONGEST_ANSWER]
        return another


def _without_result(output: AgentOutput, exit_code: int, *, steps: int) -> AgentOutcome:
    error = _Result.model_validate(find_report(output.stderr, _ERROR_KEYS) or {}).error
    if exit_code == _MAX_TURNS:
        # `gemini` reports the limit on stderr in this case, and prints no result.
        return AgentOutcome(
            status=Status.PARTIAL,
            reason=Reason.MAX_STEPS,
            message=as_line(error.message) or _LIMIT_WARNING,
            steps=steps,
        )
    lost = unreported(output, exit_code, steps=steps)
    if error.message is not None and exit_code <= _SIGNALLED:
        lost = replace(lost, message=as_line(error.message) or lost.message)
    if exit_code not in _EXITS:
        return lost
    answer = f"the model's API answered {256 + exit_code}" if exit_code > _SIGNALLED else None
    return replace(lost, reason=_EXITS[exit_code], message=answer or lost.message)


def _verdict(
    result: _Result, story: _EventReader, exit_code: int
) -> tuple[Status, Reason | None, str | None]:
    if exit_code == _MAX_TURNS or story.error == _LIMIT_WARNING:
        return Status.PARTIAL, Reason.MAX_STEPS, result.error.message or story.error
    if result.status != "success":
        message = _api_message(result.error.message) or story.error or describe_exit(exit_code)
        is_refused = exit_code == _INVALID_REQUEST and _WRONG_KEY in message
        reason = Reason.AUTH if is_refused else _EXITS.get(exit_code, Reason.AGENT_ERROR)
        return Status.FAILED, reason, message
    if exit_code != 0:
        return contradicted(exit_code)
    if story.error is not None and story.error.startswith(_LOOP_WARNING):
        return Status.PARTIAL, Reason.AGENT_FAILED, story.error
    return Status.SUCCESS, None, story.words


def _api_message(message: str | None) -> str | None:
    """Return the API's own error message, which `gemini` often wraps as JSON in brackets."""
    match = _API_ERROR.match(message or "")
    if match is None:
        return message
    error = _Error.model_validate(fields((parse_object(match["text"]) or {}).get("error")))
    return error.message or match["text"]
