"""Tests of runs whose provider refuses requests, limits starts, or whose budget is exhausted."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.events import Event, ProviderPaused, WorkerRetrying, WorkerStarted
from orchestrator.base.results import Reason, RunResult, Status, WorkerResult
from orchestrator.config.settings.run import Provider, RateLimit
from orchestrator.faces.cli.output.event_lines import again_line, alert_line
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from orchestrator.sandbox.supervision.pacing import start_throttle
from orchestrator.sandbox.supervision.pacing.token_bucket import Bucket
from tests.support.live import PATIENCE, ROOT, newest
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import configured
from tests.support.shell_report import reporting

OUTAGE = 5.0
ROUNDING = 1e-6
REPORT = '{"type": "orchestrator.report", "status": "failed", "reason": "rate_limited"%s}'
REFUSED = f"echo '{REPORT}'; exit 1"


def watched(
    repo: Path, engine: LocalEngine, *tasks: str, **rest: Any
) -> tuple[RunResult, list[Event]]:
    events: list[Event] = []
    config = configured(*tasks, **{"retry_delay": 0, **rest})
    result = ParallelRunner(config, repo, engine=engine, emit=events.append).execute()
    return result, events


def refused_once(tally: Path, *, said: str = "", times: int = 1) -> str:
    """Return a task that its provider refuses the first time, or `times` times."""
    return (
        f"echo x >> {tally}; n=$(wc -l < {tally}); echo $n > of-$n; "
        f"[ $n -gt {times} ] || {{ {REFUSED % said}; }}"
    )


def bucket(name: str = "shell", *, capacity: int, rate: float) -> dict[str, Provider]:
    limit = RateLimit(capacity=capacity, refill_rate=rate)
    return {name: Provider(rate_limit=limit)}


def starts_of(events: list[Event]) -> list[float]:
    return [one.at.timestamp() for one in events if isinstance(one, WorkerStarted)]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the times at which workers take a token, immediately before their containers start.

    The time at which a container has started is later by what the engine needs, which varies.
    """
    moments: list[float] = []

    class Noting(Bucket):
        def take(self, now: float) -> None:
            moments.append(now)
            super().take(now)

    monkeypatch.setattr(
        start_throttle, "bucket_of",
        lambda providers, name, *, full=True: Noting(providers[name].rate_limit, full=full),
    )  # fmt: skip
    return moments


def assert_kept(moments: list[float], *, capacity: int, rate: float) -> None:
    for first in range(len(moments)):
        for count, moment in enumerate(moments[first:], start=1):
            assert count <= capacity + rate * (moment - moments[first]) + ROUNDING, moments


def test_eight_workers_survive_a_refusal_of_five_seconds(
    repo: Path, local_engine: LocalEngine, tmp_path: Path, taken: list[float]
) -> None:
    opened = tmp_path / "first-request"
    provider = (
        f"[ -e {opened} ] || date +%s.%N > {opened}; "
        f"awk -v now=$(date +%s.%N) '{{exit !(now - $1 < {OUTAGE})}}' {opened} && "
        f"{{ {REFUSED % ''}; }}; echo done > done.txt"
    )
    result, events = watched(
        repo,
        local_engine,
        *[provider] * 8,
        providers=bucket(capacity=8, rate=4),
    )
    assert [one.status for one in result.results] == [Status.SUCCESS] * 8
    assert max(one.attempts for one in result.results) == 2
    pauses = [one for one in events if isinstance(one, ProviderPaused)]
    # A refusal of the same starts that arrives after the pause causes another one, of equal length.
    assert {(one.provider, one.seconds, one.known) for one in pauses} == {("shell", 5.0, False)}
    assert len(taken) == len(starts_of(events)) == sum(one.attempts for one in result.results)
    assert_kept(taken, capacity=8, rate=4)


def test_starts_follow_the_token_bucket(
    repo: Path, local_engine: LocalEngine, taken: list[float]
) -> None:
    limits = bucket(capacity=2, rate=1)
    result, events = watched(repo, local_engine, *["true"] * 5, providers=limits)
    assert result.status is Status.SUCCESS
    assert len(taken) == len(starts_of(events)) == 5
    assert_kept(taken, capacity=2, rate=1)
    assert 3 - ROUNDING <= taken[-1] - taken[0] < 60


def test_workers_that_are_ready_together_start_one_by_one(
    repo: Path, local_engine: LocalEngine, tmp_path: Path, taken: list[float]
) -> None:
    """The rate limit applies after the setup, however long the setup takes."""
    ready = tmp_path / "ready"
    ready.mkdir()
    meet = f"touch {ready}/$$; until [ $(ls {ready} | wc -l) = 4 ]; do sleep 0.05; done"
    limits = bucket(capacity=1, rate=2)
    _, events = watched(repo, local_engine, *["true"] * 4, providers=limits, setup=(meet,))
    assert len(taken) == len(starts_of(events)) == 4
    assert_kept(taken, capacity=1, rate=2)
    assert taken[-1] - taken[0] >= 1.5 - ROUNDING


