"""Tests of `logs` and `events` for runs that are live, ended or died."""

import json
import os
import pty
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from orchestrator.state.run_directory import RunDirectory
from tests.support.cli import start
from tests.support.errors import reports
from tests.support.live import LATE, LiveRun, killed_run, newest
from tests.support.local_engine import LocalEngine
from tests.support.runs import past_run, shell_run

HOSTILE = r"printf 'a\033[2J\033]0;owned\007b\r\033[31mred\033[0m\tx\302\233c\n'"


@pytest.fixture(autouse=True)
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)


@pytest.fixture
def live(repo: Path, tmp_path: Path) -> LiveRun:
    return LiveRun(repo, tmp_path / "gate")


@pytest.fixture
def finished(repo: Path, local_engine: LocalEngine) -> RunDirectory:
    """Return a run of two workers; the output of the second ends without a newline."""
    shell_run(repo, local_engine, "echo '  one'; echo two; echo bad >&2", "printf end")
    return newest(repo).directory


class Reading:
    """A command that follows a run, and whose output is read as it is printed."""

    def __init__(self, repo: Path, *arguments: str) -> None:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = start(*arguments, cwd=repo, **pipes)

    def __enter__(self) -> "Reading":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def line(self) -> str:
        return self.process.stdout.readline().decode()

    def rest(self) -> tuple[str, str, int]:
        stdout, stderr = self.process.communicate(timeout=60)
        return stdout.decode(), stderr.decode(), self.process.returncode


