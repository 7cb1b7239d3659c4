"""Adapter of the `opencode` program (OpenCode 1.18.33), started as `opencode run`."""

import json
import re
from collections.abc import Mapping
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
    Cost,
    Count,
    Text,
    Words,
    as_line,
    as_summary,
    fields,
)
from orchestrator.agents.output.no_report import HTTP_REASONS, unreported
from orchestrator.agents.output.reset_times import retry_after
from orchestrator.agents.output.search import json_lines, parse_object, text_tail
from orchestrator.agents.sessions import continuing, first_text
from orchestrator.agents.start import on_stdin
from orchestrator.base.results import Reason, Status
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.images.names import worker_image
from orchestrator.engine.interface.protocol import ExitStatus

# The task is passed on stdin: on the command line it could be quoted or parsed as an option. The
# program's library requires the API version in the base URL, unlike Anthropic's own libraries.
_WITH_VERSION: Final = (
    "sh",
    "-c",
    'case "${ANTHROPIC_BASE_URL:-}" in ""|*/v1) ;; '
    '*) export ANTHROPIC_BASE_URL="${ANTHROPIC_BASE_URL%/}/v1" ;; esac; exec "$@"',
    "sh",
)
_COMMAND: Final = (
    "opencode",
    "run",
    "--format=json",
    # The container is the sandbox, and no user can answer questions.
    "--auto",
    # Without a title, `opencode` asks another model for one.
    "--title=worker",
)
_ENVIRONMENT: Final = {
    # Prices and names of models are built in; the worker should contact only the model's API.
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
}
_CONFIG: Final = {"share": "disabled", "autoupdate": False, "snapshot": False}
_DEFAULT_MODEL: Final = "anthropic/claude-sonnet-4-5"
_KEYS: Final = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "google": ("GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "xai": ("XAI_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
}
# Providers of model families. Any other name without a provider is assumed to be OpenAI's.
_FAMILIES: Final = {
    "claude-": "anthropic",
    "gemini-": "google",
    "deepseek-": "deepseek",
    "grok-": "xai",
    "mistral-": "mistral",
    "devstral-": "mistral",
    "codestral-": "mistral",
}

_MARKS: Final = (b'"step_finish"', b'"text"', b'"error"')
_ERROR_REASONS: Final = {
    "ProviderAuthError": Reason.AUTH,
    "ContextOverflowError": Reason.CONTEXT_FULL,
}
_NO_KEY: Final = "API key is missing"
_GOES_ON: Final = "tool-calls"
_OTHER_PROFILE: Final = re.compile(r'agent ".*" (?:not found|is a subagent).*')
_TAIL: Final = 16 * 1024


class _Tokens(Claims):
    total: Count = None


class _Part(Claims):
    reason: Text = None
    text: Words = None
    cost: Cost = None
    tokens: Annotated[_Tokens, BeforeValidator(fields)] = Field(default_factory=_Tokens)


class _ErrorData(Claims):
    message: Text = None
    statusCode: Count = None


class _Error(Claims):
    name: Text = None
    data: Annotated[_ErrorData, BeforeValidator(fields)] = Field(default_factory=_ErrorData)


class _Event(Claims):
    type: Text = None
    part: Annotated[_Part, BeforeValidator(fields)] = Field(default_factory=_Part)
    error: Annotated[_Error, BeforeValidator(fields)] = Field(default_factory=_Error)