class TestRequeue:
    def test_refusal_uses_no_retry_and_keeps_the_attempt(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path
    ) -> None:
        task = refused_once(tmp_path / "tally", said=', "retry_after": 0.2', times=2)
        result, events = watched(repo, local_engine, task, retries=0)
        (worker,) = result.results
        assert (worker.status, worker.attempts, worker.retry_after) == (Status.SUCCESS, 3, None)
        again = [one for one in events if isinstance(one, WorkerRetrying)]
        assert [(one.attempt, one.delay, one.counted) for one in again] == [
            (2, 0.2, False),
            (3, 0.2, False),
        ]
        assert again_line(again[0], None) == (
            "worker 1 is rate-limited by its provider; attempt 2 waits"
        )
        refs = git(repo, "for-each-ref", "--format=%(refname)", "refs/orchestrator/attempts/")
        assert len(refs.splitlines()) == 2

    def test_pause_delays_all_workers_of_the_provider(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path
    ) -> None:
        first = refused_once(tmp_path / "tally", said=', "retry_after": 2')
        _, events = watched(repo, local_engine, first, "true", "true", workers=1)
        (pause,) = [one for one in events if isinstance(one, ProviderPaused)]
        assert (pause.seconds, pause.known) == (3.0, True)
        said = (
            "provider `shell` refuses further requests: no worker starts for 3.0 s "
            "(reported by the provider)"
        )
        assert alert_line(pause, None) == said
        begun = [one for one in events if isinstance(one, WorkerStarted)]
        assert begun[1].at.timestamp() - pause.at.timestamp() > 2.5
        assert len(begun) == 4

    def test_pause_delays_a_worker_in_preparation(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path
    ) -> None:
        refused = refused_once(tmp_path / "tally", said=', "retry_after": 3')
        paused = tmp_path / "paused"
        slow = f"[ $ORCHESTRATOR_WORKER_ID = 1 ] || until [ -e {paused} ]; do sleep 0.1; done"

        def note(event: Event) -> None:
            events.append(event)
            if isinstance(event, ProviderPaused):
                paused.touch()

        events: list[Event] = []
        config = configured(refused, "true", setup=(slow,))
        ParallelRunner(config, repo, engine=local_engine, emit=note).run()
        (pause,) = [one for one in events if isinstance(one, ProviderPaused)]
        begun = {one.worker_id: one for one in events if isinstance(one, WorkerStarted)}
        assert (begun[2].at - pause.at).total_seconds() > 3.5

    def test_pause_longer_than_the_limit_fails_at_once(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path
    ) -> None:
        task = refused_once(tmp_path / "tally", said=', "retry_after": 200')
        started = time.monotonic()
        result, events = watched(repo, local_engine, task, "true", workers=1, rate_limit_wait=99)
        assert time.monotonic() - started < 99
        first, second = result.results
        assert (first.reason, first.attempts, first.retry_after) == (Reason.RATE_LIMITED, 1, 200.0)
        assert second.status is Status.SUCCESS
        assert not any(isinstance(one, ProviderPaused) for one in events)

    def test_total_wait_is_limited(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path
    ) -> None:
        task = refused_once(tmp_path / "tally", said=', "retry_after": 0.5', times=99)
        result, _ = watched(repo, local_engine, task, rate_limit_wait=4, retries=3)
        (worker,) = result.results
        assert worker.reason is Reason.RATE_LIMITED
        assert 2 <= worker.attempts <= 4

    @pytest.mark.parametrize(("preset", "wait"), [(None, 0), ("untrusted", None)])
    def test_without_waiting_a_refusal_is_an_ordinary_failure(
        self,
        repo: Path,
        local_engine: LocalEngine,
        tmp_path: Path,
        preset: str | None,
        wait: int | None,
    ) -> None:
        asked = {"preset": preset} if wait is None else {"rate_limit_wait": wait}
        result, events = watched(
            repo, local_engine, refused_once(tmp_path / "tally", times=9), retries=1, **asked
        )
        (worker,) = result.results
        assert (worker.reason, worker.attempts) == (Reason.RATE_LIMITED, 2)
        again = [one for one in events if isinstance(one, WorkerRetrying)]
        assert [one.counted for one in again] == [True]
        assert not any(isinstance(one, ProviderPaused) for one in events)

    def test_other_failures_still_use_retries(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path
    ) -> None:
        tally = tmp_path / "tally"
        refused = REFUSED % ', "retry_after": 0'
        task = (
            f"echo x >> {tally}; n=$(wc -l < {tally}); "
            f"case $n in 1|3) {refused};; 2) exit 9;; 4) exit 4;; esac"
        )
        result, _ = watched(repo, local_engine, task, retries=1)
        (worker,) = result.results
        assert (worker.attempts, worker.exit_code) == (4, 4)

    def test_cancel_ends_the_pause(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path
    ) -> None:
        def press(event: Event) -> None:
            if isinstance(event, ProviderPaused):
                runner.cancel()

        task = refused_once(tmp_path / "tally", said=', "retry_after": 1000')
        runner = ParallelRunner(configured(task), repo, engine=local_engine, emit=press)
        started = time.monotonic()
        (worker,) = runner.run()
        assert time.monotonic() - started < 150
        assert worker.reason is Reason.CANCELLED


