"""Read the commands that `make`, `just`, `npm` and the like start, from a project's build files."""

import json
import re
from collections.abc import Callable, Iterator, Sequence

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
_USE = re.compile(r"\$[({](\w+)[)}]")
_SHORT = {"t": "test", "tst": "test"}


def commands_started_by(command: str, read: Read) -> Iterator[str]:
    """Yield the commands that build files of the project run for a command."""
    for words in _MAKE.findall(command):
        yield from _of_rules(words.split(), _MAKEFILES, read)
    for words in _JUST.findall(command):
        yield from _of_rules(words.split(), _JUSTFILES, read)
    for name in _NODE.findall(command):
        yield from _of_scripts(_SHORT.get(name, name), read)
    if _TOX.search(command):
        is_command = False
        for row in (read("tox.ini") or "").split("\n"):
            if named := re.match(r"commands\w*\s*=(.*)", row):
                is_command = True
                yield named[1]
            elif row[:1] in (" ", "\t"):
                if is_command:
                    yield row.strip()
            else:
                is_command = False


def _of_rules(words: Sequence[str], names: Sequence[str], read: Read) -> Iterator[str]:
    places = [words[place + 1] for place in range(len(words) - 1) if words[place] in ("-C", "-f")]
    files = [f"{place}/{name}" for place in places for name in names]
    for path in (*files, *places, *names):
        if (text := read(path.removeprefix("./"))) is not None:
            wanted = [word for word in words if word[0] != "-" and "=" not in word]
            yield from _recipes(text, [word for word in wanted if word not in places])
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
    left = [*wanted] or [target for target in rules if not target.startswith(".")][:1]
    seen = set[str]()
    while left:
        target = left.pop(0)
        if target in rules and target not in seen:
            seen.add(target)
            left += rules[target][0]
            for command in rules[target][1]:
                for _ in range(3):
                    command = _USE.sub(lambda use: variables.get(use[1], use[0]), command)[:10_000]
                yield command


def _of_scripts(name: str, read: Read) -> Iterator[str]:
    try:
        scripts = json.loads(read("package.json") or "{}").get("scripts", {})
        yield from (
            str(scripts[script])
            for script in (f"pre{name}", name, f"post{name}")
            if script in scripts
        )
    except (ValueError, AttributeError, TypeError, RecursionError):
        return
