"""`orchestrator image`: build, list, save, load and push the images that workers run in."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from json import dumps
from pathlib import Path
from typing import Annotated

import humanize
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.base.errors import ConfigError, ImageNotFoundError
from orchestrator.base.files.user_state import state_home
from orchestrator.base.text.quantities import size as amount
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.settings.cluster import check_registry
from orchestrator.config.settings.company import Company
from orchestrator.engine import load_engine
from orchestrator.engine.images.archive import ArchivedImage, load_images, save_images
from orchestrator.engine.images.builder import ImageBuilder, ImageStatus, image_statuses
from orchestrator.engine.images.names import BASE_IMAGE, BROKER_IMAGE, image_hint, worker_image
from orchestrator.engine.images.project import ProjectImage, read_project
from orchestrator.engine.images.recipes import RECIPE
from orchestrator.engine.images.registry import push_images
from orchestrator.engine.images.sbom import software_bill
from orchestrator.engine.interface.image_protocol import Progress
from orchestrator.faces.cli.options import Json, with_options
from orchestrator.faces.cli.output.build_progress import BuildProgress
from orchestrator.faces.cli.output.messages import show, show_json, tell
from orchestrator.faces.cli.output.views import is_redrawn
from orchestrator.worker.workspace.untracked import held_back

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Build, list, save, load and push the images that workers run in.",
)


_SHOWN = 5
"""Maximum number of file names in a message."""


class AgentImage(StrEnum):
    """Images that `orchestrator image build` can build, most of them for an agent program."""

    ARCHITECT = "architect"
    CLAUDE = "claude"
    CODEX = "codex"
    GEMINI = "gemini"
    OPENCODE = "opencode"
    MINI = "mini"
    AIDER = "aider"
    SHELL = "shell"
    BROKER = "broker"


CompanyEntries = Annotated[
    list[str] | None,
    typer.Option(
        "--company",
        metavar="NAME=VALUE",
        envvar="ORCHESTRATOR_COMPANY",
        help="Company's mirror (`pip`, `npm`), `proxy` or `ca` file; repeatable.",
    ),
]
Silent = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Options of `image build`: what an image is built from, and its name."""

    agent: Annotated[
        AgentImage,
        typer.Option(
            help="Agent program to install; `shell`: only the base image; `broker`: "
            "the credential broker."
        ),
    ] = AgentImage.ARCHITECT
    base: Annotated[
        str | None,
        typer.Option(metavar="IMAGE", help="Base image to use, which must have git and Python."),
    ] = None
    project: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Dockerfile, devcontainer.json or folder with either; it defines the base image.",
        ),
    ] = None
    tag: Annotated[
        str | None,
        typer.Option(
            metavar="IMAGE", help=f"Name of the image. [default: {worker_image('AGENT')}]"
        ),
    ] = None
    company: CompanyEntries = None
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Rebuild all layers of the image.")
    ] = False
    quiet: Silent = False


