"""Tests that no output is a command for a CI system, with ports of the systems' parsers."""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.base.results import Reason, Status
from orchestrator.base.text.sanitize import lines
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.output.ci import guard, guard_json
from orchestrator.faces.cli.output.sink import Sink
from tests.faces.cli.conftest import worker
from tests.support.ci_parsers import HOSTILE_LINES, GitHubRunner, commands_in
from tests.support.errors import reports
from tests.support.live import newest
from tests.support.local_engine import LocalEngine
from tests.support.runs import shell_run

PACKAGE = Path(__file__).resolve().parents[4] / "orchestrator"
SYSTEMS = {
    "none": {},
    "github": {"GITHUB_ACTIONS": "true", "CI": "true"},
    "azure": {"TF_BUILD": "True"},
    "teamcity": {"TEAMCITY_VERSION": "2026.1"},
    "buildkite": {"BUILDKITE": "true", "CI": "true"},
    "gitlab": {"GITLAB_CI": "true", "CI": "true"},
}
HOSTILE = "\n".join(HOSTILE_LINES)


@pytest.fixture(params=SYSTEMS)
def system(request, monkeypatch) -> str:
    for name, value in SYSTEMS[request.param].items():
        monkeypatch.setenv(name, value)
    return request.param


def test_parsers_find_commands_in_raw_output():
    assert len(HOSTILE_LINES) >= 40
    found = str(
        [commands_in(line) for line in HOSTILE_LINES if "stop-commands" not in line.lower()]
    )
    for command in (
        "add-mask",
        "set-env",
        "task.prependpath",
        "teamcity",
        "--- :rocket:",
        "section_",
    ):
        assert command in found
    runner = GitHubRunner()
    runner.read("::stop-commands::t\n::add-mask::a\n::t::\n::add-mask::b")
    assert (runner.commands, runner.stops) == ([("add-mask", "b")], 1)


@pytest.mark.variants("none")
@pytest.mark.parametrize("name", ["none", "github"])
def test_guarded_lines_contain_no_command(name):
    for line in HOSTILE_LINES:
        # The package passes all text of workers through `one_line` or `lines`.
        shown = guard(lines(line), SYSTEMS[name], terminal=False)
        assert commands_in(shown) == [], line
        # Lines on the other stream could end the protection by `stop-commands`.
        bare = re.sub(r"^::(stop-commands::)?[0-9a-f]{32}(::)?$", "", shown, flags=re.MULTILINE)
        assert commands_in(bare) == [], line


def test_each_block_has_its_own_token():
    shown = [guard("::add-mask::a", SYSTEMS["github"], terminal=False) for _ in range(2)]
    tokens = [re.fullmatch(r"::stop-commands::([0-9a-f]{32})\n.*\n::\1::", one)[1] for one in shown]
    assert tokens[0] != tokens[1]
    runner = GitHubRunner()
    runner.read(f"{shown[0]}\n{guard(f'::{tokens[0]}::', SYSTEMS['github'], terminal=False)}")
    assert (runner.commands, runner.stops, runner.is_stopped) == ([], 2, False)


def test_harmless_text_is_unchanged():
    text = "# heading\n## second\n-- x\n---x\na::b\n+++x\n[W1] --- a/file"
    assert guard(text, {}, terminal=False) == text
    assert guard("::x::\n--- a", {}, terminal=True) == "::x::\n--- a"
    assert guard("::x::", {"BUILDKITE": "true"}, terminal=True) == "\ufffd::x::"
    assert guard("##[x]\n::y::", {"CI": "1", "ORCHESTRATOR_CI": "off"}, terminal=False) == (
        "##[x]\n::y::"
    )
    assert guard("x", {"GITHUB_ACTIONS": "true"}, terminal=False) == "x"


def test_guarded_json_is_equivalent():
    said = {"##vso[a.b]": ["##[x]", "###", '\\##"', "# #"]}
    text = guard_json(json.dumps(said))
    assert "##" not in text
    assert json.loads(text) == said


