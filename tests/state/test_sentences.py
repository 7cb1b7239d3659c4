"""Tests that messages name the state of a worker, and all name it alike."""

from pathlib import Path

import pytest

from orchestrator.cli.app import run
from orchestrator.state.history import WorkerState
from tests.support.live import LiveRun, killed_run
from tests.support.local_engine import LocalEngine


def test_every_state_has_a_sentence_of_its_own() -> None:
    assert len({state.sentence for state in WorkerState}) == len(WorkerState)


@pytest.fixture
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch, local_engine: LocalEngine) -> None:
    monkeypatch.chdir(repo)
    monkeypatch.setattr(
        "orchestrator.cli.commands.exec.load_engine", lambda _: Closing(local_engine)
    )
    monkeypatch.setattr(
        "orchestrator.cli.commands.cleanup.load_engine", lambda _: Closing(local_engine)
    )


class Closing:
    """The local engine as a connection that commands close."""

    def __init__(self, engine: LocalEngine) -> None:
        self.leftovers, self.enter = engine.leftovers, engine.enter

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.usefixtures("_there")
def test_commands_say_what_a_live_worker_does(
    repo: Path, tmp_path: Path, local_engine: LocalEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    live = LiveRun(repo, tmp_path / "gate")
    with live.going_on(local_engine, live.wait_for_gate, "true", workers=1):
        assert run(["exec", "2", "--", "true"]) == 3
        assert WorkerState.QUEUED.sentence in capsys.readouterr().err
        assert run(["conflicts"]) == 0
        said = capsys.readouterr().err
        assert "without a result, whose later work is not compared: 1, 2" in said
        assert "committed nothing" not in said
        assert run(["parallel-cleanup", "1"]) == 1
        said = capsys.readouterr().err
        assert "is still running" in said
        assert "nothing to clean up" not in said
    assert run(["exec", "2", "--", "true"]) == 3
    assert WorkerState.DONE.sentence in capsys.readouterr().err


@pytest.mark.usefixtures("_there")
def test_worker_of_a_dead_run_is_named_so(
    repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_run(repo, tmp_path / "engine", "echo up; sleep 60")
    assert run(["exec", "1", "--", "true"]) == 3
    assert "had no result when its run died" in capsys.readouterr().err
