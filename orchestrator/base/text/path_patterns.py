"""Match path patterns with the semantics of `.gitignore`.

Used for `paths` and `touches` of tasks, `--alert-outside`, and the globs of `foreach`. The time to
match grows linearly with the number of components of a path, for any pattern. Libraries for
`.gitignore` use a regular expression for a whole pattern, which can take exponential time.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

ANY_DEPTH = "**"
_HERE = ("", ".")
_WILD = frozenset("*?[")
_ESCAPABLE = "*?[]\\!# -^"
_UNMOUNTABLE = frozenset(",:\\\x7f") | {chr(code) for code in range(32)}
"""Control characters, and characters that separate options of an overlay mount: a path with any of
these characters cannot be mounted.
"""


@dataclass(frozen=True)
class Pattern:
    """One parsed pattern."""

    parts: tuple[str, ...]
    """Components of the pattern for `fnmatch`; `**` matches any number of directories."""
    literal: tuple[str, ...]
    """Components as written by the user: a path with exactly these names matches too."""
    only_directories: bool
    """Whether the pattern ends with `/`: it matches everything in directories of that name, but no
    file of that name.
    """

    def covers(self, path: str) -> bool:
        """Return whether a file matches the pattern, or is in a directory that matches it.

        Args:
            path: Path relative to the repository's top, separated by `/`.
        """
        # protection: wildcard-does-not-match-slash
        names = path.split("/")
        last = len(names) - self.only_directories
        size = len(self.literal)
        # protection: brackets-match-literal-name
        if 0 < size <= last and tuple(names[:size]) == self.literal:
            return True
        return any(depth <= last for depth in self._ends(names))

    def names(self, path: str) -> bool:
        """Return whether the pattern matches the file itself, and not only a directory above it.

        Args:
            path: Path relative to the repository's top, separated by `/`.
        """
        if self.only_directories:
            return False
        names = path.split("/")
        return tuple(names) == self.literal or len(names) in self._ends(names)

    def _ends(self, names: Sequence[str]) -> Iterator[int]:
        """Yield each `n` for which the first `n` components of the path match the whole pattern."""
        reached = self._passing({0})
        for depth, name in enumerate(names, start=1):
            stay = {place for place in reached if self.parts[place : place + 1] == (ANY_DEPTH,)}
            step = {
                place + 1
                for place in reached
                if place < len(self.parts) and _matcher(self.parts[place]).match(name)
            }
            reached = self._passing(stay | step)
            if len(self.parts) in reached:
                yield depth

    def _passing(self, places: set[int]) -> set[int]:
        """Return `places`, and the places after each `**` in them: `**` may match no component."""
        reached = set(places)
        for place, part in enumerate(self.parts):
            if place in reached and part == ANY_DEPTH:
                reached.add(place + 1)
        return reached


@lru_cache(maxsize=4096)
def _matcher(part: str) -> "re.Pattern[str]":
    return re.compile(translate(part))


@lru_cache(maxsize=4096)
def parse(text: str, *, anchored: bool = False) -> Pattern:
    """Parse a pattern.

    `src` and `*.md` match at any depth; `/src`, `./src` and `src/api` are relative to the
    repository's top. `*` and `?` do not match `/`; `**` matches any number of directories. `.`
    matches all files.

    Args:
        text: The pattern.
        anchored: Whether a pattern without `/` is relative to the repository's top too.
    """
    written = tuple(part for part in text.split("/") if part not in _HERE)
    parts = tuple(_component(part) for part in written)
    if parts[-1:] in ((), (ANY_DEPTH,)):
        parts = (*parts[:-1], ANY_DEPTH, "*")
    # protection: pattern-with-slash-is-anchored
    if not anchored and "/" not in text.rstrip("/"):
        parts = (ANY_DEPTH, *parts)
    return Pattern(parts=parts, literal=written, only_directories=bool(written) and text[-1] == "/")


def _component(part: str) -> str:
    """Convert a pattern's component to the syntax of `fnmatch`, which has no escape character."""
    converted, place = [], 0
    while place < len(part):
        character = part[place]
        end = _end_of_class(part, place) if character == "[" else None
        if character == "\\" and place + 1 < len(part):
            place += 1
            converted.append(f"[{part[place]}]" if part[place] in _WILD else part[place])
        elif end is not None:
            converted.append(_class(part[place + 1 : end]))
            place = end
        else:
            converted.append("[[]" if character == "[" else character)
        place += 1
    return "".join(converted)


def _end_of_class(part: str, place: int) -> int | None:
    place += 1
    if part[place : place + 1] in ("!", "^"):
        place += 1
    first = place
    while place < len(part):
        if part[place] == "]" and place > first:
            return place
        place += 2 if part[place] == "\\" else 1
    return None


