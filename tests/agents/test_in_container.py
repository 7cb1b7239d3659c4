"""Tests of the helper that runs beside a program in its container."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agents import in_container as inside
from orchestrator.agents.start import starter
from tests.support.live import PATIENCE

TRAJECTORY = Path(__file__).parents[1] / "data" / "agents" / "mini" / "ok.traj.json"
START = (sys.executable, *starter()[1:])


GIST = {
    "mini_version": "2.4.6",
    "exit_status": "Submitted",
    "steps": 2,
    "cost": 0.006,
    "tokens": 2100,
    "step_limit": 0,
    "cost_limit": 1.0,
    "said": "",
}


# A stand-in for `mini`: records its arguments, writes a trajectory, and ends with `ending`.
STAND_IN = """#!/bin/sh
printf '%s\\n' "$@" "$PWD" > "$HOME/arguments"
for last; do :; done
cp "$TRAJECTORY" "$last"
echo "text for people"
{ending}
"""


def mini(home: Path, ending: str, trajectory: Path = TRAJECTORY) -> "subprocess.Popen[str]":
    program = home / "mini"
    program.write_text(STAND_IN.format(ending=ending))
    program.chmod(0o755)
    return subprocess.Popen(
        [*START, str(program), "-t", "a task"],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "TRAJECTORY": str(trajectory)},
        cwd=home.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.mark.parametrize("code", [0, 1, 3])
def test_report_is_the_last_line_and_exit_code_is_kept(home: Path, code: int) -> None:
    with mini(home, f"exit {code}") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, "")
    people, last = out.split("\n\n")
    assert people == "text for people"
    assert json.loads(last) == GIST


def test_mini_runs_in_the_worktree_with_settings_from_elsewhere(home: Path) -> None:
    with mini(home, "true") as process:
        process.communicate(timeout=60)
    *arguments, where = (home / "arguments").read_text().splitlines()
    assert where == str(home)
    assert arguments == [
        *("-t", "a task", "-c", f'environment.cwd="{home.parent}"'),
        *("-o", f"{home}/.mini-trajectory.json"),
    ]


def test_signal_is_forwarded_and_report_is_printed(home: Path) -> None:
    with mini(home, "echo ready; exec sleep 60") as process:
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            pass
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert json.loads(out) == GIST


# Starts a program while a signal for this process arrives immediately after the fork.
SIGNALLED = """
import os, signal, sys
from orchestrator.agents import in_container
fork = os.fork
def signalled():
    child = fork()
    if child:
        os.kill(os.getpid(), signal.{name})
    return child
os.fork = signalled
child = in_container.start(["sleep", "300"], lambda: None)
sys.exit(in_container.end_of(child))
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_signal_that_arrives_while_the_program_starts_is_forwarded(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED.format(name=name)], check=False, timeout=PATIENCE
    )
    assert done.returncode == 128 + signal.Signals[name]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"info": {}}', '{"info": 1, "messages": 2}'])
def test_malformed_trajectory_gives_no_report(home: Path, content: str) -> None:
    broken = home / "broken"
    broken.write_text(content)
    with mini(home, "exit 2", broken) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (2, "text for people\n", "")


def test_missing_program_is_named(home: Path) -> None:
    process = mini(home, "true")
    process.communicate(timeout=60)
    (home / "mini").unlink()
    done = subprocess.run(
        [*START, str(home / "mini")],
        env={"HOME": str(home)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (127, f"{home}/mini: No such file or directory\n")


def test_texts_of_the_report_are_bounded(tmp_path: Path) -> None:
    trajectory = json.loads(TRAJECTORY.read_text())
    trajectory["messages"][-1]["content"] = "x" * 1_000_000
    path = tmp_path / "long"
    path.write_text(json.dumps(trajectory))
    found = inside.summary(str(path))
    assert found is not None
    assert len(json.dumps(found)) < 5000


ERROR = "litellm.RateLimitError: RateLimitError: no\nThe API provider has rate limited you.\n"


def retried(delays: str) -> str:
    return f'for s in {delays}; do echo "${{ERROR}}Retrying in $s seconds..."; done\n'


def aider(home: Path, script: str) -> "subprocess.CompletedProcess[str]":
    program = home / "aider"
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    return subprocess.run(
        [*START, str(program)],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "ERROR": ERROR},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_aider_is_stopped_after_repeated_retries(home: Path) -> None:
    """aider itself would continue; the exit code is the helper's."""
    done = aider(home, f"{retried('0.2 0.5 1 2 4 8')}exec sleep 60\n")
    assert done.returncode == 1
    assert done.stdout.count("Retrying in") == inside.RETRIES


@pytest.mark.parametrize(
    "script",
    [
        retried("1 2 3 4 5"),
        "for s in 1 2 3 4 5 6 7; do echo Retrying in $s seconds...; done",
        f"{retried('1 2 3 4')}echo 'Tokens: 1 sent,'\n{retried('1 2 3 4')}",
    ],
)
def test_successful_retries_do_not_stop_aider(home: Path, script: str) -> None:
    done = aider(home, f"{script}\necho end\nexit 3\n")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (3, "end")


def test_output_is_passed_through_unchanged(home: Path) -> None:
    done = aider(home, "printf 'no newline: \\342\\202\\254'; echo aside >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "no newline: \u20ac", "aside\n")
