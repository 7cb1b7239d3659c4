"""Tests of the workers that a cleanup selects, and of the removal of engine objects."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.base.errors import EngineError
from orchestrator.base.results import Form, Reason, RunResult, Status
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY, ROLE, RUN, WORKER
from orchestrator.engine.interface.protocol import Leftover
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import read_branches
from orchestrator.review.landing.land import undo
from orchestrator.review.landing.merge import Wish, merge_branches
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.runs.cleanup.inventory import Wanted
from orchestrator.runs.cleanup.orphans import leftover_notices
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.cleanup.report import CleanupReport
from orchestrator.state.record.states import WorkerState
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.worker.turns import NextTurn, queue_message
from tests.support.errors import raises
from tests.support.live import eventually, states
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import branches, past_run, show
from tests.support.workflow_runs import result_of, task

COMMIT = "echo done > done.txt; git add -A; git commit -qm done"
HOURS = 3600


class StuckEngine(LocalEngine):
    """An engine that cannot remove some of its objects."""

    stuck = ""

    def remove(self, leftover: Leftover) -> None:
        if leftover.id == self.stuck:
            raise EngineError(f"{leftover.id} is stuck", key="engine.refusal")
        super().remove(leftover)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[StuckEngine]:
    engine = StuckEngine(tmp_path / "engine")
    yield engine
    engine.stuck = ""
    left = engine.leftovers({})
    for leftover in left:
        engine.remove(leftover)
    assert left == []


def run_of(repo: Path) -> RunDirectory:
    """Return the newest run."""
    return list(all_runs(Repository(repo).state_dir))[-1]


def die(repo: Path, *workers: int) -> RunDirectory:
    """Change the newest run into a run that died before these workers ended."""
    run = run_of(repo)
    for number in workers:
        (run.worker(number) / "result.json").unlink()
    return run


def labels(repo: Path, run: RunDirectory, worker: int | None = None) -> dict[str, str]:
    found = {
        MANAGED: "true", RUN: run.run_id, ROLE: "worker",
        REPOSITORY: str(Repository(repo).common_dir),
    }  # fmt: skip
    return found if worker is None else {**found, WORKER: str(worker)}


def container(repo: Path, engine: LocalEngine, run: RunDirectory, worker: int) -> str:
    """Start an unattended container."""
    spec = ContainerSpec(
        name=f"left-{worker}",
        image=BASE_IMAGE,
        command=("sleep", "600"),
        user="1:1",
        workdir=str(repo),
        labels=labels(repo, run, worker),
    )
    return engine.start(spec).id


def clean(repo: Path, engine: LocalEngine | None = None, **wanted: object) -> CleanupReport:
    dry_run = bool(wanted.pop("dry_run", False))
    purge = bool(wanted.pop("purge", False))
    return cleanup(repo, engine=engine, wanted=Wanted(**wanted), dry_run=dry_run, purge=purge)


def numbers(report: CleanupReport) -> list[int]:
    return [worker.worker_id for worker in report.workers]


def grow_old(path: Path, hours: float) -> None:
    past = time.time() - hours * HOURS
    os.utime(path, (past, past))


class TestMerged:
    def test_merged_selects_merged_and_clean_workers(self, repo: Path, engine: LocalEngine) -> None:
        past_run(repo, engine, COMMIT, "true", f"{COMMIT}; echo 3 > 3", COMMIT.replace("d ", "e "))
        git(repo, "merge", "-q", "architect/parallel-1")
        assert numbers(clean(repo, merged=True, dry_run=True)) == [1, 2]
        report = clean(repo, merged=True)
        assert numbers(report) == [1, 2]
        assert [worker.backup for worker in report.workers] == [None, None]
        assert branches(repo) == ["architect/parallel-3", "architect/parallel-4"]
        assert (repo / ".architect-parallel-4").exists()
        assert numbers(clean(repo, merged=True)) == []

    @pytest.mark.parametrize("change", ["echo > untracked", "echo x > a.txt", "rm a.txt"])
    def test_merged_skips_workers_with_uncommitted_changes(
        self, repo: Path, engine: LocalEngine, change: str
    ) -> None:
        past_run(repo, engine, "true")
        git(repo / ".architect-parallel-1", "-c", f"alias.do=!{change}", "do")
        assert numbers(clean(repo, merged=True)) == []
        assert (repo / ".architect-parallel-1").exists()

    def test_merged_skips_workers_with_commits_outside_of_the_branch(
        self, repo: Path, engine: LocalEngine
    ) -> None:
        past_run(repo, engine, "true")
        worktree = repo / ".architect-parallel-1"
        git(worktree, "checkout", "-q", "--detach")
        git(worktree, "commit", "-q", "--allow-empty", "-m", "mine")
        assert numbers(clean(repo, merged=True)) == []

    def test_tags_and_branches_of_other_workers_do_not_count_as_merged(
        self, repo: Path, engine: LocalEngine
    ) -> None:
        past_run(repo, engine, COMMIT, "true")
        git(repo, "tag", "kept", "architect/parallel-1")
        git(repo, "branch", "-f", "architect/parallel-7", "architect/parallel-1")
        assert numbers(clean(repo, merged=True)) == [2]

    def test_merged_skips_unharvested_workers_of_a_dead_run(
        self, repo: Path, engine: LocalEngine
    ) -> None:
        """The branch is at the base, which is merged; the files are in the state directory."""
        past_run(repo, engine, "true")
        state = die(repo, 1).worker(1)
        (state / "git").mkdir(exist_ok=True)
        (state / "copy").mkdir(exist_ok=True)
        assert numbers(clean(repo, engine, merged=True)) == []
        assert (repo / ".architect-parallel-1").exists()


class TestAge:
    def test_age_counts_from_the_workers_end(self, repo: Path, engine: LocalEngine) -> None:
        past_run(repo, engine, "true", "true")
        grow_old(run_of(repo).worker(1) / "result.json", hours=7)
        assert numbers(clean(repo, older_than=timedelta(hours=8))) == []
        assert numbers(clean(repo, older_than=timedelta(hours=6))) == [1]
        assert (repo / ".architect-parallel-2").exists()

    def test_age_in_a_died_run_counts_from_its_last_write(
        self, repo: Path, engine: LocalEngine
    ) -> None:
        past_run(repo, engine, "true")
        run = die(repo, 1)
        for path in [*run.path.iterdir(), *run.worker(1).iterdir()]:
            grow_old(path, hours=7)
        for sign in (run.worker(1) / "stdout.log", run.path / "events.ndjson"):
            grow_old(sign, hours=1)
            assert numbers(clean(repo, older_than=timedelta(hours=6), dry_run=True)) == []
            grow_old(sign, hours=7)
        assert numbers(clean(repo, older_than=timedelta(hours=6))) == [1]

    def test_conditions_are_combined(self, repo: Path, engine: LocalEngine) -> None:
        past_run(repo, engine, "true", COMMIT, "true", "true")
        for number in (1, 2, 4):
            grow_old(run_of(repo).worker(number) / "result.json", hours=7)
        report = clean(repo, workers=(1, 2, 3), merged=True, older_than=timedelta(hours=6))
        assert numbers(report) == [1]


class TestNumbers:
    def test_unknown_number_is_an_error(self, repo: Path, engine: LocalEngine) -> None:
        past_run(repo, engine, "true", "true")
        with raises("worker.unknown", "worker 7, 9", ": 1, 2"):
            clean(repo, workers=(2, 7, 9))
        assert (repo / ".architect-parallel-2").exists()

    def test_removed_number_is_no_error(self, repo: Path, engine: LocalEngine) -> None:
        past_run(repo, engine, "true", "true")
        assert numbers(clean(repo, workers=(2,))) == [2]
        assert clean(repo, workers=(2,)) == CleanupReport(workers=(), live=(), leftovers=0)

    def test_number_refers_to_the_latest_run(self, repo: Path, engine: LocalEngine) -> None:
        first = past_run(repo, engine, "true").run_id
        clean(repo)
        second = past_run(repo, engine, "true").run_id
        assert cleanup(repo, engine=None, run_id=first).workers == ()
        (worker,) = cleanup(repo, engine=None, run_id=second).workers
        assert worker.run_id == second


class TestEngine:
    def test_stuck_container_does_not_prevent_other_removals(
        self, repo: Path, engine: StuckEngine
    ) -> None:
        past_run(repo, engine, "true", "true")
        run = run_of(repo)
        engine.stuck = container(repo, engine, run, 1)
        container(repo, engine, run, 2)
        engine.create_network("net", labels(repo, run))
        report = clean(repo, engine)
        assert numbers(report) == [1, 2]
        assert report.leftovers == 2
        assert report.problems == (
            f"container {engine.stuck[:12]}: {engine.stuck} is stuck (run {run.run_id})",
        )
        assert [left.id for left in engine.leftovers({})] == [engine.stuck]
        engine.stuck = ""
        again = clean(repo, engine)
        assert (again.leftovers, again.problems) == (1, ())

    def test_worker_with_a_stuck_container_is_kept(self, repo: Path, engine: StuckEngine) -> None:
        past_run(repo, engine, "true", "true")
        run = die(repo, 1)
        (run.worker(1) / "git").mkdir(exist_ok=True)
        (run.worker(1) / "copy").mkdir(exist_ok=True)
        engine.stuck = container(repo, engine, run, 1)
        first, second = clean(repo, engine).workers
        assert "with `docker rm -f`, then repeat this command" in (first.problem or "")
        assert second.problem is None
        assert (repo / ".architect-parallel-1").exists()
        engine.stuck = ""
        assert clean(repo, engine, dry_run=True).leftovers == 1
        clean(repo, engine, purge=True)

    def test_container_that_the_engine_creates_late_is_removed_with_its_network(
        self, repo: Path, engine: StuckEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        past_run(repo, engine, "true")
        run = run_of(repo)
        engine.create_network("net", {**labels(repo, run), WORKER: "1"})
        remove = engine.remove
        late: list[str] = []

        def create_late(leftover: Leftover) -> None:
            if not late:
                late.append(container(repo, engine, run, 1))
            if leftover.id == "net" and late[0] in {left.id for left in engine.leftovers({})}:
                raise EngineError("net is in use", key="engine.refusal")
            remove(leftover)

        monkeypatch.setattr("orchestrator.sandbox.deadlines.removal._PAUSE", 0)
        monkeypatch.setattr(engine, "remove", create_late)
        report = clean(repo, engine)
        assert (report.leftovers, report.problems) == (1, ())
        assert engine.leftovers({}) == []

    def test_stuck_container_is_tried_once_though_its_network_is_in_use(
        self, repo: Path, engine: StuckEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        past_run(repo, engine, "true")
        run = run_of(repo)
        engine.create_network("net", {**labels(repo, run), WORKER: "1"})
        stuck = container(repo, engine, run, 1)
        tried: list[str] = []

        def refuse(leftover: Leftover) -> None:
            tried.append(leftover.id)
            raise EngineError(f"{leftover.id} is stuck", key="engine.refusal")

        monkeypatch.setattr("orchestrator.sandbox.deadlines.removal._PAUSE", 0)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "remove", refuse)
            report = clean(repo, engine)
        assert tried.count(stuck) == 1
        assert tried.count("net") > 1
        assert len(report.problems) == 2
        assert clean(repo, engine).problems == ()

    def test_numbers_select_only_their_own_objects(self, repo: Path, engine: StuckEngine) -> None:
        past_run(repo, engine, "true", "true")
        run = run_of(repo)
        one, two = (container(repo, engine, run, number) for number in (1, 2))
        engine.create_network("net", labels(repo, run))
        assert clean(repo, engine, workers=(1,), dry_run=True).leftovers == 1
        assert clean(repo, engine, workers=(1,)).leftovers == 1
        left = {leftover.id for leftover in engine.leftovers({})}
        assert left == {two, "net"}
        assert one not in left
        assert clean(repo, engine, workers=(2,)).leftovers == 2

    def test_failure_to_list_objects_is_reported(
        self, repo: Path, engine: StuckEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        past_run(repo, engine, "true")

        def leftovers(_: object) -> list[Leftover]:
            raise EngineError("it sulks", key="engine.refusal")

        with monkeypatch.context() as patch:
            patch.setattr(engine, "leftovers", leftovers)
            report = clean(repo, engine)
        assert report.problems == ("it sulks",)
        assert numbers(report) == [1]

    def test_objects_are_removed_in_parallel(
        self, repo: Path, engine: StuckEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        past_run(repo, engine, "true", "true")
        for number in (1, 2):
            container(repo, engine, run_of(repo), number)
        both = threading.Barrier(2, timeout=60)
        remove = engine.remove

        def wait(leftover: Leftover) -> None:
            both.wait()
            remove(leftover)

        monkeypatch.setattr(engine, "remove", wait)
        assert clean(repo, engine).leftovers == 2


class TestAbandoned:
    def test_abandoned_containers_of_died_runs_are_reported(
        self, repo: Path, engine: LocalEngine
    ) -> None:
        past_run(repo, engine, "true")
        run = run_of(repo)
        assert leftover_notices(Repository(repo), engine) == []
        left = container(repo, engine, run, 1)
        cleanup_run = f"`orchestrator parallel-cleanup --run {run.run_id}`"
        assert leftover_notices(Repository(repo), engine) == [
            f"run {run.run_id} ended and left containers behind: remove them with {cleanup_run}"
        ]
        die(repo, 1)
        assert leftover_notices(Repository(repo), engine) == [
            f"run {run.run_id} died and its containers still exist: "
            f"use `orchestrator resume {run.run_id}` or {cleanup_run}"
        ]
        assert left in {leftover.id for leftover in engine.leftovers({})}
        clean(repo, engine)

    def test_containers_of_live_runs_are_not_reported(
        self, repo: Path, engine: LocalEngine
    ) -> None:
        past_run(repo, engine, "true")
        run = die(repo, 1)
        container(repo, engine, run, 1)
        with run.hold() as held:
            assert held
            assert leftover_notices(Repository(repo), engine) == []
            report = clean(repo, engine)
        assert (report.live, report.leftovers) == ((run.run_id,), 0)
        clean(repo, engine)


def test_cleaned_worker_of_a_dead_run_is_not_resumed(
    repo: Path, engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other workers of the run may be resumed, and keep the files that they need."""
    forgotten: list[str] = []
    monkeypatch.setattr(
        "orchestrator.runs.cleanup.remove.forget", lambda run_id, _: forgotten.append(run_id)
    )
    past_run(repo, engine, COMMIT, "true")
    run = die(repo, 1, 2)
    run.objects.mkdir(exist_ok=True)
    clean(repo, engine, workers=(1,))
    result = run.result(1)
    assert result
    assert (result.status, result.reason) == (Status.FAILED, Reason.CANCELLED)
    assert result.files_modified == ["done.txt"]
    assert show(repo, f"{result.commit}:done.txt") == "done"
    assert run.result(2) is None
    assert run.objects.exists()
    assert forgotten == []
    clean(repo, engine)
    assert run.result(2)
    assert not run.objects.exists()
    assert forgotten == [run.run_id]


