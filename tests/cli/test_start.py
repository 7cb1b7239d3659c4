"""Help and completion import only what they print."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LARGE = {"pydantic", "docker", "rich", "yaml", "humanize", "importlib.metadata"}
"""Modules whose import takes longer than the rest of `orchestrator parallel --help`."""
PROGRAM = """
import sys
from orchestrator.cli.app import run
code = run(sys.argv[1:])
loaded = " ".join(sorted(sys.modules))
sys.stderr.write(loaded)
sys.exit(code)
"""


def loaded(*arguments: str, where: Path, **environ: str) -> set[str]:
    """Return the modules that a command line has imported at its end."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=where, env={**os.environ, **environ}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments", [("--help",), ("parallel", "--help"), ("run-one", "--help"), ("run", "--help")]
)
def test_help_imports_no_large_module(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert not loaded(*arguments, where=tmp_path) & LARGE


@pytest.mark.parametrize(
    "words", ["", "par", "parallel --net", "parallel --network ", "spec run --"]
)
def test_completion_imports_no_large_module(words: str, tmp_path: Path) -> None:
    line = f"orchestrator {words}"
    modules = loaded(
        where=tmp_path,
        _ORCHESTRATOR_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(len(line.split(" ")) - 1),
    )
    assert not modules & LARGE


def test_a_run_that_is_not_watched_on_a_terminal_draws_no_table(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    subprocess.run(
        ["git", *who, "commit", "-q", "--allow-empty", "-m", "base"], cwd=tmp_path, check=True
    )
    modules = loaded("parallel", "true", "--agent-cli", "shell", "--dry-run", where=tmp_path)
    assert not modules & {"rich.console", "humanize"}
