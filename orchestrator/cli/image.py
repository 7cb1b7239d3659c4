"""`orchestrator image`: make the images that workers run in, and list them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import humanize
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.cli.messages import show, tell
from orchestrator.config import BASE_IMAGE, worker_image
from orchestrator.engine import load_engine
from orchestrator.engine.base import Engine, Progress
from orchestrator.errors import ConfigError
from orchestrator.images import ImageBuilder, ImageStatus, image_statuses
from orchestrator.sanitize import one_line

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Make and list the images that workers run in.",
)


class AgentImage(StrEnum):
    """The agent programs there is an image for."""

    ARCHITECT = "architect"
    CLAUDE = "claude"
    CODEX = "codex"
    GEMINI = "gemini"
    OPENCODE = "opencode"
    MINI = "mini"
    AIDER = "aider"
    SHELL = "shell"


@app.command()
def build(
    agent: Annotated[
        AgentImage, typer.Option(help="Agent program to put in; `shell` needs the base alone.")
    ] = AgentImage.ARCHITECT,
    base: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="Use this image, with git and Python, as base."),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help=f"Name the image. Default: {worker_image('AGENT')}."),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Make everything anew.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not tell what is done.")] = False,
) -> None:
    """Make the base image, and the image with the agent program in it.

    What is up to date is kept. Prints the name of the image.
    """
    if agent is AgentImage.SHELL and tag is not None:
        raise ConfigError(
            "`--tag` names an agent's image, and `shell` has none of its own",
            hint=f"`shell` tasks run in `{BASE_IMAGE}`",
        )
    with _engine() as engine, _shown(quiet=quiet) as progress:
        builder = ImageBuilder(
            engine=engine, environ=os.environ, progress=progress, use_cache=not no_cache
        )
        builder.build_base(base)
        shell = agent is AgentImage.SHELL
        made = BASE_IMAGE if shell else builder.build_worker(agent.value, tag)
    show(made)


@app.command("ls")
def list_images() -> None:
    """List the images, and whether they are up to date."""
    with _engine() as engine:
        statuses = image_statuses(engine)
    table = Table(box=None, pad_edge=False, header_style="")
    for title in ("IMAGE", "SIZE", "AGE", "STATE"):
        table.add_column(title, no_wrap=True)
    for status in statuses:
        table.add_row(*_row(status))
    Console().print(table)


def _row(status: ImageStatus) -> tuple[str, str, str, str]:
    if status.info is None:
        return status.tag, "-", "-", "missing"
    created = datetime.fromisoformat(status.info.created)
    age = humanize.naturaldelta(datetime.now(UTC) - created)
    size = humanize.naturalsize(status.info.size)
    return status.tag, size, age, "stale" if status.stale else "ready"


@contextmanager
def _engine() -> Iterator[Engine]:
    engine = load_engine("docker")
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def _shown(*, quiet: bool) -> Iterator[Progress]:
    """Show what is done: in place on a terminal, line by line elsewhere."""
    console = Console(stderr=True)
    if quiet:
        yield lambda _: None
    elif console.is_terminal:
        with console.status("looking at the images") as status:
            yield lambda text: status.update(Text(one_line(text, limit=console.width - 4)))
    else:
        yield lambda text: tell(one_line(text))
