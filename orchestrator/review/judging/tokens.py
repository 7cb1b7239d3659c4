"""Split source text of languages with braces into tokens: JavaScript, TypeScript, Go and Rust."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Language = Literal["js", "go", "rust"]
_PARTS: dict[str, str | dict[Language, str]] = {
    "comment": r"//[^\n]*|/\*.*?\*/",
    "raw": {"js": r"(?!)", "go": r"`[^`]*`", "rust": r'\bb?r(?P<fence>#*)".*?"(?P=fence)'},
    "text": {
        "js": r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
        "go": r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""",
        "rust": r"""b?"(?:\\.|[^"\\])*"|b?'(?:\\[^\n']+|[^'\\\n])'""",
    },
    "template": {"js": r"`(?:\\.|[^`\\])*`", "go": r"(?!)", "rust": r"(?!)"},
    "number": r"(?<![\w.])\d[\w]*(?:\.\d\w*)?",
    "name": r"[A-Za-z_$][\w$]*",
    "mark": r"[^\s]",
}
_REGEX = re.compile(r"/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_BEFORE_REGEX = frozenset("(,=:[!&|?{};+>")
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_MOST = 400_000
"""Maximum number of tokens of a file that is read."""


@dataclass(frozen=True)
class Token:
    """A word of a source text."""

    kind: str
    """`comment`, `raw`, `text`, `template`, `number`, `name`, `mark` or `regex`."""
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Source:
    """A source text, its tokens without comments, and the pairs of brackets."""

    text: str
    tokens: Sequence[Token]
    ends: dict[int, int] = field(default_factory=dict)
    """For the index of each opening bracket, the index of the closing one."""
    parents: Sequence[int] = ()
    """For each token, the index of the bracket around it; -1 if there is none."""

    def said(self, place: int) -> str:
        """Return the text of a token; empty if there is no such token."""
        return self.tokens[place].text if 0 <= place < len(self.tokens) else ""

    def is_name(self, place: int) -> bool:
        """Return whether a token is a name."""
        return 0 <= place < len(self.tokens) and self.tokens[place].kind == "name"

    def parts(self, opening: int) -> list[range]:
        """Return the elements, separated by commas, in a pair of brackets."""
        found, begin = list[range](), opening + 1
        for place in range(opening + 1, self.ends[opening] + 1):
            is_end = place == self.ends[opening]
            if is_end or (self.said(place) == "," and self.parents[place] == opening):
                found += [range(begin, place)] if place > begin else []
                begin = place + 1
        return found


def read_source(text: str, language: Language) -> Source:
    """Split a text.

    Raises:
        ValueError: Brackets do not match, or the text is too long.
    """
    tokens = [token for token in split(text, language) if token.kind != "comment"]
    if len(tokens) > _MOST:
        raise ValueError("too many tokens")
    ends, open_ones, parents = dict[int, int](), list[int](), list[int]()
    for place, token in enumerate(tokens):
        is_mark = token.kind == "mark"
        if is_mark and token.text in ")]}":
            if not open_ones or _PAIRS[tokens[open_ones[-1]].text] != token.text:
                raise ValueError("brackets do not match")
            ends[open_ones.pop()] = place
        parents.append(open_ones[-1] if open_ones else -1)
        if is_mark and token.text in _PAIRS:
            open_ones.append(place)
    if open_ones:
        raise ValueError("brackets do not match")
    return Source(text, tokens, ends, parents)


def split(text: str, language: Language) -> list[Token]:
    """Return all tokens of a text, comments included."""
    parts = {name: part if isinstance(part, str) else part[language]
             for name, part in _PARTS.items()}  # fmt: skip
    pattern = re.compile("|".join(f"(?P<{name}>{part})" for name, part in parts.items()), re.DOTALL)
    found, place, before = list[Token](), 0, "("
    while (match := pattern.search(text, place)) is not None:
        kind = next(name for name in parts if match[name] is not None)
        if language == "js" and match[0] == "/" and before in _BEFORE_REGEX:
            match = _REGEX.match(text, match.start()) or match
            kind = "regex" if len(match[0]) > 1 else kind
        found.append(Token(kind, match[0], match.start(), match.end()))
        before = match[0] if kind != "comment" else before
        place = match.end()
    return found
