"""The `architect` program (architect-ai-cli 1.1.0): `architect run`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from orchestrator.agents.base import (
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentSettings,
    ProgressReader,
)
from orchestrator.agents.claims import Claims, Cost, Count, Text, describe_exit
from orchestrator.agents.reports import find_report, last_line, text_tail
from orchestrator.config import DEFAULT_IMAGE
from orchestrator.engine.base import ExitStatus
from orchestrator.plan import WorkerSpec
from orchestrator.results import Reason, Status
from orchestrator.sanitize import one_line

_REPORT_KEYS: Final = frozenset({"status", "stop_reason", "steps"})
_ENVIRONMENT: Final = {
    # Without it current litellm prints its debug log on stdout, around the report.
    "LITELLM_LOG": "ERROR",
    # Without it litellm fetches its price list at every start and waits 10 s when it cannot.
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    # What litellm asks of an Anthropic model that is newer than itself; its own 4096 cuts off
    # every longer file.
    "DEFAULT_ANTHROPIC_CHAT_MAX_TOKENS": "32000",
}
# Families that litellm 1.81 turns away by their bare name: it knows no provider for DeepSeek's,
# and none for an Anthropic model that is newer than itself, such as claude-sonnet-4-6.
_PROVIDERS: Final = {"claude-": "anthropic/", "deepseek-": "deepseek/"}
_DEFAULT_MODEL: Final = "gpt-4o"
# Providers that want a key; what is not in here is not checked.
_NEED_KEY: Final = {
    "openai/": "OPENAI",
    "gpt-": "OPENAI",
    "anthropic/": "ANTHROPIC",
    "gemini/": "GEMINI",
    "deepseek/": "DEEPSEEK",
    "openrouter/": "OPENROUTER",
    "mistral/": "MISTRAL",
    "groq/": "GROQ",
    "xai/": "XAI",
}
# A server of the user's own may want no key.
_OWN_SERVER: Final = ("ARCHITECT_API_BASE", "LITELLM_PROXY_API_BASE")
# litellm takes these in a key's place.
_OTHER_KEYS: Final = {"GEMINI": ("GOOGLE_API_KEY",)}
# Keys that open a model's API and nothing else: credentials of a whole account (AWS, GitHub,
# Cloudflare, Hugging Face) are not handed to an agent unless `--env` names them.
_INHERITED: Final = (
    "ARCHITECT_MODEL",
    "ARCHITECT_API_BASE",
    "ARCHITECT_LANGUAGE",
    "LITELLM_API_KEY",
    "LITELLM_PROXY_API_KEY",
    "LITELLM_PROXY_API_BASE",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_API_BASE",
    "OPENAI_ORGANIZATION",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_API_BASE",
    "GEMINI_API_KEY",
    "GEMINI_API_BASE",
    "AZURE_API_KEY",
    "AZURE_API_BASE",
    "AZURE_API_VERSION",
    "OPENROUTER_API_KEY",
    "OPENROUTER_API_BASE",
    "DEEPSEEK_API_KEY",
    "DEEPSEEK_API_BASE",
    "MISTRAL_API_KEY",
    "MISTRAL_API_BASE",
    "GROQ_API_KEY",
    "GROQ_API_BASE",
    "XAI_API_KEY",
    "XAI_API_BASE",
    "COHERE_API_KEY",
    "TOGETHERAI_API_KEY",
    "FIREWORKS_AI_API_KEY",
    "MOONSHOT_API_KEY",
    "DASHSCOPE_API_KEY",
    "OLLAMA_API_KEY",
    "OLLAMA_API_BASE",
    "HOSTED_VLLM_API_KEY",
    "HOSTED_VLLM_API_BASE",
)

_CLOSING_TIME: Final = 30.0
"""Seconds: its clock starts up to 18 s late, and one last model call comes after it ran out."""
_INTERRUPTED: Final = (130, 143)
_SIGNALLED: Final = 128

_STOPPED: Final = {
    "max_steps": (Status.PARTIAL, Reason.MAX_STEPS),
    "budget_exceeded": (Status.PARTIAL, Reason.BUDGET),
    "context_full": (Status.PARTIAL, Reason.CONTEXT_FULL),
    "timeout": (Status.TIMEOUT, Reason.TIMEOUT),
    "user_interrupt": (Status.PARTIAL, Reason.CANCELLED),
    "llm_error": (Status.FAILED, Reason.AGENT_ERROR),
}
# What litellm calls its exceptions; the program prints them behind a prefix of its own. Its exit
# code 4 says nothing: it is given whenever "auth" occurs anywhere in a message.
_LLM_ERROR: Final = re.compile(
    r"^(?:Unrecoverable LLM error|Authentication error|Timeout|Unexpected error): "
    r"litellm\.(?P<name>\w+): (?P<text>.*)",
    re.MULTILINE,
)
_LLM_REASONS: Final = {
    "AuthenticationError": Reason.AUTH,
    "PermissionDeniedError": Reason.AUTH,
    "RateLimitError": Reason.RATE_LIMITED,
    "ContextWindowExceededError": Reason.CONTEXT_FULL,
}
# OpenAI's library raises it before any request; litellm calls it an `InternalServerError`.
_NO_KEY: Final = "Exception - Missing credentials. Please pass "
_COMPLAINT: Final = re.compile(
    r"^(?:Error|Unexpected error|Authentication error|Configuration error|Timeout): ", re.MULTILINE
)
_TAIL: Final = 16 * 1024


class _Costs(Claims):
    total_cost_usd: Cost = None
    total_tokens: Count = None


def _costs(value: object) -> object:
    return value if isinstance(value, dict) else {}


class _Report(Claims):
    status: Text
    stop_reason: Text
    steps: Count
    output: Text = None
    cost: Cost = None
    costs: Annotated[_Costs, BeforeValidator(_costs)] = Field(default_factory=_Costs)


class ArchitectAgent:
    """Runs `architect run --json` and reads the report that it prints at its end."""

    name = "architect"
    image = DEFAULT_IMAGE
    inherited_env = _INHERITED
    droppings = (".architect/",)

    def missing_key(self, model: str | None, environment: Mapping[str, str]) -> str | None:
        """Name the key of the model's provider, if it is known and a key is all that is missing."""
        chosen = _with_provider(model or environment.get("ARCHITECT_MODEL") or _DEFAULT_MODEL) or ""
        provider = next((_NEED_KEY[start] for start in _NEED_KEY if chosen.startswith(start)), None)
        if provider is None:
            return None
        key = f"{provider}_API_KEY"
        servers = (f"{provider}_API_BASE", f"{provider}_BASE_URL", *_OWN_SERVER)
        enough = (key, *_OTHER_KEYS.get(provider, ()), *servers)
        return None if any(environment.get(name) for name in enough) else key

    def refusal(self, settings: AgentSettings) -> None:
        """Keep everything: the program has an option for each."""

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:
        """Give the command line; the task stands behind `--`, so it may begin with a dash."""
        options = {
            "--agent": settings.profile,
            "--max-steps": str(settings.max_steps),
            "--model": _with_provider(spec.model),
            "--budget": None if settings.budget is None else str(settings.budget),
            "--timeout": _inner_timeout(settings),
            "--api-base": settings.api_base,
        }
        given = (word for name, value in options.items() if value for word in (name, value))
        fixed = ("architect", "run", "--json", "--quiet", "--confirm-mode", "yolo")
        return AgentCommand(
            argv=(*fixed, *given, "--", spec.task),
            env=_ENVIRONMENT | _api_environment(settings.api_base),
        )

    def progress_reader(self) -> ProgressReader:
        """Hear nothing: the program prints only at its end."""
        return lambda _: None

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:
        """Judge the report, or the lack of one."""
        found = find_report(output.stdout, _REPORT_KEYS)
        if found is None:
            return _without_report(output.stderr, exit_status.exit_code)
        report = _Report.model_validate(found)
        status, reason, message = _verdict(report, exit_status.exit_code)
        return AgentOutcome(
            status=status,
            reason=reason,
            message=message,
            steps=report.steps or 0,
            cost=report.costs.total_cost_usd if report.cost is None else report.cost,
            tokens=report.costs.total_tokens,
        )


