"""Patterns of paths, with the meaning that they have in a `.gitignore`. Pure.

`paths` and `touches` of tasks, `--alert-outside` and the globs of `foreach` are all matched here.
The walk over the components of a path takes linear time, whatever a pattern or a file name holds.
Regular expressions of whole patterns, as libraries for gitignore make them, can take for ever.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

ANY_DEPTH = "**"
_HERE = ("", ".")
_WILD = frozenset("*?[")
_ESCAPABLE = "*?[]\\!# -^"
_UNMOUNTABLE = frozenset(",:\\\x7f") | {chr(code) for code in range(32)}
"""Characters that separate the options of an overlay, and those that no message can show."""


@dataclass(frozen=True)
class Pattern:
    """One pattern."""

    parts: tuple[str, ...]
    """Its components, for `fnmatch`; `**` stands for any number of directories."""
    literal: tuple[str, ...]
    """Its components as they were written: a path that has these names matches as well."""
    only_directories: bool
    """Whether it matches what is in a directory of that name, but no file of that name."""

    def covers(self, path: str) -> bool:
        """Check whether a file matches, or is in a directory that matches.

        Args:
            path: Relative to the repository's top, with `/`.
        """
        names = path.split("/")
        last = len(names) - self.only_directories
        size = len(self.literal)
        if 0 < size <= last and tuple(names[:size]) == self.literal:
            return True
        return any(depth <= last for depth in self._ends(names))

    def names(self, path: str) -> bool:
        """Check whether it matches exactly this file, and not only a directory that holds it.

        Args:
            path: Relative to the repository's top, with `/`.
        """
        if self.only_directories:
            return False
        names = path.split("/")
        return tuple(names) == self.literal or len(names) in self._ends(names)

    def _ends(self, names: Sequence[str]) -> Iterator[int]:
        """Yield how many components of a path match the whole pattern."""
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
        """Add the places that are reached when `**` stands for no directory."""
        found = set(places)
        for place, part in enumerate(self.parts):
            if place in found and part == ANY_DEPTH:
                found.add(place + 1)
        return found


@lru_cache(maxsize=4096)
def _matcher(part: str) -> "re.Pattern[str]":
    return re.compile(translate(part))


@lru_cache(maxsize=4096)
def parse(text: str, *, anchored: bool = False) -> Pattern:
    """Read a pattern.

    `src` and `*.md` match at any depth; `/src`, `./src` and `src/api` are relative to the
    repository's top. `*` and `?` stop at `/`; `**` stands for any directories. `.` matches all.

    Args:
        text: The pattern.
        anchored: Also a pattern without `/` is relative to the repository's top.
    """
    written = tuple(part for part in text.split("/") if part not in _HERE)
    parts = tuple(_component(part) for part in written)
    if parts[-1:] in ((), (ANY_DEPTH,)):
        parts = (*parts[:-1], ANY_DEPTH, "*")
    if not anchored and "/" not in text.rstrip("/"):
        parts = (ANY_DEPTH, *parts)
    return Pattern(parts=parts, literal=written, only_directories=bool(written) and text[-1] == "/")


def _component(part: str) -> str:
    """Write one component of a pattern as `fnmatch` reads it, which knows no escapes."""
    found, place = [], 0
    while place < len(part):
        character = part[place]
        end = _end_of_class(part, place) if character == "[" else None
        if character == "\\" and place + 1 < len(part):
            place += 1
            found.append(_escaped(part[place]))
        elif end is not None:
            found.append(_class(part[place + 1 : end]))
            place = end
        else:
            found.append("[[]" if character == "[" else character)
        place += 1
    return "".join(found)


def _escaped(character: str) -> str:
    return f"[{character}]" if character in _WILD else character


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
    # At the beginning of a class, these would negate it.
    return f"[{members[1:]}{members[0]}]" if len(members) > 1 else members


def outside(patterns: Sequence[str], paths: Iterable[str]) -> list[str]:
    """Return the paths that no pattern covers."""
    places = [parse(pattern) for pattern in patterns]
    return [path for path in paths if not any(place.covers(path) for place in places)]


def matching(paths: Iterable[str], globs: Sequence[str]) -> list[str]:
    """Return the files that a glob names, each once, sorted; globs are relative to the top."""
    places = [parse(glob, anchored=True) for glob in globs]
    return sorted({path for path in paths if any(place.names(path) for place in places)})


def is_wild(text: str) -> bool:
    """Check whether a pattern has wildcards."""
    return not _WILD.isdisjoint(text)


def problem(text: str) -> str | None:
    """Return why a pattern can match nothing that a worker changes; None where it can."""
    parts = [part for part in text.split("/") if part not in _HERE]
    if ".." in parts:
        return "`..` leads out of the repository"
    if parts[:1] == [".git"]:
        return "`.git` holds no files of a commit"
    if text.startswith("!"):
        return "`!` excludes nothing here: list what is meant"
    if re.search(rf"\\(?![{re.escape(_ESCAPABLE)}])", text):
        return "directories are separated by `/`"
    return None


def directories(patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the directories that patterns name, for mounting each of them.

    Returns:
        Paths from the repository's top, sorted; none of them is in another.

    Raises:
        ValueError: A pattern does not name one directory.
    """
    found = {_directory(text) for text in patterns}
    return tuple(sorted(path for path in found if not _has_parent_in(path, found)))


