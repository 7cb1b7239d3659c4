"""Tests that messages name the state of a worker, and all name it alike."""

from pathlib import Path

import pytest

from orchestrator.base.events import Notice, RunDone, RunStarted, WorkerDone
from orchestrator.base.results import Reason, Status, sum_up
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.faces.cli.app import run
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.state.record.history import RunHistory
from orchestrator.state.record.states import WorkerState
from orchestrator.state.run_outline import read_outline
from tests.support.live import LiveRun, killed_run, newest
from tests.support.local_engine import LocalEngine
from tests.support.reports import BASE, RUN_ID, at
from tests.support.runs import configured, run_until
from tests.support.web import begun, result_of, write_run


def test_every_state_has_a_sentence_of_its_own() -> None:
    assert len({state.sentence for state in WorkerState}) == len(WorkerState)


@pytest.fixture
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch, local_engine: LocalEngine) -> None:
    monkeypatch.chdir(repo)
    for place in ("engine", "faces.cli.commands.cleanup"):
        monkeypatch.setattr(f"orchestrator.{place}.load_engine", lambda *_: Closing(local_engine))


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
        assert "without a result, whose later work is not compared: 1 (running), 2 (queued)" in said
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


def test_result_of_a_resumed_run_is_not_the_one_before(repo: Path) -> None:
    specs = [WorkerSpec(worker_id=1, task="do it", model=None)]
    lost = result_of(1, status=Status.FAILED, reason=Reason.ENGINE_ERROR)
    ended = sum_up([lost], run_id=RUN_ID, base=BASE, engine="docker", duration=8.0)
    directory = write_run(repo, specs, [
        *begun(specs), WorkerDone(at=at(8), result=lost), RunDone(at=at(8), result=ended),
        RunStarted(at=at(9), run_id=RUN_ID, base=BASE, workers=tuple(specs), slots=2),
    ])  # fmt: skip
    directory.release()
    outline = read_outline(directory)
    assert outline is not None
    with RunHistory(directory, outline) as history:
        assert history.sentence(1).startswith("had no result")
    # The process that resumed the run died after it had written the worker's result.
    directory.write_result(result_of(1))
    with RunHistory(directory, outline) as history:
        assert history.result().results == [result_of(1)]
        assert history.sentence(1).endswith("success")


def test_resume_says_if_the_run_had_ended(repo: Path, local_engine: LocalEngine) -> None:
    config = configured("sleep 60")
    cancelled = run_until(lambda event: event.type == "worker_started", config, repo, local_engine)
    with newest(repo) as history:
        directory = history.directory
    for had_ended in (True, False):
        if not had_ended:  # as if the process had died before it wrote the run's result
            (directory.path / "result.json").unlink()
        events = []
        result = ResumedRun(directory, emit=events.append, engine=local_engine).execute()
        assert result.results == [cancelled]
        assert any(isinstance(event, Notice) for event in events) is had_ended
