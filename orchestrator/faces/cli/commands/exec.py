"""`orchestrator exec` and `orchestrator shell`: run commands in a running worker's container."""

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.base.errors import ConfigError, NotRunningError
from orchestrator.engine import engine_of_run
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY, ROLE, RUN, WORKER
from orchestrator.engine.interface.protocol import Engine
from orchestrator.faces.cli.output.sink import Sink
from orchestrator.faces.cli.output.streams import end_with_reader
from orchestrator.faces.cli.run_arguments import RunOption, open_run
from orchestrator.faces.cli.tty import converse, terminal_size, unwinding
from orchestrator.repository.repository import Repository

_SHELL = ("sh", "-c", "command -v bash > /dev/null && exec bash; exec sh")

Number = Annotated[int, typer.Argument(metavar="N", min=1, help="Number of the worker.")]
Command = Annotated[
    list[str], typer.Argument(metavar="CMD", help="Command to run and its arguments, after `--`.")
]


def exec_(worker: Number, command: Command, run: RunOption = None) -> None:
    """Run a command in a running worker's container.

    The command runs as the worker's user in /workspace, with the worker's variables and without
    input. Its exit code is passed on. On a terminal and in the log of a CI job, control sequences
    and commands for CI systems are made harmless; other output is passed on unchanged.
    """
    end_with_reader()
    sinks = {"stdout": Sink(sys.stdout), "stderr": Sink(sys.stderr)}
    with (
        _container(worker, run) as (engine, container),
        unwinding(),
        closing(engine.enter(container, tuple(command))) as process,
    ):
        for chunk in process.output():
            sinks[chunk.stream].write(chunk.data)
        for sink in sinks.values():
            sink.finish()
        exit_code = process.wait()
    raise typer.Exit(exit_code)


def shell(worker: Number, run: RunOption = None) -> None:
    """Open a shell in a running worker's container.

    Programs in the shell can send control sequences to your terminal; `orchestrator exec` makes
    them harmless.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError(
            "`shell` requires a terminal",
            key="terminal.missing",
            hint=f"without a terminal, use `orchestrator exec {worker} -- CMD`",
        )
    env = {"TERM": os.environ["TERM"]} if "TERM" in os.environ else {}
    with (
        _container(worker, run) as (engine, container),
        unwinding(),
        closing(engine.enter(container, _SHELL, terminal=terminal_size(), env=env)) as process,
    ):
        exit_code = converse(process)
    raise typer.Exit(exit_code)


@contextmanager
def _container(worker: int, run: str | None) -> Iterator[tuple[Engine, str]]:
    """Yield engine and id of a worker's container, in `run` or the newest run with the worker."""
    with open_run(run, worker=worker) as history:
        run_id, said = history.run_id, history.sentence(worker)
        used = history.record.engine_used
    labels = {
        MANAGED: "true",
        REPOSITORY: str(Repository(Path.cwd()).common_dir),
        RUN: run_id,
        WORKER: str(worker),
        ROLE: "worker",
    }
    engine = engine_of_run(used)
    try:
        containers = [left.id for left in engine.leftovers(labels) if left.kind == "container"]
        if not containers:
            raise NotRunningError(
                f"worker {worker} of run {run_id} {said}; it has no container",
                key="worker.not-running",
                hint="list workers with `orchestrator ls`",
            )
    except BaseException:
        engine.close()
        raise
    try:
        yield engine, containers[0]
    except NotRunningError as error:
        raise NotRunningError(
            f"worker {worker} of run {run_id} is not running, or its container is paused",
            key="worker.not-running",
            hint=f"list workers with `orchestrator ls`, or see `orchestrator logs {worker}`",
        ) from error
    finally:
        engine.close()
