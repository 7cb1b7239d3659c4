"""Entry point: runs the chosen command, and turns errors into messages and exit codes."""

import gc
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from itertools import takewhile
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from orchestrator.base.errors import ConfigError, OrchestratorError, RepositoryError
from orchestrator.base.files.owner import user_name
from orchestrator.base.text.sanitize import is_text, one_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.base.text.version import __version__
from orchestrator.faces.cli.help import GroupedCommand, convert_plainly
from orchestrator.faces.cli.output.ci import check_switches
from orchestrator.faces.cli.output.messages import show, show_json, tell, tell_failure
from orchestrator.faces.cli.output.streams import LostOutputError, Streams

INTERRUPTED = 130
_UTF8_MODE = "PYTHONUTF8"
_GARBAGE_THRESHOLD = 20_000
"""Number of new objects after which Python's garbage collector runs; Python's default is 700."""
_HELP_WIDTH = 100
"""Maximum width of `--help` in columns."""


@dataclass(frozen=True)
class _Command:
    """Module and function of a command, so that `--help` does not have to import the command."""

    module: str
    attribute: str
    help: str


@dataclass(frozen=True)
class _Group:
    """A command that consists of other commands."""

    commands: Mapping[str, _Command]
    help: str


SPEC: Mapping[str, _Command] = {
    "run": _Command("commands.spec_run", "run", "Run the tasks of a workflow file."),
    "graph": _Command("commands.spec", "graph", "Draw the tasks of a workflow file."),
    "validate": _Command("commands.spec", "validate", "Check a workflow file."),
    "schema": _Command("commands.spec", "schema", "Print the JSON Schema of workflow files."),
}
NETWORK: Mapping[str, _Command] = {
    "log": _Command(
        "commands.network", "network_log", "List the hosts that workers reached or were refused."
    ),
    "sets": _Command("commands.network", "sets", "List the hosts of the sets for `--allow`."),
}
SANDBOX: Mapping[str, _Command] = {
    "run": _Command(
        "commands.sandbox", "run", "Run a command in a container of its own, without a repository."
    ),
    "batch": _Command(
        "commands.sandbox", "batch", "Run many commands, each in a container of its own."
    ),
    "create": _Command("commands.sandbox", "create", "Create a sandbox that stays for a time."),
    "exec": _Command("commands.sandbox", "exec_", "Run a command in a sandbox."),
    "cp": _Command("commands.sandbox", "copy", "Copy files into a sandbox, or out of it."),
    "ls": _Command("commands.sandbox", "list_sandboxes", "List sandboxes."),
    "pause": _Command("commands.sandbox", "pause", "Stop the processes of a sandbox for a while."),
    "resume": _Command("commands.sandbox", "resume", "Let a paused sandbox go on."),
    "snapshot": _Command("commands.sandbox", "snapshot", "Keep the files of a sandbox."),
    "extend": _Command("commands.sandbox", "extend", "Let a sandbox live longer."),
    "rm": _Command("commands.sandbox", "remove", "End sandboxes, and remove their files."),
}
COMMANDS: Mapping[str, _Command | _Group] = {
    "parallel": _Command(
        "commands.parallel", "parallel", "Run tasks at once, each in its own container."
    ),
    "spec": _Group(SPEC, "Run, check and draw workflow files."),
    "run": _Command("commands.spec_run", "run", "Run a workflow file: short for `spec run`."),
    "run-one": _Command("commands.parallel", "run_one", "Run one task, for use in shell scripts."),
    "sandbox": _Group(SANDBOX, "Run commands in containers, without a repository."),
    "ls": _Command("commands.ls", "ls", "List runs with their worktrees, branches, containers."),
    "watch": _Command("commands.watch", "watch", "Show the progress of a run."),
    "report": _Command(
        "commands.report", "report", "Report on a run in the formats of CI systems."
    ),
    "ui": _Command("commands.ui", "ui", "Show runs in a web browser."),
    "mcp": _Command("commands.mcp", "mcp", "Serve tools for agents, by the MCP."),
    "wait": _Command("commands.stop", "wait", "Wait for the end of a run and print its result."),
    "logs": _Command("commands.logs", "logs", "Print the output of workers."),
    "events": _Command("commands.logs", "events", "Print the events of a run as NDJSON."),
    "network": _Group(NETWORK, "List hosts that workers reached, and sets of `--allow`."),
    "resume": _Command("commands.resume", "resume", "Continue a run whose process died."),
    "continue": _Command(
        "commands.resume", "continue_", "Continue a worker with a message, in its session."
    ),
    "retry": _Command("commands.resume", "retry", "Repeat one worker that has ended."),
    "stop": _Command("commands.stop", "stop", "Stop workers of a run and keep what they wrote."),
    "exec": _Command("commands.exec", "exec_", "Run a command in a running worker's container."),
    "shell": _Command("commands.exec", "shell", "Open a shell in a running worker's container."),
    "diff": _Command("commands.diff", "diff", "Show what workers of a run changed."),
    "conflicts": _Command(
        "commands.conflicts", "conflicts", "Show which branches of a run cannot be merged."
    ),
    "merge": _Command("commands.merge", "merge", "Merge the branches of workers into your branch."),
    "pr": _Command("commands.pr", "pr", "Publish workers' branches as pull requests."),
    "eval": _Command(
        "commands.judge", "eval_", "Run one task several times, and rank the results."
    ),
    "judge": _Command("commands.judge", "judge", "Rank the workers of a run by checks."),
    "compare": _Command(
        "commands.compare", "compare", "Show how the workers of a run were ranked."
    ),
    "pick": _Command("commands.pick", "pick", "Merge the best worker of a judged run."),
    "parallel-cleanup": _Command(
        "commands.cleanup", "parallel_cleanup", "Remove worktrees, branches and containers of runs."
    ),
    "gc": _Command("commands.cleanup", "gc", "Remove old workers whose work is merged."),
    "restore": _Command(
        "commands.cleanup", "restore", "Restore work from the backups of a cleanup."
    ),
    "image": _Command("commands.image", "app", "Build, list, save and load workers' images."),
    "kubernetes": _Command("commands.kubernetes", "app", "Prepare a cluster for workers."),
    "cache": _Command("commands.cache", "app", "Fill, list and remove package caches of workers."),
    "init": _Command("init.command", "init", "Write a configuration file that fits the project."),
    "config": _Command("commands.config", "app", "Print and check the configuration."),
    "setup": _Command("commands.setup", "setup", "Install what this machine lacks for runs."),
    "uninstall": _Command(
        "commands.uninstall", "uninstall", "Remove images, containers and state from this machine."
    ),
    "doctor": _Command("commands.doctor", "doctor", "Check that this machine can start a run."),
    "completion": _Command(
        "commands.completion", "completion", "Print the completion script of a shell."
    ),
}