@contextmanager
def build_variables(entries: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """Provide the variables of this process, with those of a company's network."""
    try:
        company = Company.parse(entries)
    except ValueError as error:
        raise ConfigError(f"`--company`: {error}", key="company.invalid") from error
    bundle = company.bundle()
    with tempfile.NamedTemporaryFile(prefix="orchestrator-ca-") as file:
        for notice in () if bundle is None else bundle.notices:
            tell(f"note: {notice}")
        file.write(b"" if bundle is None else bundle.pem)
        file.flush()
        own = company.environment(os.environ, is_open=True)
        known = {} if bundle is None else {"PIP_CERT": file.name}
        yield {**os.environ, **own, **known}


@app.command()
@with_options
def build(options: BuildOptions) -> None:
    """Build the image of an agent program, and print its name.

    The base image is built first if it is missing or out of date. Images that are up to date are
    kept.
    """
    if options.agent is AgentImage.SHELL and options.tag is not None:
        raise ConfigError(
            "`--tag` names an agent's image, but `shell` has no image of its own",
            key="option.conflict",
            hint=f"`shell` tasks run in the base image `{BASE_IMAGE}`",
        )
    if options.agent is AgentImage.BROKER and (options.tag or options.project):
        raise ConfigError(
            "the image of the credential broker has a fixed name and base image",
            key="option.conflict",
            hint="remove `--tag` and `--from`",
        )
    own = _project(options.project, quiet=options.quiet) if options.project else None
    with (
        closing(load_engine("docker")) as engine,
        build_progress(quiet=options.quiet) as progress,
        build_variables(options.company or ()) as environ,
    ):
        builder = ImageBuilder(
            engine=engine, environ=environ, progress=progress, use_cache=not options.no_cache
        )
        builder.build_base(options.base)
        made = build_one(builder, options.agent, tag=options.tag, project=own)
    if own and own.unused and not options.quiet:
        tell(f"note: {own.source}: not used: {', '.join(own.unused)}")
    show(made)


def image_of(agent: AgentImage) -> str:
    """Return the name that the image of an agent program has by default."""
    fixed = {AgentImage.SHELL: BASE_IMAGE, AgentImage.BROKER: BROKER_IMAGE}
    return fixed.get(agent) or worker_image(agent.value)


def build_one(
    builder: ImageBuilder,
    agent: AgentImage,
    *,
    tag: str | None = None,
    project: ProjectImage | None = None,
) -> str:
    """Build one image on the base image, which exists, and return its name."""
    if agent is AgentImage.BROKER:
        return builder.build_broker()
    if agent is not AgentImage.SHELL:
        return builder.build_worker(agent.value, tag, project=project)
    return builder.build_project(project) if project else BASE_IMAGE


def _project(path: Path, *, quiet: bool) -> ProjectImage:
    """Read how to build a project's image. Untracked files are left out, as they may be secrets."""
    described = read_project(path)
    if described.image is not None:
        return described
    left_out = held_back(described.context)
    names = sorted(name for name in left_out if name != ".git")
    if names and not quiet:
        shown = ", ".join(one_line(name) for name in names[:_SHOWN])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        tell(f"files that git does not track are left out of the image: {shown}{more}")
    return replace(described, left_out=left_out)


@app.command("ls")
def list_images(json: Json = False) -> None:
    """List the images of agents and projects, and their states."""
    with closing(load_engine("docker")) as engine:
        statuses = image_statuses(engine)
    if json:
        objects = [
            {
                "image": status.tag,
                "state": _state(status),
                "id": info.id if (info := status.info) else None,
                "recipe": info.labels.get(RECIPE) if info else None,
                "size": info.size if info else None,
                "created": info.created if info else None,
                "project": status.project,
            }
            for status in statuses
        ]
        show_json(dumps({"images": objects}, indent=2))
        return
    table = Table(box=None, pad_edge=False, header_style="")
    for title in ("IMAGE", "SIZE", "AGE", "STATE"):
        table.add_column(title, no_wrap=True)
    for status in statuses:
        size = age = "-"
        if status.info is not None:
            size = amount(status.info.size)
            created = datetime.fromisoformat(status.info.created)
            age = humanize.naturaldelta(datetime.now(UTC) - created)
        table.add_row(one_line(status.tag), size, age, _state(status))
    console = Console()
    with console.capture() as drawn:
        console.print(table)
    show(drawn.get().rstrip("\n"))


@app.command()
def save(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="New file for the archive.")],
    images: Annotated[
        list[str] | None,
        typer.Argument(metavar="IMAGE", help="Images. [default: all that this version can use]"),
    ] = None,
) -> None:
    """Save images to a file, and print their digests.

    `orchestrator image load` reads the file on a machine without network.
    """
    with closing(load_engine("docker")) as engine:
        names = images or [
            status.tag for status in image_statuses(engine) if _state(status) == "ready"
        ]
        if not names:
            raise ConfigError(
                "there is no image to save",
                key="image.none-built",
                hint="build one: `orchestrator image build`",
            )
        _show_archived(save_images(engine, names, file))


