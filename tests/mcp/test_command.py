"""Tests of the options of `orchestrator mcp`, which are checked before anything is served."""

import sys
from pathlib import Path

import pytest

from orchestrator.cli.app import run
from tests.support.errors import reports


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--allow", "run,push"], "option `--allow` is `push`: must be of run, stop, pick, merge"),
        (["--budget-total", "0"], "option `--budget-total` is `0.0`: must be above 0"),
        (["--budget-total", "nan"], "option `--budget-total` is `nan`: must be above 0"),
        (["--max-workers", "0"], "--max-workers"),
        (["--preset", "nope"], "option `--preset` is `nope`"),
        (["--agent-cli", "nope"], "`nope`"),
        (["--config", "gone.yaml"], "gone.yaml"),
        (["--root", "/"], "not a git repository"),
    ],
)
def test_wrong_option_is_refused(
    repo: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(repo)
    assert run(["mcp", *words]) == 3
    shown = capsys.readouterr()
    assert (said in shown.err, shown.out) == (True, ""), shown.err


def test_missing_extra_is_named(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "mcp.server", raising=False)
    monkeypatch.delitem(sys.modules, "orchestrator.mcp.server", raising=False)
    with reports("extra.missing", "`mcp`"):
        assert run(["mcp"]) == 3
