"""Detect workers that need attention: silence, repeated errors, questions, forbidden paths.

A worker's output and files are hostile: only a few lines of output are stored, and each check takes
a bounded time.
"""

import os
import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.events import Stream
from orchestrator.base.results import Reason, Trigger
from orchestrator.base.text.path_patterns import outside
from orchestrator.base.text.sanitize import one_line, output_line
from orchestrator.config.settings.run import Triggers
from orchestrator.engine.places.place import Place
from orchestrator.repository.git.command import Git
from orchestrator.state.worker.endings import Stop

_LINE = 400
"""Maximum number of bytes that are inspected of a line of output."""
_LINES = 200
"""Maximum number of lines of a chunk of output that are inspected: enough to recognise a flood of
errors.
"""
_KINDS = 64
"""Maximum number of different error lines that are counted at the same time."""
_MOST_FILES = 20_000
_NAMED = 5
_MOST_TOLD = 100
"""Maximum number of findings that are reported for one worker."""
_REST = 10.0
"""Minimum pause between two scans of a worker's files, as a multiple of a scan's duration."""
_INTERVAL = 2.0
_LONGEST = 5.0
"""Maximum duration in seconds of a scan of a worker's files."""
_PATIENCE = 5.0
"""Maximum number of seconds to wait for `git check-ignore`, which lists ignored files."""
# Neither pattern has an unbounded repetition between words, so no text causes backtracking.
_ERROR = re.compile(
    rb"error|exception|failed|failure|fatal|panic|traceback|denied|refused|timed out|cannot ",
    re.IGNORECASE,
)
_VARYING = re.compile(rb"0[xX][0-9a-fA-F]+|[0-9]+")
_PROMPT = re.compile(
    r"\(y/n\)|\[y/n\]|\(yes/no\)|\[yes/no\]|\(y/N\)|\[Y/n\]|do you want to|would you like to"
    r"|are you sure|press enter|press return|press any key|hit enter|continue\?|proceed\?"
    r"|(?:password|passphrase|passcode)[^\n:]{0,100}: ?$|waiting for approval",
    re.IGNORECASE,
)
_REASONS = {
    "silence": Reason.IDLE,
    "repeated_error": Reason.REPEATED_ERROR,
    "needs_input": Reason.NEEDS_INPUT,
    "out_of_scope": Reason.OUT_OF_SCOPE,
}


@dataclass(frozen=True)
class Finding:
    """A reason for which the user should look at a worker: an alert."""

    trigger: Trigger
    detail: str

    @property
    def stop(self) -> Stop:
        """Return the finding as a reason to stop the worker."""
        return Stop(_REASONS[self.trigger], f"stopped: {self.detail}")


class OutputSigns:
    """Finds repeated error lines in a worker's output, and keeps its end, in bounded memory."""

    def __init__(self, triggers: Triggers) -> None:
        self._repeats = triggers.repeated_errors
        self._started: dict[Stream, bytes] = {"stdout": b"", "stderr": b""}
        self._kinds: OrderedDict[bytes, int] = OrderedDict()
        self.repeated: str | None = None
        """An error line that has reached the configured number of repetitions."""
        self.end = b""
        """The end of the latest output."""

    def feed(self, stream: Stream, data: bytes) -> None:
        """Count the error lines in the next chunk of output, and keep the end of the output."""
        if not data:
            return
        text = self._started[stream] + data
        # protection: stored-part-of-long-line-limited
        self._started[stream] = text[text.rfind(b"\n") + 1 :][:_LINE]
        self.end = text[-_LINE:]
        if self._repeats:
            self._count(text[: text.rfind(b"\n") + 1])

    def _count(self, lines: bytes) -> None:
        at = 0
        # protection: number-of-inspected-lines-limited
        for _ in range(_LINES):
            found = _ERROR.search(lines, at)
            if found is None:
                return
            begin = lines.rfind(b"\n", max(found.start() - _LINE, 0), found.start()) + 1
            begin = max(begin, found.start() - _LINE)
            at = lines.find(b"\n", found.end())
            line = lines[begin : min(at, begin + _LINE)]
            kind = b" ".join(_VARYING.sub(b"0", line).split())
            count = self._kinds.pop(kind, 0) + 1
            self._kinds[kind] = count
            if count == self._repeats:
                # protection: repeated-line-is-sanitised
                self.repeated = output_line(line.decode("utf-8", "replace"), limit=120)
            # protection: number-of-remembered-error-lines-limited
            if len(self._kinds) > _KINDS:
                self._kinds.popitem(last=False)

    def prompt(self) -> str | None:
        """Return the output's last line if it looks like a question to the user; otherwise None."""
        last = self.end.rstrip(b"\r\n").rpartition(b"\n")[2].rpartition(b"\r")[2]
        # protection: prompt-is-sanitised
        text = output_line(last.decode("utf-8", "replace"), limit=_LINE)
        return text if _PROMPT.search(text) else None


