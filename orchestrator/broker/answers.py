"""Find the number of tokens in a model API's answer while the answer is passed on to a worker."""

import json
from collections.abc import Mapping
from typing import Any

MOST_BYTES = 32 * 1024**2
"""Maximum size in bytes of an answer in which the number of tokens is searched for."""
_LARGEST_EVENT = 4 * 1024**2
_DATA = b"data:"


class WholeAnswer:
    """Finds the number of tokens in an answer that is a single JSON object."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Process the next bytes of the answer, and return the bytes to pass on to the worker."""
        if len(self._data) + len(data) <= MOST_BYTES:
            self._data += data
        return data

    def close(self) -> bytes:
        """Return the bytes that are still to be passed on after the answer's end: none."""
        return b""

    @property
    def found(self) -> Mapping[str, Any]:
        """Return the parsed answer; empty if the answer is not a JSON object."""
        try:
            answer = json.loads(self._data)
        except (ValueError, RecursionError):
            return {}
        # Without `alt=sse`, a stream of Google's API is an array.
        if isinstance(answer, list):
            parts = [part for part in answer if isinstance(part, dict)]
            return {name: value for part in parts for name, value in part.items()}
        return answer if isinstance(answer, dict) else {}


class EventStream:
    """Finds the number of tokens in a stream of events; each event is passed on when it arrives."""

    def __init__(self, *, without_usage: bool) -> None:
        """Begin to read a stream.

        Args:
            without_usage: Whether to omit the event that contains only the number of tokens. Each
                event is then passed on as a whole.
        """
        self.found: dict[str, Any] = {}
        """Model and usage, in the form of a complete answer."""
        self._without_usage = without_usage
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Process the next bytes of the stream, and return the bytes to pass on to the worker."""
        self._rest += data
        passed = []
        while (end := _end_of_event(self._rest)) > 0:
            event, self._rest = self._rest[:end], self._rest[end:]
            if self._keeps(event):
                passed.append(event)
        if len(self._rest) > _LARGEST_EVENT:
            passed.append(self._rest)
            self._rest = b""
        return b"".join(passed) if self._without_usage else data

    def close(self) -> bytes:
        """Return the bytes that are still to be passed on after the end of the stream."""
        keeps = self._keeps(self._rest)
        return self._rest if self._without_usage and keeps else b""

    def _keeps(self, event: bytes) -> bool:
        for line in event.splitlines():
            if not line.startswith(_DATA):
                continue
            try:
                content = json.loads(line[len(_DATA) :])
            except (ValueError, RecursionError):
                continue
            if isinstance(content, dict) and not self._read(content):
                return False
        return True

    def _read(self, content: dict[str, Any]) -> bool:
        """Read one event; return whether the event is passed on to the worker."""
        for part in (content, content.get("response"), content.get("message")):
            if isinstance(part, dict):
                merge = part is not content.get("response")
                for name in ("model", "modelVersion"):
                    if isinstance(part.get(name), str):
                        self.found[name] = part[name]
                for name in ("usage", "usageMetadata"):
                    usage = part.get(name)
                    if isinstance(usage, dict):
                        # Anthropic's API sends the input first, and the output at the end.
                        before = self.found.get(name, {}) if merge else {}
                        known = {key: value for key, value in usage.items() if value is not None}
                        self.found[name] = {**before, **known}
        return not (self._without_usage and content.get("choices") == [] and "usage" in content)


def _end_of_event(data: bytes) -> int:
    """Return the index after the first complete event; 0 if no event is complete."""
    ends = [data.find(mark) + len(mark) for mark in (b"\n\n", b"\r\n\r\n") if mark in data]
    return min(ends, default=0)


Reader = WholeAnswer | EventStream


def reader_of(content_type: str, *, without_usage: bool) -> Reader:
    """Return a reader for an answer with the given `Content-Type`."""
    if content_type.startswith("text/event-stream"):
        return EventStream(without_usage=without_usage)
    return WholeAnswer()
