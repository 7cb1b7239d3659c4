"""Tests of the completion of commands, options and values in shells."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.app import COMMANDS, run

PROGRAM = Path(sys.executable).parent
SCRIPT = """
source <(orchestrator completion bash) || exit
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_orchestrator_completion orchestrator
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str) -> set[str]:
    """Return the completions that bash offers for the last word."""
    done = subprocess.run(
        ["bash", "-c", SCRIPT, "bash", "orchestrator", *words],
        env={**os.environ, "PATH": f"{PROGRAM}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return set(done.stdout.split())


def test_commands_are_completed() -> None:
    assert completed("") == set(COMMANDS)
    assert completed("spec", "ru") == {"run"}


@pytest.mark.parametrize("command", [("parallel",), ("spec", "run"), ("run-one",)])
def test_former_option_names_are_not_completed(command: tuple[str, ...]) -> None:
    assert completed(*command, "--alert-s") == {"--alert-silence"}
    assert completed(*command, "--sil") == set()


@pytest.mark.parametrize(
    ("option", "begun", "values"),
    [
        ("--network", "", {"none", "allowlist", "learn", "open"}),
        ("--preset", "", {"untrusted", "ci", "trusted"}),
        ("--agent-cli", "cl", {"claude"}),
        ("--on-alert", "s", {"stop"}),
    ],
)
def test_option_values_are_completed(option: str, begun: str, values: set[str]) -> None:
    assert completed("parallel", option, begun) == values


def test_unknown_command_has_no_completions() -> None:
    assert completed("nosuch", "--x") == set()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_zsh_and_fish_have_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert f"_ORCHESTRATOR_COMPLETE=complete_{shell}" in capsys.readouterr().out


def test_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "csh"]) == 3
    assert "csh" in capsys.readouterr().err