def asking(signs: OutputSigns) -> Finding | None:
    """Return a finding if the output of the worker ends with a question; otherwise None."""
    prompt = signs.prompt()
    return (
        None
        if prompt is None
        else Finding("needs_input", f"the agent waits for an answer: {prompt}")
    )


@dataclass
class AllowedPaths:
    """The paths that a worker may change, and how its changes are found."""

    paths: Sequence[str]
    """Path patterns; a directory stands for all files below the directory."""
    place: Place
    part: str
    """Name of the part with the files."""
    git: Git
    """Runs git with ignore rules that no worker can change."""

    def stray_files(self) -> list[str]:
        """Return the changed files outside of the allowed paths, without files that git ignores."""
        # protection: number-of-inspected-files-limited
        changed = self.place.changed(self.part, most=_MOST_FILES, seconds=_LONGEST)
        found = outside(self.paths, changed)
        return sorted(set(found) - self._select_ignored(found)) if found else []

    def _select_ignored(self, paths: list[str]) -> set[str]:
        names = b"\0".join(os.fsencode(path) for path in paths)
        try:
            answer = self.git.run("check-ignore", "-z", "--stdin", stdin=names, timeout=_PATIENCE)
        except OrchestratorError:
            return set()
        return {os.fsdecode(name) for name in answer.split(b"\0")}


class Watchdog:
    """Checks one worker repeatedly and reports each finding once."""

    def __init__(self, triggers: Triggers, scope: AllowedPaths | None) -> None:
        self._wishes = triggers
        self._scope = scope
        self._silent_since = self._asked_since = -1.0
        self._told: set[str] = set()
        self._left = _MOST_TOLD
        self._next = time.monotonic()

    def look(self, signs: OutputSigns, *, heard_at: float) -> Iterator[Finding]:
        """Yield new findings, at most `_MOST_TOLD` in all, as each finding may send a notification.

        Args:
            signs: Signs in the worker's output.
            heard_at: Time of the latest output, on the monotonic clock.
        """
        # protection: number-of-interventions-limited
        for found in islice(self._news(signs, heard_at=heard_at), self._left):
            self._left -= 1
            yield found

    def _news(self, signs: OutputSigns, *, heard_at: float) -> Iterator[Finding]:
        now, triggers = time.monotonic(), self._wishes
        silent = now - heard_at
        if triggers.silence and silent >= triggers.silence and heard_at != self._silent_since:
            self._silent_since = heard_at
            yield Finding("silence", f"the agent printed nothing for {triggers.silence:g} s")
        if triggers.prompts and silent >= triggers.prompts and heard_at != self._asked_since:
            self._asked_since = heard_at
            asked = asking(signs)
            if asked is not None:
                yield asked
        if signs.repeated is not None and signs.repeated not in self._told:
            line, signs.repeated = signs.repeated, None
            self._told = {line}
            yield Finding(
                "repeated_error",
                f"the agent printed the same error {triggers.repeated_errors} times: {line}",
            )
        if self._scope is not None and now >= self._next:
            yield from self._stray(self._scope)

    def _stray(self, scope: AllowedPaths) -> Iterator[Finding]:
        begun = time.monotonic()
        strayed = scope.stray_files()
        now = time.monotonic()
        self._next = now + max(_INTERVAL, (now - begun) * _REST)
        if strayed:
            self._scope = None
            # protection: file-names-are-sanitised
            named = ", ".join(one_line(path, limit=60) for path in strayed[:_NAMED])
            more = f" and {len(strayed) - _NAMED} more" if len(strayed) > _NAMED else ""
            yield Finding(
                "out_of_scope", f"the worker changed files outside the allowed paths: {named}{more}"
            )
