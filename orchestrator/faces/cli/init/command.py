"""`orchestrator init`: write a configuration file that fits the project."""

import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.agents import load_agent
from orchestrator.base.errors import ConfigError, OrchestratorError
from orchestrator.base.files.output import create_output, write_output
from orchestrator.base.text.quantities import count
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.loading.loading import check_file
from orchestrator.config.loading.sources import agent_names
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig, repository_config_files
from orchestrator.engine import ContainerEngine, load_engine
from orchestrator.faces.cli.init.project_tree import Tree
from orchestrator.faces.cli.init.render import (
    FILE_NAME,
    Choice,
    build_command,
    needs_naming,
    render,
)
from orchestrator.faces.cli.init.scan import Findings, look_at
from orchestrator.faces.cli.init.trial import BASE_PROGRAMS, problems_of, programs_in
from orchestrator.faces.cli.init.vscode import FILE_NAME as VSCODE_FILE
from orchestrator.faces.cli.init.vscode import write_tasks
from orchestrator.faces.cli.options import TRY_TIMEOUT, TryTimeout, with_options
from orchestrator.faces.cli.output.messages import show, tell
from orchestrator.faces.cli.signals import run_interruptibly
from orchestrator.repository.repository import Repository
from orchestrator.runs.purposes.trial import Trial

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
    for path in repository_config_files(repository.top):
        if path.exists() and not options.force:
            raise ConfigError(
                f"a configuration file exists already: {path}",
                key="configuration.exists",
                hint=f"use `--force` to write {FILE_NAME} anyway",
            )
    findings = look_at(Tree.of(repository))
    choice = _ask(options, findings)
    for line in _found_lines(findings):
        tell(line)
    choice = _try_commands(repository, findings, choice, options)
    text = render(findings, choice)
    named = _needs_naming(text) or needs_naming(findings, choice)
    target = repository.top / FILE_NAME
    try:
        if options.force and target.exists():
            write_output(target, text.encode(), top=repository.top)
        else:
            create_output(target, [text.encode()])
    except OSError as error:
        raise ConfigError(
            f"cannot write {target}: {error.strerror}",
            key="file.unwritable",
            hint="check what is there, and the directory's permissions",
        ) from error
    for line in _comment_lines(findings, choice):
        tell(line)
    show(str(target))
    words = ["orchestrator", "parallel"]
    words += ["--config", FILE_NAME] if named else []
    words += ["--agent-cli", choice.agent_cli] if choice.agent_cli and not named else []
    words += ["--image", choice.image] if choice.own_image else []
    words += ["a command" if choice.agent_cli == "shell" else "a task"]
    validate = f"orchestrator config validate{f' {FILE_NAME}' if named else ''}"
    tell(f"next: check {FILE_NAME}, run `{validate}`, then `{shlex.join(words)}`")


def _ask(options: InitOptions, findings: Findings) -> Choice:
    """Return the user's choice; on a terminal, ask for what the options leave open."""
    agent_cli, services = options.agent_cli, options.services
    if sys.stdin.isatty() and sys.stderr.isatty() and not options.yes:
        names = agent_names()
        asked = ", ".join(service.name for service in findings.services)
        try:
            while agent_cli is None or (options.agent_cli is None and agent_cli not in names):
                question = f"Agent program ({', '.join(names)})"
                agent_cli = str(typer.prompt(question, default=_DEFAULT_AGENT, err=True))
            if asked and services is None:
                question = f"Start {asked} for each worker? The file then needs `--config`"
                services = typer.confirm(question, default=False, err=True)
        except typer.Abort as error:
            raise KeyboardInterrupt from error
    return Choice(
        agent_cli=agent_cli,
        image=options.image or load_agent(agent_cli or _DEFAULT_AGENT).image,
        own_image=options.image is not None,
        programs=BASE_PROGRAMS,
        services=bool(services),
    )


def _try_commands(
    repository: Repository, findings: Findings, choice: Choice, options: InitOptions
) -> Choice:
    """Return the choice with the programs of the image, and the problems of commands."""
    commands = (*findings.setup, *findings.checks)
    if not commands:
        return choice
    try:
        with closing(load_engine("docker")) as engine:
            wanted = {command.needs for command in commands}
            programs = programs_in(engine, choice.image, wanted, repository.common_dir)
            why = f"{choice.image} is missing"
            if programs is not None:
                choice = replace(choice, programs=programs)
                commands = tuple(filter(choice.runs, commands))
                why = "`--no-try`"
                if options.tries and commands:
                    problems = _problems(repository, findings, choice, engine, options.try_timeout)
                    return replace(choice, problems=problems)
    except OrchestratorError as error:
        why = error.message
    return replace(choice, problems={command.line: f"not tried: {why}" for command in commands})


def _problems(
    repository: Repository,
    findings: Findings,
    choice: Choice,
    engine: ContainerEngine,
    limit: float,
) -> dict[str, str]:
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


def _found_lines(findings: Findings) -> Iterator[str]:
    for tools in findings.tools:
        yield f"found {tools.name}: {one_line(tools.source)}"
    if findings.make_test is not None:
        yield f"found tests: {findings.make_test.line} ({findings.make_test.source})"
    if findings.members:
        yield f"found {count(len(findings.members), 'package')} below the top directory"
    if findings.compose_file is not None:
        carried = ", ".join(service.name for service in findings.services)
        others = ", ".join(one_line(name, limit=60) for name in findings.other_services)
        yield (
            f"found {findings.compose_file}: {carried or 'no service to include'}"
            + (f"; not included: {others}" if others else "")
        )
    for name in (*findings.env_examples, *findings.containers):
        yield f"found {one_line(name)}"
    for name, reason in findings.unusable.items():
        yield f"found {one_line(name)}, which cannot be used as image: {one_line(reason)}"
    for problem in findings.unreadable:
        yield f"a file could not be read: {one_line(problem)}"
    if findings == Findings():
        yield "found no files that show how the project is built or tested"


def _comment_lines(findings: Findings, choice: Choice) -> Iterator[str]:
    """Yield why commands are written as comments."""
    commands = (*findings.setup, *findings.checks)
    problems = [choice.problems.get(command.line) for command in commands]
    lacking = [
        f"`{command.needs}`"
        for command, problem in zip(commands, problems, strict=True)
        if problem is None and command.needs not in choice.programs
    ]
    if lacking:
        names = ", ".join(dict.fromkeys(lacking))
        yield f"{choice.image} does not have {names}: commands that need them are comments"
    if findings.containers and not all(map(choice.runs, commands)):
        build = one_line(build_command(choice.agent_cli, findings.containers[0]))
        yield (
            f"the project's own image may have what is missing: `{build}`, then "
            "`init --force --image IMAGE`"
        )
    for reason in sorted({problem for problem in problems if problem}):
        if reason.startswith("not tried: "):
            yield f"commands are written as comments, {reason}"
