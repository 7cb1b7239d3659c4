"""Describe the changes of a candidate: their size, the new lines, and a normalised form."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from itertools import groupby
from tokenize import COMMENT, DEDENT, ENDMARKER, ERRORTOKEN, INDENT, NL, TokenError, generate_tokens

from orchestrator.repository.commits.changes import patch, stat_lines, versions
from orchestrator.repository.git.limits import UNTRUSTED
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.instruments import Instruments, is_generated

MOST_READ = 4 * 1024**2
"""Maximum number of bytes of a patch that are read."""
_FILE = re.compile(r'\+\+\+ "?(?:b/)?(.*?)"?\t?$')
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclass(frozen=True)
class NewLine:
    """A line that a candidate added."""

    path: str
    number: int
    text: str


@dataclass(frozen=True)
class Change:
    """The changes of one candidate."""

    lines: int
    """Number of added and removed lines, without those of tests and generated files."""
    files: int
    added: tuple[NewLine, ...]
    """New lines in the first MOST_READ bytes of the patch, without tests and generated files."""
    form: str
    """Hash that is equal for changes which differ only in blank lines, comments and the order of
    `import` statements, in languages that are known; empty if nothing was changed.
    """


def read_change(
    repository: Repository, instruments: Instruments, *, base: str, commit: str
) -> Change:
    """Return what a commit changes compared with the base commit.

    Raises:
        RepositoryError: Git failed.
    """
    lines = files = 0
    for added, removed, path in stat_lines(repository, base=base, tip=commit):
        files += 1
        if _is_product(instruments, path):
            lines += added + removed
    text = patch(repository, base=base, tip=commit, limit=MOST_READ).decode("utf-8", "replace")
    new = tuple(
        NewLine(path, number, row[1:])
        for path, number, row in _rows(text)
        if row[0] == "+" and _is_product(instruments, path)
    )
    form = form_of(repository, base=base, commit=commit) if files else ""
    return Change(lines, files, new, form)


def _is_product(instruments: Instruments, path: str) -> bool:
    return not instruments.is_protected(path) and not is_generated(path)


def _rows(text: str) -> Iterator[tuple[str, int, str]]:
    """Yield path, number and text of each added or removed line of a patch."""
    path, number, in_hunk = "", 0, False
    for row in text.split("\n"):
        if row.startswith("diff --git "):
            in_hunk = False
        elif not in_hunk and (named := _FILE.match(row)):
            path = named[1]
        elif hunk := _HUNK.match(row):
            number, in_hunk = int(hunk[1]), True
        elif in_hunk and row[:1] in ("+", "-"):
            yield path, number, row
            number += row[0] == "+"
        else:
            number += 1


_MOST_IN_FORM = 1024**2
"""Maximum number of bytes of the files that are read for one form; others are compared exactly."""
_PYTHON = (".py", ".pyi")
_WITH_SLASHES = (".c", ".h", ".cc", ".cpp", ".hpp", ".java", ".js", ".mjs", ".cjs", ".ts")
"""Endings of languages in which `//` begins a comment."""
_SPANS_LINES = re.compile(r'`|"""|R"|</|\\u|\?\?/')
"""What may begin a text of several lines, or end a comment early, in one of these languages."""
_UNUSUAL = re.compile(r"[\r\f\v\0]|\\\n")
"""What may end lines elsewhere, or join them."""
_IMPORT = re.compile(r"( *)import [\w.]+(?:, *[\w.]+)*\n?")
_NO_CODE = {COMMENT, NL, INDENT, DEDENT, ENDMARKER}


def form_of(repository: Repository, *, base: str, commit: str) -> str:
    """Return a hash that is equal for commits whose files are the same.

    In Python and in some languages in which `//` begins a comment, lines without code are left
    out; in Python, neighbouring `import` statements may be in any order. All other files, and
    what is in doubt, are compared exactly. So are the modes of files.

    Raises:
        RepositoryError: Git failed.
    """
    rows = [*versions(repository, base=base, tip=commit)]
    asked = [
        (path, blob)
        for path, *both in rows
        for mode, blob in both
        if path.endswith((*_PYTHON, *_WITH_SLASHES)) and mode in ("100644", "100755")
    ]
    found, left = dict[tuple[str, str], str](), _MOST_IN_FORM
    order = "".join(f"{blob}\n" for _, blob in asked).encode()
    with repository.git.within(UNTRUSTED).reading("cat-file", "--batch", stdin=order) as output:
        for path, blob in asked:
            said = output.readline().split()
            if len(said) != 3 or (left := left - int(said[2])) < 0:
                break
            code = _code(path, output.read(int(said[2])))
            if code is not None:
                found[path, blob] = hashlib.sha256(code.encode()).hexdigest()
            output.read(1)
    files = []
    for path, *both in rows:
        old, new = ((mode, found.get((path, blob), blob)) for mode, blob in both)
        if old != new:
            files.append((path, *new))
    return hashlib.sha256(repr(files).encode()).hexdigest()


def _code(path: str, data: bytes) -> str | None:
    """Return the lines of a file that contain code; None if they cannot be told for certain."""
    try:
        text = data.decode()
        is_encoded = any("coding" in row for row in text.split("\n", 2)[:2])
        if is_encoded or _UNUSUAL.search(text):
            return None
        if path.endswith(_PYTHON):
            return "\n".join(_python_lines(text))
    except (UnicodeDecodeError, TokenError, SyntaxError):
        return None
    if _SPANS_LINES.search(text):
        return None
    rows = (row for row in text.split("\n") if row.strip())
    return "\n".join(row for row in rows if "*/" in row or not row.lstrip().startswith("// "))


def _python_lines(text: str) -> Iterator[str]:
    """Yield the lines that contain code, each run of `import` statements in alphabetical order.

    Raises:
        SyntaxError, TokenError: The text is no Python code.
    """
    rows = text.split("\n")
    code, imports = {1} if text.startswith("#!") else set[int](), dict[int, str]()
    for token in generate_tokens(StringIO(text).readline):
        if token.type == ERRORTOKEN:
            raise SyntaxError(token.string)
        if token.type in _NO_CODE:
            continue
        number = token.start[0]
        if number not in code and token.string == "import":
            found = _IMPORT.fullmatch(token.line)
            imports |= {number: found[1]} if found else {}
        code.update(range(number, token.end[0] + 1))
    for _, run in groupby(sorted(code), lambda number: imports.get(number, number)):
        lines = [rows[number - 1] for number in run]
        yield from sorted(lines) if len(lines) > 1 else lines
