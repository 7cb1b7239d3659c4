"""Answers of a scripted model: rules map a model and a task to a list of turns."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

Json = dict[str, Any]

_CLOSING_TEXT = "Stopped before the task was done."
"""Answer to a request without tools at a turn with tool calls: it asks for a summary."""
_NO_SUCH_TASK = "the script has no answer for this model and task"


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call of a tool by the model."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One answer: text, tool calls, or an error of the API."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    delay: float = 0.0
    """Seconds before the answer."""
    status: int = 200
    """HTTP status; anything but 200 is an error with `text` as its message."""

    @classmethod
    def from_json(cls, data: Json) -> Self:
        """Parse a turn of a scenario file."""
        calls = tuple(ToolCall(**call) for call in data.get("calls", ()))
        return cls(**{**data, "calls": calls})


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The answers to one task; the last answer is repeated."""

    turns: tuple[Turn, ...]
    model: str | None = None
    """Only requests for this model. Default: any."""
    task: str = ""
    """Only requests whose task contains this."""

    def matches(self, model: str, task: str) -> bool:
        """Return whether the rule applies to a request; `provider/model` matches `model`."""
        return self.model in (None, model, model.rpartition("/")[2]) and self.task in task


@dataclass(frozen=True)
class Scenario:
    """Rules in order of precedence."""

    rules: tuple[Rule, ...]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse a scenario file: `{"rules": [{"model", "task", "turns": [...]}]}`."""
        rules = json.loads(text)["rules"]
        return cls(
            tuple(
                Rule(**{**rule, "turns": tuple(Turn.from_json(turn) for turn in rule["turns"])})
                for rule in rules
            )
        )

    def turn(self, model: str, task: str, number: int) -> Turn:
        """Return the answer number `number`, counted from 0."""
        for rule in self.rules:
            if rule.matches(model, task):
                return rule.turns[min(number, len(rule.turns) - 1)]
        return Turn(status=404, text=_NO_SUCH_TASK)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request and its answer."""

    path: str
    key: str
    """API key of the request, or an empty string."""
    model: str
    task: str
    number: int
    tools: frozenset[str]
    turn: Turn
    said: str = ""
    """The whole request, as JSON."""

    @property
    def plain_model(self) -> str:
        """The model's name without its provider."""
        return self.model.rpartition("/")[2]

    @property
    def input_tokens(self) -> int:
        """Tokens billed for the request: a system prompt, and every turn so far."""
        return 1800 + 400 * self.number

    @property
    def output_tokens(self) -> int:
        """Tokens billed for the answer: about one for four characters."""
        calls = "".join(json.dumps(call.arguments) for call in self.turn.calls)
        return 10 + len(self.turn.text + calls) // 4


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The content of a request, independent of the dialect."""

    model: str
    task: str
    number: int
    """Number of answers that the request already contains."""
    tools: frozenset[str]


def plain_text(content: object) -> str:
    """Return a message's text, given as a string or in blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "".join(block.get("text", "") for block in blocks)


def _without_preamble(messages: list[Json]) -> list[Json]:
    """Remove messages that `aider` answers itself: `Ok, I won't try and edit those`.

    For some models, `aider` sends examples before these messages.
    """
    talk = [message for message in messages if message["role"] in ("user", "assistant")]
    starts = [n for n, message in enumerate(talk) if _ends_examples(message)]
    talk = talk[max(starts, default=0) :]
    answers = itertools.takewhile(
        lambda message: plain_text(message.get("content")).startswith("Ok"), talk[1::2]
    )
    return talk[2 * len(list(answers)) :]


def _ends_examples(message: Json) -> bool:
    return plain_text(message.get("content")).startswith("I switched to a new code base.")


def read_messages(body: Json) -> Asked:
    """Parse a request with `messages`: the user's first message is the task."""
    messages = _without_preamble(body["messages"])
    asked = [message for message in messages if message["role"] == "user"]
    tools = body.get("tools") or []
    return Asked(
        model=body["model"],
        task=plain_text(asked[0]["content"]) if asked else "",
        number=sum(message["role"] == "assistant" for message in messages),
        tools=frozenset(tool.get("function", tool).get("name", "") for tool in tools),
    )


def answer_to(scenario: Scenario, path: str, key: str, asked: Asked) -> Exchange:
    """Return the answer to a request."""
    turn = scenario.turn(asked.model, asked.task, asked.number)
    if turn.calls and not asked.tools:
        turn = Turn(text=turn.text or _CLOSING_TEXT, delay=turn.delay)
    return Exchange(path=path, key=key, turn=turn, **vars(asked))
