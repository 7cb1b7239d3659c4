"""`orchestrator uninstall`: remove what the orchestrator has on this machine."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError, NoRepositoryError
from orchestrator.base.text.sanitize import one_line
from orchestrator.engine import load_engine
from orchestrator.engine.interface.labels import REPOSITORY, RUN
from orchestrator.engine.interface.protocol import Leftover
from orchestrator.faces.cli.options import with_options
from orchestrator.faces.cli.output.messages import show, tell
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.uninstall import Belongings, find_belongings, remove_belongings

SOME_LEFT = 1
_LEFT = (
    "the package itself: `pipx uninstall`, `uv tool uninstall` or `pip uninstall`, "
    "with the name worktree-orchestrator",
    "the Docker engine, and Debian packages that `orchestrator setup` installed",
    "images that were pulled, such as debian:trixie-slim",
)


@dataclass(frozen=True, kw_only=True)
class UninstallOptions:
    """Options of `uninstall`."""

    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing.")
    ] = False
    yes: Annotated[bool, typer.Option("--yes", help="Remove everything that is listed.")] = False
    root: Annotated[
        list[Path] | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="Directory in a repository whose runs and state are removed too; repeatable. "
            "[default: the current directory]",
        ),
    ] = None


@with_options
def uninstall(options: UninstallOptions) -> None:
    """Remove images, containers, networks, volumes and state of orchestrator from this machine.

    In the current repository, or those of `--root`, the worktrees and branches of workers are
    removed as by `parallel-cleanup`: unmerged work stays in refs, which are listed.
    """
    if options.dry_run == options.yes:
        raise ConfigError("`uninstall` needs either `--dry-run` or `--yes`", key="option.missing")
    repositories = _repositories(options.root)
    with closing(load_engine("docker")) as engine:
        found = find_belongings(engine, repositories)
        if found.live and options.yes:
            raise ConfigError(
                f"in progress: {', '.join(found.live[:3])}",
                key="run.live",
                hint="stop runs in their repositories by `orchestrator stop --all`, and end "
                "sandboxes by `orchestrator sandbox rm --all`",
            )
        if options.dry_run:
            _show(found, repositories, verb="would remove")
            for run in found.live:
                tell(f"in progress, `--yes` would refuse: {one_line(run)}")
            for work in found.sole:
                tell(f"would not remove: {one_line(work, limit=500)}")
            return
        removal = remove_belongings(engine, repositories, found)
    _show(found, repositories, verb="removed")
    for ref in removal.kept:
        tell(f"left: {one_line(ref)}, with work that is in no branch of yours")
    for text in _LEFT:
        tell(f"left: {text}")
    for problem in removal.problems:
        tell(f"not removed: {one_line(problem, limit=500)}")
    if removal.problems:
        raise typer.Exit(SOME_LEFT)


def _repositories(roots: list[Path] | None) -> list[Repository]:
    if roots:
        return [Repository(root) for root in roots]
    try:
        return [Repository(Path.cwd())]
    except NoRepositoryError:
        return []


def _show(found: Belongings, repositories: list[Repository], *, verb: str) -> None:
    there = {path for path in found.state if path.exists()}
    kept = there if verb == "removed" else found.kept_state
    lines = [
        *(f"image {one_line(image)}" for image in found.images),
        *(_describe(leftover) for leftover in found.leftovers),
        *(f"{path}" for path in found.state if path not in kept),
        *(f"worktrees and branches of workers in {repository.top}" for repository in repositories
          if repository.state_dir in found.state),
    ]  # fmt: skip
    for line in lines or ["nothing"]:
        show(f"{verb} {one_line(line, limit=500)}")
    for image in found.derived:
        tell(f"left: image {one_line(image)}, which has the labels of an image of orchestrator")


def _describe(leftover: Leftover) -> str:
    run, place = (leftover.labels.get(label) for label in (RUN, REPOSITORY))
    owner = f" of run {run}" if run else ""
    return f"{leftover.kind} {leftover.id[:12]}{owner}" + (f" in {place}" if place else "")
