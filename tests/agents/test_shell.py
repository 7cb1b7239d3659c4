"""Tests of the shell adapter, with real commands."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import load_agent
from orchestrator.agents.base import AgentOutcome, AgentOutput, AgentProgress, AgentSettings
from orchestrator.agents.programs import shell
from orchestrator.agents.programs.shell import ShellAgent
from orchestrator.base.results import Reason, Status
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.engine.interface.protocol import ExitStatus

TYPED = '{"type": "orchestrator.report", '
SETTINGS: dict[str, Any] = {
    "profile": "build",
    "max_steps": 50,
    "budget": None,
    "timeout": 600.0,
    "grace": 10.0,
    "api_base": None,
}


def run(tmp_path: Path, task: str, *, model: str | None = None, **changed: Any) -> AgentOutcome:
    """Run a task as the adapter starts it, and return the adapter's outcome."""
    spec = WorkerSpec(worker_id=3, task=task, model=model)
    command = ShellAgent().command(spec, AgentSettings(**(SETTINGS | changed)))
    output = AgentOutput(stdout=tmp_path / "stdout.log", stderr=tmp_path / "stderr.log")
    with output.stdout.open("wb") as stdout, output.stderr.open("wb") as stderr:
        env = {"PATH": os.environ["PATH"], **command.env}
        done = subprocess.run(command.argv, stdout=stdout, stderr=stderr, env=env, cwd=tmp_path)
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return ShellAgent().outcome(output, ExitStatus(exit_code=code, oom_killed=False))


def test_a_command_that_exits_with_0_succeeded(tmp_path: Path) -> None:
    expected = AgentOutcome(status=Status.SUCCESS, summary="hello")
    assert run(tmp_path, "echo hello; echo oh >&2") == expected


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("echo one; echo 'it broke' >&2; exit 3", "it broke"),
        ("echo one; echo two; echo; exit 1", "two"),
        ("printf 'red \\033[31m' >&2; false", "red"),
        ("exit 3", "exited with 3"),
        ("kill -9 $$", "ended by SIGKILL"),
    ],
)
def test_a_command_that_exits_with_another_code_failed(
    tmp_path: Path, task: str, message: str
) -> None:
    got = run(tmp_path, task)
    assert (got.status, got.reason) == (Status.FAILED, Reason.AGENT_FAILED)
    assert got.message == message


@pytest.mark.parametrize("task", ["-c 'exit 0'", "--help", "-e"])
def test_task_that_begins_with_a_dash_is_not_an_option(tmp_path: Path, task: str) -> None:
    got = run(tmp_path, task)
    assert got.status is Status.FAILED
    assert "not found" in (got.message or "")


def test_a_task_may_have_several_lines_and_quotes(tmp_path: Path) -> None:
    run(tmp_path, "A=\"it's\"\ncat <<EOF >said\n$A 'so'\nEOF\n")
    assert (tmp_path / "said").read_text() == "it's 'so'\n"


def test_every_option_is_in_the_environment(tmp_path: Path) -> None:
    given = {"budget": 0.5, "max_steps": 7, "profile": "review", "api_base": "http://model/v1"}
    run(tmp_path, "env | grep ^ORCHESTRATOR_ | sort >seen", model="gpt-4o", **given)
    assert (tmp_path / "seen").read_text().splitlines() == [
        "ORCHESTRATOR_AGENT=review",
        "ORCHESTRATOR_API_BASE=http://model/v1",
        "ORCHESTRATOR_BUDGET=0.5",
        "ORCHESTRATOR_MODEL=gpt-4o",
        "ORCHESTRATOR_WORKER_ID=3",
    ]


def test_options_not_given_are_not_in_the_environment(tmp_path: Path) -> None:
    run(tmp_path, "env | grep ^ORCHESTRATOR_ | sort >seen")
    assert (tmp_path / "seen").read_text().splitlines() == [
        "ORCHESTRATOR_AGENT=build",
        "ORCHESTRATOR_WORKER_ID=3",
    ]


