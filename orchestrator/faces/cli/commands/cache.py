"""`orchestrator cache`: fill, list and remove the package caches of workers."""

import os
from json import dumps
from pathlib import Path

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.disk_usage import disk_use
from orchestrator.base.text.quantities import size as amount
from orchestrator.config.loading.loading import load_config
from orchestrator.faces.cli import options
from orchestrator.faces.cli.foreground import run_in_foreground
from orchestrator.faces.cli.output.formats import table, terminal_width
from orchestrator.faces.cli.output.messages import show, show_json, tell
from orchestrator.faces.cli.output.views import make_view
from orchestrator.repository.repository import Repository, find_top
from orchestrator.runs.purposes.cache_warming import Warming, warming_config
from orchestrator.worker.workspace.caches import generations, remove_generations

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Fill, list and remove the package caches of workers.",
)
_MOST_FILES = 10_000_000
_TEXTS = {
    "caches": "Package manager whose cache is filled: pip, npm, uv or cargo; repeatable.",
    "setup": "Command that fills the caches, such as `npm ci`; repeatable.",
    "setup_timeout": "Seconds for all setup commands together; 0: no limit. [default: 600]",
    "agent_cli": "Agent program in whose image the setup commands run. [default: architect]",
    "image": "Image in which the setup commands run, instead of the agent program's own.",
    "allow": "Private host, such as a package index, that setup commands may reach; repeatable.",
    "env": "Variable of the setup commands; `K` alone passes your variable on; repeatable.",
    "secrets": "Your variable NAME, or FILE, which setup gets as /run/secrets/NAME; repeatable.",
    "base": "Commit on which the setup commands run: a branch, a tag, a hash or another git "
    "revision. [default: HEAD]",
}
"""Help texts of the settings of `cache warm`."""


@app.command()
@options.with_settings(only=_TEXTS, texts=_TEXTS)
def warm(
    settings: options.GivenSettings,
    output: options.OutputOptions,
    config: options.Config = None,
) -> None:
    """Fill the caches by running the project's `setup` commands once."""
    top = find_top(Path.cwd())
    options = {**settings, "tasks": ("true",)}
    if "allow" in options:
        options["setup_allow"] = options.pop("allow")
    configured = load_config(options=options, environ=os.environ, top=top, file=config)
    warming = warming_config(configured)
    view = make_view(quiet=output.quiet)
    run = Warming(warming, top, emit=view)
    raise typer.Exit(run_in_foreground(run, warming, view, output))


@app.command("ls")
def list_caches(json: options.Json = False) -> None:
    """List the caches, newest first.

    A worker uses the newest cache that was made for its lock files, or else the newest cache.
    """
    rows = [
        (generation.name, kind.name, disk_use([kind], most_files=_MOST_FILES).size)
        for generation in generations(Repository(Path.cwd()))
        for kind in sorted(generation.iterdir())
    ]
    if json:
        caches = [{"generation": name, "cache": kind, "size": size} for name, kind, size in rows]
        show_json(dumps({"caches": caches}, indent=2))
    elif rows:
        heading = ("GENERATION", "CACHE", "SIZE")
        shown = [(name, kind, amount(size)) for name, kind, size in rows]
        show(table([heading, *shown], width=terminal_width()))
    else:
        tell("there are no caches: run `orchestrator cache warm`")


@app.command()
def clear() -> None:
    """Remove every cache; refused while a run is in progress."""
    repository = Repository(Path.cwd())
    before = generations(repository)
    removed = remove_generations(repository)
    if before and not removed:
        raise ConfigError(
            "a run is in progress and may use the caches",
            key="cache.busy",
            hint="wait for the run's end, or stop the run: `orchestrator stop --all`",
        )
    for generation in removed:
        show(f"removed {generation.name}")
    if not removed:
        tell("there are no caches")
