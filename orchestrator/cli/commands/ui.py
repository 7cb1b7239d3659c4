"""`orchestrator ui`: show runs in a web browser."""

import webbrowser
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from signal import SIGHUP, SIGTERM
from socket import socket
from typing import Annotated, Any

import typer

from orchestrator.cli.options import with_options
from orchestrator.cli.output.messages import show, tell
from orchestrator.cli.tty import unwinding
from orchestrator.engine import engine_of_run
from orchestrator.errors import ConfigError
from orchestrator.files.user_state import state_home
from orchestrator.git.repository import Repository
from orchestrator.runs.detach import continue_in_background
from orchestrator.runs.recorded import config_to_repeat
from orchestrator.runs.runner import ParallelRunner
from orchestrator.text.quantities import count

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
    _check(options)
    repositories = [Repository(path) for path in options.root or [Path.cwd()]]
    usage = None
    if options.export is None:
        usage = _web("run_catalog").LiveUsage(engine_of_run)
    with closing(_web("run_catalog").RunCatalog(repositories, usage)) as catalog:
        _show(catalog, options)


def _show(catalog: Any, options: UiOptions) -> None:  # noqa: ANN401
    if options.export is not None:
        runs = _web("export").export(catalog, options.export)
        show(f"wrote {count(runs, 'run')}: {options.export / 'index.html'}")
        return
    actions = None if options.read_only else _web("actions").Actions(repeat=_repeat)
    server = _web("server")
    # Ctrl-C is the documented end, with exit code 0.
    with unwinding((SIGTERM, SIGHUP)), _listening(server, options) as listener:
        sessions = _web("access_control").Sessions(_store(options.port))
        web = _web("app").Web(catalog, sessions, actions)
        _tell_link(listener, sessions.key, opens=options.open)
        server.serve(web.with_access_control, listener)


def _check(options: UiOptions) -> None:
    serving = {
        "--port": options.port,
        "--socket": options.socket,
        "--open": options.open,
        "--read-only": options.read_only,
    }
    named = [name for name, value in serving.items() if value]
    if options.export is not None and named:
        raise ConfigError(f"`--export` cannot be used with `{named[0]}`")
    if options.socket is not None and named[0] in ("--port", "--open"):
        raise ConfigError(f"`--socket` cannot be used with `{named[0]}`")
    if options.socket is not None and options.open:
        raise ConfigError("`--socket` cannot be used with `--open`")


def _web(module: str) -> Any:  # noqa: ANN401
    """Return a module of the web view, whose packages are optional.

    Raises:
        ConfigError: A package is not installed.
    """
    try:
        return import_module(f"orchestrator.web.{module}")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise ConfigError(
            f"the web view is not installed: the package `{error.name}` is missing",
            hint="install the extra `ui`: `pip install 'worktree-orchestrator[ui]'`",
        ) from error


@contextmanager
def _listening(server: Any, options: UiOptions) -> Iterator[socket]:  # noqa: ANN401
    if options.socket is None:
        listening = server.listening(options.port or 0)
    else:
        listening = server.listening_at(options.socket)
    with listening as listener:
        yield listener


def _store(port: int | None) -> Path | None:
    """Return the file with hashes of the browser sessions at a given port; None without a port."""
    if port is None:
        return None
    return state_home() / f"ui-{port}"


def _tell_link(listener: socket, key: str, *, opens: bool) -> None:
    address = listener.getsockname()
    if isinstance(address, str):
        forward = f"ssh -L 8080:{address} HOST"
        tell(f"serving at the socket {address}: map a port to the socket, as with `{forward}`")
        tell(f"open once in a browser, at the mapped port: http://localhost:8080/open#{key}")
    else:
        link = f"http://127.0.0.1:{address[1]}/open#{key}"
        tell(f"open once in a browser: {link}")
        if opens and not webbrowser.open(link):
            tell("no browser could be started: open the link yourself")
    tell("Ctrl-C ends the web view; runs continue")


def _repeat(repository: Repository, run_id: str, worker: int) -> str:
    """Repeat one worker of an ended run in the background, as `orchestrator retry` does.

    Raises:
        OrchestratorError: The run is live, or the new run cannot start.
    """
    config = config_to_repeat(repository, run_id, worker)
    directory = ParallelRunner(config, repository.top).reserve()
    try:
        continue_in_background(directory, top=repository.top)
    finally:
        directory.release()
    return directory.run_id
