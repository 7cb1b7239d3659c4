"""Tests of a full disk and of an engine that disappears during a run."""

import errno
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents.base import AgentOutcome
from orchestrator.agents.programs.shell import ShellAgent
from orchestrator.base.errors import (
    EngineError,
    EngineUnavailableError,
    GitCommandError,
    RepositoryError,
    UnsupportedError,
)
from orchestrator.base.events import Event, WorkerStarted
from orchestrator.base.results import Reason, Status, WorkerResult, exit_code
from orchestrator.config.settings.container import Isolation
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.labels import ROLE
from orchestrator.engine.interface.protocol import ContainerState, Leftover
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.repository.git.command import Git
from orchestrator.repository.incoming import quarantine as harvest
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from orchestrator.sandbox.supervision.output import WorkerLog
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.secret_files import Secrets
from orchestrator.worker import lifecycle as worker
from orchestrator.worker import prepare as preparation
from tests.support.errors import raises
from tests.support.live import eventually
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.repository import git
from tests.support.runs import branches, configured, shell_run


def full(*_: object, **__: object) -> None:
    """Raise the error of a write to a full disk."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class VanishingEngine(LocalEngine):
    """Answers until a certain moment, and never again."""

    def create_network(self, name: str, labels: Mapping[str, str]) -> str:
        del name, labels
        raise EngineUnavailableError("gone", key="engine.unreachable")

    def leftovers(self, labels: Mapping[str, str]) -> list[Leftover]:
        if labels:
            raise EngineUnavailableError("gone", key="engine.unreachable")
        return super().leftovers(labels)

    def create(self, spec: ContainerSpec) -> LocalContainer:
        if spec.labels.get(ROLE) == "harvest":
            raise EngineUnavailableError("gone", key="engine.unreachable")
        return super().create(spec)


def test_engine_lost_before_the_network_fails_the_run(repo: Path, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailableError, match="gone"):
        shell_run(
            repo, VanishingEngine(tmp_path / "e"), "true", isolation=Isolation(network="open")
        )
    assert branches(repo) == []


def test_engine_lost_before_the_harvest_is_the_workers_reason(repo: Path, tmp_path: Path) -> None:
    (worker,) = shell_run(repo, VanishingEngine(tmp_path / "e"), "echo x > x").results
    assert (worker.status, worker.reason) == (Status.FAILED, Reason.ENGINE_ERROR)
    assert "`orchestrator resume" in (worker.message or "")
    assert exit_code([worker]) == 7


def test_result_that_cannot_be_written_is_reported(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = RunDirectory.write_result

    def broken(self: RunDirectory, result: WorkerResult) -> None:
        if result.worker_id == 1:
            full()
        keep(self, result)

    monkeypatch.setattr(RunDirectory, "write_result", broken)
    told: list[Event] = []
    config = configured("echo 1 > one", "true")
    first, second = ParallelRunner(config, repo, engine=local_engine, emit=told.append).run()
    assert (first.files_modified, second.status) == (["one"], Status.SUCCESS)
    assert any("worker 1 could not be written" in getattr(event, "message", "") for event in told)


def test_unwritable_event_log_does_not_stop_workers(repo: Path, local_engine: LocalEngine) -> None:
    # A write to `/dev/full` fails with ENOSPC, even for root.
    task = f"cd {repo}/.git/orchestrator/runs/*/ && ln -sf /dev/full events.ndjson; exit 0"
    (worker,) = shell_run(repo, local_engine, task).results
    assert worker.status is Status.SUCCESS


def test_full_disk_before_the_start_leaves_nothing(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "base_objects", full)
    with pytest.raises(RepositoryError, match="No space left"):
        shell_run(repo, local_engine, "true")
    assert branches(repo) == []
    assert list((repo / ".git" / "orchestrator" / "runs").iterdir()) == []


def test_full_disk_during_harvest_loses_no_work(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(harvest, "make_bare", full)
        (worker,) = shell_run(repo, local_engine, "echo x > x").results
    assert (worker.status, worker.reason) == (Status.FAILED, Reason.ENGINE_ERROR)
    assert "No space left" in (worker.message or "")
    assert "`orchestrator resume" in (worker.message or "")
    (directory,) = all_runs(repo / ".git" / "orchestrator")
    (again,) = ResumedRun(directory, engine=local_engine).execute().results
    assert (again.status, again.files_modified) == (Status.SUCCESS, ["x"])


@pytest.mark.parametrize("command", ["index-pack", "unpack-objects"])
def test_full_disk_in_git_can_be_fixed_and_resumed(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    run = Git.run

    def broken(self: Git, *arguments: str, **rest: Any) -> bytes:
        if arguments[0] == command:
            said = "fatal: sha1 file '/x' write error: No space left on device"
            raise GitCommandError(arguments, 128, said)
        return run(self, *arguments, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(Git, "run", broken)
        (worker,) = shell_run(repo, local_engine, "echo x > x").results
    assert worker.reason is Reason.ENGINE_ERROR
    (directory,) = all_runs(repo / ".git" / "orchestrator")
    (again,) = ResumedRun(directory, engine=local_engine).execute().results
    assert (again.status, again.files_modified) == (Status.SUCCESS, ["x"])


def test_secrets_of_concurrent_workers_do_not_interfere(tmp_path: Path) -> None:
    secrets = Secrets(values={"A": b"0123456789"}, root=tmp_path)
    problems: list[EngineError] = []

    def come_and_go(number: int) -> None:
        for _ in range(400):
            try:
                with secrets.laid_out("run", number, (os.getuid(), os.getgid())):
                    pass
            except EngineError as error:
                problems.append(error)

    threads = [threading.Thread(target=come_and_go, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert list(tmp_path.iterdir()) == []


def test_interrupt_does_not_wait_for_deadlines(
    repo: Path, tmp_path: Path, local_engine: LocalEngine
) -> None:
    wrote = tmp_path / "wrote"

    def interrupt(event: Event) -> None:
        if isinstance(event, WorkerStarted) and event.worker_id == 1:
            eventually(wrote.exists, "the second worker's work")
            raise KeyboardInterrupt

    config = configured("sleep 60", f"echo 2 > two; touch {wrote}; sleep 20; echo late > late")
    with pytest.raises(KeyboardInterrupt):
        ParallelRunner(config, repo, engine=local_engine, emit=interrupt).run()
    assert git(repo, "ls-tree", "--name-only", "architect/parallel-2", "two", "late") == "two"


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Direct the logs to a full device."""
    made = WorkerLog.__init__

    def on_a_full_disk(self: WorkerLog, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        self._files["stdout"].close()
        self._files["stdout"] = Path("/dev/full").open("wb", 0)  # noqa: SIM115  # the log closes it

    monkeypatch.setattr(WorkerLog, "__init__", on_a_full_disk)


@pytest.mark.usefixtures("full_disk")
def test_incomplete_log_prevents_success(repo: Path, local_engine: LocalEngine) -> None:
    (result,) = shell_run(
        repo, local_engine, """echo '{"type": "orchestrator.report", "status": "failed"}'"""
    ).results
    assert (result.status, result.reason) == (Status.PARTIAL, Reason.NO_REPORT)
    assert result.message == "the log is incomplete (No space left on device)"


@pytest.mark.usefixtures("full_disk")
def test_incomplete_log_is_the_message_if_the_agent_has_none(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = AgentOutcome(status=Status.PARTIAL, reason=Reason.MAX_STEPS)
    monkeypatch.setattr(ShellAgent, "outcome", lambda *_: silent)
    (result,) = shell_run(repo, local_engine, "echo x").results
    assert (result.status, result.reason) == (Status.PARTIAL, Reason.MAX_STEPS)
    assert result.message == "the log is incomplete (No space left on device)"


def test_accepted_work_is_reported_without_list_of_files(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "changes", full)
    (result,) = shell_run(repo, local_engine, "echo x > x").results
    assert result.commit == git(repo, "rev-parse", "architect/parallel-1")
    assert result.status is Status.SUCCESS
    assert "could not be listed" in str(result.message)


def test_unusable_state_directory_is_a_repository_error(
    repo: Path, local_engine: LocalEngine
) -> None:
    (repo / ".git" / "orchestrator").write_text("")
    with raises("state.unwritable"):
        shell_run(repo, local_engine, "true")


def test_uncommitted_files_without_an_index_are_included(
    repo: Path, local_engine: LocalEngine
) -> None:
    (repo / ".git" / "index").unlink()
    (repo / "fresh").write_text("fresh\n")
    (result,) = shell_run(repo, local_engine, "cat fresh", include_uncommitted=True).results
    assert result.status is Status.SUCCESS


def test_exception_while_reading_output_is_an_internal_error(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WorkerLog, "write", full)
    (result,) = shell_run(repo, local_engine, "echo x").results
    assert result.reason is Reason.INTERNAL_ERROR


def test_end_before_the_start_means_zero_duration(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine records both times, and sometimes in the wrong order for short tasks."""
    now = datetime.now(UTC)
    state = ContainerState(started_at=now, ended_at=now - timedelta(milliseconds=1))
    monkeypatch.setattr(LocalContainer, "state", lambda _: state)
    (result,) = shell_run(repo, local_engine, "true").results
    assert (result.status, result.duration) == (Status.SUCCESS, 0.0)


class Blind(LocalEngine):
    """An engine on another machine, which does not see the files of this machine."""

    def check(self, *, images: tuple[str, ...], runtime: str | None) -> EngineFeatures:
        return replace(super().check(images=images, runtime=runtime), overlay=True)

    def start(self, spec: ContainerSpec) -> LocalContainer:
        raise EngineError(
            f"bind source path does not exist: {spec.mounts[0]}", key="engine.refusal"
        )


def test_remote_engine_is_refused_and_nothing_is_left(repo: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="does not see the files of this machine"):
        shell_run(repo, Blind(tmp_path / "blind"), "true")
    assert branches(repo) == []
    assert not (repo / ".architect-parallel-1").exists()
    assert list((repo / ".git" / "orchestrator").glob("runs/*")) == []