_KILLED = """
import os, signal, sys
from pathlib import Path
from orchestrator.base.events import ProviderPaused
from orchestrator.runs.runner import ParallelRunner
from tests.support.local_engine import LocalEngine
from tests.support.runs import configured

def die(event):
    if isinstance(event, ProviderPaused):
        os.kill(os.getpid(), signal.SIGKILL)

repo, scratch, task = sys.argv[1:]
ParallelRunner(configured(task), Path(repo), engine=LocalEngine(Path(scratch)), emit=die).run()
"""


def test_resume_after_a_kill_during_a_pause(repo: Path, tmp_path: Path) -> None:
    tally = tmp_path / "tally"
    task = refused_once(tally, said=', "retry_after": 1000')
    command = [sys.executable, "-c", _KILLED, str(repo), str(tmp_path / "e"), task]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=PATIENCE)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    engine = LocalEngine(tmp_path / "again")
    (worker,) = ResumedRun(newest(repo).directory, engine=engine).execute().results
    assert (worker.status, worker.attempts) == (Status.SUCCESS, 2)
    assert len(tally.read_text().splitlines()) == 2


def spending(cost: float) -> str:
    return f"""echo "has $ORCHESTRATOR_BUDGET"; {reporting(cost=cost)}; echo x > x"""


def logs(result: RunResult) -> list[str]:
    found = (Path(str(one.log)) / "stdout.log" for one in result.results)
    return [path.read_text().splitlines()[0] for path in found if path.exists()]


class TestBudgetOfTheRun:
    def test_each_worker_gets_its_share_of_the_rest(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        tasks = [spending(0.5), spending(0.25), spending(1.0)]
        result, _ = watched(repo, local_engine, *tasks, workers=1, budget_total=3.0)
        assert result.status is Status.SUCCESS
        assert logs(result) == ["has 1.0", "has 1.25", "has 2.25"]

    def test_no_worker_starts_without_budget(self, repo: Path, local_engine: LocalEngine) -> None:
        tasks = [spending(1.5), spending(9.0), spending(1.0)]
        result, events = watched(repo, local_engine, *tasks, workers=1, budget_total=3.0)
        first, second, third = result.results
        assert (first.status, first.reason) == (Status.PARTIAL, Reason.BUDGET)
        assert (second.status, second.reason) == (Status.PARTIAL, Reason.BUDGET)
        assert (third.status, third.reason) == (Status.PARTIAL, Reason.BUDGET)
        assert third.message == "nothing is left of the run's budget"
        assert (third.started_at, third.attempts) == (None, 1)
        assert first.files_modified == ["x"]
        assert len(starts_of(events)) == 2
        assert "architect/parallel-3" not in git(repo, "branch", "--list", "architect/*")

    def test_worker_over_its_token_limit_is_stopped(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        greedy = (
            """echo x > x; echo '{"type": "orchestrator.report", "tokens": 70}'; exec sleep 60"""
        )
        modest = """echo '{"type": "orchestrator.report", "tokens": 50}'"""
        result, _ = watched(repo, local_engine, modest, greedy, workers=1, tokens_total=110)
        first, second = result.results
        assert first.status is Status.SUCCESS
        assert (second.status, second.reason) == (Status.PARTIAL, Reason.BUDGET)
        assert second.message == "stopped: the worker has used 70 of 60 tokens"
        assert (second.tokens, second.files_modified) == (70, ["x"])

    def test_token_limit_is_checked_at_the_end(self, repo: Path, local_engine: LocalEngine) -> None:
        task = """echo '{"type": "orchestrator.report", "tokens": 70}'"""
        result, _ = watched(repo, local_engine, task, tokens_per_worker=60)
        (worker,) = result.results
        assert (worker.reason, worker.message) == (Reason.BUDGET, "the agent used 70 of 60 tokens")

    def test_attempts_share_one_budget(
        self, repo: Path, local_engine: LocalEngine, tmp_path: Path
    ) -> None:
        tally = tmp_path / "tally"
        flaky = f"{spending(0.4)}; echo x >> {tally}; [ $(wc -l < {tally}) -gt 1 ]"
        result, _ = watched(
            repo, local_engine, flaky, spending(0.1), workers=1, retries=2, budget_total=2.0
        )
        by_number = {one.worker_id: one for one in result.results}
        assert (by_number[1].attempts, by_number[1].cost) == (2, 0.8)
        assert sorted(logs(result)) == ["has 0.6", "has 1.2"]


def test_refusal_reported_by_a_success_is_ignored(repo: Path, local_engine: LocalEngine) -> None:
    """A worker that succeeded does not pause its provider, whatever its report says."""
    task = reporting(status="success", reason="rate_limited", retry_after=60)
    result, events = watched(repo, local_engine, task)
    worker: WorkerResult = result.results[0]
    assert (worker.status, worker.reason, worker.retry_after) == (Status.SUCCESS, None, None)
    assert not any(isinstance(one, ProviderPaused) for one in events)
