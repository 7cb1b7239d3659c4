"""Tests of the entry point: imports, help, exit codes and error messages."""

import json
import os
import subprocess
import sys
from typing import Annotated
from unittest.mock import ANY

import pytest
import typer

from orchestrator.base.errors import EngineError, ImageNotFoundError, OrchestratorError
from orchestrator.base.text.version import __version__
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.images.recipes import INSTALLERS, base_recipe
from orchestrator.faces.cli import app
from orchestrator.faces.cli.app import COMMANDS, run

HEAVY = {"pydantic", "docker", "rich", "yaml", "humanize", "tenacity", "requests"}


def call(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


@pytest.fixture
def failing(monkeypatch):
    """Return a function that makes `doctor` raise an error."""

    def set_error(error: BaseException) -> None:
        def doctor() -> None:
            """Fail."""
            raise error

        monkeypatch.setattr("orchestrator.faces.cli.commands.doctor.doctor", doctor)

    return set_error


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_does_not_import_large_libraries(argument):
    code = (
        "import sys; from orchestrator.faces.cli.app import run; assert run([sys.argv[1]]) == 0; "
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, argument], capture_output=True, text=True, check=True
    )
    # The recipes of images, whose hashes `--version` prints, are in a package that needs pydantic.
    allowed = {"pydantic"} if argument == "--version" else set()
    assert (HEAVY - allowed).isdisjoint(done.stderr.split())


def test_help_names_every_command(capsys):
    assert run(["--help"]) == 0
    shown = capsys.readouterr()
    for name, command in COMMANDS.items():
        assert f"  {name} " in shown.out
        assert command.help in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    assert run([name, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: orchestrator {name} ")


def test_version(capsys):
    assert run(["--version"]) == 0
    first, *images = capsys.readouterr().out.splitlines()
    assert first == f"orchestrator {__version__}"
    assert images[0] == f"{BASE_IMAGE} recipe sha256:{base_recipe()}"
    assert len(set(images)) == len(INSTALLERS) + 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"],
         "error: unknown command: `nonsense`\n\nhint: run `orchestrator --help` for the "
         "commands\n"),
        (["paralel"], "error: unknown command: `paralel`\n\nhint: did you mean `parallel`?\n"),
        (["--versoin"], "error: unknown option: `--versoin`\n\nhint: did you mean `--version`?\n"),
        (["parallel", "--worker", "3"],
         "error: unknown option: `--worker`\n\nhint: did you mean `--workers`?\n"),
        (["restore", "abc"],
         "error: invalid value for `N`: must be a whole number\n\n"
         "hint: run `orchestrator restore --help` for the options\n"),
        (["restore", "0"],
         "error: invalid value for `N`: must be at least 1\n\n"
         "hint: run `orchestrator restore --help` for the options\n"),
        (["parallel", "a", "b"],
         "error: only one task can be an argument\n\n"
         "hint: quote its words; repeat `--task CMD` for more\n"),
        (["doctor", "b"],
         "error: got unexpected extra argument(s) (b)\n\n"
         "hint: run `orchestrator doctor --help` for the options\n"),
    ],
)  # fmt: skip
def test_invalid_command_line_exits_3(arguments, message, capsys):
    assert run(arguments) == 3
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", message)


@pytest.mark.parametrize("arguments", [[], ["image"], ["spec"]])
def test_help_is_shown_without_a_command(arguments, capsys):
    assert run(arguments) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"Usage: {' '.join(['orchestrator', *arguments])} ")
    assert shown.err == ""


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ImageNotFoundError("no such image: `x`", key="image.missing", hint="build it"), 3,
         "error: no such image: `x`\n\nhint: build it\n"),
        (EngineError("it broke", key="engine.refusal"), 7, "error: it broke\n"),
        (OrchestratorError("odd", key="internal.error"), 70, "error: odd\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)  # fmt: skip
def test_each_error_has_its_exit_code(failing, capsys, error, code, message):
    failing(error)
    assert run(["doctor"]) == code
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", message)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["doctor", "--json"],
         {"key": "image.missing", "exit_code": 3, "message": "no image", "hint": "build"}),
        (["doctor", "--json", "--nonsense"],
         {"key": "command-line.invalid", "exit_code": 3, "message": ANY, "hint": ANY}),
        (["doctor", "--", "--json"], None),
        (["doctor"], None),
    ],
)  # fmt: skip
def test_with_json_an_error_is_one_object_on_stdout(monkeypatch, capsys, arguments, expected):
    def doctor(
        rest: Annotated[list[str] | None, typer.Argument()] = None,
        json: Annotated[bool, typer.Option("--json")] = False,
    ) -> None:
        del rest, json
        raise ImageNotFoundError("no image", key="image.missing", hint="build")

    monkeypatch.setattr("orchestrator.faces.cli.commands.doctor.doctor", doctor)
    assert run(arguments) == 3
    shown = capsys.readouterr()
    assert (json.loads(shown.out) if shown.out else None) == (expected and {"error": expected})
    assert shown.err.startswith("error: ")


def test_with_json_hostile_text_of_a_bug_is_harmless(capsys):
    app._report(ZeroDivisionError("\x1b[2J\u202e"), as_json=True)
    shown = capsys.readouterr()
    assert json.loads(shown.out)["error"]["key"] == "internal.error"
    assert json.loads(shown.out)["error"]["exit_code"] == 70
    assert shown.out.isascii()
    assert "\x1b" not in shown.out + shown.err


def test_internal_error_exits_70_without_traceback(failing, capsys, monkeypatch):
    monkeypatch.setattr(app, "_versions", lambda: "the versions")
    failing(ZeroDivisionError("division by zero\nsecond line"))
    assert run(["doctor"]) == 70
    assert capsys.readouterr().err == (
        "error: internal error: ZeroDivisionError: division by zero\n\n"
        "hint: run the command again as `orchestrator --debug ...`, and report the output with: "
        "the versions\n"
    )


def test_debug_prints_the_traceback(failing, capsys):
    failing(ZeroDivisionError("x"))
    assert run(["--debug", "doctor"]) == 70
    assert "Traceback (most recent call last):" in capsys.readouterr().err


def test_internal_error_names_the_versions(failing, capsys):
    failing(ZeroDivisionError("x"))
    run(["doctor"])
    assert f"orchestrator {__version__}, Python 3." in capsys.readouterr().err


def test_closed_streams_cause_no_traceback():
    done = subprocess.run(
        ["sh", "-c", '"$0" -m orchestrator --version >&- 2>&-', sys.executable], check=False
    )
    assert done.returncode == 0


def test_unencodable_characters_cause_no_traceback(repository):
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = call("parallel", "größer", "--workers", "1", "--dry-run", cwd=repository, env=env)
    assert done.returncode == 0
    assert "gr\\xf6\\xdfer" in done.stdout
