"""`orchestrator sandbox`: run commands in containers, without a repository."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.config.settings.option import Group
from orchestrator.faces.cli.options import (
    GivenSettings,
    Json,
    OptionsOf,
    Quiet,
    import_later,
    with_options,
)
from orchestrator.faces.cli.output.messages import show

if TYPE_CHECKING:
    from orchestrator.sandbox.live.box import Sandbox

_LIMITS = (
    *("cpus", "memory", "pids", "disk", "inodes", "log_limit"),
    *("idle_timeout", "grace"),
)
_OF_ALL = OptionsOf(
    "SandboxLimits",
    only=_LIMITS,
    texts={
        "idle_timeout": "Seconds without output after which the command is stopped; 0: no limit. "
        "[default: 0]",
    },
)
_OF_BATCH = OptionsOf(
    "Submission",
    only=("env", "timeout"),
    texts={
        "env": "Variable of all commands; `K` alone passes your variable on; repeatable.",
        "timeout": "Seconds after which a command is stopped whose line has no `timeout`. "
        "[default: 60]",
    },
)
LimitOptions = Annotated[GivenSettings, _OF_ALL]
TemplateOptions = Annotated[GivenSettings, OptionsOf("Template")]
Command = Annotated[
    list[str], typer.Argument(metavar="CMD", help="Command to run and its arguments, after `--`.")
]

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the sandbox.")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="K=V", help="Label of the sandbox; repeatable."),
]
_OF_ONE = OptionsOf(
    "Submission",
    only=("stdin", "env", "timeout"),
    texts={
        "timeout": "Seconds after which the command is stopped. [default: when the sandbox ends]"
    },
)

_run = import_later("sandbox_run", "run_command")
_batch = import_later("sandbox_batch", "run_batch")
_create = import_later("sandbox_live", "create_sandbox")
_execute = import_later("sandbox_live", "execute")
_copy = import_later("sandbox_live", "copy_files")
_list = import_later("sandbox_live", "list_all")
_remove = import_later("sandbox_live", "remove_sandboxes")


def _box(name: str) -> "Sandbox":
    # Imported here because help texts do not need the engine.
    from orchestrator.sandbox.live.box import Sandbox

    return Sandbox.connect(name)


@dataclass(frozen=True, kw_only=True)
class BatchCommand:
    """Options of `orchestrator sandbox batch` that are not part of a model."""

    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Submissions, one JSON object on each line; `-`: standard input."
        ),
    ]
    jobs: Annotated[
        int,
        typer.Option(
            "-j",
            "--jobs",
            metavar="N",
            min=1,
            max=1000,
            help="Maximum number of sandboxes at the same time.",
            rich_help_panel=Group.COMMON,
        ),
    ] = 4
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            metavar="FILE",
            help="File for the results, one JSON object on each line. [default: stdout]",
            rich_help_panel=Group.OUTPUT,
        ),
    ] = None
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the submissions that have no result in the file of `--results`.",
            rich_help_panel=Group.COMMON,
        ),
    ] = False
    report: Annotated[
        list[str] | None,
        typer.Option(
            "--report",
            metavar="junit=FILE",
            help="Write a report in the format of JUnit at the end.",
            rich_help_panel=Group.OUTPUT,
        ),
    ] = None
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print the summary as JSON, on stdout: without `--results`, as the last line.",
            rich_help_panel=Group.COMMON,
        ),
    ] = False
    quiet: Quiet = False


@with_options
def run(
    limits: LimitOptions,
    template: TemplateOptions,
    submission: Annotated[GivenSettings, OptionsOf("Submission")],
    command: Command,
    json: Json = False,
) -> None:
    """Run a command in a container of its own, which is gone afterwards.

    The exit code is that of the command; 124 if it was stopped at its timeout, 137 if it was
    killed at a limit, with the reason on stderr. Codes 3 and 7 may also be errors of this
    program: `--json` prints what it was.
    """
    _run(limits, template, submission, command, json)


@with_options
def batch(
    limits: LimitOptions,
    template: TemplateOptions,
    submission: Annotated[GivenSettings, _OF_BATCH],
    options: BatchCommand,
) -> None:
    """Run the commands of a file, each in a container of its own.

    Results are printed as the commands end, one JSON object on each line. The exit code is 0 if
    every command ended with exit code 0, and 1 otherwise.
    """
    _batch(limits, template, submission, options)


@with_options
def create(
    limits: LimitOptions,
    template: TemplateOptions,
    submission: Annotated[GivenSettings, OptionsOf("Submission", only=("env",))],
    ttl: Annotated[
        float, typer.Option("--ttl", metavar="SECONDS", help="Seconds until it ends itself.")
    ] = 600.0,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot",
            metavar="NAME",
            help="Begin with the files of a snapshot, and with its settings as defaults.",
        ),
    ] = None,
    label: Labels = None,
) -> None:
    """Create a sandbox that stays, and print its id."""
    _create(limits, template, submission, ttl, snapshot, label or [])


@with_options
def exec_(
    submission: Annotated[GivenSettings, _OF_ONE],
    sandbox: Id,
    command: Command,
    cwd: Annotated[
        str, typer.Option("--cwd", metavar="DIR", help="Working directory of the command.")
    ] = "/workspace",
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="UID", help="User of the command. [default: the sandbox's]"),
    ] = None,
    json: Json = False,
) -> None:
    """Run a command in a sandbox; exit codes are as for `sandbox run`."""
    _execute(submission, sandbox, command, cwd, user, json)


def copy(
    source: Annotated[str, typer.Argument(metavar="SRC", help="File or directory, or ID:PATH.")],
    target: Annotated[str, typer.Argument(metavar="DST", help="Its copy, or ID:PATH.")],
) -> None:
    """Copy a file, or what is in a directory, into a sandbox or out of it.

    One of SRC and DST is ID:PATH. Out of a sandbox, only files and directories are copied, and a
    directory to a new one.
    """
    _copy(source, target)


def list_sandboxes(
    label: Labels = None,
    snapshots: Annotated[
        bool, typer.Option("--snapshots", help="List snapshots in place of sandboxes.")
    ] = False,
    json: Json = False,
) -> None:
    """List your sandboxes, oldest first."""
    _list(label or [], snapshots, json)


def pause(sandbox: Id) -> None:
    """Stop all processes of a sandbox for a while; its time goes on, and so do timeouts."""
    _box(sandbox).pause()


def resume(sandbox: Id) -> None:
    """Let the processes of a paused sandbox go on."""
    _box(sandbox).resume()


def snapshot(
    sandbox: Id,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the snapshot.")
    ] = None,
) -> None:
    """Keep the files of a sandbox's workspace, and print the name of the snapshot.

    `sandbox create --snapshot NAME` makes another sandbox with these files.
    """
    show(_box(sandbox).snapshot(name))


def extend(
    sandbox: Id,
    seconds: Annotated[
        float, typer.Argument(metavar="SECONDS", min=1, help="Seconds that it lives from now on.")
    ],
) -> None:
    """Set the time until a sandbox ends itself."""
    _box(sandbox).extend(seconds)


def remove(
    sandboxes: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids of the sandboxes.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="End all of your sandboxes.")] = False,
    snapshot: Annotated[
        list[str] | None,
        typer.Option("--snapshot", metavar="NAME", help="Remove this snapshot; repeatable."),
    ] = None,
) -> None:
    """End sandboxes with all their commands, and remove their files."""
    _remove(sandboxes or [], everything, snapshot or [])
