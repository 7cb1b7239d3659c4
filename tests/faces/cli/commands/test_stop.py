"""Tests of `stop`: which workers are chosen."""

from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no worker was chosen"),
        (["1", "--all"], "numbers of workers cannot be used with `--all`"),
    ],
)
def test_workers_are_chosen_by_numbers_or_by_all(
    repo: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(repo)
    assert run(["stop", *words]) == 3
    assert said in capsys.readouterr().err