class OpencodeAgent:
    """Runs `opencode run` and adds up cost and tokens of the events that it prints."""

    name = "opencode"
    image = worker_image("opencode")
    inherited_env = (
        *(key for keys in _KEYS.values() for key in keys),
        "OPENAI_BASE_URL",
        "ANTHROPIC_BASE_URL",
    )
    ignored_files: tuple[str, ...] = ()
    session_files = SessionFiles(
        kept=("opencode.db", "opencode.db-wal"), id=r"ses_[A-Za-z0-9]{20,40}"
    )

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:
        """Return the name of the API key's variable if the key of a known provider is missing."""
        keys = _KEYS.get(_qualify(model).partition("/")[0], ())
        return None if any(environment.get(key) for key in keys) else next(iter(keys), None)

    def unsupported(self, settings: AgentSettings) -> str | None:
        """Accept profiles, and limits, which are enforced by reading the program's output."""
        return unsupported_settings(settings)

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Return the command line; the task is passed on stdin."""
        profile = settings.chosen_profile
        given = () if profile is None else ("--agent", profile)
        provider, _, name = _qualify(spec.model).partition("/")
        config: dict[str, object] = dict(_CONFIG)
        if settings.budget is not None:
            # `opencode` does not report the cost of subagents.
            config["permission"] = {"task": "deny"}
        api_base = settings.api_base
        if api_base is None:
            options = {}
        else:
            if provider == "anthropic":
                api_base = api_base.rstrip("/").removesuffix("/v1") + "/v1"
            # An empty key is accepted: a custom server may not need one.
            key = _KEYS.get(provider, ("OPENAI_API_KEY",))[0]
            options = {"baseURL": api_base, "apiKey": f"{{env:{key}}}"}
        if options or provider in _KEYS:
            # Allows models that `opencode` does not list.
            config["provider"] = {provider: {"options": options, "models": {name: {}}}}
        session, env = settings.session, {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}
        if session is not None:
            env["OPENCODE_DB"] = f"{SESSION}/opencode.db"
            if session.continued and session.id is not None:
                given = (*given, "--session", session.id)
        command = (*_WITH_VERSION, *_COMMAND, *given, "--model", f"{provider}/{name}")
        argv = on_stdin(spec.prompt, continuing("opencode", session, command))
        return AgentCommand(argv=argv, env=_ENVIRONMENT | env)

    def session_id(self, output: AgentOutput) -> str | None:
        """Return the id of the session in the first event."""
        return first_text(output, "sessionID")

    def progress_reader(self) -> ProgressReader:
        """Return a reader that counts steps and adds up their cost."""
        return _Totals().read

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Return the outcome from the last error, or else from the end of the last step."""
        total = _Totals()
        for event in json_lines(output.stdout, *_MARKS):
            total.add(event)
        status, reason, message = _verdict(total, output, exit_status.exit_code)
        return AgentOutcome(
            status=status,
            reason=reason,
            message=as_line(message),
            steps=total.steps,
            cost=total.cost_or_none,
            tokens=total.tokens,
            summary=as_summary(total.words),
            retry_after=retry_after(reason, message),
        )


class _Totals:
    """Adds up the events that `opencode` prints: costs are per step, and no total is printed."""

    def __init__(self) -> None:
        self.steps = 0
        self.cost = 0.0
        self.tokens: int | None = None
        self.ended: str | None = None
        """Finish reason of the last step."""
        self.words: str | None = None
        self.error: _Error | None = None

    @property
    def cost_or_none(self) -> float | None:
        """Cost in USD; None if it is 0, which `opencode` reports for models without a price."""
        return self.cost or None

    def read(self, line: str) -> AgentProgress | None:
        """Process a line of stdout; return the progress if the line ends a step, else None.

        If the step ended with tool calls, the number of steps includes the next step.
        """
        if not self.add(parse_object(line) or {}):
            return None
        return AgentProgress(
            cost=self.cost_or_none,
            tokens=self.tokens,
            steps=self.steps + (1 if self.ended == _GOES_ON else 0),
        )

    def add(self, fields_read: Mapping[str, object]) -> bool:
        """Process an event; return whether it ends a step."""
        event = _Event.model_validate(fields_read)
        if event.type == "error":
            self.error = event.error
        elif event.type == "text":
            self.words = event.part.text
        elif event.type == "step_finish":
            self.steps += 1
            self.cost += event.part.cost or 0.0
            if event.part.tokens.total is not None:
                self.tokens = (self.tokens or 0) + event.part.tokens.total
            self.ended = event.part.reason
        return event.type == "step_finish"


def _qualify(model: str | None) -> str:
    """Return a model's name as `provider/model`."""
    if model is None or "/" in model:
        return model or _DEFAULT_MODEL
    families = (_FAMILIES[family] for family in _FAMILIES if model.startswith(family))
    return f"{next(families, 'openai')}/{model}"


def _verdict(
    total: _Totals, output: AgentOutput, exit_code: int
) -> tuple[Status, Reason | None, str | None]:
    other = _OTHER_PROFILE.search(text_tail(output.stderr, _TAIL))
    if other is not None:
        return Status.FAILED, Reason.AGENT_ERROR, other[0]
    if total.error is not None:
        data = total.error.data
        reason = _ERROR_REASONS.get(total.error.name or "", Reason.AGENT_ERROR)
        reason = HTTP_REASONS.get(data.statusCode or 0, reason)
        if _NO_KEY in (data.message or ""):
            reason = Reason.AUTH
        return Status.FAILED, reason, data.message or total.error.name
    if total.ended is None or exit_code != 0:
        lost = unreported(output, exit_code)
        return lost.status, lost.reason, lost.message
    if total.ended == "stop":
        return Status.SUCCESS, None, total.words
    message = f"the model's last answer ended with `{total.ended}`"
    return Status.PARTIAL, Reason.AGENT_FAILED, message