def _has_parent_in(path: str, found: Iterable[str]) -> bool:
    return any(path.startswith(f"{other}/") for other in found)


def _directory(text: str) -> str:
    parts = [part for part in text.split("/") if part not in _HERE]
    if not parts:
        raise ValueError(f"`{text}` is the whole repository")
    why = problem(text)
    if why is None and is_wild(text):
        why = "a pattern with wildcards is no directory"
    if why is None and any(part.lower() == ".git" for part in parts):
        why = "`.git` holds no files of a commit"
    if why is None and not _UNMOUNTABLE.isdisjoint(text):
        why = "commas, colons, backslashes and control characters cannot be mounted"
    if why is not None:
        raise ValueError(f"`{text}`: {why}")
    return "/".join(parts)


def overlap(one: str, other: str) -> bool:
    """Check whether some file may be covered by both of two patterns.

    A name without wildcards is taken as one at the repository's top.
    """
    first, second = (parse(text, anchored=not is_wild(text)).parts for text in (one, other))
    pending, seen = [(0, 0)], set[tuple[int, int]]()
    while pending:
        place = left, right = pending.pop()
        if left == len(first) or right == len(second):
            return True
        if place in seen:
            continue
        seen.add(place)
        a, b = first[left], second[right]
        if a == ANY_DEPTH:
            pending.append((left + 1, right))
        if b == ANY_DEPTH:
            pending.append((left, right + 1))
        if ANY_DEPTH in (a, b):
            pending.append((left + (a != ANY_DEPTH), right + (b != ANY_DEPTH)))
        elif _share_a_name(a, b):
            pending.append((left + 1, right + 1))
    return False


@lru_cache(maxsize=65536)
def _share_a_name(one: str, other: str) -> bool:
    """Check whether some name matches both of two components."""
    if not is_wild(one):
        return _matcher(other).match(one) is not None
    if not is_wild(other):
        return _matcher(one).match(other) is not None
    first, second = _tokens(one), _tokens(other)
    pending, seen = [(0, 0)], set[tuple[int, int]]()
    while pending:
        place = left, right = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        a, b = ("".join(first[left : left + 1]), "".join(second[right : right + 1]))
        if not a and not b:
            return True
        if a == "*":
            pending.append((left + 1, right))
        if b == "*":
            pending.append((left, right + 1))
        if a and b and ("*" in (a, b) or _share_a_character(a, b)):
            pending.append((left + (a != "*"), right + (b != "*")))
    return False


def _tokens(part: str) -> list[str]:
    return re.findall(r"\[!?\]?[^\]]*\]|.", part, re.DOTALL)


def _share_a_character(one: str, other: str) -> bool:
    if len(one) > 1 and len(other) > 1:
        return True
    if len(one) > 1 or one == "?":
        one, other = other, one
    return one == "?" or _matcher(other).match(one) is not None
