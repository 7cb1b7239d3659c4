"""`orchestrator mcp`: serve tools for agents by the Model Context Protocol."""

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, get_args

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.settings.run import MOST_EVER
from orchestrator.faces.cli.options import Config, optional_packages, with_options
from orchestrator.faces.cli.output.messages import tell
from orchestrator.repository.repository import Repository

_PACKAGES = frozenset({"mcp", "mcp_types", "anyio"})
"""Packages of the extra `mcp`."""

Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Directory in the repository that agents work with. [default: the current directory]",
    ),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="ACTIONS",
        help="What agents may do, from `run,stop,pick,merge`; repeatable. [default: only read]",
    ),
]
MaxWorkers = Annotated[
    int,
    typer.Option(
        "--max-workers",
        metavar="N",
        min=1,
        max=MOST_EVER,
        help="Maximum number of workers at the same time, of all runs that agents start.",
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget-total",
        metavar="USD",
        help="Budget of all runs together that agents start. [default: that of the configuration, "
        "for each run]",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Preset of the runs that agents start: `untrusted`, `ci` or `trusted`.",
    ),
]
AgentCli = Annotated[
    str | None,
    typer.Option("--agent-cli", metavar="NAME", help="Agent program of the workers."),
]


@dataclass(frozen=True, kw_only=True)
class McpOptions:
    """Options of `orchestrator mcp`: the repository, and what clients may do in it."""

    root: Root = None
    allow: Allow = None
    max_workers: MaxWorkers = 3
    budget_total: Budget = None
    preset: Preset = None
    agent_cli: AgentCli = None
    config: Config = None


@with_options
def mcp(options: McpOptions) -> None:
    """Serve tools for agents on stdin and stdout, by the Model Context Protocol.

    Agents can read runs, and with `--allow` start, stop and merge them. They cannot set what a
    configuration file that you did not name cannot set, such as images, variables or hosts.
    """
    repository = Repository(options.root or Path.cwd())
    with optional_packages("the MCP server", "mcp", _PACKAGES):
        from orchestrator.faces.mcp.server import Allowed, serve
        from orchestrator.faces.mcp.starting import Limits, Starter
        from orchestrator.faces.mcp.tools import offer_tools
    given = options.allow or []
    known = get_args(Allowed)
    words = {word.strip() for text in given for word in text.split(",")} - {""}
    wrong = sorted(words - {*known})
    if wrong:
        raise ConfigError(
            f"option `--allow` is `{one_line(wrong[0])}`: must be of {', '.join(known)}",
            key="option.invalid",
        )
    named = words
    allowed: tuple[Allowed, ...] = tuple(word for word in get_args(Allowed) if word in named)
    if options.budget_total is not None and not 0 < options.budget_total < inf:
        raise ConfigError(
            f"option `--budget-total` is `{options.budget_total}`: must be above 0",
            key="option.invalid",
        )
    limits = Limits(
        options={"preset": options.preset, "agent_cli": options.agent_cli},
        config=options.config.absolute() if options.config else None,
        max_workers=options.max_workers,
        budget_total=options.budget_total,
    )
    Starter(repository, limits).check()
    tools = offer_tools(repository, limits, allowed)
    shown = ", ".join(allowed) or "nothing: agents only read"
    tell(f"serving {repository.top} on stdin and stdout; allowed: {shown}")
    try:
        serve(tools)
    except KeyboardInterrupt:
        # Ctrl-C is an ordinary end.
        raise typer.Exit from None