@app.command()
def load(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of `image save`.")],
    digest: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SHA256",
            help="Digest that an image may have, as `image save` printed it; repeatable. "
            "[default: any]",
        ),
    ] = None,
) -> None:
    """Load images from a file of `image save`, and print their digests."""
    with closing(load_engine("docker")) as engine:
        _show_archived(load_images(engine, file, digests=digest or ()))


@app.command()
def push(
    registry: Annotated[
        str, typer.Argument(metavar="REGISTRY", help="Registry, such as `registry.example/team`.")
    ],
    agents: Annotated[
        list[AgentImage] | None,
        typer.Option(
            "--agent",
            help="Agent program whose image is pushed, too; repeatable. [default: all images]",
        ),
    ] = None,
    quiet: Silent = False,
    json: Json = False,
) -> None:
    """Push images to a registry, for workers in a cluster, and print their digests.

    The credentials are those of `docker login`. Runs with the setting `registry` then use the
    images by these digests. What is printed are the settings with which other users do the same.
    """
    try:
        check_registry(registry)
    except ValueError as error:
        raise ConfigError(f"`{one_line(registry)}`: {error}", key="registry.invalid") from error
    with closing(load_engine("docker")) as engine, build_progress(quiet=quiet) as progress:
        ready = [found.tag for found in image_statuses(engine) if _state(found) == "ready"]
        wanted = {BASE_IMAGE, *map(image_of, agents or ())}
        for missing in wanted - {*ready}:
            raise ImageNotFoundError(
                f"`{missing}` is missing or stale", key="image.missing", hint=image_hint(missing)
            )
        names = [name for name in ready if agents is None or name in wanted]
        pushed = push_images(engine, names, registry, progress=progress)
    if json:
        show_json(dumps({"registry": registry, "images": pushed}, indent=2))
        return
    show("cluster:\n  images:")
    for image, reference in pushed.items():
        show(f'    "{one_line(image)}": "{reference}"')


@app.command()
def sbom(
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="Name of the image.")],
) -> None:
    """Print the software in an image, with versions and hashes, as CycloneDX.

    Listed are packages of Debian, Python and npm. Nothing of the image is started.
    """
    with closing(load_engine("docker")) as engine:
        show_json(dumps(software_bill(engine, image), indent=2))


def _show_archived(images: Sequence[ArchivedImage]) -> None:
    for image in images:
        show(f"{one_line(image.name)} {image.digest}")


def _state(status: ImageStatus) -> str:
    if status.info is None:
        return "missing"
    return "stale" if status.stale else "ready"


@contextmanager
def build_progress(*, quiet: bool) -> Iterator[Progress]:
    """Show the progress of a build: in place on a terminal, line by line elsewhere."""
    builds = BuildProgress(state_home() / "builds.json")
    with _show_progress(builds, quiet=quiet) as shown:

        def progress(text: str) -> None:
            builds.note(text)
            shown(text)

        yield progress
    builds.end()


@contextmanager
def _show_progress(builds: BuildProgress, *, quiet: bool) -> Iterator[Progress]:
    if quiet:
        yield lambda _: None
    # With `FORCE_COLOR`, `Console.is_terminal` would treat the log of a CI job as a terminal.
    # protection: jobs-log-does-not-count-as-terminal
    elif is_redrawn(sys.stderr):
        console = Console(stderr=True)
        with console.status("checking the images") as status:
            room = console.width - 4

            def redraw(text: str) -> None:
                step = builds.text()
                status.update(Text(one_line(f"{step}: {text}" if step else text, limit=room)))

            yield redraw
    else:

        def add(text: str) -> None:
            # A line that begins a build step ends with the estimated time left.
            _, separator, left = builds.text().partition(", ")
            is_step = separator and text.startswith("Step ")
            tell(one_line(f"{text} ({left})" if is_step else text))

        yield add
