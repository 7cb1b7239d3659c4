"""Tests that `diff` uses the user's pager on a terminal, and only there."""

from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.commands.diff import pager_of
from tests.support.local_engine import LocalEngine
from tests.support.runs import past_run
from tests.support.screen import Screen

TASK = "seq 20000 > long; printf 'a\\033]0;evil\\007b\\n' > first"


def ended(screen: Screen) -> int:
    """Wait for the command's end, and return its exit code."""
    return screen.process.wait(120)


def test_pager_gets_neutral_text(
    repo: Path, local_engine: LocalEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past_run(repo, local_engine, TASK)
    seen = tmp_path / "seen"
    monkeypatch.setenv("GIT_PAGER", f"tee '{seen}' | head -3; echo LESS=$LESS; : ")
    monkeypatch.delenv("LESS", raising=False)
    screen = Screen(repo, "diff", "1")
    screen.read_until("LESS=FRX")
    assert ended(screen) == 0
    said = seen.read_bytes()
    assert said.startswith(b"\x1b[1mdiff --git a/first b/first")
    assert b"\x1b]" not in said
    assert "a\ufffd]0;evil\ufffdb".encode() in said


def test_no_pager_without_a_terminal(
    repo: Path,
    local_engine: LocalEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    past_run(repo, local_engine, TASK)
    monkeypatch.chdir(repo)
    monkeypatch.setenv("GIT_PAGER", f"touch {tmp_path}/started; cat")
    capfdbinary.readouterr()
    assert run(["diff", "1", "--stat"]) == 0
    assert not (tmp_path / "started").exists()
    assert b"+20000" in capfdbinary.readouterr().out


@pytest.mark.parametrize(
    ("environ", "command"),
    [
        ({}, "less"),
        ({"PAGER": "more -s"}, "more -s"),
        ({"PAGER": "more", "GIT_PAGER": "less -S"}, "less -S"),
        ({"PAGER": "less", "GIT_PAGER": "cat"}, None),
        ({"PAGER": ""}, None),
        ({"PAGER": "no-such-pager --x"}, None),
        ({"TERM": "dumb"}, None),
    ],
)
def test_pager_is_chosen_as_git_does(
    environ: dict[str, str], command: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None if "no-such" in name else name)
    assert pager_of(environ) == command
