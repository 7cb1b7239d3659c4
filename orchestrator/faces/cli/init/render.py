"""Generate the text of a configuration file from the findings about a project.

A run finds the file in the repository without `--config`, so settings that are accepted only from a
file named with `--config` are written as comments. So are commands that did not work when they were
tried, with the reason.
"""

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import yaml

from orchestrator.base.text.sanitize import one_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.faces.cli.init.languages import Command
from orchestrator.faces.cli.init.scan import Findings

FILE_NAME = "orchestrator.yaml"
_LONGEST = 300
_TEMPLATE = Path(__file__).with_name("template.yaml")
"""The part of the file that is the same for every project, with places for the agent and image."""
_AGENT = "  # agent_cli: architect      # [named] agent program; `shell` runs tasks as commands"
_IMAGE = "  # image: IMAGE              # [named] instead of the agent program's image"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The user's answers to the questions of `init`, and the programs that the image has."""

    agent_cli: str | None
    image: str
    """Container image of the workers."""
    own_image: bool
    """Whether the user chose the image; otherwise it is the agent program's default."""
    programs: frozenset[str]
    """Programs that the image has."""
    services: bool
    """Whether to start services, which are accepted only from a file named with `--config`."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why commands do not work, by command line."""

    def problem(self, command: Command) -> str | None:
        """Return why a command is written as a comment; None for an active command."""
        if command.line in self.problems:
            return self.problems[command.line]
        if command.needs in self.programs:
            return None
        return f"needs `{command.needs}`, which is missing in {self.image}"

    def runs(self, command: Command) -> bool:
        """Return whether a command is written as an active command."""
        return self.problem(command) is None


def needs_naming(findings: Findings, choice: Choice) -> bool:
    """Return whether the user must name the generated file with `--config` for it to work fully.

    A file that a run finds without `--config` must not define services, and its `setup` has no
    network.
    """
    return choice.services or any(map(choice.runs, findings.setup))


def render(findings: Findings, choice: Choice) -> str:
    """Return the text of the generated configuration file."""
    return "".join(f"{line}\n" for line in _lines(findings, choice))


def _lines(findings: Findings, choice: Choice) -> Iterator[str]:
    agent = _AGENT
    if choice.agent_cli:
        agent = f"  agent_cli: {scalar(choice.agent_cli)}"
        if not needs_naming(findings, choice):
            agent = f"  # agent_cli: {scalar(choice.agent_cli)}   # [named]"
    image = f"  # image: {scalar(choice.image)}   # [named]" if choice.own_image else _IMAGE
    template = _TEMPLATE.read_text(encoding="utf-8")
    yield template.format(agent=agent, image=image).rstrip("\n")
    if findings.members:
        yield comment(f"Packages: {', '.join(findings.members)}")
    for name, reason in findings.unusable.items():
        yield comment(f"Not used as base image: {name} {reason}")
    for name in findings.containers:
        build = build_command(choice.agent_cli, name)
        yield comment(f"To use the project's own image as base image: `{build}`")
    yield "setup:"
    yield from _commands(findings.setup, choice)
    lines = cleaning(findings, filter(choice.runs, findings.setup))
    if lines:
        yield "# Not in .gitignore: without this, the directory would be committed."
        yield "teardown:"
        yield from (f"  - {scalar(line)}" for line in lines)
    yield "\n# Must succeed after the agent has ended; otherwise the worker is `partial`."
    yield "checks:"
    whole = findings.make_test
    yield from _commands((whole,) if whole and choice.runs(whole) else findings.checks, choice)
    yield "\n# Untracked files to copy to each worker. [named]"
    for name in findings.env_examples:
        yield comment(f"{name} describes a file that workers lack, because it may hold secrets.")
    yield "# copy:"
    wanted = [f"{name.rpartition('/')[0]}/.env".lstrip("/") for name in findings.env_examples]
    yield from (f"#   - {scalar(name)}" for name in wanted or [".env"])
    if findings.compose_file is not None:
        yield from _services(findings, plain=choice.services)


def _commands(commands: Iterable[Command], choice: Choice) -> Iterator[str]:
    for command in commands:
        yield "  " + comment(f"{command.source}:")
        problem = choice.problem(command)
        if problem is None:
            yield f"  - {scalar(command.line)}"
        else:
            yield "  " + comment(problem)
            yield f"  # - {scalar(command.line)}"
    if not commands:
        yield "  # - make ready"


def _services(findings: Findings, *, plain: bool) -> Iterator[str]:
    yield "\n" + comment(f"Services of each worker, from {findings.compose_file}. [named]")
    for name, reason in findings.other_services.items():
        yield comment(f"Not included: `{name}` {reason}")
    lines = ["services:"] if findings.services else []
    for service in findings.services:
        lines.append(f"  {scalar(service.name)}:")
        if service.left_out:
            lines.append("    " + comment(f"left out: {', '.join(service.left_out)}"))
        lines += split_lines(textwrap.indent(_dump(service.values), "    "))
    yield from (line if plain else f"# {line}" for line in lines)


def cleaning(findings: Findings, setups: Iterable[Command]) -> list[str]:
    """Return the commands that remove what setup commands create and git does not ignore."""
    names = [command.leaves for command in setups if command.leaves in findings.to_remove]
    return [shlex.join(["rm", "-rf", name]) for name in names if name]


def build_command(agent_cli: str | None, container: str) -> str:
    """Return the command that builds an image with a project's programs and an agent program."""
    agent = ["--agent", agent_cli] if agent_cli else []
    return shlex.join(["orchestrator", "image", "build", *agent, "--from", container])


class _Dumper(yaml.SafeDumper):
    """Writes every text on one line, in ASCII."""

    def represent_one_line(self, data: str) -> yaml.ScalarNode:
        style = '"' if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    yaml_representers: ClassVar[dict[type, Any]] = {
        **yaml.SafeDumper.yaml_representers,
        str: represent_one_line,
    }


def _dump(value: object) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=float("inf")))


def scalar(value: object) -> str:
    """Return a text or a number in YAML syntax, on one line."""
    return _dump([value]).removeprefix("- ").rstrip("\n")


def comment(text: str) -> str:
    """Return text as a YAML comment of exactly one line."""
    return f"# {one_line(text, limit=_LONGEST)}"
