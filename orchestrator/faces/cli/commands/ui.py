"""`orchestrator ui`: show runs in a web browser."""

import webbrowser
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from signal import SIGHUP, SIGTERM
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.user_state import state_home
from orchestrator.base.text.quantities import count
from orchestrator.engine import engine_of_run
from orchestrator.faces.cli.options import optional_packages, with_options
from orchestrator.faces.cli.output.messages import show, tell
from orchestrator.faces.cli.tty import unwinding
from orchestrator.repository.repository import Repository

if TYPE_CHECKING:
    # The packages of the web view are optional.
    from orchestrator.faces.web.run_catalog import RunCatalog

_PACKAGES = frozenset({"starlette", "uvicorn", "jinja2", "markupsafe", "anyio", "h11"})
"""Packages of the extra `ui`."""

Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="PORT",
        min=1,
        max=65535,
        help="Port of 127.0.0.1; a fixed port keeps browsers signed in after a restart. "
        "[default: a free port]",
    ),
]
Socket = Annotated[
    Path | None,
    typer.Option(
        "--socket", metavar="PATH", help="Serve at a Unix socket of this path instead of a port."
    ),
]
Open = Annotated[bool, typer.Option("--open", help="Open the web view in a browser.")]
ReadOnly = Annotated[
    bool, typer.Option("--read-only", help="Show runs without buttons that change anything.")
]
Roots = Annotated[
    list[Path] | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Directory in the repository whose runs are shown; repeatable. "
        "[default: the current directory]",
    ),
]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export", metavar="DIR", help="Write the pages as files into a directory, and exit."
    ),
]


@dataclass(frozen=True, kw_only=True)
class UiOptions:
    """Options of `orchestrator ui`: the repositories to show, and the address of the server."""

    port: Port = None
    socket: Socket = None
    open: Open = False
    read_only: ReadOnly = False
    root: Roots = None
    export: Export = None


@with_options
def ui(options: UiOptions) -> None:
    """Show the runs of repositories in a web browser.

    The link on stderr signs in one browser, and works only once. Pages show live and ended runs;
    they are made from the files of the runs, and do not need the processes of the runs.
    """
    serving = {
        "--port": options.port,
        "--socket": options.socket,
        "--open": options.open,
        "--read-only": options.read_only,
    }
    named = [name for name, value in serving.items() if value]
    if options.export is not None and named:
        raise ConfigError(f"`--export` cannot be used with `{named[0]}`", key="option.conflict")
    if options.socket is not None and named[0] in ("--port", "--open"):
        raise ConfigError(f"`--socket` cannot be used with `{named[0]}`", key="option.conflict")
    if options.socket is not None and options.open:
        raise ConfigError("`--socket` cannot be used with `--open`", key="option.conflict")
    repositories = [Repository(path) for path in options.root or [Path.cwd()]]
    with optional_packages("the web view", "ui", _PACKAGES):
        from orchestrator.faces.web.export import export
        from orchestrator.faces.web.run_catalog import LiveUsage, RunCatalog
    if options.export is None:
        usage = LiveUsage(engine_of_run)
        with closing(RunCatalog(repositories, usage)) as catalog:
            _serve(catalog, options)
        return
    with closing(RunCatalog(repositories, None)) as catalog:
        runs = export(catalog, options.export)
    show(f"wrote {count(runs, 'run')}: {options.export / 'index.html'}")


def _serve(catalog: "RunCatalog", options: UiOptions) -> None:
    with optional_packages("the web view", "ui", _PACKAGES):
        from orchestrator.faces.web.access_control import Sessions
        from orchestrator.faces.web.actions import Actions
        from orchestrator.faces.web.app import Web
        from orchestrator.faces.web.server import listening, listening_at, serve
    at = options.socket
    listener = listening(options.port or 0) if at is None else listening_at(at)
    # Hashes of the browsers' sessions at a fixed port are kept.
    store = None if options.port is None else state_home() / f"ui-{options.port}"
    # Ctrl-C is the documented end, with exit code 0.
    with unwinding((SIGTERM, SIGHUP)), listener as opened:
        sessions = Sessions(store)
        web = Web(catalog, sessions, None if options.read_only else Actions())
        address = opened.getsockname()
        if isinstance(address, str):
            forward = f"ssh -L 8080:{address} HOST"
            tell(f"serving at the socket {address}: map a port to the socket, as with `{forward}`")
            link = f"http://localhost:8080/open#{sessions.key}"
            tell(f"open once in a browser, at the mapped port: {link}")
        else:
            link = f"http://127.0.0.1:{address[1]}/open#{sessions.key}"
            tell(f"open once in a browser: {link}")
            if options.open and not webbrowser.open(link):
                tell("no browser could be started: open the link yourself")
        tell("Ctrl-C ends the web view; runs continue")
        serve(web.with_access_control, opened)