def _class(inner: str) -> str:
    negated = inner[0] in "!^"
    members = re.sub(r"\\(.)", r"\1", inner[negated:])
    if "]" in members:
        members = "]" + members.replace("]", "")
    if negated:
        return f"[!{members}]"
    if members[0] not in "!^":
        return f"[{members}]"
    # At the start of a class, `!` and `^` would negate it.
    return f"[{members[1:]}{members[0]}]" if len(members) > 1 else members


def outside(patterns: Sequence[str], paths: Iterable[str]) -> list[str]:
    """Return the paths that none of the patterns matches."""
    places = [parse(pattern) for pattern in patterns]
    return [path for path in paths if not any(place.covers(path) for place in places)]


def matching(paths: Iterable[str], globs: Sequence[str]) -> list[str]:
    """Return the files that match one of the globs, sorted; globs start at the repository's top."""
    places = [parse(glob, anchored=True) for glob in globs]
    return sorted({path for path in paths if any(place.names(path) for place in places)})


def is_wild(text: str) -> bool:
    """Return whether a pattern contains wildcards."""
    return not _WILD.isdisjoint(text)


def problem(text: str) -> str | None:
    """Return why a pattern can never match a file in a commit; None if it can."""
    parts = [part for part in text.split("/") if part not in _HERE]
    if ".." in parts:
        return "`..` leads out of the repository"
    if parts[:1] == [".git"]:
        return "`.git` contains no files of a commit"
    if text.startswith("!"):
        return "`!` is not supported: list the paths to include"
    if re.search(rf"\\(?![{re.escape(_ESCAPABLE)}])", text):
        return "directories are separated by `/`"
    return None


def directories(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the directories that the patterns name, for mounting them.

    Returns:
        Paths relative to the repository's top, sorted, without directories inside others.

    Raises:
        ValueError: A pattern does not name a directory.
    """
    paths = {_directory(text) for text in patterns}
    return tuple(
        sorted(path for path in paths if not any(path.startswith(f"{other}/") for other in paths))
    )


def _directory(text: str) -> str:
    parts = [part for part in text.split("/") if part not in _HERE]
    if not parts:
        raise ValueError(f"`{text}` names the whole repository: name a directory in it")
    why = problem(text)
    # protection: wildcards-are-refused-as-directories
    if why is None and is_wild(text):
        why = "a pattern with wildcards is not a directory"
    if why is None and any(part.lower() == ".git" for part in parts):
        why = "`.git` contains no files of a commit"
    # protection: paths-with-overlay-option-characters-are-refused
    if why is None and not _UNMOUNTABLE.isdisjoint(text):
        why = "paths with commas, colons, backslashes or control characters cannot be mounted"
    if why is not None:
        raise ValueError(f"`{text}`: {why}")
    return "/".join(parts)


def overlap(pattern: str, other: str) -> bool:
    """Return whether a file may exist that matches both of two patterns.

    A pattern without wildcards is taken as relative to the repository's top, even without `/`.
    """
    first, second = (parse(text, anchored=not is_wild(text)).parts for text in (pattern, other))
    # A pattern also matches all files below the directories that it matches.
    return _may_meet(first, second, ANY_DEPTH, _share_a_name, whole=False)


@lru_cache(maxsize=65536)
def _share_a_name(component: str, other: str) -> bool:
    """Return whether a name may exist that matches both of two path components."""
    if not is_wild(component):
        return _matcher(other).match(component) is not None
    if not is_wild(other):
        return _matcher(component).match(other) is not None
    return _may_meet(_tokens(component), _tokens(other), "*", _share_a_character, whole=True)


def _may_meet(
    patterns: Sequence[str],
    others: Sequence[str],
    wildcard: str,
    alike: Callable[[str, str], bool],
    *,
    whole: bool,
) -> bool:
    """Return whether one sequence may match both `patterns` and `others`.

    The wildcard matches any number of elements. If not `whole`, it is enough that all of one
    sequence matches the beginning of the other.
    """
    first, second = (*patterns, None), (*others, None)
    pending, seen = [(0, 0)], set[tuple[int, int]]()
    while pending:
        place = left, right = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        a, b = first[left], second[right]
        if (a is None or b is None) and (a is b or not whole):
            return True
        if a == wildcard:
            pending.append((left + 1, right))
        if b == wildcard:
            pending.append((left, right + 1))
        if a is not None and b is not None and (wildcard in (a, b) or alike(a, b)):
            pending.append((left + (a != wildcard), right + (b != wildcard)))
    return False


def _tokens(part: str) -> list[str]:
    return re.findall(r"\[!?\]?[^\]]*\]|.", part, re.DOTALL)


def _share_a_character(symbol: str, other: str) -> bool:
    if len(symbol) > 1 and len(other) > 1:
        return True
    if len(symbol) > 1 or symbol == "?":
        symbol, other = other, symbol
    return symbol == "?" or _matcher(other).match(symbol) is not None
