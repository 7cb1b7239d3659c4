"""A shell completes commands, options and values by the script that `completion` prints."""

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
    """Return what bash offers for the last of some words."""
    done = subprocess.run(
        ["bash", "-c", SCRIPT, "bash", "orchestrator", *words],
        env={**os.environ, "PATH": f"{PROGRAM}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return set(done.stdout.split())


def test_commands() -> None:
    assert completed("") == set(COMMANDS)
    assert completed("spec", "ru") == {"run"}


@pytest.mark.parametrize("command", [("parallel",), ("spec", "run"), ("run-one",)])
def test_options_without_their_former_names(command: tuple[str, ...]) -> None:
    assert completed(*command, "--alert-s") == {"--alert-silence"}
    assert completed(*command, "--sil") == set()


@pytest.mark.parametrize(
    ("option", "begun", "values"),
    [
        ("--network", "", {"none", "open"}),
        ("--preset", "", {"untrusted", "ci", "trusted"}),
        ("--agent-cli", "cl", {"claude"}),
        ("--on-alert", "s", {"stop"}),
    ],
)
def test_values(option: str, begun: str, values: set[str]) -> None:
    assert completed("parallel", option, begun) == values


def test_an_unknown_command_completes_to_nothing() -> None:
    assert completed("nosuch", "--x") == set()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    assert f"_ORCHESTRATOR_COMPLETE=complete_{shell}" in capsys.readouterr().out


def test_a_shell_without_a_script_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "csh"]) == 3
    assert "csh" in capsys.readouterr().err
