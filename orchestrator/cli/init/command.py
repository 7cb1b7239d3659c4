"""`orchestrator init`: write a configuration file that fits the project."""

import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.agents import load_agent
from orchestrator.cli.init import Choice, Findings, Tree, look_at, render
from orchestrator.cli.init.render import FILE_NAME, build_command, needs_naming
from orchestrator.cli.init.trial import (
    BASE_PROGRAMS,
    problems_of,
    programs_in,
    reasons_not_tried,
)
from orchestrator.cli.init.vscode import FILE_NAME as VSCODE_FILE
from orchestrator.cli.init.vscode import write_tasks
from orchestrator.cli.options import TRY_TIMEOUT, TryTimeout, with_options
from orchestrator.cli.output.messages import show, tell
from orchestrator.cli.signals import run_interruptibly
from orchestrator.config.container import Isolation
from orchestrator.config.loading import check_file
from orchestrator.config.run import ParallelConfig, repository_config_files
from orchestrator.config.sources import agent_names
from orchestrator.engine import ContainerEngine, load_engine
from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.files.output import create_output, write_output
from orchestrator.git.repository import Repository
from orchestrator.runs.trial import Trial
from orchestrator.text.quantities import count
from orchestrator.text.sanitize import one_line

_DEFAULT_AGENT = str(ParallelConfig.model_fields["agent_cli"].default)


@dataclass(frozen=True, kw_only=True)
class InitOptions:
    """Options of `init`."""

    agent_cli: Annotated[
        str | None,
        typer.Option("--agent-cli", metavar="NAME", help="Agent program of the workers."),
    ] = None
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="IMAGE", help="Container image of the workers."),
    ] = None
    services: Annotated[
        bool | None,
        typer.Option(
            "--services/--no-services",
            help="Include the compose file's services; runs need the new file as `--config FILE`.",
            show_default=False,
        ),
    ] = None
    tries: Annotated[
        bool,
        typer.Option(
            "--try/--no-try",
            help="Run the found commands once in the image; without this, all are comments.",
        ),
    ] = True
    try_timeout: TryTimeout = TRY_TIMEOUT
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Answer every question with its default.")
    ] = False
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite an existing configuration file.")
    ] = False
    vscode: Annotated[
        bool,
        typer.Option(
            "--vscode", help=f"Write tasks for VS Code, {VSCODE_FILE}, in place of that file."
        ),
    ] = False


@with_options
def init(options: InitOptions) -> None:
    """Write a configuration file that fits the project.

    On a terminal the command asks one or two questions, elsewhere none. Each command that it finds
    runs once in a container, on the last commit: the file contains those that work, and the others
    as comments with the reason.
    """
    agent_cli, services = options.agent_cli, options.services
    repository = Repository(Path.cwd())
    if options.vscode:
        if options != InitOptions(vscode=True):
            raise ConfigError(
                "`--vscode` has no other option",
                key="option.conflict",
                hint="run `init` once for each file",
            )
        write_tasks(repository.top)
        return
    _check_room(repository.top, force=options.force)
    findings = look_at(Tree.of(repository))
    asking = sys.stdin.isatty() and sys.stderr.isatty() and not options.yes
    if asking and agent_cli is None:
        agent_cli = _ask_for_agent()
    if asking and services is None and findings.services:
        services = _ask_for_services(findings)
    chosen_image = options.image or load_agent(agent_cli or _DEFAULT_AGENT).image
    choice = Choice(
        agent_cli=agent_cli,
        image=chosen_image,
        own_image=options.image is not None,
        programs=BASE_PROGRAMS,
        services=bool(services),
    )
    for line in _found_lines(findings):
        tell(line)
    limit = options.try_timeout if options.tries else None
    choice = _try_commands(repository, findings, choice, limit=limit)
    text = render(findings, choice)
    named = _needs_naming(text) or needs_naming(findings, choice)
    target = _write(repository.top / FILE_NAME, text, force=options.force)
    for line in _missing_lines(findings, choice):
        tell(line)
    show(str(target))
    tell(_next_steps(choice, target, named=named))