@pytest.mark.parametrize(
    ("report", "exit_code", "status"),
    [
        ('{"type": "orchestrator.report", "status": "success"}', 0, Status.SUCCESS),
        ('{"type": "orchestrator.report", "status": "partial"}', 0, Status.PARTIAL),
        ('{"type": "orchestrator.report", "status": "failed"}', 0, Status.FAILED),
        ('{"type": "orchestrator.report", "status": "timeout"}', 0, Status.SUCCESS),
        ('{"type": "orchestrator.report", "status": 500}', 0, Status.SUCCESS),
        ('{"type": "orchestrator.report", "status": ["failed"]}', 0, Status.SUCCESS),
        ('{"type": "orchestrator.report", "status": "success"}', 1, Status.FAILED),
        ('{"type": "orchestrator.report", "status": "partial"}', 1, Status.FAILED),
    ],
)
def test_a_report_can_lower_the_status_but_not_raise_it(
    tmp_path: Path, report: str, exit_code: int, status: Status
) -> None:
    got = run(tmp_path, f"echo '{report}'; exit {exit_code}")
    assert got.status is status
    assert got.reason is (None if status is Status.SUCCESS else Reason.AGENT_FAILED)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            """echo '{"type": "orchestrator.report", "status": "partial", "cost": 1}'""",
            "the command reported `partial`",
        ),
        ("""echo '{"type": "orchestrator.report", "cost": 1}'; exit 3""", "exited with 3"),
        ("""echo '{"type": "orchestrator.report", "status": "partial"}'; echo half""", "half"),
        ("""echo '{"type": "orchestrator.report", "status": "partial"}'; echo why >&2""", "why"),
        ("""echo '{"error": "a log line"}'; exit 1""", '{"error": "a log line"}'),
    ],
)
def test_message_is_not_the_report(tmp_path: Path, task: str, message: str) -> None:
    assert run(tmp_path, task).message == message


@pytest.mark.parametrize(
    "line",
    [
        '{"check": "probe", "status": "failed"}',
        '{"step": 10, "cost": 0.69}',
        '{"status": "failed"}',
        '{"cost": 0.69}',
        '{"tokens": 5, "steps": 9}',
        '{"status": "failed", "cost": 1.5, "name": "a test"}',
        '{"type": "report", "status": "failed", "tests": 9}',
        '{"type": ["orchestrator.report"], "status": "failed"}',
        '{"TYPE": "orchestrator.report", "status": "failed"}',
        '{"log": {"type": "orchestrator.report", "status": "failed", "cost": 9}}',
        '{"status": "FAILED", "cost": 1, "steps": 2}',
    ],
)
def test_json_lines_of_other_programs_are_output(tmp_path: Path, line: str) -> None:
    got = run(tmp_path, f"echo '{line}'; echo fine")
    assert got == AgentOutcome(status=Status.SUCCESS, summary=f"{line}\nfine")
    assert ShellAgent().progress_reader()(line) is None


@pytest.mark.parametrize("more", ["", ', "note": "x"'])
def test_report_of_the_old_form_is_read_with_a_notice(tmp_path: Path, more: str) -> None:
    old = '{"status": "partial", "steps": 3, "cost": 0.02' + more + "}"
    got = run(tmp_path, f"echo half >&2; echo '{old}'")
    assert (got.status, got.steps, got.cost) == (Status.PARTIAL, 3, 0.02)
    notice = 'the report has no `"type": "orchestrator.report"`; the next release will not read it'
    assert got.message == f"half; {notice}"
    assert run(tmp_path, f"echo '{old.replace('partial', 'success')}'").message == notice


def test_report_counts_before_an_object_of_the_old_form(tmp_path: Path) -> None:
    report = '{"type": "orchestrator.report", "cost": 0.5}'
    got = run(tmp_path, f'echo \'{report}\'; echo \'{{"status": "failed", "cost": 9}}\'')
    assert got.cost == 0.5
    assert (got.status, got.message) == (Status.SUCCESS, None)


