"""Tests of `sandbox run` and `sandbox batch`: exit codes, output, files, resumption."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from orchestrator.engine.interface.protocol import LogChunk
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.sandbox_run import PrintedOutput
from orchestrator.sandbox.supervision.cancel import Cancel
from tests.support.cli import start
from tests.support.errors import reports
from tests.support.live import eventually
from tests.support.local_engine import LocalEngine
from tests.support.local_program import DEATH, FOLDER

HOSTILE = r"printf 'a\033[2Jb\r\nc\033]0;title\007\033[31mred\033[0m'"


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the directory of sandboxes; the current directory is no repository."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    homes = tmp_path / "state" / "orchestrator" / "sandboxes"
    yield homes
    # The process that ends sandboxes cannot load the local engine; it ends with the directory.
    shutil.rmtree(homes, ignore_errors=True)


def _left(homes: Path) -> list[str]:
    return [path.name for path in homes.iterdir() if path.is_dir()] if homes.is_dir() else []


@pytest.fixture
def local(local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    """Let the command line use the local engine."""
    monkeypatch.setattr("orchestrator.engine.load_engine", lambda *_: local_engine)
    return local_engine


def _write(path: str, *lines: dict[str, Any]) -> str:
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _ids(path: str | Path) -> list[str]:
    return [json.loads(line)["id"] for line in Path(path).read_text().splitlines()]


@pytest.mark.process
@pytest.mark.usefixtures("local")
class TestRun:
    def test_command_gets_files_input_and_variables_and_its_code_is_passed_on(
        self, homes: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("in").write_bytes(b"input\n")
        Path("a.txt").write_bytes(b"file\n")
        monkeypatch.setenv("MINE", "mine")
        script = "cat; cat a.txt b/c; echo $A $MINE >&2; echo done > out; exit 9"
        options = [
            *("--stdin", "in", "--file", "a.txt", "--file", "a.txt:b/c", "--env", "A=1"),
            *("--env", "MINE", "--out", "out", "--out", "out:d/e", "--out", "none"),
        ]
        assert run(["sandbox", "run", *options, "--", "sh", "-c", script]) == 9
        out, err = capfd.readouterr()
        assert out == "input\nfile\nfile\n"
        assert err == "1 mine\nwarning: the command left no file none\n"
        assert Path("out").read_text() == Path("d/e").read_text() == "done\n"
        assert not Path("none").exists()
        assert _left(homes) == []

    def test_timeout_and_kill_have_codes_of_their_own(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        slow = ["--timeout", "0.3", "--grace", "0.1", "--", "sh", "-c", "echo a; sleep 60"]
        assert run(["sandbox", "run", *slow]) == 124
        assert capfd.readouterr() == ("a\n", "timeout: stopped at its deadline of 0.3 s\n")
        assert run(["sandbox", "run", "--output-limit", "1k", "--", "yes"]) == 137
        out, err = capfd.readouterr()
        assert out == "y\n" * 512
        assert err.startswith("output: ")
        assert err.count("\n") == 1

    def test_json_is_the_whole_result(self, capfd: pytest.CaptureFixture[str]) -> None:
        script = r"printf 'a\377'; echo e >&2; exit 3"
        assert run(["sandbox", "run", "--json", "--", "sh", "-c", script]) == 3
        out, err = capfd.readouterr()
        found = json.loads(out)
        assert (found["exit_code"], found["reason"], err) == (3, "exited", "")
        assert (found["stdout"], found["stderr"]) == ({"base64": "Yf8="}, "e\n")

    def test_output_is_unchanged_in_a_file_and_harmless_on_a_terminal(
        self, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert run(["sandbox", "run", "--", "sh", "-c", HOSTILE]) == 0
        raw = b"a\x1b[2Jb\r\nc\x1b]0;title\x07\x1b[31mred\x1b[0m"
        assert capfdbinary.readouterr().out == raw
        terminal = io.TextIOWrapper(io.BytesIO(), "utf-8")
        monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", terminal)
            assert run(["sandbox", "run", "--", "sh", "-c", HOSTILE]) == 0
        assert terminal.buffer.getvalue() == b"ab\ncred"  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("arguments", "key", "said"),
        [
            (["--memory", "x"], "option.invalid", "--memory"),
            (["--timeout", "0"], "option.invalid", "--timeout"),
            (["--network", "wide"], "option.invalid", "--network"),
            (["--image", ""], "option.invalid", "--image"),
            (["--env", "A-B=1"], "option.invalid", "--env"),
            (["--env", "NOT_SET_ANYWHERE"], "option.invalid", "NOT_SET_ANYWHERE"),
            (["--file", "missing"], "file.unreadable", "missing"),
            (["--file", ".:a"], "file.unreadable", "--file"),
            (["--file", "/etc/passwd:../x"], "option.invalid", "--file"),
            (["--stdin", "missing"], "file.unreadable", "--stdin"),
            (["--out", "../x:y"], "option.invalid", "--out"),
            (["--out", "x:."], "file.unwritable", "--out"),
            (["--image", "no/such"], "image.missing", "no/such"),
            (["--runtime", "none"], "runtime.unknown", "none"),
        ],
    )
    def test_wrong_options_are_refused(
        self, arguments: list[str], key: str, said: str, homes: Path
    ) -> None:
        with reports(key, said):
            assert run(["sandbox", "run", *arguments, "--", "true"]) == 3
        assert _left(homes) == []


@pytest.mark.process
@pytest.mark.usefixtures("local")
class TestBatch:
    def test_results_are_lines_and_a_report(
        self, capfd: pytest.CaptureFixture[str], homes: Path
    ) -> None:
        file = _write(
            "b",
            {"id": "ok", "command": ["cat"], "stdin": "in", "timeout": 20},
            {"id": "bad\x1b[2J", "command": ["sh", "-c", "echo no >&2; exit 4"]},
            {"id": "slow", "command": ["sleep", "60"], "timeout": 0.3},
            {"id": "usual", "command": ["sleep", "60"]},
        )
        options = ["--timeout", "0.5", "--grace", "0.1", "-j", "2", "--report", "junit=r.xml"]
        assert run(["sandbox", "batch", file, *options, "--json"]) == 1
        out, err = capfd.readouterr()
        *lines, last = map(json.loads, out.splitlines())
        found = {line["id"]: (line["exit_code"], line["reason"]) for line in lines}
        assert found["ok"] == (0, "exited")
        assert found["bad\x1b[2J"] == (4, "exited")
        assert found["slow"][1] == found["usual"][1] == "timeout"
        assert "\x1b" not in out
        summary = last["summary"]
        assert summary.pop("seconds") > 0
        assert summary == {"submissions": 4, "ok": 1, "failed": 1, "timeout": 2}
        assert err == ""
        suite = ET.parse("r.xml").getroot()
        assert (suite.get("tests"), suite.get("failures")) == ("4", "3")
        assert _left(homes) == []
        assert run(["sandbox", "batch", file, "--results", "r", *options[:4], "--quiet"]) == 1
        assert "4 submissions: 1 ok, 1 failed, 2 timeout;" in capfd.readouterr().out
        assert sorted(_ids("r")) == sorted(found)

    def test_nothing_runs_if_a_line_or_the_results_are_wrong(self, homes: Path) -> None:
        touch = {"id": "a", "command": ["touch", str(homes.parent / "ran")]}
        file = _write("b", touch, {"id": "b"})
        Path("full").write_text("x\n")
        good = _write("good", touch)
        for key, arguments in (
            ("batch.invalid", [file]),
            ("batch.has-results", [good, "--results", "full"]),
            ("batch.other-results", [good, "--results", "full2", "--resume"]),
            ("option.incomplete", [good, "--resume"]),
            ("option.invalid", [good, "--report", "sarif=x"]),
            ("file.unreadable", ["missing"]),
            ("option.invalid", [good, "--timeout", "0"]),
        ):
            Path("full2").write_text('{"id":"z","exit_code":0,"reason":"exited"}\n')
            with reports(key):
                assert run(["sandbox", "batch", *arguments]) == 3
        assert not (homes.parent / "ran").exists()

    def test_finished_batch_needs_no_engine(
        self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = _write("b", {"id": "a", "command": ["true"]})
        read, write = os.pipe()
        os.write(write, Path(file).read_bytes())
        os.close(write)
        monkeypatch.setattr("sys.stdin", os.fdopen(read))
        assert run(["sandbox", "batch", "-", "--results", "r"]) == 0
        monkeypatch.delattr("orchestrator.engine.load_engine")
        assert run(["sandbox", "batch", file, "--results", "r", "--resume"]) == 0
        assert _ids("r") == ["a"]
        assert "1 of 1 submission had a result" in capfd.readouterr().err


@pytest.mark.process
@pytest.mark.usefixtures("local")
class TestLive:
    def test_sandbox_is_created_used_listed_and_removed(
        self, capfd: pytest.CaptureFixture[str], homes: Path
    ) -> None:
        assert run(["sandbox", "create", "--label", "k=v", "--ttl", "300", "--env", "A=1"]) == 0
        name = capfd.readouterr().out.strip()
        assert _left(homes) == [name]
        assert run(["sandbox", "ls", "--label", "k=v", "--json"]) == 0
        (listed,) = json.loads(capfd.readouterr().out)["sandboxes"]
        assert (listed["id"], listed["labels"]) == (name, {"k": "v"})
        assert run(["sandbox", "ls", "--label", "k=w"]) == 0
        assert capfd.readouterr() == ("", "there are no sandboxes\n")
        Path("in").write_bytes(b"input")
        script = "cat; echo $A >&2; exit 6"
        options = ["--stdin", "in", name, "--"]
        assert run(["sandbox", "exec", *options, "sh", "-c", script]) == 6
        assert capfd.readouterr() == ("input", "1\n")
        assert run(["sandbox", "exec", name, "--timeout", "0.3", "--", "sleep", "60"]) == 124
        assert capfd.readouterr().err.startswith("timeout: ")
        assert run(["sandbox", "exec", "--json", name, "--", "sh", "-c", HOSTILE]) == 0
        assert "\x1b" not in capfd.readouterr().out
        assert run(["sandbox", "pause", name]) == 0
        assert run(["sandbox", "resume", name]) == 0
        assert run(["sandbox", "extend", name, "900"]) == 0
        assert run(["sandbox", "ls"]) == 0
        assert "15 min" in capfd.readouterr().out
        assert run(["sandbox", "rm", "--all"]) == 0
        assert capfd.readouterr().out == f"{name}\n"
        assert _left(homes) == []
        for command in (["exec", name, "--", "true"], ["rm", name], ["extend", name, "5"]):
            with reports("sandbox.missing", name):
                assert run(["sandbox", *command]) == 3

    def test_files_are_copied_in_and_out(self, capfd: pytest.CaptureFixture[str]) -> None:
        assert run(["sandbox", "create"]) == 0
        name = capfd.readouterr().out.strip()
        Path("d/e").mkdir(parents=True)
        Path("d/e/f").write_bytes(b"content")
        Path("d/e/f").chmod(0o750)
        # The local engine replaces a path of the sandbox only as a whole word.
        assert run(["sandbox", "cp", "d/e/f", f"{name}:/workspace/new"]) == 0
        assert run(["sandbox", "cp", f"{name}:/workspace/new", "."]) == 0
        assert (Path("new").read_bytes(), Path("new").stat().st_mode & 0o100) == (b"content", 0)
        assert run(["sandbox", "cp", "d", f"{name}:/workspace"]) == 0
        assert run(["sandbox", "cp", f"{name}:/workspace", "all"]) == 0
        assert Path("all/e/f").read_bytes() == Path("all/new").read_bytes() == b"content"
        assert run(["sandbox", "snapshot", name, "ready"]) == 0
        capfd.readouterr()
        assert run(["sandbox", "ls", "--snapshots", "--json"]) == 0
        (kept,) = json.loads(capfd.readouterr().out)["snapshots"]
        assert kept["name"] == "ready"
        assert run(["sandbox", "ls", "--snapshots"]) == 0
        assert run(["sandbox", "rm", "--snapshot", "ready"]) == 0
        with reports("sandbox.no-snapshot", "ready"):
            assert run(["sandbox", "create", "--snapshot", "ready"]) == 3
        for source, target in (
            ("d", "e"),
            (f"{name}:a", f"{name}:b"),
            (f"{name}:/workspace/none", "x"),
            (f"{name}:/workspace", "all"),
        ):
            with reports("sandbox.copy"):
                assert run(["sandbox", "cp", source, target]) == 3
        assert run(["sandbox", "rm", name]) == 0
        for arguments in (["rm"], ["rm", "--all", name]):
            with reports("sandbox.unnamed"):
                assert run(["sandbox", *arguments]) == 3
        with reports("option.invalid", "--label"):
            assert run(["sandbox", "ls", "--label", "x"]) == 3


POINTS = (
    "orchestrator.sandbox.batch:run_one before 2",
    "orchestrator.sandbox.queue:Results.write before 1",
    "orchestrator.sandbox.queue:Results.write after 1",
    "orchestrator.sandbox.queue:Results._append before 2",
    "orchestrator.sandbox.queue:as_line after 3",
    "orchestrator.sandbox.batch:run_one after 3",
    "orchestrator.sandbox.home:Home.remove before 2",
)


@pytest.mark.process
def test_killed_batch_goes_on_without_running_recorded_submissions_again(tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(18)]
    log = tmp_path / "log"
    log.touch()
    script = 'echo "$1" >> "$0"'
    file = _write(
        "b", *({"id": name, "command": ["sh", "-c", script, str(log), name]} for name in names)
    )
    done: list[str] = []
    results = Path("r")
    for death in (*POINTS, ""):
        before = log.read_text().split()
        process = start(
            *("sandbox", "batch", str(Path(file).resolve()), "-j", "2"),
            *("--results", str(results.resolve()), "--resume"),
            cwd=Path.cwd(), module="tests.support.local_program",
            env={FOLDER: str(tmp_path / "engine"), DEATH: death},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        code = process.wait()
        assert code == (-signal.SIGKILL if death else 0), death
        ran = log.read_text().split()[len(before) :]
        assert not set(ran) & set(done), death
        done = _ids(results) if results.exists() else []
        assert len(done) == len(set(done)), death
        if death and len(done) > 1:
            # The last result was not on the disk as a whole.
            *_, torn = done
            done.remove(torn)
            results.write_bytes(results.read_bytes()[:-20])
    assert sorted(done) == sorted(names)


@pytest.mark.process
def test_interrupted_batch_records_what_ended_by_itself(tmp_path: Path, homes: Path) -> None:
    begun = tmp_path / "begun"
    file = _write(
        "b",
        {"id": "fast", "command": ["true"]},
        {"id": "slow", "command": ["sh", "-c", f"touch {begun}; sleep 60"]},
        {"id": "later", "command": ["true"]},
    )
    process = start(
        *("sandbox", "batch", file, "-j", "1", "--results", "r"),
        cwd=Path.cwd(), module="tests.support.local_program",
        env={FOLDER: str(tmp_path / "engine")}, stderr=subprocess.PIPE,
    )  # fmt: skip
    eventually(begun.exists, "the second submission runs")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert b"1 of 3 submissions have a result: `--resume` runs the others" in err
    assert _ids("r") == ["fast"]
    assert _left(homes) == []


@pytest.mark.process
def test_command_ends_with_the_reader_of_its_output(tmp_path: Path, homes: Path) -> None:
    env = {**os.environ, FOLDER: str(tmp_path / "engine")}
    program = [sys.executable, "-m", "tests.support.local_program", "sandbox", "run", "--"]
    script = "echo first; while sleep 0.1; do echo more; done"
    with subprocess.Popen(
        [*program, "sh", "-c", script], stdout=subprocess.PIPE, env=env,
        cwd=Path(__file__).parents[3],
    ) as process:  # fmt: skip
        assert process.stdout is not None
        # It came while the command runs.
        assert process.stdout.readline() == b"first\n"
        process.stdout.close()
        assert process.wait(60) == 141
    assert _left(homes) == []


@pytest.mark.process
def test_reader_that_does_not_read_keeps_no_command_alive(tmp_path: Path) -> None:
    env = {**os.environ, FOLDER: str(tmp_path / "engine")}
    program = [sys.executable, "-m", "tests.support.local_program", "sandbox", "run"]
    with subprocess.Popen(
        [*program, "--output-limit", "8m", "--", "yes"], env=env, cwd=Path(__file__).parents[3],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline().startswith(b"output: ")
        assert len(process.stdout.read()) == 8 * 1024**2
        assert process.wait() == 137


def test_output_that_comes_again_is_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    output = PrintedOutput(6, Cancel())
    output.write(LogChunk(stream="stdout", data=b"ab"))
    output.write(LogChunk(stream="stderr", data=b"x"))
    output.restart()
    for data in (b"a", b"bc", b"d"):
        output.write(LogChunk(stream="stdout", data=data))
    output.write(LogChunk(stream="stderr", data=b"xyz"))
    output.finish()
    assert capfd.readouterr() == ("abcd", "xy")
    assert output.truncated


@pytest.mark.docker
def test_limits_of_a_real_container(homes: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = _write(
        "b",
        {"id": "who", "command": ["sh", "-c", "id -u; cat; touch /etc/x"], "stdin": "in\n"},
        {"id": "oom", "command": ["python3", "-c", "bytearray(300 * 2**20)"]},
        {"id": "disk", "command": ["sh", "-c", "head -c 99m /dev/zero > a; sleep 30"]},
    )
    limits = ["--memory", "64m", "--disk", "20m", "--cpus", "1", "--pids", "64"]
    assert run(["sandbox", "batch", file, *limits, "-j", "3"]) == 1
    lines = capfd.readouterr().out.splitlines()
    found = {line["id"]: line for line in map(json.loads, lines)}
    assert [found[name]["reason"] for name in ("oom", "disk")] == ["oom", "disk"]
    assert found["who"]["stdout"].endswith("\nin\n")
    assert "Read-only file system" in found["who"]["stderr"]
    assert found["who"]["cpu_time"] > 0
    command = ["python3", "-c", "print('x', flush=True); bytearray(300 * 2**20)"]
    assert run(["sandbox", "run", *limits, "--", *command]) == 137
    assert capfd.readouterr() == ("x\n", "oom: killed at the limit of memory\n")
    assert _left(homes) == []