def _check_room(top: Path, *, force: bool) -> None:
    present = next((path for path in repository_config_files(top) if path.exists()), None)
    if present is not None and not force:
        raise ConfigError(
            f"a configuration file exists already: {present}",
            key="configuration.exists",
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


def _try_commands(
    repository: Repository, findings: Findings, choice: Choice, *, limit: float | None
) -> Choice:
    """Return the choice with the programs of the image, and the problems of commands.

    Args:
        repository: The repository.
        findings: What was found in it.
        choice: The choice.
        limit: Maximum number of seconds of a command; None if no command is to be tried.
    """
    commands = (*findings.setup, *findings.checks)
    if not commands:
        return choice
    try:
        with closing(load_engine("docker")) as engine:
            wanted = {command.needs for command in commands}
            programs = programs_in(engine, choice.image, wanted, repository.common_dir)
            why = f"{choice.image} is missing" if programs is None else "`--no-try`"
            if programs is not None:
                choice = replace(choice, programs=programs)
                if limit is not None:
                    return replace(
                        choice, problems=_problems(repository, findings, choice, engine, limit)
                    )
    except OrchestratorError as error:
        why = error.message
    else:
        commands = tuple(filter(choice.runs, commands)) if programs is not None else commands
    return replace(choice, problems=dict(reasons_not_tried(commands, why)))


def _problems(
    repository: Repository,
    findings: Findings,
    choice: Choice,
    engine: ContainerEngine,
    limit: float,
) -> dict[str, str]:
    if not any(map(choice.runs, (*findings.setup, *findings.checks))):
        return {}
    repository.resolve("HEAD")
    most = f"each for at most {limit:g} s (`--no-try` skips this)"
    tell(f"trying the commands in {choice.image}, {most}")
    # Checks of the file that is written have no network, its setup commands have one.
    config = ParallelConfig(
        tasks=("-",), image=choice.image, isolation=Isolation(network="open", check_network="none")
    )
    trial = Trial(config, repository.top, engine)
    return run_interruptibly(
        lambda: problems_of(findings, choice, trial, limit=limit, tell=tell),
        lambda again: trial.cancel(kill=again),
    )


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
        if force and target.exists():
            write_output(target, text.encode(), top=target.parent)
        else:
            create_output(target, [text.encode()])
    except OSError as error:
        raise ConfigError(
            f"cannot write {target}: {error.strerror}",
            key="file.unwritable",
            hint="check what is there, and the directory's permissions",
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
    for name, reason in findings.unusable.items():
        yield f"found {one_line(name)}, which cannot be used as image: {one_line(reason)}"
    for problem in findings.unreadable:
        yield f"a file could not be read: {one_line(problem)}"
    if findings == Findings():
        yield "found no files that show how the project is built or tested"


def _missing_lines(findings: Findings, choice: Choice) -> Iterator[str]:
    commands = (*findings.setup, *findings.checks)
    unknown = [command for command in commands if command.line not in choice.problems]
    missing = dict.fromkeys(
        command.needs for command in unknown if command.needs not in choice.programs
    )
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        yield f"{choice.image} does not have {names}: commands that need them are comments"
    if findings.containers and not all(map(choice.runs, commands)):
        build = one_line(build_command(choice.agent_cli, findings.containers[0]))
        yield (
            f"the project's own image may have what is missing: `{build}`, then "
            "`init --force --image IMAGE`"
        )
    reasons = {
        choice.problems[command.line] for command in commands if command.line in choice.problems
    }
    for reason in sorted(reason for reason in reasons if reason.startswith("not tried: ")):
        yield f"commands are written as comments, {reason}"


def _next_steps(choice: Choice, target: Path, *, named: bool) -> str:
    words = ["orchestrator", "parallel"]
    words += ["--config", FILE_NAME] if named else []
    words += ["--agent-cli", choice.agent_cli] if choice.agent_cli and not named else []
    words += ["--image", choice.image] if choice.own_image else []
    words += ["a command" if choice.agent_cli == "shell" else "a task"]
    validate = f"orchestrator config validate{f' {FILE_NAME}' if named else ''}"
    return f"next: check {target.name}, run `{validate}`, then `{shlex.join(words)}`"
