"""Write a configuration file that fits what was found.

The file will lie in the repository, where nobody names it: what only a named file may say is
written as a comment. So is what cannot work in the image.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import yaml

from orchestrator.cli.init.findings import Command, Findings, FoundService
from orchestrator.text.sanitize import one_line

FILE_NAME = "orchestrator.yaml"
_PLAIN = re.compile(r"(?!\.[0-9])[A-Za-z./](?:[A-Za-z0-9 ./_=@+,&'\"$;|()\[\]-]|:(?=[^\s]))*(?<! )")
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_LONGEST = 300
_WIDE = 2**20
_HEAD = f"""\
# Settings of `orchestrator parallel` for this project, written by `orchestrator init`.
#   `orchestrator config show`       what a run would use, and why
#   `orchestrator config validate`   what is wrong with this file
#   `orchestrator config schema`     every key and what it takes
# Options and variables beat what stands here. What is marked with [named] holds only in a file that
# you name, because anybody who can change the repository can change this file:
#   orchestrator parallel --config {FILE_NAME} "a task"
"""
_GENERAL = """
parallel_runs:
{agent}
  # model: NAME               # of all workers; `models: [a, b]` is one each
  # workers: 3                # at one time, 1-10
  # timeout_per_worker: 600   # seconds; 0 is no limit
  # budget_per_worker: 2.5    # USD
  # retries: 1                # start a worker again that failed for a reason which may pass
{image}

container:
  # cpus: 2                   # more than the defaults: [named]
  # memory: 4g
  # network: open             # `none`: no network at all
  # setup_network: open       # [named] for setup alone, where the worker's own is `none`
  # check_network: open       # [named] for checks that fetch what they need, as `go test` may
  # secrets: [NPM_TOKEN]      # [named] variables of yours, as files in /run/secrets

# triggers:
#   silence: 300              # seconds without output until you are told
"""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was asked for, and what is there."""

    agent_cli: str | None
    image: str
    """What workers run in."""
    own_image: bool
    """Whether it is not the agent program's own."""
    programs: frozenset[str]
    """Programs that the image has."""
    services: bool
    """Whether services are to be started, which only a named file may ask for."""


def needs_naming(findings: Findings, choice: Choice) -> bool:
    """Return whether the file is only of use when it is named.

    Services are not taken from another file, and `setup` of another one has no network.
    """
    return choice.services or any(one.needs in choice.programs for one in findings.setup)


def written(findings: Findings, choice: Choice) -> str:
    """Return the text of the file."""
    agent = _AGENT
    if choice.agent_cli:
        agent = f"  agent_cli: {scalar(choice.agent_cli)}"
        if not needs_naming(findings, choice):
            agent = f"  # agent_cli: {scalar(choice.agent_cli)}   # [named]"
    image = f"  # image: {scalar(choice.image)}" + "   # [named]" if choice.own_image else _IMAGE
    parts = [
        _HEAD,
        _GENERAL.format(agent=agent, image=image),
        "\n".join(_setup(findings, choice)),
        "\n".join(_checks(findings, choice)),
        "\n".join(_files(findings)),
        "\n".join(_services(findings, choice)),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


_AGENT = "  # agent_cli: architect      # [named] the agent program; `shell` runs tasks as commands"
_IMAGE = "  # image: IMAGE              # [named] instead of the agent program's own"


def _setup(findings: Findings, choice: Choice) -> Iterator[str]:
    yield "# What makes a fresh worktree ready, before the agent starts. Without `--config` it has"
    yield "# no network, and none of your variables and secrets."
    yield from _packages(findings, choice)
    yield "setup:"
    yield from _commands(findings.setup, choice)
    filled = [command.leaves for command in findings.setup if command.needs in choice.programs]
    removed = [name for name in filled if name in findings.to_remove]
    if removed:
        yield "# Not in .gitignore: what is left there would be committed."
        yield "teardown:"
        yield from (f"  - {scalar(shlex.join(['rm', '-rf', name]))}" for name in removed if name)


def _packages(findings: Findings, choice: Choice) -> Iterator[str]:
    if findings.members:
        yield comment(f"Packages: {', '.join(findings.members)}")
    for name in findings.containers:
        build = build_command(choice.agent_cli, name)
        yield comment(f"The project's own image as the base of the workers': `{build}`")


def _checks(findings: Findings, choice: Choice) -> Iterator[str]:
    yield "# What must work when an agent has ended: a worker whose checks fail is `partial`."
    yield "checks:"
    yield from _commands(findings.checks, choice)


def _commands(commands: Iterable[Command], choice: Choice) -> Iterator[str]:
    nothing = True
    for command in commands:
        nothing = False
        yield "  " + comment(f"{command.source}:")
        if command.needs in choice.programs:
            yield f"  - {scalar(command.line)}"
        else:
            yield "  " + comment(f"needs `{command.needs}`, which {choice.image} does not have")
            yield f"  # - {scalar(command.line)}"
    if nothing:
        yield "  # - make ready"


def _files(findings: Findings) -> Iterator[str]:
    yield "# Untracked files that workers get a copy of. [named]"
    for name in findings.env_examples:
        yield comment(f"{name} speaks of a file that workers do not have, as it may hold secrets.")
    yield "# copy:"
    wanted = [name.rpartition("/")[0] + "/.env" for name in findings.env_examples]
    yield from (f"#   - {scalar(name.lstrip('/'))}" for name in wanted or [".env"])


def _services(findings: Findings, choice: Choice) -> Iterator[str]:
    if findings.compose_file is None:
        return
    yield comment(f"Services of each worker's own, as {findings.compose_file} has them. [named]")
    for name, reason in findings.other_services.items():
        yield comment(f"Not taken over: `{name}` {reason}")
    if findings.services:
        yield from _commented(_service_lines(findings.services), plain=choice.services)


def _service_lines(services: Iterable[FoundService]) -> Iterator[str]:
    yield "services:"
    for service in services:
        yield f"  {scalar(service.name)}:"
        if service.left_out:
            yield "    " + comment(f"left out: {', '.join(service.left_out)}")
        yield from _mapping(service.values, "    ")


def build_command(agent_cli: str | None, container: str) -> str:
    """Return the command that puts an agent program on top of a project's own image."""
    agent = ["--agent", agent_cli] if agent_cli else []
    return shlex.join(["orchestrator", "image", "build", *agent, "--from", container])


def _mapping(values: Mapping[str, object], indent: str) -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield f"{indent}{scalar(key)}:"
            yield from _mapping(value, indent + "  ")
        else:
            yield f"{indent}{scalar(key)}: {scalar(value)}"


def _commented(lines: Iterable[str], *, plain: bool) -> Iterator[str]:
    return (line if plain else f"# {line}" for line in lines)


def scalar(value: object) -> str:
    """Return a text or a number as YAML has it on one line."""
    text = str(value)
    if isinstance(value, int):
        return text
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    return yaml.safe_dump(text, default_style='"', width=_WIDE).strip()


def comment(text: str) -> str:
    """Return a comment that ends where its line does, whatever is in it."""
    return f"# {one_line(text, limit=_LONGEST)}"
