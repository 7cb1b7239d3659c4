"""`orchestrator setup`: install what this machine lacks, and build or load the images."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError, OrchestratorError
from orchestrator.base.text.sanitize import one_line
from orchestrator.engine import load_engine
from orchestrator.engine.images.archive import load_images
from orchestrator.engine.images.builder import ImageBuilder, image_statuses
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.machine import prepare_machine
from orchestrator.faces.cli.check import Check, check_line, check_of_error
from orchestrator.faces.cli.commands.doctor import check_git, check_image
from orchestrator.faces.cli.commands.image import (
    AgentImage,
    CompanyEntries,
    Silent,
    build_one,
    build_progress,
    build_variables,
    image_of,
)
from orchestrator.faces.cli.options import with_options
from orchestrator.faces.cli.output.messages import show, tell


@dataclass(frozen=True, kw_only=True)
class SetupOptions:
    """Options of `setup`: the images, and whether anything is changed."""

    check: Annotated[
        bool, typer.Option("--check", help="Only report what is missing; change nothing.")
    ] = False
    agent: Annotated[
        list[AgentImage] | None,
        typer.Option(
            help="Agent program whose image is built; `shell`: only the base image; repeatable. "
            "[default: architect]"
        ),
    ] = None
    load: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Load the images from a file of `image save` instead."),
    ] = None
    company: CompanyEntries = None
    quiet: Silent = False


@with_options
def setup(options: SetupOptions) -> None:
    """Install git and a Docker engine where they are missing, and build the images.

    On Debian and its derivatives, missing packages are installed as root or with sudo.
    """
    agents = options.agent or [AgentImage.ARCHITECT]
    if options.check and options.load is not None:
        raise ConfigError(
            "`--check` changes nothing", key="option.conflict", hint="remove `--load`"
        )
    if not options.check:
        prepare_machine(lambda text: None if options.quiet else tell(one_line(text)))
        if options.load is None:
            with (
                closing(load_engine("docker")) as engine,
                build_progress(quiet=options.quiet) as progress,
                build_variables(options.company or ()) as environ,
            ):
                builder = ImageBuilder(engine=engine, environ=environ, progress=progress)
                builder.build_base()
                for agent in agents:
                    build_one(builder, agent)
        else:
            with closing(load_engine("docker")) as engine:
                load_images(engine, options.load)
    checks = list(_checks(agents))
    show("\n".join(map(check_line, checks)))
    raise typer.Exit(max(check.exit_code for check in checks))


def _checks(agents: list[AgentImage]) -> Iterator[Check]:
    yield check_git()
    try:
        with closing(load_engine("docker")) as engine:
            yield Check(name="engine", detail=engine.check(images=(), runtime=None).version)
            known = {status.tag: status for status in image_statuses(engine)}
            for image in dict.fromkeys((BASE_IMAGE, *map(image_of, agents))):
                if not known[image].stale:
                    yield check_image(engine, image, required=True)
                    continue
                yield Check(
                    name="image",
                    state="warn",
                    detail=f"{image} was built by another version, or on another base",
                    hint="`orchestrator setup` builds it again",
                )
    except OrchestratorError as error:
        yield check_of_error("engine", error)
