"""Tests of retries, staggered starts and alerts with real containers."""

from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.base.events import Event, Intervention
from orchestrator.base.results import Reason, Status
from orchestrator.config.settings.container import Limits
from orchestrator.config.settings.run import ParallelConfig, Triggers
from orchestrator.engine.docker import DockerEngine
from orchestrator.runs.runner import ParallelRunner
from orchestrator.sandbox.supervision.watchdog import AllowedPaths
from tests.support.repository import git
from tests.support.runs import configured, show

pytestmark = pytest.mark.docker
REFS = "refs/orchestrator/attempts/"


def without_delay(*tasks: str, **rest: object) -> ParallelConfig:
    return configured(*tasks, limits=Limits(grace=1), **{"retry_delay": 0, **rest})


def test_each_attempt_starts_with_fresh_files(repo: Path, docker_engine: DockerEngine) -> None:
    """The third attempt has no file of the earlier ones, whose work is kept in refs."""
    task = "ls; rm a.txt; date +%s%N > of-$(date +%s%N); exit 5"
    config = without_delay(task, retries=2)
    (worker,) = ParallelRunner(config, repo, engine=docker_engine).run()
    assert (worker.reason, worker.attempts, worker.exit_code) == (Reason.AGENT_FAILED, 3, 5)
    assert len(worker.files_modified) == 2
    refs = git(repo, "for-each-ref", "--format=%(refname)", REFS).splitlines()
    assert [ref.rpartition("/")[2] for ref in refs] == ["1", "2"]
    for ref in refs:
        assert len(git(repo, "diff", "--name-only", worker.branch, ref).splitlines()) == 2
    root = Path(str(worker.log))
    for directory in (root, *root.parent.glob("worker-1.attempt-*")):
        assert (directory / "stdout.log").read_text() == "a.txt\nsrc\n"
    assert git(repo / ".architect-parallel-1", "status", "--porcelain") == ""


@pytest.mark.extra
def test_attempt_continues_from_the_last_commits(repo: Path, docker_engine: DockerEngine) -> None:
    work = "git log --format=%s > log; echo x >> it; git add it; git commit -qm try"
    task = f"{work}; [ $(wc -l < it) = 3 ]"
    config = without_delay(task, retries=5, retry_from="keep")
    (worker,) = ParallelRunner(config, repo, engine=docker_engine).run()
    assert (worker.status, worker.attempts) == (Status.SUCCESS, 3)
    assert show(repo, f"{worker.branch}:it") == "x\nx\nx"
    assert show(repo, f"{worker.branch}:log").count("try") == 2
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""
    assert git(repo / ".architect-parallel-1", "status", "--porcelain") == ""


@pytest.mark.extra
def test_starts_are_staggered(repo: Path, docker_engine: DockerEngine) -> None:
    config = without_delay("true", "true", "true", stagger=2.0)
    results = ParallelRunner(config, repo, engine=docker_engine).run()
    started = sorted(one.started_at.timestamp() for one in results if one.started_at)
    assert len(started) == 3
    assert min(later - earlier for earlier, later in pairwise(started)) >= 2.0


def test_changes_outside_of_the_paths_are_found_in_an_overlay(
    repo: Path, docker_engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stray_files = AllowedPaths.stray_files

    def when_all_is_written(scope: AllowedPaths) -> list[str]:
        written = scope.place.changed(scope.part, most=100, seconds=60)
        return stray_files(scope) if "out/file" in written else []

    monkeypatch.setattr(AllowedPaths, "stray_files", when_all_is_written)
    events: list[Event] = []
    triggers = Triggers(paths=("src",), on_trigger="stop")
    task = "echo x > src/fine; rm a.txt; mkdir out; echo x > out/file; exec sleep 50"
    config = without_delay(task, triggers=triggers)
    (worker,) = ParallelRunner(config, repo, engine=docker_engine, emit=events.append).run()
    assert (worker.status, worker.reason) == (Status.FAILED, Reason.OUT_OF_SCOPE)
    (found,) = [event for event in events if isinstance(event, Intervention)]
    assert "a.txt" in found.detail
    assert "out/file" in found.detail
    assert worker.files_modified == ["a.txt", "out/file", "src/fine"]
