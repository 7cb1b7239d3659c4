"""A page's blocks as one shell session.

    ```console    each line after `$ ` is a command; the lines below are its output
    ```sh         a script; every command of it must succeed
    ```python     a program; it must succeed
    ```yaml       a configuration file, saved as its first line says (`# orchestrator.yaml`),
                  or steps of a CI job, whose `run:` scripts are run

A command must succeed unless the next command is `echo $?`. Output is compared if the page has any:
`...` matches anything; run ids, commits, seconds, column widths and the repository's path may
differ.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.docs.markdown import Block

REPOSITORY = "/home/ann/shop"
"""Path of the repository in the documentation."""
ASK_STATUS = "echo $?"


@dataclass(frozen=True)
class Step:
    """A command of a session, with its expected output."""

    place: str
    command: str
    expected: str = ""
    """Expected output of the command; empty to accept any output."""


def steps(block: Block, python: str = f"'{sys.executable}' -c") -> Iterator[Step]:
    """Split a block into commands; `python` runs the text of a program."""
    match block.language:
        case "console":
            yield from _console(block)
        case "sh":
            yield Step(block.place, f"bash -euo pipefail -c {_quoted(block.text)}")
        case "python":
            yield Step(block.place, f"{python} {_quoted(block.text)}")
        case "yaml":
            yield from _yaml(block)


def _console(block: Block) -> Iterator[Step]:
    command: list[str] = []
    printed: list[str] = []
    for line in [*block.text.splitlines(), "$ "]:
        if command and command[-1].endswith("\\"):
            command.append(line)
        elif line.startswith("$ "):
            if command:
                yield Step(block.place, "\n".join(command), "\n".join(printed).rstrip("\n"))
            command, printed = [line.removeprefix("$ ")], []
        else:
            assert command, f"{block.place}: begins with no `$ `"
            printed.append(line)


def _yaml(block: Block) -> Iterator[Step]:
    first = block.text.partition("\n")[0]
    if first.startswith("# ") and first.endswith(".yaml"):
        path = first.removeprefix("# ")
        directory = _quoted(str(Path(path).parent))
        text = _quoted(block.text + "\n")
        yield Step(block.place, f"mkdir -p {directory}; printf %s {text} > {_quoted(path)}")
    for script in ci_scripts(yaml.safe_load(block.text)):
        yield Step(block.place, f"bash -euo pipefail -c {_quoted(script)}")


def ci_scripts(document: Any) -> Iterator[str]:
    """Return the scripts of all steps of a CI job."""
    if isinstance(document, list):
        for item in document:
            yield from ci_scripts(item)
    elif isinstance(document, dict):
        for key, value in document.items():
            if key == "run" and isinstance(value, str):
                yield value
            else:
                yield from ci_scripts(value)


def _quoted(text: str) -> str:
    # Unlike shlex.quote, quote single words too.
    return "'" + text.replace("'", "'\"'\"'") + "'"


def run_session(
    session: list[Step], *, repository: Path, scratch: Path, env: Mapping[str, str]
) -> list[str]:
    """Run a session, and return the differences from the page."""
    scratch.mkdir()
    script = "".join(_shell(step, scratch / str(i)) for i, step in enumerate(session))
    # A script in a file, because a command could read the rest of a script on stdin.
    (scratch / "script").write_text(script)
    command = ["bash", str(scratch / "script")]
    subprocess.run(command, cwd=repository, env=env, stdin=subprocess.DEVNULL, check=False)
    followers = [*session[1:], None]
    return [
        problem
        for number, (step, after) in enumerate(zip(session, followers, strict=True))
        for problem in _problems(
            step, scratch / str(number), repository, asked=after and after.command == ASK_STATUS
        )
    ]


def _shell(step: Step, output: Path) -> str:
    return (
        f"{{ {step.command}\n}} </dev/null >{output} 2>&1\n"
        f"set -- $?; echo $1 >{output}.status; (exit $1)\n"
    )


def _problems(step: Step, output: Path, repository: Path, *, asked: Any) -> Iterator[str]:
    if not output.exists():
        yield f"{step.place}: `{step.command}` was not reached"
        return
    printed = output.read_text(errors="replace").replace(str(repository), REPOSITORY)
    status = output.with_name(f"{output.name}.status").read_text().strip()
    if status != "0" and not asked:
        yield f"{step.place}: `{step.command}` exited with {status}:\n{printed}"
    if step.expected and not matches(step.expected, printed):
        yield (
            f"{step.place}: `{step.command}` printed\n{normal(printed)}\n"
            f"and not\n{normal(step.expected)}"
        )


def matches(expected: str, printed: str) -> bool:
    """Return whether the output of a command is as the page says."""
    pattern = "".join(_line_pattern(line) for line in normal(expected).splitlines())
    return re.fullmatch(pattern, normal(printed) + "\n") is not None


def _line_pattern(line: str) -> str:
    if line == "...":
        return r"(?:.*\n)*?"
    return re.escape(line).replace(r"\.\.\.", ".*?") + "\n"


def normal(text: str) -> str:
    """Replace the parts of output that differ from run to run."""
    for pattern, substitute in (
        (r"\b\d{8}-\d{6}-[0-9a-f]{6}\b", "RUN"),
        (r"\b[0-9a-f]{7,40}\b", "COMMIT"),
        (r"\b\d+ min(?: \d+ s)?\b|\b\d+(?:\.\d+)? s\b", "SECONDS"),
        (r"\b\d+\.\dx$", "TIMES"),
        (r" {2,}", "  "),
        (r" +$", ""),
    ):
        text = re.sub(pattern, substitute, text, flags=re.M)
    return text.strip("\n")
