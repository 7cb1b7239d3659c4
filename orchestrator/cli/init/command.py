"""`orchestrator init`: write a configuration file that fits the project."""

import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.agents import load_agent
from orchestrator.cli.init import Choice, Findings, Tree, look_at, written
from orchestrator.cli.init.image_programs import BASE_PROGRAMS, programs_in
from orchestrator.cli.init.render import FILE_NAME, build_command, needs_naming
from orchestrator.cli.output.messages import show, tell
from orchestrator.config.loading import check_file
from orchestrator.config.run import ParallelConfig, repository_config_files
from orchestrator.config.sources import agent_names
from orchestrator.engine import load_engine
from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.files.output import create_output, write_output
from orchestrator.git.repository import Repository
from orchestrator.text.quantities import count
from orchestrator.text.sanitize import one_line

_DEFAULT_AGENT = str(ParallelConfig.model_fields["agent_cli"].default)
_WITHOUT_TOOLS = "commands that need them are written as comments"


def init(
    agent_cli: Annotated[
        str | None,
        typer.Option("--agent-cli", metavar="NAME", help="Agent program of the workers."),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="IMAGE", help="Container image of the workers."),
    ] = None,
    services: Annotated[
        bool | None,
        typer.Option(
            "--services/--no-services",
            help="Include the compose file's services; runs need the new file as `--config FILE`.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Answer every question with its default.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an existing configuration file.")
    ] = False,
) -> None:
    """Write a configuration file that fits the project.

    On a terminal the command asks one or two questions, elsewhere none.
    """
    repository = Repository(Path.cwd())
    _check_room(repository.top, force=force)
    findings = look_at(Tree.of(repository))
    asking = sys.stdin.isatty() and sys.stderr.isatty() and not yes
    if asking and agent_cli is None:
        agent_cli = _ask_for_agent()
    if asking and services is None and findings.services:
        services = _ask_for_services(findings)
    chosen_image = image or load_agent(agent_cli or _DEFAULT_AGENT).image
    programs = _programs(repository, findings, chosen_image)
    choice = Choice(
        agent_cli=agent_cli,
        image=chosen_image,
        own_image=image is not None,
        programs=BASE_PROGRAMS if programs is None else programs,
        services=bool(services),
    )
    text = written(findings, choice)
    named = _needs_naming(text) or needs_naming(findings, choice)
    target = _write(repository.top / FILE_NAME, text, force=force)
    for line in (
        *_found_lines(findings),
        *_missing_lines(findings, choice, known=programs is not None),
    ):
        tell(line)
    show(str(target))
    tell(_next_steps(choice, target, named=named))


def _check_room(top: Path, *, force: bool) -> None:
    present = next((path for path in repository_config_files(top) if path.exists()), None)
    if present is not None and not force:
        raise ConfigError(
            f"a configuration file exists already: {present}",
            hint=f"use `--force` to write {FILE_NAME} anyway",
        )


def _ask_for_agent() -> str:
    names = agent_names()
    while True:
        question = f"Agent program ({', '.join(names)})"
        with _abortable():
            answer = str(typer.prompt(question, default=_DEFAULT_AGENT, err=True))
        if answer in names:
            return answer


def _ask_for_services(findings: Findings) -> bool:
    names = ", ".join(service.name for service in findings.services)
    question = f"Start {names} for each worker? The file then needs `--config`"
    with _abortable():
        return typer.confirm(question, default=False, err=True)


@contextmanager
def _abortable() -> Iterator[None]:
    try:
        yield
    except typer.Abort as error:
        raise KeyboardInterrupt from error


def _programs(repository: Repository, findings: Findings, image: str) -> frozenset[str] | None:
    """Return which programs of the found commands an image has; None if it is not inspectable."""
    wanted = {command.needs for command in (*findings.setup, *findings.checks)}
    if not wanted:
        return frozenset()
    try:
        with closing(load_engine("docker")) as engine:
            return programs_in(engine, image, wanted, repository.common_dir)
    except OrchestratorError:
        return None


def _needs_naming(text: str) -> bool:
    """Validate a generated file; return whether runs accept it only with `--config FILE`."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, FILE_NAME)
        path.write_text(text, encoding="utf-8")
        check = check_file(path)
    if check.problems:
        raise RuntimeError(f"`init` generated an invalid file: {check.problems[0]}")
    return bool(check.named_only)


def _write(target: Path, text: str, *, force: bool) -> Path:
    try:
        if force:
            write_output(target, text.encode(), top=target.parent)
        else:
            create_output(target, text.encode())
    except OSError as error:
        raise ConfigError(
            f"cannot write {target}: {error.strerror}", hint="check the directory's permissions"
        ) from error
    return target


def _found_lines(findings: Findings) -> Iterator[str]:
    for tools in findings.tools:
        yield f"found {tools.name}: {one_line(tools.source)}"
    if findings.make_test is not None:
        yield f"found tests: {findings.make_test.line} ({findings.make_test.source})"
    if findings.members:
        yield f"found {count(len(findings.members), 'package')} below the top directory"
    if findings.compose_file is not None:
        carried = [service.name for service in findings.services]
        others = [one_line(name, limit=60) for name in findings.other_services]
        yield (
            f"found {findings.compose_file}: {', '.join(carried) or 'no service to include'}"
            + (f"; not included: {', '.join(others)}" if others else "")
        )
    for name in (*findings.env_examples, *findings.containers):
        yield f"found {one_line(name)}"
    for problem in findings.unreadable:
        yield f"a file could not be read: {one_line(problem)}"
    if findings == Findings():
        yield "found no files that show how the project is built or tested"


def _missing_lines(findings: Findings, choice: Choice, *, known: bool) -> Iterator[str]:
    wanted = dict.fromkeys(command.needs for command in (*findings.setup, *findings.checks))
    missing = [name for name in wanted if name not in choice.programs]
    if not missing:
        return
    names = ", ".join(f"`{name}`" for name in missing)
    if findings.containers:
        build = one_line(build_command(choice.agent_cli, findings.containers[0]))
        yield f"the project's own image may have them: `{build}`, then `init --force --image IMAGE`"
    if known:
        yield f"{choice.image} does not have {names}: {_WITHOUT_TOOLS}"
    else:
        yield f"{choice.image} is missing, so {names} could not be found: {_WITHOUT_TOOLS}"
        yield "once the image exists, run `orchestrator init --force` again"


def _next_steps(choice: Choice, target: Path, *, named: bool) -> str:
    words = ["orchestrator", "parallel"]
    words += ["--config", FILE_NAME] if named else []
    words += ["--agent-cli", choice.agent_cli] if choice.agent_cli and not named else []
    words += ["--image", choice.image] if choice.own_image else []
    words += ["a command" if choice.agent_cli == "shell" else "a task"]
    validate = f"orchestrator config validate{f' {FILE_NAME}' if named else ''}"
    return f"next: check {target.name}, run `{validate}`, then `{shlex.join(words)}`"