def test_purge_of_a_dead_run_keeps_nothing(repo: Path, engine: LocalEngine) -> None:
    past_run(repo, engine, COMMIT)
    run = die(repo, 1)
    for name in ("git", "copy", "handed.half"):
        (run.worker(1) / name).mkdir(exist_ok=True)
    assert numbers(clean(repo, engine, purge=True)) == [1]
    left = {path.name for path in run.worker(1).iterdir()}
    assert left.isdisjoint({"git", "copy", "upper", "overlay", "handed.half", "harvest", "out"})


def test_purge_removes_the_selected_backups(repo: Path, engine: LocalEngine) -> None:
    past_run(repo, engine, *(COMMIT.replace("done", f"done{i}") for i in range(3)))
    run = run_of(repo)
    merged, old, both = (str(worker.backup) for worker in clean(repo).workers)
    for number in (2, 3):
        grow_old(run.worker(number) / "result.json", hours=7)
    for ref in (merged, both):
        git(repo, "branch", f"kept-{ref[-1]}", ref)
    age = timedelta(hours=6)
    assert clean(repo, purge=True, merged=True, older_than=age).purged == (both,)
    assert clean(repo, purge=True, merged=True, dry_run=True).purged == (merged,)
    assert set(clean(repo, purge=True).purged) == {merged, old}


