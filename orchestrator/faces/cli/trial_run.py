"""Run the commands of a configuration once, and say which do not work."""

from contextlib import closing
from pathlib import Path

import typer

from orchestrator.base.text.sanitize import one_line
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine import load_engine
from orchestrator.faces.cli.output.messages import tell
from orchestrator.faces.cli.signals import run_interruptibly
from orchestrator.repository.repository import Repository
from orchestrator.runs.purposes.trial import Trial


def try_commands(config: ParallelConfig, limit: float) -> None:
    """Run the setup and checks of a configuration on the last commit.

    Args:
        config: The configuration.
        limit: Maximum number of seconds of the setup commands, and of each check.

    Raises:
        typer.Exit: A command does not work, or the command was interrupted.
    """
    project, top = config.project, Repository(Path.cwd()).top
    checks = [check.run for check in project.checks]
    with closing(load_engine("docker")) as engine:
        trial = Trial(config, top, engine)
        tried = run_interruptibly(
            lambda: trial.run(project.setup, checks, project.teardown, limit=limit),
            lambda again: trial.cancel(kill=again),
        )
    if tried.setup is not None:
        problems = [f"setup: {tried.setup}"]
    else:
        found = zip(checks, tried.checks, strict=True)
        problems = [f"`{line}`: {why}" for line, why in found if why is not None]
    for problem in problems:
        tell(f"does not work: {one_line(problem)}")
    if problems:
        raise typer.Exit(1)
    tell("its commands work on the last commit")