EVIL = "##vso[task.prependpath]/tmp/evil"
COMMANDS = (
    *(["logs"], ["logs", "1"], ["logs", "--follow", "1"], ["events"], ["watch"], ["ls"]),
    *(["ls", "--json"], ["wait"], ["wait", "--json"], ["stop", "1"], ["doctor"]),
    *(["logs", EVIL], ["wait", "a\n::add-mask::b"], ["::add-mask::x"], ["doctor", "--json"]),
    *(["spec", "validate", "##[add-mask]x"], ["parallel-cleanup", "--dry-run"]),
    ["retry", "1", "--run", "##vso[a.b]"],
    ["parallel", "--dry-run", "--agent-cli", "shell", f"x\n::add-mask::a {EVIL}"],
    ["parallel", "--dry-run", "--json", "--agent-cli", "shell", f"x\n::add-mask::a {EVIL}"],
)


class TestCommands:
    @pytest.fixture
    def hostile_run(self, repo, local_engine: LocalEngine, monkeypatch) -> str:
        """Execute a run whose task, output and message contain commands for CI systems."""
        monkeypatch.chdir(repo)
        (repo / "hostile").write_text(HOSTILE.replace("x" * 1_000_000, "x"))
        (repo / "last").write_text(f"\n{EVIL}")
        said = "##vso[a.b] ##[error]x"
        task = f"cat {repo}/hostile; cat {repo}/hostile {repo}/last >&2; exit 3 # {said}"
        shell_run(repo, local_engine, task)
        return newest(repo).run_id

    @pytest.mark.variants("github")
    @pytest.mark.usefixtures("hostile_run")
    @pytest.mark.parametrize("name", ["none", "github", "azure"])
    def test_no_command_prints_a_ci_command(self, name, capsys, monkeypatch):
        for variable, value in SYSTEMS[name].items():
            monkeypatch.setenv(variable, value)
        for command in COMMANDS:
            run(command)
            shown = capsys.readouterr()
            assert shown.out + shown.err, command
            assert commands_in(shown.out, shown.err) == [], command
            assert commands_in(shown.err, shown.out) == [], command
            if "--json" in command:
                json.loads(shown.out)

    @pytest.mark.usefixtures("hostile_run")
    def test_json_output_keeps_the_text(self, capsys):
        run(["wait", "--json"])
        (result,) = json.loads(capsys.readouterr().out)["results"]
        assert result["message"] == EVIL
        assert "##[error]x" in result["task"]

    @pytest.mark.usefixtures("hostile_run")
    def test_protection_can_be_switched_off(self, monkeypatch, capsys):
        monkeypatch.setenv("TF_BUILD", "True")
        monkeypatch.setenv("ORCHESTRATOR_CI", "off")
        assert run(["logs", "1"]) == 0
        assert "\n##vso[task.prependpath]/tmp/evil\n" in capsys.readouterr().out
        assert run(["logs", "--raw", "1"]) == 0
        assert "\n::add-mask" in capsys.readouterr().out
        monkeypatch.setenv("ORCHESTRATOR_CI", "on")
        with reports("variable.invalid", "`ORCHESTRATOR_CI` is `on`"):
            assert run(["logs", "1"]) == 3

    @pytest.mark.usefixtures("hostile_run")
    def test_raw_output_is_refused_in_a_job(self, monkeypatch, capsysbinary):
        monkeypatch.setenv("CI", "true")
        assert run(["logs", "--raw", "1"]) == 3
        shown = capsysbinary.readouterr()
        assert shown.out == b""
        assert b"`--raw` is refused in a CI job" in shown.err
        assert run(["logs", "--raw", "--force", "1"]) == 0
        assert b"\n##vso[task.prependpath]/tmp/evil\n" in capsysbinary.readouterr().out
        assert run(["logs", "--force", "1"]) == 3
        assert b"`--force` requires `--raw`" in capsysbinary.readouterr().err