@pytest.mark.parametrize("exit_code", [0, 1])
def test_figures_are_taken_from_the_last_report(tmp_path: Path, exit_code: int) -> None:
    first = (
        '{"type": "orchestrator.report", "status": "failed", "cost": 9, "steps": 9, "tokens": 9}'
    )
    last = '{"type": "orchestrator.report", "cost": 0.02, "steps": 4, "tokens": 900}'
    task = f"echo '{first}'; echo '{last}'; echo '{{\"level\": 1}}'; exit {exit_code}"
    got = run(tmp_path, task)
    assert (got.cost, got.steps, got.tokens) == (0.02, 4, 900)
    assert (got.status is Status.SUCCESS) == (exit_code == 0)


def test_implausible_figures_are_ignored(tmp_path: Path) -> None:
    got = run(
        tmp_path,
        """echo '{"type": "orchestrator.report", "cost": 1e999, "steps": -4, "tokens": "many"}'""",
    )
    assert got == AgentOutcome(status=Status.SUCCESS)


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (TYPED + '"cost": 0.5}', AgentProgress(cost=0.5, bounded=False)),
        (
            TYPED + '"cost": 1, "steps": 2, "more": []}\n',
            AgentProgress(cost=1.0, steps=2, bounded=False),
        ),
        (
            TYPED + '"steps": 2, "cost": -1}',
            AgentProgress(steps=2, bounded=False),
        ),
        (TYPED + '"cost": 1e999}', None),
        (TYPED + '"cost": NaN}', None),
        (TYPED + '"cost": true}', None),
        (TYPED + '"status": "partial"}', None),
        (TYPED + '"cost": 1', None),
        (' {"type": "orchestrator.report", "cost": 1}', None),
        ("cost", None),
        ("", None),
        ('{"cost":' * 100, None),
        (TYPED + '"cost": 1, "pad": "' + "x" * 20_000 + '"}', None),
    ],
)
def test_progress_is_read_from_json_lines(line: str, progress: AgentProgress | None) -> None:
    assert ShellAgent().progress_reader()(line) == progress


def test_json_lines_without_figures_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing every line of a log of JSON would take most of the time of reading it."""
    read, parsed = ShellAgent().progress_reader(), list[str]()
    monkeypatch.setattr(shell, "parse_object", lambda line: parsed.append(line) or {})
    read('{"level": "info", "message": "a line of a log"}')
    read('{"type": "orchestrator.report", "cost": 1}')
    assert parsed == ['{"type": "orchestrator.report", "cost": 1}']


def test_shell_inherits_no_keys() -> None:
    agent = load_agent("shell")
    assert isinstance(agent, ShellAgent)
    assert agent.name == "shell"
    assert agent.inherited_env == ()


@pytest.mark.parametrize("size", [131_071, 131_072, 700_000])
@pytest.mark.parametrize("letter", ["x", "\u20ac"])
def test_long_task_is_run_completely(size: int, letter: str) -> None:
    text = letter * (size // len(letter.encode()) - 100)
    task = (
        f"said='{text}'\nIFS=-; set -- a b; printf '%s.' ${{#said}} $# \"${{task-none}}\"; exit 7\n"
    )
    task += "#" * (size - len(task.encode()))
    spec = WorkerSpec(worker_id=1, task=task, model=None)
    argv = ShellAgent().command(spec, AgentSettings(**SETTINGS)).argv
    assert max(len(word.encode()) for word in argv) <= 131_071
    done = subprocess.run([*argv], capture_output=True, env={"LC_ALL": "C.UTF-8"})
    length = int(done.stdout.split(b".")[0])
    assert length in (len(text), len(text.encode())), done.stderr
    assert done.stdout.split(b".")[1:] == [b"2", b"none", b""]
    assert done.returncode == 7
