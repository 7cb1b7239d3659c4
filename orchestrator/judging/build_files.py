"""Read the commands that `make`, `just`, `npm` and the like start, from a project's build files."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

Read = Callable[[str], str | None]
"""Function that returns the text of a file of the project; None if there is none."""
_MAKE = re.compile(r"\b(?:g?make|\$[({]MAKE[)}])((?:[ \t]+[^;&|()\s'\"]+)*)")
_JUST = re.compile(r"\bjust((?:[ \t]+[^;&|()\s'\"]+)*)")
_NODE = re.compile(
    r"\b(?:npm|pnpm|yarn|bun)[ \t]+(?:-\S+[ \t]+)*(?:run(?:-script)?[ \t]+)?([\w:.-]+)"
)
_TOX = re.compile(r"\btox\b")
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_JUSTFILES = ("justfile", "Justfile", ".justfile")
_RULE = re.compile(r"([^\s:#=][^:=#]*):(?!=)([^=]*)")
_VARIABLE = re.compile(r"(?:export\s+)?(\w+)\s*[:?+]?:?=\s*(.*)")
_SHORT = {"t": "test", "tst": "test"}


def started_by(command: str, read: Read) -> Iterator[str]:
    """Yield the commands that build files of the project run for a command."""
    for words in _MAKE.findall(command):
        yield from _of_rules(words.split(), _MAKEFILES, read)
    for words in _JUST.findall(command):
        yield from _of_rules(words.split(), _JUSTFILES, read)
    for name in _NODE.findall(command):
        yield from _of_scripts(_SHORT.get(name, name), read)
    if _TOX.search(command):
        yield from _of_tox(read("tox.ini") or "")


def _of_rules(words: Sequence[str], names: Sequence[str], read: Read) -> Iterator[str]:
    places = [words[one + 1] for one in range(len(words) - 1) if words[one] in ("-C", "-f")]
    files = [f"{place}/{name}" for place in places for name in names]
    for path in (*files, *places, *names):
        if (text := read(path.removeprefix("./"))) is not None:
            wanted = [one for one in words if one[0] != "-" and "=" not in one]
            yield from _recipes(text, [one for one in wanted if one not in places])
            return


def _recipes(text: str, wanted: Sequence[str]) -> Iterator[str]:
    """Yield the commands of the wanted rules, and of those that they need."""
    rules: dict[str, tuple[list[str], list[str]]] = {}
    variables: dict[str, str] = {}
    current: list[str] = []
    for row in text.replace("\\\n", " ").split("\n"):
        if row[:1] in ("\t", " ") and row.strip():
            current.append(row.strip().lstrip("@-+"))
        elif named := _VARIABLE.fullmatch(row):
            variables[named[1]] = named[2]
        elif rule := _RULE.match(row):
            needs, _, inline = rule[2].partition(";")
            current = [inline] if inline.strip() else []
            for target in rule[1].split():
                rules[target] = (needs.split(), current)
    left = [*wanted] or [one for one in rules if not one.startswith(".")][:1]
    seen = set[str]()
    while left:
        target = left.pop(0)
        if target in rules and target not in seen:
            seen.add(target)
            left += rules[target][0]
            yield from (_expanded(one, variables) for one in rules[target][1])


def _expanded(command: str, variables: Mapping[str, str]) -> str:
    for _ in range(3):
        command = re.sub(
            r"\$[({](\w+)[)}]", lambda found: variables.get(found[1], found[0]), command
        )[:10_000]
    return command


def _of_scripts(name: str, read: Read) -> Iterator[str]:
    try:
        scripts = json.loads(read("package.json") or "{}").get("scripts", {})
        yield from (
            str(scripts[one]) for one in (f"pre{name}", name, f"post{name}") if one in scripts
        )
    except (ValueError, AttributeError, TypeError, RecursionError):
        return


def _of_tox(text: str) -> Iterator[str]:
    is_command = False
    for row in text.split("\n"):
        if named := re.match(r"commands\w*\s*=(.*)", row):
            is_command = True
            yield named[1]
        elif row[:1] in (" ", "\t"):
            if is_command:
                yield row.strip()
        else:
            is_command = False
