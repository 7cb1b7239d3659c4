"""Tests of retries: what is kept of each attempt, and where the next one starts."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import PlaceLostError
from orchestrator.base.events import Event, Notice, WorkerPreparing, WorkerRetrying, WorkerStarted
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.record.history import attempts
from orchestrator.worker import lifecycle
from orchestrator.worker.attempts import RETRIED
from tests.support.attempts import REFS, count, flaky, kept, state_of
from tests.support.live import ROOT
from tests.support.local_engine import LocalEngine
from tests.support.repository import fingerprint, git
from tests.support.runs import branches, configured, show
from tests.support.shell_report import reporting


def retried(events: list[Event]) -> list[tuple[int, int, str, float]]:
    found = (event for event in events if isinstance(event, WorkerRetrying))
    return [(event.worker_id, event.attempt, event.reason, event.delay) for event in found]


def watched(
    repo: Path, engine: LocalEngine, *tasks: str, **rest: object
) -> tuple[list[WorkerResult], list[Event]]:
    events: list[Event] = []
    config = configured(*tasks, **{"retry_delay": 0, **rest})
    results = ParallelRunner(config, repo, engine=engine, emit=events.append).run()
    return results, events


class TestAttempts:
    def test_task_that_passes_at_the_third_attempt_succeeds(
        self, repo: Path, local_engine: LocalEngine, tally: Path
    ) -> None:
        before = fingerprint(repo)
        (worker,), events = watched(repo, local_engine, flaky(tally, failures=2), retries=3)
        assert (worker.status, worker.attempts, worker.reason) == (Status.SUCCESS, 3, None)
        assert (count(tally), worker.files_modified) == (3, ["a.txt", "of-3"])
        assert retried(events) == [(1, 2, "agent_failed", 0.0), (1, 3, "agent_failed", 0.0)]
        # Each attempt started from the base.
        assert show(repo, "architect/parallel-1:a.txt") == "a\n3"
        assert git(repo, "rev-parse", "architect/parallel-1") == worker.commit
        assert git(repo / ".architect-parallel-1", "status", "--porcelain") == ""
        after = fingerprint(repo)
        assert {key: after[key] for key in before if key != "refs"} == {
            key: value for key, value in before.items() if key != "refs"
        }

    def test_commits_and_logs_of_every_attempt_are_kept(
        self, repo: Path, local_engine: LocalEngine, tally: Path
    ) -> None:
        watched(repo, local_engine, flaky(tally, failures=2), retries=3)
        found = kept(repo)
        assert list(found) == ["1/1", "1/2"]
        run = state_of(repo)
        for number, path in run.attempts(1):
            result = WorkerResult.model_validate_json((path / "attempt.json").read_bytes())
            assert (result.attempts, result.reason) == (number, Reason.AGENT_FAILED)
            assert (result.commit, result.log) == (found[f"1/{number}"], str(path))
            assert (path / "stdout.log").read_text() == f"a.txt\nsrc\nattempt {number}\n"
            assert show(repo, f"{result.commit}:of-{number}") == str(number)
        assert [number for number, _ in attempts(run, 1)] == [1, 2, None]

    def test_attempt_without_changes_leaves_no_ref(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        (worker,), _ = watched(repo, local_engine, "exit 4", retries=1)
        assert (worker.status, worker.attempts, worker.exit_code) == (Status.FAILED, 2, 4)
        assert kept(repo) == {}

    def test_the_last_failure_is_the_result(
        self, repo: Path, local_engine: LocalEngine, tally: Path
    ) -> None:
        (worker,), events = watched(repo, local_engine, flaky(tally, failures=9), retries=2)
        assert (worker.reason, worker.attempts, count(tally)) == (Reason.AGENT_FAILED, 3, 3)
        assert worker.files_modified == ["a.txt", "of-3"]
        assert len(retried(events)) == 2

    def test_cost_is_the_sum_of_all_attempts(
        self, repo: Path, local_engine: LocalEngine, tally: Path
    ) -> None:
        report = """echo '{"type": "orchestrator.report", "cost": 0.25, "tokens": 10}';"""
        task = flaky(tally, failures=1, rest=report)
        (worker,), _ = watched(repo, local_engine, task, retries=2)
        assert (worker.cost, worker.cost_known, worker.tokens) == (0.5, True, 20)

    def test_attempts_share_the_budget(
        self, repo: Path, local_engine: LocalEngine, tally: Path
    ) -> None:
        report = f"""echo "budget $ORCHESTRATOR_BUDGET"; {reporting(cost=0.4)};"""
        task = flaky(tally, failures=9, rest=report)
        (worker,), _ = watched(repo, local_engine, task, retries=9, budget_per_worker=1.0)
        assert (worker.attempts, count(tally)) == (3, 3)
        first = state_of(repo).attempt(1, 1) / "stdout.log"
        second = state_of(repo).attempt(1, 2) / "stdout.log"
        assert "budget 1.0\n" in first.read_text()
        assert "budget 0.6\n" in second.read_text()

    def test_failed_preparation_counts_as_an_attempt(
        self, repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from orchestrator.worker import prepare as preparation

        calls = []

        def make_store(*given: object) -> object:
            calls.append(given)
            if len(calls) == 1:
                raise OSError("no room")
            return real(*given)

        real = preparation.make_store
        monkeypatch.setattr(preparation, "make_store", make_store)
        (worker,), events = watched(repo, local_engine, "echo x > x", retries=1)
        assert (worker.status, worker.attempts) == (Status.SUCCESS, 2)
        assert retried(events)[0][2] == "setup_failed"
        assert worker.files_modified == ["x"]
        assert (state_of(repo).attempt(1, 1) / ".architect-parallel-1" / "a.txt").exists()


def lose(monkeypatch: pytest.MonkeyPatch, *, times: int, restarts: bool = True) -> None:
    """Let the places of the first attempts be lost, after the task has written its files."""
    real, lost = lifecycle.harvest_worker, []

    def harvest(*given: Any) -> Any:
        if len(lost) < times:
            lost.append(given)
            raise PlaceLostError("its node is gone", key="place.lost", restarts=restarts)
        return real(*given)

    monkeypatch.setattr(lifecycle, "harvest_worker", harvest)


class TestLostPlaces:
    def test_attempt_is_made_again_and_is_no_retry(
        self, repo: Path, local_engine: LocalEngine, tally: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lose(monkeypatch, times=1)
        (worker,), events = watched(repo, local_engine, flaky(tally, failures=0))
        assert (worker.status, worker.attempts, worker.restarts) == (Status.SUCCESS, 2, 1)
        assert worker.files_modified == ["a.txt", "of-2"]
        assert [event.counted for event in events if isinstance(event, WorkerRetrying)] == [False]
        first = state_of(repo).attempt(1, 1)
        assert (first / "stdout.log").exists()
        assert WorkerResult.model_validate_json((first / "attempt.json").read_bytes()).restarts == 1

    def test_attempt_is_made_again_only_once(
        self, repo: Path, local_engine: LocalEngine, tally: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lose(monkeypatch, times=9)
        (worker,), _ = watched(repo, local_engine, flaky(tally, failures=0))
        assert (worker.status, worker.reason) == (Status.FAILED, Reason.ENGINE_ERROR)
        assert (worker.attempts, worker.restarts, count(tally)) == (2, 1, 2)
        assert worker.log is not None

    def test_restart_uses_up_no_retry(
        self, repo: Path, local_engine: LocalEngine, tally: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lose(monkeypatch, times=1)
        (worker,), _ = watched(repo, local_engine, flaky(tally, failures=2), retries=1)
        assert (worker.status, worker.attempts, worker.restarts) == (Status.SUCCESS, 3, 1)

    def test_cost_of_a_lost_attempt_counts(
        self, repo: Path, local_engine: LocalEngine, tally: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lose(monkeypatch, times=1)
        report = f"""echo "budget $ORCHESTRATOR_BUDGET"; {reporting(cost=0.4)};"""
        task = flaky(tally, failures=0, rest=report)
        (worker,), _ = watched(repo, local_engine, task, budget_per_worker=1.0)
        assert (worker.status, worker.restarts, worker.cost) == (Status.SUCCESS, 1, 0.8)
        assert "budget 0.6\n" in (Path(worker.log) / "stdout.log").read_text()

    def test_attempt_without_a_budget_for_it_is_not_made_again(
        self, repo: Path, local_engine: LocalEngine, tally: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lose(monkeypatch, times=1)
        task = flaky(tally, failures=0, rest=f"{reporting(cost=1.2)};")
        (worker,), _ = watched(repo, local_engine, task, budget_per_worker=1.0)
        assert (worker.status, worker.reason) == (Status.FAILED, Reason.ENGINE_ERROR)
        assert (worker.attempts, count(tally)) == (1, 1)

    def test_attempt_that_is_to_blame_is_not_made_again(
        self, repo: Path, local_engine: LocalEngine, tally: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lose(monkeypatch, times=1, restarts=False)
        (worker,), _ = watched(repo, local_engine, flaky(tally, failures=0))
        assert (worker.status, worker.attempts, worker.restarts) == (Status.FAILED, 1, 0)


class TestKeep:
    def test_keep_continues_from_the_last_attempts_commits(
        self, repo: Path, local_engine: LocalEngine, tally: Path
    ) -> None:
        task = flaky(tally, failures=2, rest="git add -A; git commit -qm by-hand; date > late;")
        (worker,), _ = watched(repo, local_engine, task, retries=3, retry_from="keep")
        assert (worker.status, worker.attempts) == (Status.SUCCESS, 3)
        assert worker.files_modified == ["a.txt", "late", "of-1", "of-2", "of-3"]
        assert show(repo, "architect/parallel-1:a.txt") == "a\n1\n2\n3"
        log = git(repo, "log", "--format=%s", "main..architect/parallel-1").splitlines()
        assert log.count("by-hand") == 3
        assert git(repo, "fsck", "--strict", "--no-dangling") == ""
        assert git(repo / ".architect-parallel-1", "status", "--porcelain") == ""
        again = (state_of(repo).attempt(1, 2) / "stdout.log").read_text()
        assert again == "a.txt\nlate\nof-1\nsrc\nattempt 2\n"

    @pytest.mark.parametrize("last", ["true", "git reset -q --hard main", "rm -rf a.txt of-1"])
    def test_next_attempt_may_add_nothing_or_remove_commits(
        self, repo: Path, local_engine: LocalEngine, tally: Path, last: str
    ) -> None:
        base = git(repo, "rev-parse", "HEAD")
        last = last.replace("main", base)
        task = f"[ -e {tally} ] && {last} && exit 0; touch {tally}; echo x > of-1; exit 1"
        (worker,), _ = watched(repo, local_engine, task, retries=1, retry_from="keep")
        wanted = {"true": ["of-1"], "rm -rf a.txt of-1": ["a.txt"]}.get(last, [])
        assert (worker.status, worker.files_modified) == (Status.SUCCESS, wanted), worker.message
        assert git(repo, "rev-parse", worker.branch) == worker.commit
        assert git(repo / ".architect-parallel-1", "status", "--porcelain") == ""


class TestWhatIsRetried:
    def test_every_reason_is_classified_and_documented(self) -> None:
        assert set(RETRIED) == set(Reason)
        rows = (ROOT / "docs/reference/result.md").read_text().splitlines()
        cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
        shown = {row[0].strip("`"): row[1] for row in cells if len(row) == 3}
        for reason, is_retried in RETRIED.items():
            assert shown[reason.value] == ("yes" if is_retried else ""), reason

    @pytest.mark.parametrize(("asked", "wanted"), [((), 1), ((Reason.TIMEOUT,), 2)])
    def test_timeout_is_retried_only_if_requested(
        self, repo: Path, local_engine: LocalEngine, asked: tuple[Reason, ...], wanted: int
    ) -> None:
        (worker,), _ = watched(
            repo, local_engine, "exec sleep 60", retries=1, retry_on=asked, timeout_per_worker=0.3
        )
        assert (worker.reason, worker.attempts) == (Reason.TIMEOUT, wanted)

    def test_no_retry_by_default(self, repo: Path, local_engine: LocalEngine, tally: Path) -> None:
        (worker,), events = watched(repo, local_engine, flaky(tally, failures=1))
        assert (worker.attempts, retried(events)) == (1, [])

    def test_retry_of_cancelled_workers_is_refused(self) -> None:
        with pytest.raises(ValueError, match="cannot be retried"):
            ParallelConfig(tasks=("x",), retry_on=("cancelled",))


class TestChangedByTheUser:
    @pytest.mark.parametrize("change", ["edit", "commit"])
    def test_changes_of_the_user_are_not_overwritten(
        self, repo: Path, local_engine: LocalEngine, tally: Path, change: str
    ) -> None:
        tree = repo / ".architect-parallel-1"

        def interfere(event: Event) -> None:
            events.append(event)
            if isinstance(event, WorkerRetrying):
                (tree / "of-1").write_text("mine\n")
                if change == "commit":
                    git(tree, "commit", "-qam", "mine")

        events: list[Event] = []
        config = configured(flaky(tally, failures=1), retries=1, retry_delay=0)
        runner = ParallelRunner(config, repo, engine=local_engine, emit=interfere)
        (worker,) = runner.run()
        assert (worker.status, worker.attempts) == (Status.SUCCESS, 2), worker.message
        notes = [event.message for event in events if isinstance(event, Notice)]
        assert any(
            "changed during the attempt" in note and "continues with the changes" in note
            for note in notes
        )
        assert (tree / "of-1").read_text() == "mine\n"
        # The second attempt continued in the changed worktree, so its branch continues too.
        first = kept(repo)["1/1"]
        assert git(repo, "merge-base", first, worker.branch) == first
        assert git(repo, "rev-parse", worker.branch) == worker.commit


class TestWaiting:
    def test_waiting_worker_occupies_no_slot(
        self, repo: Path, local_engine: LocalEngine, tally: Path
    ) -> None:
        tasks = (flaky(tally, failures=1), "true", "true")
        results, events = watched(repo, local_engine, *tasks, workers=1, retries=1, retry_delay=2.0)
        assert [worker.status for worker in results] == ["success"] * 3
        begun = [event.worker_id for event in events if isinstance(event, WorkerStarted)]
        assert begun[:2] == [1, 2]
        assert sorted(begun) == [1, 1, 2, 3]
        retry = next(event.at for event in events if isinstance(event, WorkerRetrying))
        prepared = (event for event in events if isinstance(event, WorkerPreparing))
        last = [event.at for event in prepared if event.worker_id == 1][-1]
        assert (last - retry).total_seconds() >= 2.0

    def test_cancel_ends_the_wait_for_a_retry(
        self, repo: Path, local_engine: LocalEngine, tally: Path
    ) -> None:
        def press(event: Event) -> None:
            if isinstance(event, WorkerRetrying):
                runner.cancel()

        config = configured(flaky(tally, failures=1), retries=1, retry_delay=100)
        runner = ParallelRunner(config, repo, engine=local_engine, emit=press)
        started = time.monotonic()
        (worker,) = runner.run()
        assert time.monotonic() - started < 90
        assert (worker.status, worker.reason) == (Status.FAILED, Reason.CANCELLED)
        assert (worker.attempts, count(tally)) == (1, 1)
        assert worker.message == "cancelled before attempt 2; attempt 1: agent_failed: attempt 1"
        # The work of the first attempt stays on the branch.
        assert show(repo, "architect/parallel-1:of-1") == "1"
        assert worker.commit == git(repo, "rev-parse", "architect/parallel-1")

    def test_stop_of_a_worker_ends_its_wait_for_a_retry(
        self, repo: Path, local_engine: LocalEngine, tally: Path
    ) -> None:
        stopped = threading.Event()

        def press(event: Event) -> None:
            if isinstance(event, WorkerRetrying):
                state_of(repo).ask_to_stop(1, kill=False)
                stopped.set()

        task = f"while [ ! -e {tally}.go ]; do sleep 0.02; done"
        config = configured(flaky(tally, failures=1), task, retries=1, retry_delay=100)
        runner = ParallelRunner(config, repo, engine=local_engine, emit=press)
        thread = threading.Thread(target=runner.run)
        thread.start()
        assert stopped.wait(60)
        deadline = time.monotonic() + 180
        while (first := state_of(repo).result(1)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        Path(f"{tally}.go").touch()
        thread.join(60)
        assert first.reason is Reason.CANCELLED
        second = state_of(repo).result(2)
        assert second is not None
        assert second.status is Status.SUCCESS


class TestFailFast:
    def test_fail_fast_cancels_others_after_the_last_retry(
        self, repo: Path, local_engine: LocalEngine, tally: Path
    ) -> None:
        ready = f"while [ ! -e {tally}.up ]; do sleep 0.02; done;"
        tasks = (
            f"{ready} {flaky(tally, failures=9)}",
            f"echo w > w; touch {tally}.up; exec sleep 60",
            "echo never > never",
        )
        (first, second, third), _ = watched(
            repo, local_engine, *tasks, workers=2, retries=1, fail_fast=True
        )
        assert (first.reason, first.attempts) == (Reason.AGENT_FAILED, 2)
        why = "cancelled: worker 1 failed (agent_failed)"
        assert (second.reason, second.message) == (Reason.CANCELLED, why)
        assert second.files_modified == ["w"]
        assert (third.reason, third.message) == (
            Reason.CANCELLED,
            f"{why} before this worker started",
        )
        assert third.started_at is None
        assert branches(repo) == ["architect/parallel-1", "architect/parallel-2"]

    def test_failure_does_not_cancel_others_by_default(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        results, _ = watched(repo, local_engine, "false", "sleep 0.5", workers=1)
        assert [worker.status for worker in results] == ["failed", "success"]


class TestCleanup:
    def test_attempts_are_kept_until_a_purge(
        self, repo: Path, local_engine: LocalEngine, tally: Path
    ) -> None:
        watched(repo, local_engine, flaky(tally, failures=2), retries=2)
        before = kept(repo)
        cleanup(repo, engine=local_engine)
        assert kept(repo) == before
        report = cleanup(repo, engine=local_engine, purge=True)
        assert len([ref for ref in report.purged if ref.startswith(REFS)]) == 2
        assert kept(repo) == {}
        left = [path for path in state_of(repo).path.glob("worker-*/*") if path.is_dir()]
        assert left == []