def _with_provider(model: str | None) -> str | None:
    """Name the provider where litellm cannot find it by itself; `name@date` is Vertex AI's."""
    if model is None or "/" in model or "@" in model:
        return model
    families = (family for family in _PROVIDERS if model.startswith(family))
    return _PROVIDERS.get(next(families, ""), "") + model


def _api_environment(api_base: str | None) -> dict[str, str]:
    # litellm 1.81 keeps `--api-base` from DeepSeek's models; they hear of it by their variable.
    return {} if api_base is None else {"DEEPSEEK_API_BASE": api_base}


def _inner_timeout(settings: AgentSettings) -> str | None:
    """Make the program stop by itself, with a report, before it is stopped from outside."""
    if settings.timeout is None:
        return None
    margin = min(max(_CLOSING_TIME, settings.grace), settings.timeout / 4)
    return str(max(1, int(settings.timeout - margin)))  # 0 would be no limit


def _verdict(report: _Report, exit_code: int) -> tuple[Status, Reason | None, str | None]:
    message = _flat(report.output)
    status, reason = _claimed(report)
    if status is not Status.SUCCESS or exit_code == 0:
        return status, reason, message
    if exit_code in _INTERRUPTED:
        return Status.PARTIAL, Reason.CANCELLED, message
    claim = f"reported success, but {describe_exit(exit_code)}"
    return Status.FAILED, Reason.AGENT_ERROR, claim