class LazyGroup(TyperGroup):
    """Group of commands that imports each command only when it is called."""

    members: Mapping[str, _Command | _Group] = COMMANDS
    path = "orchestrator"
    """Words with which the user calls this group of commands."""

    def get_params(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Return the parameters of the command, which convert values without pydantic."""
        parameters = super().get_params(ctx)
        convert_plainly(parameters)
        return parameters

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002
        """Return the names of the group's commands, in the order of `--help`."""
        return list(self.members)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]  # noqa: ANN401, ARG002
        """Import a command, and return it."""
        command = self.members.get(cmd_name)
        if command is None:
            close = get_close_matches(cmd_name, self.members, n=1)
            hint = f"did you mean `{close[0]}`?" if close else None
            raise ConfigError(
                f"unknown command: `{cmd_name}`",
                key="command.unknown",
                hint=hint or f"run `{self.path} --help` for the commands",
            )
        target = _group(cmd_name, command) if isinstance(command, _Group) else _load(command)
        if not isinstance(target, typer.Typer):
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name)(target)
            target = single
        for registered in target.registered_commands:
            registered.cls = GroupedCommand
        target.rich_markup_mode = None
        return typer.main.get_command(target)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ANN401, ARG002
        """Write the list of commands for `--help` without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in self.members.items()])


def _load(command: _Command) -> Any:  # noqa: ANN401
    return getattr(import_module(f"orchestrator.faces.cli.{command.module}"), command.attribute)


def _group(name: str, group: _Group) -> typer.Typer:
    members = {"members": group.commands, "path": f"{LazyGroup.path} {name}"}
    kind = type("LazySubgroup", (LazyGroup,), members)
    found = typer.Typer(cls=kind, no_args_is_help=True, add_completion=False, help=group.help)
    # Typer creates a group only for an app with a callback or with several commands.
    found.callback()(_nothing)
    return found


def _nothing() -> None:
    """Do nothing: typer calls this function before each command of a group."""


app = typer.Typer(cls=LazyGroup, add_completion=False, rich_markup_mode=None)


def _show_version(wanted: bool) -> None:
    if wanted:
        # Imported here because only this option needs it.
        from orchestrator.engine.images.recipes import wanted_recipes

        recipes = wanted_recipes().items()
        show(
            "\n".join(
                [_version(), *(f"{image} recipe sha256:{checksum}" for image, checksum in recipes)]
            )
        )
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version, and the hash of each image's recipe, and exit.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print the traceback of an error.")
    ] = False,
) -> None:
    """Run many coding agents at once, each in its own git worktree and Docker container."""
    del show_version, debug


def main() -> None:
    """Run the command line and exit."""
    # protection: utf-8-mode-in-any-locale
    # Arguments, variables and file names are UTF-8 in practice. Otherwise Python would, for example
    # with `LC_ALL=C` and `PYTHONUTF8=0`, decode every non-ASCII character as undecodable bytes.
    if sys.getfilesystemencoding().lower() != "utf-8" and os.environ.get(_UTF8_MODE) != "1":
        os.environ[_UTF8_MODE] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
    # Most objects come from imports and live to the end: searching them for garbage, again and
    # again and once more at exit, takes a fifth of a short command's time.
    gc.set_threshold(_GARBAGE_THRESHOLD)
    streams = Streams()
    try:
        code = run(sys.argv[1:])
    except SystemExit as ending:
        code = int(ending.code or 0)
    try:
        code = streams.end(code)
    except KeyboardInterrupt:
        # The reader of the output does not read.
        code = INTERRUPTED
    gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; raise only SystemExit, for a signal."""
    arguments = list(arguments)
    debug = "--debug" in takewhile(lambda argument: argument.startswith("-"), arguments)
    group: Any = typer.main.get_command(app)
    try:
        check_switches(os.environ)
        _check_arguments(arguments)
        if not arguments:
            arguments = ["--help"]
        with group.make_context(
            "orchestrator", arguments, max_content_width=_HELP_WIDTH
        ) as context:
            group.invoke(context)
    except typer.Exit as ending:
        return ending.exit_code
    except LostOutputError as lost:
        return lost.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the bug printer
        if debug:
            tell(traceback.format_exc().rstrip())
        named = takewhile(lambda argument: argument != "--", arguments)
        return _report(error, as_json="--json" in named)
    return 0


