"""Make text of workers harmless for a forge: neither markup, nor a reference, nor a command.

A forge is GitHub, GitLab, Gitea, Bitbucket, Azure DevOps or a program that reads what they store.
They act on texts of requests and on messages of commits, and copy one into the other.
"""

import re

from orchestrator.base.text.sanitize import lines, one_line

_JOINER = "\N{WORD JOINER}"
_TOKEN = r"[a-z][a-z0-9]*"  # noqa: S105 - a part of a pattern
_ANY_CASE = re.IGNORECASE | re.MULTILINE
_EFFECTS: dict[str, re.Pattern[str]] = {
    "closes an issue": re.compile(
        r"\b(?:clos|fix|resolv|implement)\w*:?\s+\S*(?:[#!](?=\w)|://|\bGH-\d)", _ANY_CASE
    ),
    "mentions somebody": re.compile(r"(?<=[@\uff20])(?=[\w{])", _ANY_CASE),
    "names an issue": re.compile(r"(?<=[#!\uff03\uff01])(?=[\w{])|(?<=\bGH-)(?=\d)", _ANY_CASE),
    "links": re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)", _ANY_CASE),
    "skips checks": re.compile(
        r"(?<=\[)(?![\u2060\ufffd])(?=[^\[\]\n]*(?:skip|no[ _-]?ci\b|\bci[ _-]?no))"
        r"|(?<=skip)(?=[ _-]?(?:ci|cd|checks?|actions?|pipelines?)\b)"
        r"|(?<=\bci)(?=[ _-]?skip)|(?<=\bno)(?=[ _-]?ci\b)",
        _ANY_CASE,
    ),
    "gives a command": re.compile(r"^(?=[^\S\n]*/\w)|(?<=\bbors)(?=[ :])|(?<=%)(?=\{)", _ANY_CASE),
    "has a trailer": re.compile(
        rf"^(?<![^\n])(?=[^\S\n]*{_TOKEN}(?:-{_TOKEN})+[^\S\n]*:)"
        r"|^(?=[^\S\n]*BREAKING[ -]CHANGES?[^\S\n]*:)",
        _ANY_CASE,
    ),
}
"""What a forge may do because of a text, and where it finds that: everything but the first at a
place between two characters, where one that is not visible ends it.
"""


def code_block(text: str, *, limit: int) -> str:
    """Return the beginning of a text as a block of code that the text cannot close.

    Args:
        text: The text, of any origin.
        limit: Maximum number of characters of the text that are kept.
    """
    return _block(lines(text[:limit]), is_cut=len(text) > limit)


def code_block_for_forge(text: str, *, limit: int) -> str:
    """Return a text as `code_block` does, in which nothing has an effect on a forge.

    A block of code is not enough: a forge may copy the text into the message of a commit.
    """
    return _block(without_effects(text[:limit]), is_cut=len(text) > limit)


def _block(clean: str, *, is_cut: bool) -> str:
    clean = clean.strip("\n")
    longest = max((len(run) for run in re.findall("~+", clean)), default=0)
    # protection: pr-texts-stay-in-their-blocks
    fence = "~" * max(3, longest + 1)
    cut = "\n(truncated)" if is_cut else ""
    return f"{fence}text\n{clean}\n{fence}{cut}"


def without_effects(text: str) -> str:
    """Return all lines of a text, in which nothing has an effect on a forge."""
    # Cleaned first: a character that is removed afterwards would join what it separates.
    # protection: pr-texts-are-cleaned-before-references-are-ended
    clean = lines(text)
    for name, pattern in _EFFECTS.items():
        # protection: texts-of-pull-requests-do-nothing
        if name != "closes an issue":
            clean = pattern.sub(_JOINER, clean)
    return clean


def effects(text: str) -> tuple[str, ...]:
    """Return what a forge may do because of a text, such as `mentions somebody`."""
    clean = lines(text)
    return tuple(name for name, pattern in _EFFECTS.items() if pattern.search(clean))


def title(text: str, *, limit: int) -> str:
    """Return the first line of a text as a title, in which nothing has an effect on a forge."""
    return without_effects(one_line(text.strip().partition("\n")[0], limit=limit))
