"""Tests of slots, and of the numbering of workers."""

import fcntl
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orchestrator.base.errors import EngineError
from orchestrator.base.events import Event, WorkerStarted
from orchestrator.base.results import Status
from orchestrator.config.settings.container import Isolation
from orchestrator.runs.runner import ParallelRunner
from tests.support.live import PATIENCE
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.repository import git
from tests.support.runs import branches, configured, shell_run

ROOT = Path(__file__).parents[3]
COUNT = 'cd "$SYNC"; touch run-$ORCHESTRATOR_WORKER_ID; ls | grep -c ^run- >> counts; '
LEAVE = "; rm run-$ORCHESTRATOR_WORKER_ID"
# The timeout of the worker ends the wait if a bug prevents what it waits for.
WAIT = "until test -e go; do sleep 0.05; done"


def shared(tmp_path: Path) -> tuple[Path, Isolation]:
    place = tmp_path / "sync"
    place.mkdir()
    return place, Isolation(network="none", env={"SYNC": str(place)})


def test_free_slot_is_refilled_at_once_and_slots_are_never_exceeded(
    repo: Path, local_engine: LocalEngine, tmp_path: Path
) -> None:
    """The first worker holds its slot until the last one runs: fixed batches would block."""
    place, isolation = shared(tmp_path)
    tasks = [COUNT + WAIT + LEAVE, *[COUNT + "sleep 0.05" + LEAVE] * 3, COUNT + "touch go" + LEAVE]
    result = shell_run(repo, local_engine, *tasks, workers=2, isolation=isolation)
    assert [one.status for one in result.results] == ["success"] * 5
    counts = [int(line) for line in (place / "counts").read_text().split()]
    assert len(counts) == 5
    assert max(counts) == 2


def test_all_slots_are_used_at_the_same_time(
    repo: Path, local_engine: LocalEngine, tmp_path: Path
) -> None:
    """Each task waits until all four run."""
    place, isolation = shared(tmp_path)
    meet = COUNT + "until test $(ls | grep -c ^run-) -eq 4; do sleep 0.05; done"
    result = shell_run(repo, local_engine, *[meet] * 4, isolation=isolation)
    assert result.status is Status.SUCCESS
    assert (place / "counts").exists()


def test_more_models_than_tasks_repeat_the_first_task(
    repo: Path, local_engine: LocalEngine
) -> None:
    task = 'echo "$ORCHESTRATOR_MODEL" > model.txt'
    models = ("small", "large", "huge")
    result = shell_run(repo, local_engine, task, models=models, workers=2)
    assert [(one.task, one.model) for one in result.results] == [(task, m) for m in models]
    for one in result.results:
        assert git(repo, "show", f"{one.branch}:model.txt") == one.model


def test_numbers_in_use_are_skipped(repo: Path, local_engine: LocalEngine) -> None:
    git(repo, "branch", "architect/parallel-2")
    (repo / ".architect-parallel-4").mkdir()
    (repo / ".architect-parallel-4" / "mine").write_text("mine")
    (repo / ".architect-parallel-x").mkdir()
    before = git(repo, "rev-parse", "architect/parallel-2")
    alone = shell_run(repo, local_engine, "echo 1 > one")
    assert [one.worker_id for one in alone.results] == [1]
    pair = shell_run(repo, local_engine, "echo a > a", "echo b > b")
    assert [one.worker_id for one in pair.results] == [5, 6]
    assert pair.status is Status.SUCCESS
    assert git(repo, "rev-parse", "architect/parallel-2") == before
    assert [path.name for path in (repo / ".architect-parallel-4").iterdir()] == ["mine"]


def test_number_with_a_branch_below_the_workers_branch_is_skipped(
    repo: Path, local_engine: LocalEngine
) -> None:
    git(repo, "branch", "architect/parallel-1/mine")
    git(repo, "branch", "architect/other")
    (worker,) = shell_run(repo, local_engine, "true").results
    assert worker.worker_id == 2
    assert branches(repo)[:2] == ["architect/other", "architect/parallel-1/mine"]


RUN = """
import json, sys
from pathlib import Path
from tests.support.local_engine import LocalEngine
from tests.support.runs import shell_run

repo, scratch = Path(sys.argv[1]), Path(sys.argv[2])
result = shell_run(repo, LocalEngine(scratch), *["echo $PPID > mine.txt"] * 3)
print(json.dumps([[one.worker_id, one.status, one.files_modified] for one in result.results]))
"""


def test_numbers_are_reserved_under_the_lock(repo: Path, local_engine: LocalEngine) -> None:
    """While another process holds the lock, a run takes no number."""
    state = repo / ".git" / "orchestrator"
    state.mkdir()
    run = threading.Thread(target=shell_run, args=(repo, local_engine, "true"))
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run.start()
        run.join(0.7)
        assert branches(repo) == []
    run.join(PATIENCE)
    assert branches(repo) == ["architect/parallel-1"]


def test_concurrent_runs_take_different_numbers(repo: Path, tmp_path: Path) -> None:
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, str(repo), str(tmp_path / name)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        for name in ("first", "second")
    ]
    said = [json.loads(run.communicate(timeout=PATIENCE)[0]) for run in runs]
    numbers = [[number for number, _, _ in results] for results in said]
    assert sorted(numbers) == [[1, 2, 3], [4, 5, 6]]
    for results in said:
        assert [rest for _, *rest in results] == [["success", ["mine.txt"]]] * 3
    assert branches(repo) == [f"architect/parallel-{n}" for n in range(1, 7)]
    git(repo, "fsck", "--strict", "--no-dangling")


class Counting:
    """Counts the existing containers whenever a worker starts."""

    def __init__(self, engine: LocalEngine) -> None:
        self.engine = engine
        self.found: list[int] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, WorkerStarted):
            found = self.engine.leftovers({})
            self.found.append(sum(1 for leftover in found if leftover.kind == "container"))


def test_container_is_removed_before_the_next_worker_starts(
    repo: Path, local_engine: LocalEngine
) -> None:
    counts = Counting(local_engine)
    config = configured("true", "exit 1", "true", workers=1)
    ParallelRunner(config, repo, emit=counts, engine=local_engine).execute()
    assert counts.found == [1, 1, 1]


def test_container_that_cannot_start_is_removed_at_once(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = LocalContainer.start, []

    def broken(container: LocalContainer) -> None:
        started.append(container)
        if len(started) == 1:
            raise EngineError("it does not start", key="engine.refusal")
        start(container)

    monkeypatch.setattr(LocalContainer, "start", broken)
    counts = Counting(local_engine)
    config = configured("true", "true", workers=1)
    result = ParallelRunner(config, repo, emit=counts, engine=local_engine).execute()
    assert [worker.status for worker in result.results] == [Status.FAILED, Status.SUCCESS]
    assert counts.found == [1]
