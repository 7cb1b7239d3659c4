"""Tests of the base commit and the prompt that a task gets from its dependencies."""

import json
from pathlib import Path

import pytest

from orchestrator.base.results import Reason, Status
from orchestrator.worker.context import WorkerContext
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import branches, show
from tests.support.workflow_runs import run_workflow, task


def test_task_starts_from_the_commits_of_its_dependencies(
    repo: Path, local_engine: LocalEngine
) -> None:
    base = git(repo, "rev-parse", "HEAD")
    done = run_workflow(
        repo, local_engine,
        task("one", "echo 1 > one.txt"),
        task("two", "echo 2 > two.txt"),
        task("both", "cat one.txt two.txt > both.txt && git log --format=%s", "one", "two"),
        task("last", "cat both.txt > last.txt; git rm -q one.txt", "both"),
    )  # fmt: skip
    assert {one.status for one in done.values()} == {Status.SUCCESS}
    assert show(repo, f"{done['last'].branch}:last.txt") == "1\n2"
    # The files of dependencies are not listed as modified by the task.
    assert done["both"].files_modified == ["both.txt"]
    assert done["last"].files_modified == ["last.txt", "one.txt"]
    parents = git(repo, "rev-parse", f"{done['both'].commit}^^@").split()
    assert parents == [done["one"].commit, done["two"].commit]
    assert git(repo, "rev-parse", "HEAD") == base
    assert git(repo, "status", "--porcelain") == ""
    assert not any(repo.joinpath(".git").rglob("merge-*"))


def test_commits_of_failed_tasks_are_not_used(repo: Path, local_engine: LocalEngine) -> None:
    done = run_workflow(
        repo, local_engine,
        task("good", "echo 1 > good.txt"),
        task("bad", "echo 2 > bad.txt; exit 1"),
        task("tidy", "ls > seen.txt", "good", "bad", when="always"),
    )  # fmt: skip
    seen = show(repo, f"{done['tidy'].branch}:seen.txt").split()
    assert ("good.txt" in seen, "bad.txt" in seen) == (True, False)


def test_unneeded_task_is_replaced_by_its_dependencies(
    repo: Path, local_engine: LocalEngine
) -> None:
    done = run_workflow(
        repo, local_engine,
        task("build", "echo 1 > built.txt"),
        task("fix", "exit 1", "build", when="on_failure"),
        task("fix-again", "exit 1", "fix", when="on_failure"),
        task("deploy", "cat built.txt > deployed.txt", "fix-again"),
    )  # fmt: skip
    deploy = done["deploy"]
    assert (deploy.status, deploy.files_modified) == (Status.SUCCESS, ["deployed.txt"])
    assert deploy.base == done["build"].commit


def test_failed_task_is_replaced_by_its_dependencies(repo: Path, local_engine: LocalEngine) -> None:
    done = run_workflow(
        repo, local_engine,
        task("build", "echo 1 > built.txt"),
        task("test", "echo 2 > half.txt; exit 1", "build"),
        task("report", "true", "test"),
        task("fix", "ls > seen.txt", "test", when="on_failure"),
        task("tidy", "ls > seen.txt", "report", when="always"),
    )  # fmt: skip
    assert done["report"].reason is Reason.DEPENDENCY
    for name in ("fix", "tidy"):
        seen = show(repo, f"{done[name].branch}:seen.txt").split()
        assert ("built.txt" in seen, "half.txt" in seen) == (True, False)


def test_merge_conflict_names_tasks_and_files(repo: Path, local_engine: LocalEngine) -> None:
    done = run_workflow(
        repo, local_engine,
        task("one", "echo 1 > a.txt"),
        task("two", "echo 2 > a.txt"),
        task("both", "true", "one", "two"),
        task("after", "true", "both"),
    )  # fmt: skip
    assert (done["both"].status, done["both"].reason) == (Status.FAILED, Reason.CONFLICT)
    assert (
        done["both"].message == "`two` and the work of `one` cannot be merged: both changed `a.txt`"
    )
    assert done["after"].message == "task `both` failed"
    assert branches(repo) == ["architect/parallel-1", "architect/parallel-2"]


def test_retry_starts_from_the_tasks_base(repo: Path, local_engine: LocalEngine) -> None:
    done = run_workflow(
        repo, local_engine,
        task("one", "echo 1 > one.txt"),
        task("again", "cat one.txt; test -e half.txt && echo no > no.txt; echo > half.txt; exit 1",
             "one", settings={"retries": 1, "retry_delay": 0}),
    )  # fmt: skip
    assert done["again"].attempts == 2
    assert done["again"].files_modified == ["half.txt"]


def test_reducing_task_gets_the_results(repo: Path, local_engine: LocalEngine) -> None:
    done = run_workflow(
        repo, local_engine,
        task("map-1", "echo 1 > one.txt"),
        task("map-2", "exit 7"),
        task("reduce", "cat $ORCHESTRATOR_RESULTS > told.json", "map-1", "map-2",
             inputs=["map-1", "map-2"], when="always"),
    )  # fmt: skip
    told = json.loads(show(repo, f"{done['reduce'].branch}:told.json"))
    assert [(one["id"], one["status"], one["files_modified"]) for one in told] == [
        ("map-1", "success", ["one.txt"]), ("map-2", "failed", []),
    ]  # fmt: skip


def test_results_are_never_inserted_into_a_command(repo: Path, local_engine: LocalEngine) -> None:
    """`{{results}}` is never replaced in the text of a command, however the command is started."""
    evil = task("evil", "echo '\\'\"; touch /tmp/never; \"' >&2; exit 1")
    reads = task("reduce", "echo '{{results}}'", "evil", inputs=["evil"], when="always")
    asks = reads.model_copy(update={"results_at": (0,)})
    with raises("task.results-in-command", "`reduce`"):
        run_workflow(repo, local_engine, evil, asks)
    assert branches(repo) == []
    done = run_workflow(repo, local_engine, evil, reads)
    assert done["reduce"].summary == "{{results}}"


@pytest.mark.parametrize(
    "broken", ["orchestrator.runs.runner.attempt", "orchestrator.worker.lifecycle.check"]
)
def test_internal_error_reports_the_tasks_own_base_and_commit(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """The bug occurs before the container starts, or after the work is on the branch."""
    module, _, name = broken.rpartition(".")
    real = getattr(__import__(module, fromlist=[name]), name)

    def breaks(worker: WorkerContext, *rest: object) -> object:
        if worker.spec.name == "second":
            raise RuntimeError("a bug")
        return real(worker, *rest)

    monkeypatch.setattr(broken, breaks)
    done = run_workflow(
        repo, local_engine,
        task("first", "echo first > first.txt"),
        task("second", "echo second > second.txt", "first"),
    )  # fmt: skip
    second, tip = done["second"], git(repo, "rev-parse", done["second"].branch)
    assert second.reason is Reason.INTERNAL_ERROR
    assert second.base == done["first"].commit
    assert second.commit == tip
    assert (second.commit == second.base) is (name == "attempt")