class TestLogs:
    @pytest.mark.usefixtures("finished")
    def test_lines_of_all_workers_have_a_prefix(self, capsys):
        assert run(["logs"]) == 0
        shown = capsys.readouterr()
        assert shown.out == "[W1]   one\n[W1] two\n[W1 err] bad\n[W2] end\n"
        assert shown.err == ""

    @pytest.mark.usefixtures("finished")
    def test_streams_of_one_worker_are_separate(self, capsys):
        assert run(["logs", "1"]) == 0
        assert capsys.readouterr() == ("  one\ntwo\n", "bad\n")

    @pytest.mark.usefixtures("finished")
    def test_unknown_worker_is_an_error(self, capsys):
        assert run(["logs", "7"]) == 3
        assert capsys.readouterr().err.startswith("error: no run has a worker 7\n")
        with reports("worker.unknown", "worker 7"):
            assert run(["logs", "7", "--run", newest(Path.cwd()).run_id[:-1]]) == 3

    def test_worker_is_searched_in_older_runs(self, repo, local_engine, capsys):
        past_run(repo, local_engine, "echo older")
        past_run(repo, local_engine, "echo newer")
        assert run(["logs", "1"]) == 0
        assert capsys.readouterr().out == "older\n"
        assert run(["logs"]) == 0
        assert capsys.readouterr().out == "[W2] newer\n"

    def test_control_sequences_are_made_harmless(self, repo, local_engine, capsys):
        past_run(repo, local_engine, HOSTILE)
        safe = "ab\nred\tx\ufffdc\n"
        assert run(["logs", "1"]) == 0
        assert capsys.readouterr().out == safe
        assert run(["logs"]) == 0
        first, second, _ = safe.split("\n")
        assert capsys.readouterr().out == f"[W1] {first}\n[W1] {second}\n"

    def test_raw_prints_the_bytes_unchanged(self, repo, local_engine, capsysbinary):
        past_run(repo, local_engine, HOSTILE + r"; printf '\377' >&2")
        assert run(["logs", "--raw", "1"]) == 0
        shown = capsysbinary.readouterr()
        assert shown.out == b"a\x1b[2J\x1b]0;owned\x07b\r\x1b[31mred\x1b[0m\tx\xc2\x9bc\n"
        assert shown.err == b"\xff"

    def test_raw_is_made_harmless_on_a_terminal(self, repo, local_engine):
        past_run(repo, local_engine, HOSTILE)
        ours, theirs = pty.openpty()
        process = start("logs", "--raw", "1", cwd=repo, stdout=theirs, stderr=theirs)
        os.close(theirs)
        assert process.wait(60) == 0
        shown = os.read(ours, 4096)
        os.close(ours)
        assert b"red" in shown
        assert b"owned" not in shown
        assert b"\x1b" not in shown

    @pytest.mark.usefixtures("finished")
    def test_raw_without_a_worker_is_refused(self):
        with reports("option.incomplete", "`--raw`"):
            assert run(["logs", "--raw"]) == 3

    def test_timestamps_are_those_of_the_arrival(self, finished, capsys):
        assert run(["logs", "-t"]) == 0
        lines = [line.rsplit("Z ", 1) for line in capsys.readouterr().out.splitlines()]
        assert [text for _, text in lines] == ["  one", "two", "bad", "end"]
        for stamp, _ in lines:
            at = datetime.fromisoformat(stamp.rpartition("] ")[2]).replace(tzinfo=UTC)
            assert timedelta(0) <= datetime.now(UTC) - at <= timedelta(seconds=LATE)
        (finished.worker(1) / "stdout.times").write_text("0 1790000000\n6 1790000061\n")
        (finished.worker(1) / "stderr.times").unlink()
        assert run(["logs", "--timestamps", "1"]) == 0
        shown = capsys.readouterr()
        assert shown.out == "2026-09-21T14:13:20Z   one\n2026-09-21T14:14:21Z two\n"
        assert shown.err == f"{'-':20} bad\n"

    def test_no_output_passes_for_a_timestamp(self, repo, local_engine, capsys):
        forged = "2000-01-01T00:00:00Z"
        past_run(repo, local_engine, rf"printf 'a\r{forged} b\033[2K\033[1G{forged} c\n{forged}\n'")
        assert run(["logs", "-t", "1"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line[20:] for line in lines] == [" a", f" {forged} b{forged} c", f" {forged}"]
        assert not any(line.startswith(forged) for line in lines)

    def test_raw_output_has_no_timestamps(self):
        with reports("option.conflict", "`--raw`"):
            assert run(["logs", "--raw", "-t", "1"]) == 3

    def test_logs_of_earlier_attempts_come_first(self, finished, capsys):
        shutil.copytree(finished.worker(2), finished.path / "worker-2.attempt-2")
        for number, text in ((1, "first\n"), (2, "second\n")):
            path = finished.path / f"worker-2.attempt-{number}"
            path.mkdir(exist_ok=True)
            (path / "stdout.log").write_text(text)
        assert run(["logs", "2"]) == 0
        assert capsys.readouterr().out == "first\nsecond\nend\n"
        assert run(["logs"]) == 0
        assert capsys.readouterr().out.endswith("[W2.1] first\n[W2.2] second\n[W2] end\n")

    @pytest.mark.usefixtures("finished")
    def test_follow_returns_for_an_ended_run(self, capsys):
        assert run(["logs", "-f"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == "[W2] end"

    def test_follow_prints_new_lines_and_later_workers(self, repo, local_engine, live):
        tasks = (f"echo one; {live.wait_for_gate}; echo last >&2", "echo later")
        with live.going_on(local_engine, *tasks, workers=1), Reading(repo, "logs", "-f") as shown:
            assert shown.line() == "[W1] one\n"
            live.open_gate()
            out, err, code = shown.rest()
        assert sorted(out.splitlines()) == ["[W1 err] last", "[W2] later"]
        assert (err, code) == ("", 0)

    def test_follow_of_one_worker_returns_at_its_end(self, repo, local_engine, live):
        tasks = (live.wait_for_gate, "echo short")
        with (
            live.going_on(local_engine, *tasks, workers=2),
            Reading(repo, "logs", "-f", "2") as shown,
        ):
            assert shown.rest() == ("short\n", "", 0)
            assert live.result is None

    def test_truncated_log_is_read_again(self, repo, local_engine, live):
        with live.going_on(local_engine, live.wait_for_gate), Reading(repo, "logs", "-f") as shown:
            state = newest(repo).directory.worker(1)
            (state / "stdout.log").write_text("one\ntwo\n")
            assert [shown.line(), shown.line()] == ["[W1] one\n", "[W1] two\n"]
            (state / "other").write_text("one\n")
            (state / "other").replace(state / "stdout.log")
            assert shown.line() == "[W1] one\n"
            live.open_gate()
            assert shown.rest() == ("", "", 0)

    def test_timestamps_of_a_growing_log_are_of_its_lines(self, repo, local_engine, live):
        with (
            live.going_on(local_engine, live.wait_for_gate),
            Reading(repo, "logs", "-ft") as shown,
        ):
            state = newest(repo).directory.worker(1)
            (state / "stdout.times").write_text("0 1790000000\n12 1790000060\n")
            (state / "stdout.log").write_text("one\ntwo\nx")
            assert shown.line() == "[W1] 2026-09-21T14:13:20Z one\n"
            assert shown.line() == "[W1] 2026-09-21T14:13:20Z two\n"
            with (state / "stdout.log").open("a") as log:
                log.write("yz\nthree\n")
            assert shown.line() == "[W1] 2026-09-21T14:13:20Z xyz\n"
            assert shown.line() == "[W1] 2026-09-21T14:14:20Z three\n"
            (state / "other").write_text("1\n2345678\n9")
            (state / "other").replace(state / "stdout.log")
            assert shown.line() == "[W1] 2026-09-21T14:13:20Z 1\n"
            assert shown.line() == "[W1] 2026-09-21T14:13:20Z 2345678\n"
            live.open_gate()
            assert shown.rest() == ("[W1] 2026-09-21T14:13:20Z 9\n", "", 0)

    def test_follow_of_a_died_run_is_an_error(self, repo, tmp_path, capsys):
        killed_run(repo, tmp_path / "engine", "echo hello; sleep 60")
        run_id = newest(repo).run_id
        assert run(["logs"]) == 0
        assert capsys.readouterr() == ("[W1] hello\n", "")
        for arguments in (["logs", "-f"], ["logs", "-f", "1"]):
            assert run(arguments) == 7
            shown = capsys.readouterr()
            assert shown.out.endswith("hello\n")
            assert shown.err == (
                f"error: the process of run {run_id} died before its workers were done\n\n"
                f"hint: resume the run: `orchestrator resume {run_id}`\n"
            )


class TestEvents:
    def test_events_are_json_objects_one_per_line(self, finished, capsys):
        assert run(["events", "--run", finished.run_id[:-2]]) == 0
        types = [json.loads(line)["type"] for line in capsys.readouterr().out.splitlines()]
        assert (types[0], types[-1]) == ("run_started", "run_done")
        assert types.count("worker_done") == 2

    def test_incomplete_line_is_skipped(self, finished, capsys):
        with (finished.path / "events.ndjson").open("a") as file:
            file.write('{"type": "noti')
        assert run(["events"]) == 0
        whole = capsys.readouterr().out
        assert json.loads(whole.splitlines()[-1])["type"] == "run_done"
        with (finished.path / "events.ndjson").open("a") as file:
            file.write('\n{"type": "notice"}\n')
        assert run(["events"]) == 0
        assert capsys.readouterr().out == whole + '{"type": "notice"}\n'

    def test_follow_prints_events_as_they_happen(self, repo, local_engine, live):
        with (
            live.going_on(local_engine, live.wait_for_gate),
            Reading(repo, "events", "-f") as shown,
        ):
            while json.loads(shown.line())["type"] != "worker_started":
                assert live.result is None
            live.open_gate()
            out, err, code = shown.rest()
        assert json.loads(out.splitlines()[-1])["type"] == "run_done"
        assert (err, code) == ("", 0)

    def test_events_of_a_died_run(self, repo, tmp_path, capsys):
        killed_run(repo, tmp_path / "engine", "echo up; sleep 60")
        assert run(["events", "-f"]) == 7
        shown = capsys.readouterr()
        assert json.loads(shown.out.splitlines()[-1])["type"] == "worker_started"
        assert "orchestrator resume" in shown.err


def test_repository_without_runs_is_an_error():
    with reports("run.none"):
        assert run(["logs"]) == 3
