"""Tests of `network log`."""

import json
from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from orchestrator.network.gateway.log import NetworkRecord
from orchestrator.state.run_directory import RunDirectory
from tests.support.live import newest
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run

TIME = "2026-01-02T03:04:05.000000006Z"


def write(directory: Path, *records: tuple[str, int | None, str | None, int, int]) -> None:
    lines = (
        NetworkRecord(
            time=TIME, host=host, port=port, reason=reason, sent=sent, received=received,
            decision="refused" if reason else "allowed",
        ).model_dump_json()
        for host, port, reason, sent, received in records
    )  # fmt: skip
    (directory / "network.ndjson").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def recorded(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> RunDirectory:
    """Return a run of two workers; the first has made two attempts."""
    monkeypatch.chdir(repo)
    shell_run(repo, local_engine, "true", "true")
    directory = newest(repo).directory
    earlier = directory.attempt(1, 1)
    earlier.mkdir()
    write(earlier, ("old.example", None, "name", 0, 0))
    write(
        directory.worker(1),
        ("a.example", 443, None, 1000, 2000),
        ("a.example", 443, None, 24, 48),
        ("\x1b[31mb.example", 8443, "name", 5, 0),
    )
    write(directory.worker(2), ("a.example", 80, "address", 7, 0))
    return directory


@pytest.mark.usefixtures("recorded")
def test_connections_of_all_workers_and_attempts_are_summed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["network", "log"]) == 0
    shown = capsys.readouterr()
    rows = [line.split() for line in shown.out.splitlines()]
    assert rows[0] == ["WORKER", "HOST", "PORT", "DECISION", "COUNT", "SENT", "RECEIVED", "LAST"]
    last, nothing = TIME[:19], ("0", "bytes")
    assert rows[1:] == [
        [
            "1,",
            "attempt",
            "1",
            "old.example",
            "-",
            "refused",
            "(name)",
            "1",
            *nothing,
            *nothing,
            last,
        ],
        ["1", "a.example", "443", "allowed", "2", "1", "KiB", "2", "KiB", last],
        ["1", rows[3][1], "8443", "refused", "(name)", "1", "5", "bytes", *nothing, last],
        ["2", "a.example", "80", "refused", "(address)", "1", "7", "bytes", *nothing, last],
    ]
    assert "\x1b" not in shown.out
    assert shown.err == "to allow the refused hosts: --allow old.example\n"


@pytest.mark.usefixtures("recorded")
def test_one_worker_and_refused_hosts_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["network", "log", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "connections": [
            {"worker": 2, "attempt": None, "time": TIME, "host": "a.example", "port": 80,
             "scheme": None, "decision": "refused", "reason": "address", "sent": 7, "received": 0,
             "count": 1},
        ],
        "refused": [],
        "learned": [],
    }  # fmt: skip
    assert run(["network", "log", "--refused", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["decision"] for one in found["connections"]] == ["refused"] * 3
    assert found["connections"][0]["attempt"] == 1
    assert found["refused"] == ["old.example"]


def test_broken_lines_are_left_out(
    recorded: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recorded.worker(2) / "network.ndjson"
    path.write_bytes(b'{"host": 1}\n\xff\xfe\n' + path.read_bytes() + b'{"time": "cut')
    assert run(["network", "log", "2", "--run", recorded.run_id]) == 0
    assert capsys.readouterr().out.count("a.example") == 1


def test_run_without_allow_lists_has_no_log(
    recorded: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    for directory in (recorded.worker(1), recorded.worker(2), recorded.attempt(1, 1)):
        (directory / "network.ndjson").unlink()
    assert run(["network", "log"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no connections were recorded" in shown.err


def test_sets_show_where_each_host_was_found(
    repo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(repo)
    monkeypatch.setenv("GOPROXY", "https://proxy.example")
    git(repo, "remote", "add", "origin", "https://me:word@code.example/x.git")
    own = tmp_path / "own.yaml"
    own.write_text("container: {allow_sets: {docs: [a.example]}}\n")
    assert run(["network", "sets", "--config", str(own)]) == 0
    shown = capsys.readouterr().out
    rows = [line.split(maxsplit=2) for line in shown.splitlines()]
    for row in (
        ["@docs", "a.example", "allow_sets"],
        ["@go", "proxy.example", "$GOPROXY"],
        ["@git", "code.example", "remote origin"],
    ):
        assert row in rows
    assert "word" not in shown
    assert run(["network", "sets", "--config", str(own), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["sets"]
    assert found["@docs"] == [{"entry": "a.example", "source": "allow_sets"}]