def _check_arguments(arguments: Sequence[str]) -> None:
    """Check that all arguments are text: records, containers and JSON cannot store other bytes.

    Raises:
        ConfigError: An argument is not UTF-8.
    """
    for number, argument in enumerate(arguments, start=1):
        # protection: arguments-must-be-utf-8
        if not is_text(argument):
            before = arguments[number - 2] if number > 1 else ""
            after = f", after `{one_line(before, limit=60)}`," if before.startswith("-") else ""
            shown = one_line(argument, limit=60)
            raise ConfigError(
                f"argument {number} of the command{after} is not UTF-8 text: `{shown}`",
                key="argument.encoding",
                hint="write the argument in UTF-8; if it names a file, rename the file",
            )


def _is_nowhere() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _report(error: Exception, *, as_json: bool) -> int:
    """Print an error, which is also the result if that was to be JSON; return the exit code."""
    if isinstance(error, typer.TyperException) and error.message.startswith("Usage: "):
        # A group of commands was called without a command.
        show(error.message)
        return 0
    failure = _failure(error)
    tell_failure(failure)
    if as_json:
        show_json(dumps({"error": failure.values()}, indent=2))
    return failure.exit_code


def _failure(error: Exception) -> OrchestratorError:
    """Return what any error is for the user; what is unknown is a bug."""
    if isinstance(error, OrchestratorError):
        return error
    if isinstance(error, typer.TyperException):
        message, hint = _usage_message(error)
        return ConfigError(message, key="command-line.invalid", hint=hint)
    if isinstance(error, PermissionError) and error.filename:
        path = Path(os.fsdecode(error.filename))
        found = next((parent for parent in (path, *path.parents) if os.path.lexists(parent)), None)
        owner = f": {found} belongs to {user_name(found.lstat().st_uid)}" if found else ""
        return ConfigError(
            f"cannot use {path}: {error.strerror}{owner}",
            key="file.forbidden",
            hint="work as the owner of the file, or give yourself access to it; users who share a "
            "repository need `git config core.sharedRepository group` and one group for its files",
        )
    if isinstance(error, FileNotFoundError) and _is_nowhere():
        return RepositoryError(
            "the current directory was removed", key="directory.removed", hint="change to another"
        )
    what = (split_lines(str(error)) or [""])[0]
    return OrchestratorError(
        f"internal error: {type(error).__name__}: {what}",
        key="internal.error",
        hint="run the command again as `orchestrator --debug ...`, and report the output with: "
        f"{_versions()}",
    )


def _versions() -> str:
    # Imported here because only the report of a bug needs it.
    import platform

    return f"{_version()}, Python {platform.python_version()}, {platform.platform(terse=True)}"


def _version() -> str:
    return f"orchestrator {__version__}"


_IN_OUR_WORDS = {
    "Value error, ": "",
    r"Input should be a valid integer\b.*": "must be a whole number",
    r"Input should be greater than or equal to (\S+)": r"must be at least \1",
}


def _usage_message(error: typer.TyperException) -> tuple[str, str | None]:
    """Return the error message and the hint for an invalid command line, in our style."""
    context = getattr(error, "ctx", None)
    unknown = getattr(error, "option_name", None)
    if unknown and "No such option" in error.message:
        known = _options(context)
        close = get_close_matches(unknown, known, n=1, cutoff=0.6)
        return f"unknown option: `{unknown}`", (
            f"did you mean `{close[0]}`?" if close else _point_to_help(context)
        )
    message = re.sub(r"'([^']*)'", r"`\1`", error.format_message().rstrip("."))
    for raw, ours in _IN_OUR_WORDS.items():
        message = re.sub(raw, ours, message)
    if "extra argument" in message and "--task" in _options(context):
        return "only one task can be an argument", "quote its words; repeat `--task CMD` for more"
    return message[:1].lower() + message[1:], _point_to_help(context)


def _options(context: typer.Context | None) -> list[str]:
    return [name for param in context.command.params for name in param.opts] if context else []


def _point_to_help(context: typer.Context | None) -> str | None:
    return f"run `{context.command_path} --help` for the options" if context else None
