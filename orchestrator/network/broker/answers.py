"""Find the usage in a model API's answer, and the answer's end, while it is passed on to a worker.

Only an answer that reached its own end says what it cost: usage that arrives earlier, as in the
first event of Anthropic's API, is that of a part. What a model wrote stands inside of JSON texts,
so it is never taken for the end or for the usage.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from orchestrator.network.broker.calls import Flavor

MOST_BYTES = 32 * 1024**2
"""Maximum size in bytes of an answer in which the number of tokens is searched for."""
_LARGEST_EVENT = 4 * 1024**2
_DATA = b"data:"
_DONE = b"[DONE]"
_END_OF_EVENT = re.compile(rb"(?:\r\n|\n|\r(?=[^\n])){2}")
_MODELS = ("model", "modelVersion")
_USAGES = ("usage", "usageMetadata")
_OUTPUTS = ("output_tokens", "completion_tokens")
_INNER: Mapping[Flavor, str] = {"messages": "message", "responses": "response"}
"""Name of the object in an event that has the model and the usage, if not the event itself."""
_ENDS: Mapping[Flavor, frozenset[str]] = {
    "messages": frozenset({"message_stop"}),
    "responses": frozenset(
        f"response.{state}" for state in ("completed", "incomplete", "failed", "cancelled")
    ),
}
"""Types of the events that end a stream. One of OpenAI's chat ends with `[DONE]`, and one of
Google's with the reason why its last alternative ended.
"""


class Reader:
    """Finds model, usage and end of an answer."""

    def __init__(self, flavor: Flavor, *, answers: int = 1) -> None:
        """Begin to read an answer.

        Args:
            flavor: Format of the call.
            answers: Number of alternative answers that the call asks for.
        """
        self.found: dict[str, Any] = {}
        """Model and usage, in the form of a complete answer. Usage is the most that was seen."""
        self.has_ended = False
        """Whether the answer reached its own end, and its whole usage was found."""
        self.received = 0
        """Size in bytes of what has arrived."""
        self._flavor = flavor
        self._answers = answers
        self._begun = set[object]()
        self._finished = set[object]()
        self._is_told = False
        """Whether the usage that was found is that of the whole answer."""
        self._has_failed = False

    def feed(self, data: bytes) -> bytes:
        """Process the next bytes of the answer, and return the bytes to pass on to the worker."""
        self.received += len(data)
        return data

    def close(self) -> bytes:
        """Process the end of the connection's answer, and return bytes that are still to pass on.

        This is not the answer's own end: a server may give up, and end the connection properly.
        """
        return b""

    def _read(self, content: dict[str, Any], *, is_whole: bool = False) -> None:
        """Read one event, or an answer that is a single object."""
        told = [self._note(content)]
        inner = content.get(_INNER.get(self._flavor, ""))
        if isinstance(inner, dict):
            told.append(self._note(inner))
        kind, is_end = content.get("type"), False
        if is_whole:
            is_end = self._is_told = any(told)
        elif self._flavor in _ENDS:
            is_end = kind in _ENDS[self._flavor]
            # Anthropic's API sends the input first, and the output before the end.
            self._is_told |= any(told) and (is_end or kind == "message_delta")
        else:
            name, reason = ("choices", "finish_reason")
            if self._flavor == "gemini":
                name, reason = ("candidates", "finishReason")
                feedback = content.get("promptFeedback")
                if isinstance(feedback, dict) and feedback.get("blockReason"):
                    self._begun = self._finished = set(range(self._answers))
            alternatives = content.get(name)
            for alternative in alternatives if isinstance(alternatives, list) else ():
                if isinstance(alternative, dict):
                    number = json.dumps(alternative.get("index", 0))
                    self._begun.add(number)
                    if alternative.get(reason):
                        self._finished.add(number)
            is_over = self._begun == self._finished and len(self._begun) >= self._answers
            # OpenAI's API sends the usage of a stream in an event without alternatives.
            is_over |= self._flavor == "chat" and content.get("choices") == []
            self._is_told |= any(told) and is_over
            is_end = self._flavor == "gemini" and self._is_told
        # protection: failed-answers-have-no-end-of-their-own
        self._has_failed |= not is_whole and (kind == "error" or bool(content.get("error")))
        if is_end:
            self._end()

    def _note(self, part: dict[str, Any]) -> bool:
        """Note model and usage in an object; return whether it has the number of output tokens."""
        for name in _MODELS:
            if isinstance(part.get(name), str):
                self.found[name] = part[name]
        told = False
        for name in _USAGES:
            usage = part.get(name)
            if isinstance(usage, dict) and all(map(_is_count, usage.items())):
                self.found[name] = _most(self.found.get(name), usage)
                told |= name == "usageMetadata" or any(
                    usage.get(output) is not None for output in _OUTPUTS
                )
        return told

    def _end(self) -> None:
        self.has_ended = self._is_told and not self._has_failed


class WholeAnswer(Reader):
    """Reads an answer that is one JSON value; without `alt=sse`, Google's streams are arrays."""

    def __init__(self, flavor: Flavor, *, answers: int = 1) -> None:
        """Begin to read an answer; the arguments are those of `Reader`."""
        super().__init__(flavor, answers=answers)
        self._data = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Process the next bytes of the answer, and return the bytes to pass on to the worker."""
        if len(self._data) + len(data) <= MOST_BYTES:
            self._data += data
        return super().feed(data)

    def close(self) -> bytes:
        """Find the usage; there are no bytes that are still to be passed on."""
        text = bytes(self._data).decode("utf-8-sig", "replace").lstrip()
        answer: object = None
        # What follows the answer is no part of it.
        with suppress(ValueError, RecursionError):
            answer, _ = json.JSONDecoder().raw_decode(text)
        if isinstance(answer, dict):
            self._read(answer, is_whole=True)
        elif isinstance(answer, list):
            for part in answer:
                if isinstance(part, dict):
                    self._read(part)
        return b""


class EventStream(Reader):
    """Reads a stream of events; each event is passed on when it arrives."""

    def __init__(self, flavor: Flavor, *, answers: int = 1, without_usage: bool = False) -> None:
        """Begin to read a stream.

        Args:
            flavor: Format of the call.
            answers: Number of alternative answers that the call asks for.
            without_usage: Whether to omit the event that contains only the number of tokens. Each
                event is then passed on as a whole.
        """
        super().__init__(flavor, answers=answers)
        self._without_usage = without_usage
        self._rest = b""
        self._is_lost = False
        """Whether the current event is too large to be read."""

    def feed(self, data: bytes) -> bytes:
        """Process the next bytes of the stream, and return the bytes to pass on to the worker."""
        super().feed(data)
        self._rest += data
        passed = []
        while end := _END_OF_EVENT.search(self._rest):
            event, self._rest = self._rest[: end.end()], self._rest[end.end() :]
            if self._keeps(event):
                passed.append(event)
            self._is_lost = False
        if len(self._rest) > _LARGEST_EVENT:
            passed.append(self._rest)
            self._rest, self._is_lost = b"", True
        return b"".join(passed) if self._without_usage else data

    def close(self) -> bytes:
        """Process the end of the connection's answer, and return bytes that are still to pass on.

        Some servers omit the last event: usage of the whole answer is enough.
        """
        keeps = self._keeps(self._rest)
        self._end()
        return self._rest if self._without_usage and keeps else b""

    def _keeps(self, event: bytes) -> bool:
        """Read one event; return whether the event is passed on to the worker."""
        if self.has_ended or self._is_lost:
            return True
        keeps = True
        for data in _data_of(event):
            if self._flavor == "chat" and data.strip() == _DONE:
                self._end()
            with suppress(ValueError, RecursionError):
                content = json.loads(data)
                if isinstance(content, dict):
                    self._read(content)
                    is_usage = content.get("choices") == [] and "usage" in content
                    keeps = keeps and not (self._without_usage and is_usage)
                    break
        return keeps


def _data_of(event: bytes) -> Iterator[bytes]:
    """Yield the data of an event: all its lines as one text, and each alone for lax servers."""
    lines = [line[len(_DATA) :] for line in event.splitlines() if line.startswith(_DATA)]
    yield b"\n".join(lines)
    if len(lines) > 1:
        yield from lines


def _is_count(item: tuple[str, object]) -> bool:
    """Return whether an item of a usage may be true: counts of tokens are not negative."""
    name, count = item
    if count is None or not name.endswith(("_tokens", "Count")):
        return True
    return isinstance(count, int) and count >= 0


def _most(before: object, now: dict[str, object]) -> dict[str, object]:
    """Return the larger counts of two usages, with those of nested objects."""
    found = dict(before) if isinstance(before, dict) else {}
    for name, value in now.items():
        known = found.get(name)
        if isinstance(value, dict):
            found[name] = _most(known, value)
        elif isinstance(value, int | float) and isinstance(known, int | float):
            found[name] = max(known, value)
        elif value is not None:
            found[name] = value
    return found


def reader_of(
    content_type: str, flavor: Flavor, *, answers: int, without_usage: bool
) -> WholeAnswer | EventStream:
    """Return a reader for an answer with the given `Content-Type`; see the readers' arguments."""
    if content_type.lower().startswith("text/event-stream"):
        return EventStream(flavor, answers=answers, without_usage=without_usage)
    return WholeAnswer(flavor, answers=answers)