@pytest.mark.parametrize("form", ["merge", "squash", "rebase"])
@pytest.mark.parametrize("then", ["nothing", "undone", "reset", "new work"])
def test_work_that_was_merged_as_other_commits_is_merged(
    repo: Path, engine: StuckEngine, form: Form, then: str
) -> None:
    past_run(repo, engine, COMMIT)
    git(repo, "commit", "-q", "--allow-empty", "-m", "the branch moves on")
    repository = Repository(repo)
    merge_branches(
        repository, read_branches(repository, None), Wish(request=MergeRequest(form=form))
    )
    if then == "undone":
        undo(repository, into=None, run_id=None)
    elif then == "reset":
        git(repo, "reset", "-q", "--hard", "HEAD~1")
    elif then == "new work":
        git(repo / ".architect-parallel-1", "commit", "-q", "--allow-empty", "-m", "more")

    cleanup(repo, engine=engine, wanted=Wanted(merged=True))

    assert (branches(repo) == []) is (then == "nothing")


class TestLiveRun:
    """A worker that has ended is removed while its run goes on with two others."""

    @pytest.fixture
    def gate(self, tmp_path: Path) -> Path:
        return tmp_path / "gate"

    @pytest.fixture
    def live(self, repo: Path, engine: LocalEngine, gate: Path) -> Iterator[Future[RunResult]]:
        """A run whose first worker has ended, whose second waits, and whose third is queued."""
        waiting = f"while [ ! -e {gate} ]; do sleep 0.02; done; echo 2 > second.txt"
        tasks = (
            task("first", COMMIT),
            task("second", waiting),
            task("third", "cat done.txt second.txt mine > third.txt", "first", "second"),
        )
        (repo / "mine").write_text("uncommitted\n")
        with ThreadPoolExecutor(1) as pool:
            options = {"workers": 2, "include_uncommitted": True}
            run = pool.submit(result_of, repo, engine, *tasks, **options)
            try:
                others = [WorkerState.RUNNING, WorkerState.QUEUED]
                eventually(
                    lambda: run.done() or (states(repo)[1:] == others and run_of(repo).result(1))
                )
                yield run
            finally:
                gate.touch()

    @pytest.mark.parametrize("merged", [True, False])
    def test_its_ended_workers_are_removed_by_number(
        self, repo: Path, engine: LocalEngine, live: Future[RunResult], gate: Path, merged: bool
    ) -> None:
        if merged:
            (repo / "mine").unlink()
            git(repo, "merge", "-q", "--no-edit", "architect/parallel-1")
        report = clean(repo, engine, workers=(1,))
        assert (numbers(report), report.live, report.problems) == ([1], (), ())
        assert (report.workers[0].backup is None) == merged
        assert not (repo / ".architect-parallel-1").exists()
        assert branches(repo) == ["architect/parallel-2", "architect/parallel-3"]
        assert numbers(clean(repo, engine, workers=(1,))) == []
        gate.touch()
        assert [worker.status for worker in live.result().results] == [Status.SUCCESS] * 3
        assert show(repo, "architect/parallel-3:third.txt") == "done\n2\nuncommitted"
        assert numbers(clean(repo, engine)) == [2, 3]
        assert branches(repo) == []

    def test_others_are_kept(
        self, repo: Path, engine: LocalEngine, live: Future[RunResult]
    ) -> None:
        for wanted in ({}, {"workers": (2, 3)}, {"workers": (1,), "purge": True}):
            report = clean(repo, engine, **wanted)
            assert (numbers(report), report.live) == ([], (run_of(repo).run_id,)), wanted
        assert len(branches(repo)) == 3
        report = clean(repo, engine, workers=(1, 2))
        assert (numbers(report), report.live) == ([1], (run_of(repo).run_id,))
        assert not live.done()

    def test_worker_with_a_message_is_kept(self, repo: Path, engine: LocalEngine) -> None:
        past_run(repo, engine, COMMIT, "true")
        run = run_of(repo)
        assert queue_message(run, 1, NextTurn(message="echo more > more.txt"))
        with run.hold() as held:
            assert held
            report = clean(repo, engine, workers=(1, 2))
        assert (numbers(report), report.live) == ([2], (run.run_id,))
        assert branches(repo) == ["architect/parallel-1"]
