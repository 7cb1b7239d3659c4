"""Tests of the functions and the class with which Python programs use recorded runs."""

import asyncio
import json
from pathlib import Path

import pytest

from orchestrator import History, ParallelRunner, list_runs, report
from orchestrator.base.errors import ConfigError, RunDiedError
from orchestrator.base.events import Event, RunDone, WorkerStarted
from orchestrator.base.results import Reason, RunResult
from tests.support.errors import raises
from tests.support.live import LiveRun, killed_run
from tests.support.runs import configured, shell_run


def test_history_of_an_ended_run(repo: Path, local_engine) -> None:
    result = shell_run(repo, local_engine, "true", "exit 3")
    with History.open(repo, result.run_id[:-2]) as history:
        assert history.run_id == result.run_id
        assert asyncio.run(history.wait()) == result
        seen = asyncio.run(_all(history))
    assert (seen[0].type, seen[-1].type) == ("run_started", "run_done")
    with raises("run.unknown"):
        History.open(repo, "nope")
    assert [run.run_id for run in list_runs(repo).runs] == [result.run_id]


async def _all(history: History) -> list[Event]:
    return [event async for event in history.events()]


def test_events_of_a_live_run_come_until_its_end(repo: Path, tmp_path: Path, local_engine) -> None:
    live = LiveRun(repo, tmp_path / "gate")

    async def follow() -> tuple[list[str], RunResult]:
        seen = []
        with History.open(repo) as history:
            now = [event.type async for event in history.events(follow=False)]
            assert "run_done" not in now
            async for event in history.events():
                seen.append(event.type)
                if isinstance(event, WorkerStarted):
                    live.open_gate()
            return seen, await history.wait()

    with live.going_on(local_engine, live.wait_for_gate):
        seen, result = asyncio.run(follow())
    assert seen[-1] == "run_done"
    assert result == live.result


def test_history_stops_workers_of_a_live_run(repo: Path, tmp_path: Path, local_engine) -> None:
    live = LiveRun(repo, tmp_path / "gate")
    with live.going_on(local_engine, live.wait_for_gate), History.open(repo) as history:
        assert history.stop(kill=True) == [1]
        (worker,) = asyncio.run(history.wait()).results
    assert worker.reason is Reason.CANCELLED


def test_runner_yields_the_events_of_its_run(repo: Path, local_engine) -> None:
    heard: list[Event] = []
    runner = ParallelRunner(configured("echo 1"), repo, engine=local_engine, emit=heard.append)

    async def play() -> list[Event]:
        return [event async for event in runner.events()]

    seen = asyncio.run(play())
    assert isinstance(seen[-1], RunDone)
    assert seen[-1].result.status == "success"
    assert seen == heard


def test_loop_that_is_left_early_cancels_the_run(repo: Path, local_engine) -> None:
    runner = ParallelRunner(configured("sleep 600"), repo, engine=local_engine)

    async def play() -> None:
        events = runner.events()
        async for event in events:
            if isinstance(event, WorkerStarted):
                break
        await events.aclose()  # type: ignore[attr-defined]

    asyncio.run(play())
    with History.open(repo) as history:
        (worker,) = history.result().results
    assert worker.reason is Reason.CANCELLED


def test_error_of_a_run_that_cannot_start_ends_the_loop(tmp_path: Path, local_engine) -> None:
    runner = ParallelRunner(configured("true"), tmp_path, engine=local_engine)

    async def play() -> None:
        async for _ in runner.events():
            pass

    with pytest.raises(Exception, match="not a git repository"):
        asyncio.run(play())


def test_report_is_made_in_every_format(repo: Path, local_engine) -> None:
    result = shell_run(repo, local_engine, "true")
    assert json.loads(report(repo))["run_id"] == result.run_id
    assert result.run_id in report(repo, run=result.run_id, format="markdown")
    with pytest.raises(ConfigError, match="must be one of junit, markdown"):
        report(repo, format="pdf")


def test_dead_run_has_no_result(repo: Path, tmp_path: Path) -> None:
    killed_run(repo, tmp_path / "engine", "echo begun; sleep 600")
    with History.open(repo) as history, pytest.raises(RunDiedError):
        asyncio.run(history.wait())
