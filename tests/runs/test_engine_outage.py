"""Tests of an engine that hangs up during a run, and returns or stays away."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.base.errors import EngineUnavailableError
from orchestrator.base.results import Reason, Status
from orchestrator.config.settings.container import Isolation
from orchestrator.engine.interface.protocol import LogChunk
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.repository.repository import Repository
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.state.record.history import choose_run
from orchestrator.state.record.states import RunState
from orchestrator.state.run_directory import RunDirectory, all_runs
from tests.support.live import PATIENCE, eventually
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.runs import shell_run, show


class HangingUp(LocalContainer):
    """Hangs up after the first chunk of output, as often as `outages` says."""

    outages = 1
    comes_back = True
    ends_meanwhile = False

    def logs(self) -> Iterator[LogChunk]:
        for chunk in super().logs():
            yield chunk
            if self.outages:
                self.outages -= 1
                if self.ends_meanwhile:
                    self.kill("SIGKILL")
                    self.wait(PATIENCE)
                raise EngineUnavailableError("gone", key="engine.unreachable")

    def again(self) -> "LocalContainer | None":
        if not self.comes_back:
            raise EngineUnavailableError("still gone", key="engine.unreachable")
        return super().again()


class OutageEngine(LocalEngine):
    """Creates `kind` containers for tasks, and ordinary containers for harvests."""

    kind: type[LocalContainer] = HangingUp

    def _make(self, spec: ContainerSpec, scratch: Path) -> LocalContainer:
        ordinary = spec.labels["orchestrator.role"] != "worker"
        return (LocalContainer if ordinary else self.kind)(self, spec, scratch)


def engine_of(scratch: Path, **traits: object) -> OutageEngine:
    engine = OutageEngine(scratch)
    engine.kind = type("Traits", (HangingUp,), traits)
    return engine


TASK = "echo one; echo x > x; sleep 0.3; echo two; echo three >&2"


@pytest.mark.parametrize("outages", [1, 2])
def test_all_output_is_read_after_an_outage(repo: Path, tmp_path: Path, outages: int) -> None:
    (result,) = shell_run(repo, engine_of(tmp_path / "e", outages=outages), TASK).results
    assert result.status is Status.SUCCESS
    log = Path(str(result.log))
    assert (log / "stdout.log").read_text() == "one\ntwo\n"
    assert (log / "stderr.log").read_text() == "three\n"
    assert show(repo, "architect/parallel-1:x") == "x"
    assert sorted(path.name for path in log.glob("std*.log*")) == ["stderr.log", "stdout.log"]


def test_container_ended_by_an_outage_is_an_engine_error(repo: Path, tmp_path: Path) -> None:
    engine = engine_of(tmp_path / "e", ends_meanwhile=True)
    (result,) = shell_run(repo, engine, "echo one; exec sleep 60").results
    assert (result.status, result.reason) == (Status.FAILED, Reason.ENGINE_ERROR)
    assert "exit code 137" in str(result.message)


class HostClosesLate(OutageEngine):
    """Closes the host some time after a run has begun or continued."""

    closed = False
    early = 0

    def close_host(self, *_: object) -> None:
        time.sleep(0.5)
        self.closed = True

    def adopt(self, container_id: str) -> LocalContainer | None:
        self.early += not self.closed
        return super().adopt(container_id)


def test_resumed_run_closes_the_host_before_it_uses_containers(repo: Path, tmp_path: Path) -> None:
    engine = HostClosesLate(tmp_path / "e")
    engine.kind = type("Traits", (HangingUp,), {"comes_back": False})
    shell_run(repo, engine, TASK, isolation=Isolation(network="open"))
    engine.kind.comes_back, engine.closed = True, False  # type: ignore[attr-defined]
    (resumed,) = ResumedRun(only_run(repo), engine=engine).execute().results
    assert (resumed.status, engine.closed, engine.early) == (Status.SUCCESS, True, 0)


def test_run_can_be_resumed_after_the_engine_stayed_away(repo: Path, tmp_path: Path) -> None:
    engine = engine_of(tmp_path / "e", comes_back=False)
    (result,) = shell_run(repo, engine, TASK).results
    assert result.reason is Reason.ENGINE_ERROR
    assert "orchestrator resume" in str(result.message)
    directory = only_run(repo)
    assert directory.result(1) is None
    assert directory.objects.is_dir()
    with choose_run([directory], None) as history:
        assert history.state() is RunState.DIED

    engine.kind.comes_back = True  # type: ignore[attr-defined]
    (resumed,) = ResumedRun(directory, engine=engine).execute().results
    assert resumed.status is Status.SUCCESS
    assert (Path(str(resumed.log)) / "stdout.log").read_text() == "one\ntwo\n"
    assert show(repo, "architect/parallel-1:x") == "x"
    assert engine.leftovers({}) == []
    assert not directory.objects.exists()
    with choose_run([directory], None) as history:
        assert history.state() is RunState.FINISHED


def test_resume_of_a_finished_run_runs_nothing(
    repo: Path, local_engine: LocalEngine, tmp_path: Path
) -> None:
    (first,) = shell_run(repo, local_engine, f"echo run >> {tmp_path}/runs").results
    (again,) = ResumedRun(only_run(repo), engine=local_engine).execute().results
    assert again == first
    assert (tmp_path / "runs").read_text() == "run\n"


class NotedLate(LocalContainer):
    """A container whose end is recorded before its start, as Docker may do."""

    def start(self) -> None:
        super().start()
        self.wait(PATIENCE)
        early = self._state.ended_at
        assert early is not None
        self._state = replace(self._state, started_at=early + timedelta(milliseconds=30))


def test_duration_is_not_negative_if_the_start_is_recorded_late(repo: Path, tmp_path: Path) -> None:
    engine = OutageEngine(tmp_path / "e")
    engine.kind = NotedLate
    (result,) = shell_run(repo, engine, "true").results
    assert (result.status, result.duration) == (Status.SUCCESS, 0.0)


def test_stop_of_one_worker_does_not_stop_others(
    repo: Path, local_engine: LocalEngine, tmp_path: Path
) -> None:
    stopped = threading.Thread(target=stop_the_second, args=(repo, tmp_path / "up"))
    stopped.start()
    tasks = ("sleep 1", f"echo w > w; touch {tmp_path}/up; sleep 60", "sleep 1")
    results = shell_run(repo, local_engine, *tasks).results
    stopped.join()
    assert [result.reason for result in results] == [None, Reason.CANCELLED, None]
    assert show(repo, "architect/parallel-2:w") == "w"


def stop_the_second(repo: Path, up: Path) -> None:
    eventually(up.exists, "the second worker's work")
    only_run(repo).ask_to_stop(2, kill=False)


def only_run(repo: Path) -> RunDirectory:
    (run,) = all_runs(Repository(repo).state_dir)
    return run
