"""Tests that every text input is decoded as UTF-8, or refused with its source."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from tests.support.cli import orchestrator
from tests.support.errors import reports

BAD = "\udcff"
"""Character with which Python represents a byte that is not UTF-8."""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["parallel", "--task", f"echo {BAD}"],
            "argument 3 of the command, after `--task`, is not UTF-8 text: `ec",
        ),
        (["parallel", f"echo {BAD}"], "argument 2 of the command is not UTF-8 text: `echo \ufffd`"),
        (["spec", "validate", f"{BAD}.yaml"], "argument 3 of the command is not UTF-8 text"),
        (
            ["parallel", "x", "--env", f"A={BAD}"],
            "argument 4 of the command, after `--env`, is not",
        ),
        ([BAD], "argument 1 of the command is not UTF-8 text"),
    ],
)
def test_argument_that_is_not_utf8_is_refused(arguments, told, capsys):
    assert run(arguments) == 3
    assert told in capsys.readouterr().err


@pytest.mark.usefixtures("repository")
class TestVariables:
    COMMAND = ("parallel", "--dry-run", "--agent-cli", "shell", "--workers", "1", "true")

    def test_variable_of_a_setting_must_be_utf8(self, monkeypatch, capsys):
        monkeypatch.setenv("ORCHESTRATOR_IMAGE", f"a{BAD}")
        assert run(self.COMMAND) == 3
        told = "environment variable `ORCHESTRATOR_IMAGE` is not UTF-8 text"
        assert told in capsys.readouterr().err

    def test_variable_for_workers_must_be_utf8(self, monkeypatch, capsys):
        monkeypatch.setenv("FOO", BAD)
        assert run([*self.COMMAND, "--env", "FOO"]) == 3
        assert "option `--env`: the value of `FOO` is not UTF-8 text" in capsys.readouterr().err

    def test_api_key_must_be_utf8(self, monkeypatch, capsys):
        monkeypatch.setenv("OPENAI_API_KEY", BAD)
        assert run(["parallel", "--dry-run", "--agent-cli", "codex", "x"]) == 3
        told = "environment variable `OPENAI_API_KEY` is not UTF-8 text"
        assert told in capsys.readouterr().err

    def test_variable_too_long_for_a_program_is_refused(self):
        with reports("variable.too-long", "`BIG` has 131076 bytes"):
            assert run([*self.COMMAND, "--env", f"BIG={'x' * 131_072}"]) == 3


@pytest.mark.parametrize("command", [["ls"], ["parallel", "--dry-run", "x"], ["init", "--yes"]])
def test_repository_path_must_be_utf8(command, tmp_path, monkeypatch):
    top = tmp_path / BAD
    subprocess.run(["git", "init", "-q", os.fsencode(top)], check=True)
    monkeypatch.chdir(top)
    with reports("path.invalid"):
        assert run(command) == 3


def test_ascii_locale_supports_utf8_input(tmp_path, home):  # noqa: ARG001
    top = tmp_path / "dépôt"
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.invalid", "-C", str(top)]
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    command = ("parallel", "--dry-run", "--json", "--agent-cli", "shell", "--workers", "1")
    env = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    done = orchestrator(*command, "echo déjà vu", cwd=top, env=env)
    assert done.returncode == 0, done.stderr
    (worker,) = done.json["workers"]
    assert worker["task"] == "echo déjà vu"
    assert worker["worktree_path"] == f"{top}/.architect-parallel-1"
    done = orchestrator("nonsense-é", cwd=top, env=env)
    assert done.returncode == 3
    assert "unknown command: `nonsense-é`" in done.stderr


class TestFiles:
    """Reading a FIFO would block forever, so a FIFO is never opened."""

    @pytest.fixture
    def fifo(self, repository) -> Path:
        path = repository / "fifo.yaml"
        os.mkfifo(path)
        return path

    @pytest.mark.parametrize(
        "command",
        [
            ["spec", "validate", "fifo.yaml"],
            ["spec", "validate", "SQUAD.md"],
            ["config", "validate", "fifo.yaml"],
            ["parallel", "--config", "fifo.yaml", "x"],
            ["parallel", "--env-file", "fifo.yaml", "x"],
            ["doctor", "--config", "fifo.yaml"],
        ],
        ids=" ".join,
    )
    @pytest.mark.timeout(90)
    def test_fifo_is_refused(self, command, fifo, capsys):
        os.mkfifo(fifo.with_name("SQUAD.md"))
        assert run(command) == (7 if command[0] == "doctor" else 3)
        shown = capsys.readouterr()
        assert "cannot be read: the file is not a regular file" in shown.out + shown.err

    def test_symbolic_link_named_by_the_user_is_read(self, repository, capsys):
        (repository / "real.yaml").write_text("tasks: [a]\n")
        (repository / "link.yaml").symlink_to("real.yaml")
        assert run(["spec", "validate", "link.yaml"]) == 0
        assert "1 task" in capsys.readouterr().out


def test_hints_do_not_refer_to_files_of_a_clone():
    package = Path(sys.modules["orchestrator"].__file__).parent
    texts = {path.name: path.read_text() for path in package.rglob("*.py")}
    found = [
        name for name, text in texts.items() if "docs/reference" in text or "docs/guides" in text
    ]
    assert found == []
