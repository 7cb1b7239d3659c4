"""Quote text of workers in Markdown, so that it is neither markup nor a command of a forge."""

import re

from orchestrator.text.sanitize import lines, one_line

_JOINER = "\N{WORD JOINER}"
# Mentions, numbers of issues and merge requests, addresses: also in blocks of code, because a forge
# may copy the text into the message of a commit.
_REFERENCE = re.compile(r"(?<=[@#!])(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=GH-)", re.IGNORECASE)
_COMMAND = re.compile(r"^(?=[ \t]*/\w)", re.MULTILINE)


def fenced(text: str, *, limit: int) -> str:
    """Return the beginning of a text as a block of code that the text cannot close.

    Args:
        text: The text, of any origin.
        limit: Maximum number of characters of the text that are kept.
    """
    clean = lines(text[:limit]).strip("\n")
    longest = max((len(run) for run in re.findall("~+", clean)), default=0)
    fence = "~" * max(3, longest + 1)
    cut = "\n(truncated)" if len(text) > limit else ""
    return f"{fence}text\n{clean}\n{fence}{cut}"


def unlinked(text: str) -> str:
    """Return text in which mentions of people and issues and GitLab quick actions do nothing."""
    return _COMMAND.sub(_JOINER, _REFERENCE.sub(_JOINER, text))


def title(text: str, *, limit: int) -> str:
    """Return the first line as a title in which mentions and GitLab quick actions do nothing."""
    return unlinked(one_line(text.strip().partition("\n")[0], limit=limit))