def test_hostile_result_contains_no_ci_command(result, system, capsys):
    from orchestrator.faces.cli.output.event_lines import done_line, notice_line
    from orchestrator.faces.cli.output.messages import tell
    from orchestrator.faces.cli.output.report import after_run, run_json, run_table

    said = EVIL
    bad = worker(1, Status.FAILED, reason=Reason.AGENT_FAILED, message=said, task=f"{said}\n::x::")
    hostile = result.model_copy(update={"results": [bad]})
    for text in (run_table(hostile), after_run(hostile), done_line(bad), notice_line(said)):
        tell(text)
    shown = capsys.readouterr().err
    assert "prependpath" in shown
    assert commands_in(shown) == []
    assert commands_in(guard_json(run_json(hostile))) == []
    assert ("\n::stop-commands::" in f"\n{shown}") == (system == "github")


class TestExec:
    """Output of a command in a worker's container is unchanged, except in the log of a CI job."""

    def write(self, capfdbinary, *pieces: bytes) -> bytes:
        with os.fdopen(os.dup(1), "w") as out:
            sink = Sink(out)
            for piece in pieces:
                sink.write(piece)
            sink.finish()
        return capfdbinary.readouterr().out

    def log(self, *pieces: bytes) -> bytes:
        """Return what a job's log, which is a pipe, receives."""
        reader, writer = os.pipe()
        with ThreadPoolExecutor() as pool, os.fdopen(reader, "rb") as log:
            received = pool.submit(log.read)
            with os.fdopen(writer, "w") as out:
                sink = Sink(out)
                for piece in pieces:
                    sink.write(piece)
                sink.finish()
            return received.result()

    def test_bytes_are_unchanged_outside_of_a_job(self, capfdbinary):
        assert self.write(capfdbinary, b"::a::\xff", b"\0") == b"::a::\xff\0"

    def test_output_is_unchanged_in_a_file_of_a_job(self, capfdbinary, monkeypatch):
        monkeypatch.setenv("TF_BUILD", "True")
        assert self.write(capfdbinary, b"##vso[a]\xff", b"\0") == b"##vso[a]\xff\0"

    def test_output_is_guarded_in_the_log_of_a_job(self, monkeypatch):
        monkeypatch.setenv("TF_BUILD", "True")
        shown = self.log(b"a\n##v", b"so[task.prependpath]/x\n\xff:", b":add-mask::b")
        assert commands_in(shown.decode()) == []
        assert shown.decode() == "a\n#\ufffd#vso[task.prependpath]/x\n\ufffd::add-mask::b\n"

    def test_long_line_is_split(self, monkeypatch):
        monkeypatch.setenv("TF_BUILD", "True")
        shown = self.log(b"x" * 70_000 + b"##", b"vso[a.b]c")
        assert shown.endswith(b"x##\nvso[a.b]c\n")


def test_image_build_does_not_treat_a_job_log_as_a_terminal(monkeypatch, capsys, tmp_path):
    """Many jobs set `FORCE_COLOR`, with which rich treats any stream as a terminal."""
    from orchestrator.faces.cli.commands.image import build_progress

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with build_progress(quiet=False) as progress:
        progress("::add-mask::x")
        # The status is drawn at the latest when it ends.
        progress("##[add-mask]x")
    shown = capsys.readouterr()
    assert commands_in(shown.out, shown.err) == []
    assert "add-mask" in shown.err


def test_error_message_is_made_harmless(capsys):
    from orchestrator.faces.cli.output.messages import tell_error

    tell_error("bad \x1b]0;x\x07\r::add-mask::x", "\x1b[31mred\u202e")
    shown = capsys.readouterr().err
    assert shown == ("error: bad \ufffd]0;x\ufffd\n\ufffd::add-mask::x\n\nhint: red\ufffd\n")


def test_only_listed_modules_write_to_the_streams():
    allowed = {"messages.py", "terminal.py", "inside.py", "logs.py", "ci.py"}
    writing = re.compile(r"sys\.std(?:out|err)\.write|typer\.echo|(?<![\w.])print\(|\.writelines\(")
    found = [
        path.name
        for path in (PACKAGE / "faces" / "cli").rglob("*.py")
        if writing.search(path.read_text())
    ]
    assert set(found) <= allowed