def _claimed(report: _Report) -> tuple[Status, Reason | None]:
    """Take the worse of what `status` and `stop_reason` say."""
    if report.stop_reason in _STOPPED:
        status, reason = _STOPPED[report.stop_reason]
        if reason is Reason.AGENT_ERROR:
            reason = _llm_reason(report.output or "")
        failed = report.status == Status.FAILED and status is Status.PARTIAL
        return (Status.FAILED if failed else status), reason
    match report.status:
        case Status.SUCCESS:
            return Status.SUCCESS, None
        case Status.FAILED:
            return Status.FAILED, Reason.AGENT_FAILED
        case _:
            return Status.PARTIAL, Reason.AGENT_FAILED


def _llm_reason(text: str) -> Reason:
    match = _LLM_ERROR.search(text)
    if match is None:
        return Reason.AGENT_ERROR
    if _NO_KEY in match["text"]:
        return Reason.AUTH
    return _LLM_REASONS.get(match["name"], Reason.AGENT_ERROR)


def _without_report(stderr: Path, exit_code: int) -> AgentOutcome:
    if exit_code == 0:
        return AgentOutcome(
            status=Status.PARTIAL,
            reason=Reason.NO_REPORT,
            message="ended well, but printed no report",
        )
    tail = text_tail(stderr, _TAIL)
    # What was said before a signal is not why it ended.
    heard = None if exit_code > _SIGNALLED else _complaint(tail) or last_line(stderr)
    message = heard or describe_exit(exit_code)
    return AgentOutcome(status=Status.FAILED, reason=_llm_reason(tail), message=message)


def _complaint(tail: str) -> str | None:
    """Give the last of the program's own error messages, which may go over several lines."""
    starts = [match.start() for match in _COMPLAINT.finditer(tail)]
    return _flat(tail[starts[-1] :]) if starts else None


def _flat(text: str | None) -> str | None:
    return one_line(" ".join((text or "").split())) or None
