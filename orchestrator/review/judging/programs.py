"""Find the files that a check executes, such as `ci/all.sh` in `sh ci/all.sh --fast`.

Scripts, `make` and `npm` start further programs: their files are read, and followed.
"""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence

from orchestrator.base.text.split_lines import split_lines
from orchestrator.review.judging.build_files import commands_started_by

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
