"""Find the files that a check executes, such as `ci/all.sh` in `sh ci/all.sh --fast`.

Scripts, `make` and `npm` start further programs: their files are read, and followed.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence

from orchestrator.base.text.split_lines import split_lines

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh", "busybox"})
_INTERPRETERS = re.compile(
    r"(python|pypy)[\d.]*|node|nodejs|deno|bun|tsx|ts-node|ruby|perl|php|lua|Rscript|pwsh|\.|source"
)
_BEFORE = frozenset(
    {"!", "{", "(", "if", "then", "else", "elif", "while", "until", "do", "time", "exec", "env",
     "command", "nice", "nohup", "timeout", "sudo", "run", "uv", "poetry", "pipenv", "xvfb-run"}
)  # fmt: skip
"""Words that may precede the program in a command, such as `time`, `env` or `sudo`."""
_ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
_NUMBER = re.compile(r"[\d.]+[smhd]?")
_END = re.compile(r"[;&|()\n]+")
_SCRIPT = re.compile(r"-\w*c")
_LOADING = frozenset({"-r", "--require", "--import", "--loader"})
_WITH_VALUE = re.compile(r"-[WX]|-\w*o")
_DEEPEST = 3
"""Maximum number of shells inside each other, as in `sh -c "sh -c ..."`."""


MOST_FOLLOWED = 100
"""Maximum number of commands in scripts and build files that are followed."""


def programs_of(
    commands: Sequence[str], read: Callable[[str], str | None] = lambda _: None
) -> tuple[str, ...]:
    """Return patterns of the files that commands execute, also through other programs.

    Args:
        commands: The commands.
        read: Function that returns the text of a file of the project; None if there is none.
            Default: only the commands themselves are looked at.
    """
    found: dict[str, None] = {}
    left, seen = [*commands], set[str]()
    while left and len(seen) < MOST_FOLLOWED:
        command = left.pop(0)
        if command in seen:
            continue
        seen.add(command)
        patterns = dict.fromkeys(_programs(command, _DEEPEST))
        found |= patterns
        left += commands_started_by(command, read)
        for pattern in patterns:
            text = read(pattern.removeprefix("**/")) or ""
            if _is_shell(pattern, text):
                left += [row for row in split_lines(text) if not row.lstrip().startswith("#")]
    return tuple(found)


def _is_shell(pattern: str, text: str) -> bool:
    first, is_script = text.partition("\n")[0], "." not in pattern.rpartition("/")[2]
    if first.startswith("#!"):
        return re.search(r"\b(ba|da|z|k)?sh\b", first) is not None
    return is_script or pattern.endswith((".sh", ".bash"))


def _programs(command: str, depth: int) -> Iterator[str]:
    for words in _simple_commands(command):
        while words:
            known = words[0][:1] == "-" or words[0].rpartition("/")[2] in _BEFORE
            if not (known or _ASSIGNMENT.fullmatch(words[0]) or _NUMBER.fullmatch(words[0])):
                break
            words = words[1:]
        if words:
            name = words[0].strip("`")
            short = name.rpartition("/")[2]
            if "/" in name:
                yield from _pattern(name)
            if short in _SHELLS or _INTERPRETERS.fullmatch(short):
                yield from _patterns_of_interpreter(
                    iter(words[1:]), depth, is_shell=short in _SHELLS
                )


def _simple_commands(command: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        for word in lexer:
            if _END.fullmatch(word):
                yield words
                words = []
            else:
                words.append(word)
    except ValueError:  # a quotation without an end
        pass
    yield words


def _patterns_of_interpreter(words: Iterator[str], depth: int, *, is_shell: bool) -> Iterator[str]:
    """Yield patterns of the files that an interpreter executes, from its arguments."""
    for word in words:
        if is_shell and _SCRIPT.fullmatch(word):
            yield from _programs(next(words, ""), depth - 1) if depth else ()
            return
        if word in ("-c", "-e"):
            return
        if word == "-m":
            name = next(words, "").replace(".", "/")
            yield from _pattern(f"{name}.py")
            yield from _pattern(f"{name}/__main__.py")
            return
        if word in _LOADING:
            yield from _pattern(next(words, ""))
        elif _WITH_VALUE.fullmatch(word):
            next(words, None)
        elif (path := word.lstrip("0<")) and path[0] not in "->":
            yield from _pattern(path)
            return


def _pattern(path: str) -> Iterator[str]:
    """Yield a pattern that matches a path in every directory, as the command may run `cd` first."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    if parts and "$" not in path:
        yield "**/" + "/".join(re.sub(r"([*?\[\]\\])", r"\\\1", part) for part in parts)


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
