"""Tests that the files of a run survive a crash at any time."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.base.events import Notice, WorkerOutput, WorkerPreparing
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.results import Status, WorkerResult, sum_up
from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Workflow
from orchestrator.config.workflow.planning import config_of, demand_of, plan_workers
from orchestrator.state import run_directory as record_module
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_record import RunRecord, new_run_id, read_record
from tests.support.live import eventually


@pytest.fixture
def record() -> RunRecord:
    config = ParallelConfig(tasks=("one", "two"), isolation=Isolation(env={"TOKEN": "sesame"}))
    return RunRecord(
        run_id="20260101-000000-abcdef",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        top=Path("/repo"),
        base="0" * 40,
        engine="local 1",
        config=config,
        workers=plan_workers(config),
    )


@pytest.fixture
def directory(tmp_path: Path, record: RunRecord) -> RunDirectory:
    directory = RunDirectory(tmp_path / "runs" / record.run_id)
    directory.create(record.public_json())
    yield directory
    directory.release()


def test_record_contains_no_values_of_variables(directory: RunDirectory, record: RunRecord) -> None:
    assert "sesame" not in (directory.path / "run.json").read_text()
    read = read_record(RunDirectory(directory.path))
    assert read is not None
    assert (read.workers, read.base, read.top) == (record.workers, record.base, record.top)
    assert read.config.tasks == record.config.tasks
    assert read.config.isolation.env == {}


def test_limits_of_the_run_hold_for_tasks_of_a_recorded_workflow(
    tmp_path: Path, record: RunRecord
) -> None:
    tasks = [
        {"id": "usual", "task": "true"},
        {"id": "large", "task": "true", "settings": {"limits": {"memory": "2g"}}},
    ]
    planned = record.model_copy(update={
        "config": ParallelConfig(tasks=("-",), limits=Limits(memory=1024**3, pids=100)),
        "workflow": Workflow.model_validate({"name": "night", "tasks": tasks}),
    })  # fmt: skip
    directory = RunDirectory(tmp_path / "run")
    directory.create(planned.public_json())
    directory.release()
    read = read_record(directory)
    assert read is not None
    assert read.workflow is not None
    limits = [config_of(read.config, task).limits for task in read.workflow.tasks]
    assert [(one.memory, one.pids) for one in limits] == [(1024**3, 100), (2 * 1024**3, 100)]
    reserved = [demand_of(read.config, task, cpus=2).memory for task in read.workflow.tasks]
    assert reserved == [0, 2 * 1024**3]


def test_run_directory_is_private(directory: RunDirectory) -> None:
    assert directory.path.stat().st_mode & 0o077 == 0


def test_run_is_live_until_released(directory: RunDirectory) -> None:
    other = RunDirectory(directory.path)
    assert other.is_live()
    assert other.is_live(), "checking a lease must not lock it"
    directory.release()
    directory.release()
    assert not other.is_live()
    assert not RunDirectory(directory.path.parent / "none").is_live()


def test_run_is_not_live_after_its_process_was_killed(tmp_path: Path, record: RunRecord) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from orchestrator.state.run_directory import RunDirectory\n"
        "from orchestrator.state.run_record import RunRecord\n"
        "record = RunRecord.model_validate_json(sys.argv[2])\n"
        "directory = RunDirectory(Path(sys.argv[1])); directory.create(record.public_json())\n"
        "print('held', flush=True); time.sleep(60)"
    )
    path = tmp_path / "run"
    command = [sys.executable, "-c", code, str(path), record.model_dump_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert RunDirectory(path).is_live()
        holder.send_signal(signal.SIGKILL)
        holder.wait(60)
        assert not RunDirectory(path).is_live()
        assert read_record(RunDirectory(path)) is not None


def test_git_process_that_outlives_its_run_holds_the_lease(
    tmp_path: Path, record: RunRecord, repo: Path
) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = (
        "import sys; from pathlib import Path\n"
        "from orchestrator.repository.git.command import Git\n"
        "from orchestrator.state.run_directory import RunDirectory\n"
        "from orchestrator.state.run_record import RunRecord\n"
        "record = RunRecord.model_validate_json(sys.argv[2])\n"
        "run = RunDirectory(Path(sys.argv[1])); run.create(record.public_json())\n"
        "Git(Path(sys.argv[3])).run('cat-file', '--batch', stdin=open(sys.argv[4], 'rb'))"
    )
    run = RunDirectory(tmp_path / "run")
    plan = record.model_dump_json()
    command = [sys.executable, "-c", code, str(run.path), plan, str(repo / ".git"), str(fifo)]
    with subprocess.Popen(command) as holder, fifo.open("wb"):
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        eventually(children.read_text, "git")
        holder.send_signal(signal.SIGKILL)
        holder.wait(60)
        assert run.is_live()
        taking = threading.Thread(target=run.take_over)
        taking.start()
        taking.join(0.5)
        assert taking.is_alive(), "the lease was taken although a git process still holds it"
    taking.join(60)
    assert run.process == os.getpid()
    run.release()


def result(**rest: object) -> WorkerResult:
    return WorkerResult(
        worker_id=1, branch="b", model="m", status=Status.SUCCESS, worktree_path="/w", **rest
    )


def test_result_survives_a_round_trip(directory: RunDirectory) -> None:
    assert directory.result(1) is None
    directory.write_result(result(task="日本\nx"))
    assert directory.result(1) == result(task="日本\nx")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"worker_id": 1}', b"\xff\xfe"])
def test_malformed_files_are_ignored(directory: RunDirectory, content: bytes) -> None:
    directory.worker(1).mkdir()
    (directory.worker(1) / "result.json").write_bytes(content)
    (directory.path / "run.json").write_bytes(content)
    assert directory.result(1) is None
    assert read_record(directory) is None


def test_large_result_of_an_older_version_is_read_partially(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [f"directory/{number}" for number in range(100_000)]
    large = result().model_copy(update={"files_modified": paths, "steps": 7})
    directory.write_result(large)
    monkeypatch.setattr(record_module, "MOST_OF_WORKER", 100_000)
    tracemalloc.start()
    found = directory.result(1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found is not None
    assert (found.worker_id, found.status, found.steps) == (1, large.status, 7)
    assert found.files_modified == []
    assert found.message is not None
    assert "of which only the beginning was read" in found.message
    assert peak < 1_000_000


def test_too_large_run_result_is_not_read(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sum_up([result()], run_id="r", base="b", engine="e", duration=1.0)
    directory.write_run_result(whole)
    assert directory.run_result() == whole
    monkeypatch.setattr(record_module, "MOST_OF_RUN", 100)
    assert directory.run_result() is None


def test_file_has_either_the_old_or_the_new_content(tmp_path: Path) -> None:
    """A process is killed repeatedly while it writes."""
    path = tmp_path / "file"
    code = (
        "import sys; from pathlib import Path\n"
        "from orchestrator.base.files.atomic import write_atomically\n"
        "print('up', flush=True)\n"
        "for n in range(10**9): write_atomically(Path(sys.argv[1]), str(n % 10) * 1_000_000)"
    )
    write_atomically(path, "0" * 1_000_000)
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=-1) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            for _ in range(20):
                text = path.read_text()
                assert (len(text), len(set(text))) == (1_000_000, 1)
            writer.kill()
        text = path.read_text()
        assert (len(text), len(set(text))) == (1_000_000, 1)


def test_the_event_log_has_a_line_for_each_transition(directory: RunDirectory) -> None:
    directory.log_event(Notice(message="two\nlines"))
    directory.log_event(WorkerOutput(worker_id=1, stream="stdout", line="noise"))
    directory.log_event(WorkerPreparing(worker_id=1))
    lines = (directory.path / "events.ndjson").read_text().splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["notice", "worker_preparing"]


def test_runs_are_listed_oldest_first(tmp_path: Path) -> None:
    assert list(all_runs(tmp_path)) == []
    for name in ("20260102-000000-a", "20260101-000000-b"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "a file").write_text("")
    (tmp_path / "runs" / "0-link").symlink_to("/")
    found = [directory.run_id for directory in all_runs(tmp_path)]
    assert found == ["20260101-000000-b", "20260102-000000-a"]


def test_runs_of_one_second_are_listed_oldest_first(tmp_path: Path) -> None:
    names = [f"20260101-000000-{letter}" for letter in "cab"]
    for moment, name in enumerate(names):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").touch()
        os.utime(tmp_path / "runs" / name / "run.json", (moment, moment))
    assert [directory.run_id for directory in all_runs(tmp_path)] == names


def test_run_ids_do_not_repeat() -> None:
    assert len({new_run_id() for _ in range(100)}) == 100


def test_concurrent_checks_of_a_lease_do_not_interfere(tmp_path: Path) -> None:
    (tmp_path / "lease").touch()
    with (tmp_path / "lease").open("r+") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not RunDirectory(tmp_path).is_live()
