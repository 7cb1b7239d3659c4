"""Return the end of a log as a reader of it would see it."""

import re

from orchestrator.base.text.sanitize import ELLIPSIS, output_lines, without_sequences

_STAMP = re.compile(
    r"^\ufeff?(?:[^\t\n]{1,300}\t[^\t\n]{1,300}\t)?\ufeff?"
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z(?: \d\d[OE](?:[+ ]|$)| |$)",
    re.MULTILINE,
)
"""Job, step and time before each line of a log of GitHub; time and stream in one of GitLab."""
_SECTION = re.compile(r"section_(?:start|end):\d+:[^\r\n]*|^##\[endgroup\]", re.MULTILINE)
_NO_LETTERS = re.compile(r"[\W\d_]+")
_UNSEEN = re.compile(r"[\s\ufffd]+")


def end_of_log(text: str, *, limit: int) -> str:
    """Return at most the last `limit` characters of a log; empty if nothing in it can be read.

    Times, marks of sections, and all states of a progress bar but its last are left out.
    """
    clean = _STAMP.sub("", without_sequences(text).replace("\r\n", "\n"))
    lines = _SECTION.sub("", clean).split("\n")
    seen = re.sub(r"\n\s*\n", "\n\n", "\n".join(map(_without_progress, lines))).strip()
    if not _UNSEEN.sub("", output_lines(seen)):
        return ""
    return seen if len(seen) <= limit else f"{ELLIPSIS}{seen[1 - limit :]}"


def _without_progress(line: str) -> str:
    """Return a line without the states of it that were overwritten by the next one of its kind."""
    if "\r" not in line:
        return line.rstrip()
    states = [state.rstrip() for state in line.split("\r") if state.strip()]
    kinds = [_NO_LETTERS.sub("", state) for state in states]
    kept = zip(states, kinds, [*kinds[1:], None], strict=False)
    return "\n".join(state for state, kind, after in kept if kind != after)
