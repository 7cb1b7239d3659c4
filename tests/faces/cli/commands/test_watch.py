"""Tests of `watch` without a terminal; `tests/system` tests it on a terminal."""

import re
import subprocess
import time
from pathlib import Path

import pytest

from orchestrator.base.events import WorkerConnected, WorkerDone, WorkerOutput
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.commands.watch import _Connections, _LastLines
from orchestrator.faces.cli.output.report import run_table
from tests.support.cli import start
from tests.support.live import LATE, LiveRun, eventually, killed_run, newest
from tests.support.runs import shell_run


@pytest.fixture(autouse=True)
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)


def test_live_run_is_shown_until_its_end(repo, tmp_path, local_engine):
    live = LiveRun(repo, tmp_path / "gate")
    tasks = (live.wait_for_gate, "exit 3")
    with live.going_on(local_engine, *tasks, workers=1):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        watching = start("watch", cwd=repo, **pipes)
        assert watching.stderr.readline().startswith(b"run 20")
        assert watching.stderr.readline().startswith(b"worker 1 started: while")
        live.open_gate()
        out, err = watching.communicate(timeout=60)
    assert watching.returncode == 1
    assert out.decode() == run_table(live.result) + "\n"
    lines = err.decode().splitlines()
    assert lines[0].startswith("✓ worker 1 success in ")
    assert lines[1] == "worker 2 started: exit 3"
    assert lines[2].startswith("✗ worker 2 failed (agent_failed)")
    assert lines[-1] == "remove worktrees and branches: orchestrator parallel-cleanup"


def test_failure_is_shown_without_delay(repo, tmp_path, local_engine):
    live = LiveRun(repo, tmp_path / "gate")
    fails = f"sleep $ORCHESTRATOR_WORKER_ID; date +%s.%N > {tmp_path}/$ORCHESTRATOR_WORKER_ID; exit"
    seen = {}
    with live.going_on(local_engine, f"{fails} 3", f"{fails} 4", f"{fails} 5", live.wait_for_gate):
        with start("watch", cwd=repo, stderr=subprocess.PIPE) as watching:
            for line in watching.stderr:
                if found := re.match(rb".* worker ([1-3]) failed", line):
                    seen[int(found[1])] = time.time()
                if len(seen) == 3:
                    break
            watching.terminate()
            watching.stderr.read()
        with newest(repo) as history:
            events = {e.result.worker_id: e for e in history.read() if isinstance(e, WorkerDone)}
    assert all(events[worker].result.reason == "agent_failed" for worker in seen)
    # A busy machine may delay some workers, so the fastest one is checked.
    assert min(seen[worker] - events[worker].at.timestamp() for worker in seen) < LATE
    ends = {worker: float((tmp_path / f"{worker}").read_text()) for worker in seen}
    assert min(seen[worker] - ends[worker] for worker in seen) < LATE


def test_ended_run_prints_its_result(repo, local_engine, capsys):
    result = shell_run(repo, local_engine, "true")
    assert run(["watch", result.run_id]) == 0
    shown = capsys.readouterr()
    assert shown.out == run_table(result) + "\n"
    assert "worker 1 success" in shown.err


def test_died_run_exits_7(repo, tmp_path, capsys):
    killed_run(repo, tmp_path / "engine", "echo up; sleep 60")
    assert run(["watch"]) == 7
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"orchestrator resume {newest(repo).run_id}" in shown.err


def test_last_line_is_reported_once_when_it_changes(repo, tmp_path, local_engine):
    live = LiveRun(repo, tmp_path / "gate")
    task = rf"printf 'one\ntwo\033[2J\n1%%\r99%%\n'; {live.wait_for_gate}; echo later >&2; sleep 1"
    told: list[WorkerOutput] = []
    with live.going_on(local_engine, task), newest(repo) as history:
        while history.read():
            pass
        lines = _LastLines(history)

        def wait_for(line: str) -> None:
            eventually(lambda: lines.tell(told.append) or any(one.line == line for one in told))

        wait_for("99%")
        assert all(one.line.isprintable() for one in told)
        count = len(told)
        lines.tell(told.append)
        assert len(told) == count
        live.open_gate()
        wait_for("later")
        assert told[-1].stream == "stderr"


def test_timeline_of_an_ended_run_is_shown(repo, local_engine, capsys):
    shell_run(repo, local_engine, "true", "exit 3")
    assert run(["watch"]) == 1
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    (legend,) = (number for number, line in enumerate(lines) if "# agent" in line)
    assert [line[:2] for line in lines[legend - 3 : legend]] == ["", "W1", "W2"]
    assert lines[legend + 1] == ""
    assert "agent, " not in shown.out


def test_connections_are_reported_while_the_worker_runs(repo, tmp_path, local_engine):
    live = LiveRun(repo, tmp_path / "gate")
    told: list[WorkerConnected] = []
    record = '{"time": "t", "host": "%s", "port": 443, "decision": "refused", "reason": "name"}\n'
    with live.going_on(local_engine, live.wait_for_gate), newest(repo) as history:
        while history.read():
            pass
        connections = _Connections(history)
        connections.tell(told.append)
        assert told == []
        log = history.directory.worker(1) / "network.ndjson"
        log.write_text(record % "a.example" + "not a record\n" + record[:20])
        connections.tell(told.append)
        with log.open("a") as file:
            file.write(record[20:] % "b.example")
        connections.tell(told.append)
        assert [one.host for one in told] == ["a.example", "b.example"]
        assert [one.refusals for one in told] == [1, 2]
        connections.close()
        live.open_gate()
