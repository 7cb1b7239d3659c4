"""`orchestrator network`: list hosts that workers reached or were refused, and sets of hosts."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.base.text.quantities import size
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.loading.loading import load_settings
from orchestrator.engine.egress import host_sets
from orchestrator.faces.cli.options import Config, Json
from orchestrator.faces.cli.output.formats import table, terminal_width, title_of
from orchestrator.faces.cli.output.messages import show, show_json, tell
from orchestrator.faces.cli.run_arguments import Number, RunOption, open_run
from orchestrator.network.gateway.host_sets import SIGN, SetMember
from orchestrator.network.gateway.log import (
    NetworkRecord,
    entries_for_learned,
    entries_for_refused,
    host_uses,
    read_records,
)
from orchestrator.repository.repository import Repository
from orchestrator.sandbox.network.network_log import NETWORK_LOG
from orchestrator.state.record.history import RunHistory, attempts

_HEADING = ("WORKER", "HOST", "PORT", "DECISION", "COUNT", "SENT", "RECEIVED", "LAST")
_HOST = 1
"""Index of the table's column that is shortened to fit the terminal."""
_NONE = "-"
_SECONDS = len("2026-01-02T03:04:05")

Refused = Annotated[bool, typer.Option("--refused", help="List only refused connections.")]


@dataclass(frozen=True, kw_only=True)
class _Log:
    """The network log of one attempt of a worker."""

    worker: int
    name: str | None
    attempt: int | None
    """Number of a failed attempt that was repeated; None for the last attempt."""
    records: list[NetworkRecord]


def network_log(
    worker: Number = None, run: RunOption = None, refused: Refused = False, json: Json = False
) -> None:
    """List the hosts that workers reached through their gateways, and refused connections.

    A container's log is complete when the container has ended. `--json` lists each connection.
    """
    with open_run(run, worker=worker) as history:
        logs = list(_logs(history, worker, refused=refused))
    records = [record for log in logs for record in log.records]
    refused_hosts, learned = entries_for_refused(records), entries_for_learned(records)
    if json:
        connections = [
            {"worker": log.worker, "attempt": log.attempt, **record.model_dump(mode="json")}
            for log in logs
            for record in log.records
        ]
        found = {"refused": refused_hosts, "learned": learned}
        show_json(dumps({"connections": connections, **found}))
    elif any(log.records for log in logs):
        rows = [_HEADING, *(row for log in logs for row in _rows(log))]
        show(table(rows, width=terminal_width(), shrink=_HOST))
        for what, entries in (("refused", refused_hosts), ("learned", learned)):
            if entries:
                flags = " ".join(f"--allow {entry}" for entry in entries)
                tell(f"to allow the {what} hosts: {flags}")
    else:
        networks = "`--network allowlist` and `--network learn`"
        tell(f"no connections were recorded: only {networks} record them")


def sets(config: Config = None, json: Json = False) -> None:
    """List the sets of hosts that `--allow @NAME` stands for, and where each host was found.

    The sets of package managers are read from the configuration of these tools on this machine.
    """
    repository = Repository(Path.cwd())
    loaded = load_settings(
        options={}, environ=os.environ, top=repository.top, file=config, task_needed=False
    )
    found = host_sets(loaded.config.isolation.allow_sets, repository, os.environ)
    rows = [(f"{SIGN}{name}", found.members(name)) for name in found.names()]
    if json:
        listed = {name: [asdict(member) for member in members] for name, members in rows}
        show_json(dumps({"sets": listed}))
        return
    cells = [
        (name, one_line(member.entry), one_line(member.source))
        for name, members in rows
        for member in members or [SetMember(_NONE, "no host is configured here")]
    ]
    show(table([("SET", "HOST", "FROM"), *cells], width=terminal_width(), shrink=2))


def _logs(history: RunHistory, worker: int | None, *, refused: bool) -> Iterator[_Log]:
    for number, view in history.workers.items():
        if worker not in (None, number):
            continue
        for attempt, directory in attempts(history.directory, number):
            found = read_records(directory / NETWORK_LOG)
            records = [record for record in found if not refused or record.decision == "refused"]
            yield _Log(worker=number, name=view.spec.name, attempt=attempt, records=records)


def _rows(log: _Log) -> Iterator[tuple[str, ...]]:
    attempt = f", attempt {log.attempt}" if log.attempt else ""
    for use in host_uses(log.records):
        yield (
            title_of(log.worker, log.name) + attempt,
            one_line(use.host) or _NONE,
            _NONE if use.port is None else str(use.port),
            use.decision + (f" ({use.reason})" if use.reason else ""),
            str(use.count),
            size(use.sent),
            size(use.received),
            use.last[:_SECONDS],
        )
