"""Tests of the files that workers of one run share."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.events import WorkerDone, WorkerPreparing, WorkerRetrying, ignore
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.base.text.redact import Redactor
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.engine.interface.spec import BindMount
from orchestrator.repository.repository import Repository
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.worker.workspace import shared_files as sharing
from orchestrator.worker.workspace.shared_files import INPUTS, OUT, SHARED, Input, Shared, variables
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import configured, shell_run, show

USER = (0, 0)


def spec(number: int, name: str | None) -> WorkerSpec:
    return WorkerSpec(worker_id=number, task=f"task {number}", model=None, name=name)


AUTH, API, UI = spec(1, "auth"), spec(2, "api"), spec(3, "ui")


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    found = RunDirectory(tmp_path / "run")
    for number in (1, 2, 3):
        found.worker(number).mkdir(parents=True)
    return found


@pytest.fixture
def shared(directory: RunDirectory, repo: Path) -> Shared:
    return made(directory, repo)


def made(directory: RunDirectory, repo: Path, **rest: Any) -> Shared:
    rest = {"workers": (AUTH, API, UI), "title": "review", "redactor": Redactor(), **rest}
    return Shared(directory, Repository(repo), **rest)


def result(number: int, **rest: Any) -> WorkerResult:
    return WorkerResult(
        **{
            "worker_id": number,
            "branch": f"architect/parallel-{number}",
            "model": "default",
            "status": Status.SUCCESS,
            "started_at": datetime(2026, 1, 1, tzinfo=UTC),
            "worktree_path": "/nowhere",
            **rest,
        }
    )


def read(directory: RunDirectory, name: str = "context.md") -> str:
    return (directory.path / "shared" / name).read_text()


def test_context_is_updated_during_the_run(directory: RunDirectory, shared: Shared) -> None:
    assert read(directory) == (
        "# review\n\n## Task Status\n- [ ] auth - Agent 1\n- [ ] api - Agent 2\n"
        "- [ ] ui - Agent 3\n\n## Findings\n"
    )
    (directory.worker(3) / "findings.md").write_text("- Found 3 accessibility issues\n")
    tell = shared.following(ignore)
    tell(WorkerPreparing(worker_id=1))
    tell(WorkerRetrying(worker_id=2, attempt=2, reason="oom", delay=0))
    tell(WorkerDone(result=result(3)))
    assert read(directory) == (
        "# review\n\n## Task Status\n- [ ] auth - Agent 1 (running)\n"
        "- [ ] api - Agent 2 (failed: oom, retrying)\n- [x] ui - Agent 3 (complete)\n\n"
        "## Findings\n\n### ui (Agent 3)\n- Found 3 accessibility issues\n\n"
    )
    assert (
        read(directory, "findings.md")
        == read(directory).partition("## Findings")[1]
        + (read(directory).partition("## Findings")[2])
    )
    tell(WorkerDone(result=result(1, status=Status.TIMEOUT, reason=Reason.TIMEOUT)))
    assert "- [ ] auth - Agent 1 (timeout: timeout)\n" in read(directory)


@pytest.mark.parametrize(
    "came",
    [
        {"message": "not needed"},
        {"status": Status.FAILED, "reason": Reason.DEPENDENCY},
    ],
)
def test_skipped_task_is_not_complete(
    directory: RunDirectory, shared: Shared, came: dict[str, Any]
) -> None:
    shared.following(ignore)(WorkerDone(result=result(1, started_at=None, **came)))
    assert "- [ ] auth - Agent 1 (skipped)\n" in read(directory)


def test_status_table_is_shared(directory: RunDirectory, shared: Shared) -> None:
    def write(_: object) -> None:
        (directory.path / "status.md").write_text("| Agent |\n")

    shared.following(write)(WorkerPreparing(worker_id=1))
    assert read(directory, "status.md") == "| Agent |\n"


def test_events_are_passed_on(shared: Shared) -> None:
    told: list[object] = []
    event = WorkerPreparing(worker_id=1)
    shared.following(told.append)(event)
    assert told == [event]


def test_another_process_writes_the_same_files(
    directory: RunDirectory, shared: Shared, repo: Path
) -> None:
    (directory.worker(3) / "findings.md").write_text("- slow\n")
    directory.write_result(result(3))
    shared.following(ignore)(WorkerDone(result=result(3)))
    before = read(directory)
    (directory.path / "shared" / "context.md").unlink()
    made(directory, repo)
    assert read(directory) == before


def test_text_of_the_user_comes_first(directory: RunDirectory, repo: Path) -> None:
    sharing.keep_given(directory, Redactor(), "Use tabs.\n")
    made(directory, repo)
    assert read(directory).startswith("Use tabs.\n\n## Task Status\n- [ ] auth")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff", "is not UTF-8 text"),
        (b"x" * (256 * 1024 + 1), "is larger than 256 KiB"),
    ],
)
def test_context_that_is_not_text_is_refused(
    repo: Path, local_engine: LocalEngine, content: bytes | None, said: str
) -> None:
    if content is not None:
        (repo / "context.md").write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        shell_run(repo, local_engine, "true", context="context.md")
    assert list(all_runs(Repository(repo).state_dir)) == []


def test_context_that_is_a_fifo_is_refused(repo: Path, local_engine: LocalEngine) -> None:
    os.mkfifo(repo / "context.md")
    with raises("context.unreadable", "not a regular file"):
        shell_run(repo, local_engine, "true", context="context.md")


def test_context_is_provided_to_every_worker(repo: Path, local_engine: LocalEngine) -> None:
    (repo / "context.md").write_text("Use tabs, and s3cret-s3cret.\n")
    isolation = Isolation(network="none", env={"MY_TOKEN": "s3cret-s3cret"})
    (worker,) = shell_run(
        repo, local_engine, 'cat "$ORCHESTRATOR_CONTEXT" > got.txt',
        context="context.md", isolation=isolation,
    ).results  # fmt: skip
    assert show(repo, f"{worker.branch}:got.txt") == "Use tabs, and [redacted:MY_TOKEN]."


def test_resumed_run_does_not_need_the_context_file(repo: Path, local_engine: LocalEngine) -> None:
    (repo / "context.md").write_text("Use tabs.\n")
    task = 'cat "$ORCHESTRATOR_CONTEXT"'
    wishes = configured(task, context="context.md")
    reserved = ParallelRunner(wishes, repo, engine=local_engine).reserve()
    reserved.release()
    (repo / "context.md").unlink()
    (worker,) = ResumedRun(RunDirectory(reserved.path), engine=local_engine).execute().results
    assert worker.log is not None
    assert (Path(worker.log) / "stdout.log").read_text() == "Use tabs.\n"


def test_workers_without_a_workflow_share_only_the_context(
    directory: RunDirectory, repo: Path
) -> None:
    alone = made(directory, repo, title=None)
    assert [mount.target for mount in alone.mounts(AUTH, USER)] == [OUT]
    assert alone.following(ignore) is ignore
    sharing.keep_given(directory, Redactor(), "Use tabs.\n")
    alone = made(directory, repo, title=None)
    assert [mount.target for mount in alone.mounts(AUTH, USER)] == [OUT, SHARED]
    assert read(directory) == "Use tabs.\n"


def test_worker_can_write_only_to_its_own_directory(
    directory: RunDirectory, shared: Shared
) -> None:
    shared.give_inputs(UI, [Input(name="auth", result=result(1), base="HEAD")])
    mounts = {one.target: one for one in shared.mounts(UI, USER)}
    assert mounts[OUT] == BindMount(
        source=directory.worker(3) / "handed", target=OUT, read_only=False
    )
    for target, name in ((SHARED, "shared"), (INPUTS, "inputs/3")):
        assert mounts[target] == BindMount(
            source=directory.path / name, target=target, read_only=True
        )


def test_shared_files_are_readable_and_not_writable(
    directory: RunDirectory, shared: Shared
) -> None:
    shared.give_inputs(UI, [Input(name="auth", result=result(1), base="HEAD")])
    for folder in (directory.path / "shared", directory.path / "inputs" / "3"):
        assert folder.stat().st_mode & 0o777 == 0o755
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


def test_variables_contain_the_paths(shared: Shared) -> None:
    assert variables(UI, shared.mounts(UI, USER)) == {
        "ORCHESTRATOR_TASK_ID": "ui",
        "ORCHESTRATOR_CONTEXT": "/run/orchestrator/shared/context.md",
        "ORCHESTRATOR_FINDINGS": "/run/orchestrator/out/findings.md",
        "ORCHESTRATOR_ARTIFACTS": "/run/orchestrator/out/artifacts",
    }
    shared.give_inputs(UI, [Input(name="auth", result=result(1), base="HEAD")])
    assert variables(UI, shared.mounts(UI, USER))["ORCHESTRATOR_INPUTS"] == INPUTS
    assert variables(spec(1, None), ()) == {}


def test_reducing_task_gets_results_summaries_and_diffs(
    directory: RunDirectory, repo: Path
) -> None:
    redactor = Redactor({"TOKEN": b"hunter2hunter2"})
    shared = made(directory, repo, redactor=redactor)
    base, tip = git(repo, "rev-parse", "HEAD~1"), git(repo, "rev-parse", "HEAD")
    inputs = [
        Input(name="auth", result=result(1, message="has hunter2hunter2", commit=tip), base=base),
        Input(name="api", result=result(2, commit=base), base=base),
    ]
    shared.give_inputs(UI, inputs)
    place = directory.path / "inputs" / "3"
    assert sorted(path.name for path in place.iterdir()) == [
        "api.diff", "api.json", "api.summary.md",
        "auth.diff", "auth.json", "auth.summary.md", "results.json",
    ]  # fmt: skip
    clean = result(1, message="has [redacted:TOKEN]", commit=tip)
    assert WorkerResult.model_validate_json((place / "auth.json").read_bytes()) == clean
    assert (place / "auth.summary.md").read_text() == "has [redacted:TOKEN]\n"
    assert (place / "auth.diff").read_text() == git(repo, "diff", base, tip) + "\n"
    assert (place / "api.diff").read_text() == ""
    every = json.loads((place / "results.json").read_text())
    assert [one["id"] for one in every] == ["auth", "api"]
    assert every[0] == {"id": "auth", **clean.model_dump(mode="json")}


def test_inputs_are_written_once(directory: RunDirectory, shared: Shared) -> None:
    shared.give_inputs(UI, [])
    assert [one.target for one in shared.mounts(UI, USER)] == [OUT, SHARED]
    (directory.path / "inputs" / "3.half").mkdir(parents=True)
    (directory.path / "inputs" / "3.half" / "of-a-dead-process").touch()
    shared.give_inputs(UI, [Input(name="auth", result=result(1), base="HEAD")])
    shared.give_inputs(UI, [Input(name="api", result=result(2), base="HEAD")])
    names = sorted(path.name for path in (directory.path / "inputs" / "3").iterdir())
    assert names == ["auth.diff", "auth.json", "auth.summary.md", "results.json"]


def test_long_diff_is_truncated(
    directory: RunDirectory, shared: Shared, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "MOST_DIFF", 100)
    base, tip = git(repo, "rev-parse", "HEAD~1"), git(repo, "rev-parse", "HEAD")
    shared.give_inputs(UI, [Input(name="auth", result=result(1, commit=tip), base=base)])
    diff = (directory.path / "inputs" / "3" / "auth.diff").read_text()
    assert diff == (
        f"{(git(repo, 'diff', base, tip) + chr(10))[:100]}"
        f"\n# truncated after 0 MiB; the full diff: git diff {base} {tip}\n"
    )


def test_failed_diff_contains_the_error(directory: RunDirectory, shared: Shared) -> None:
    gone = "0123456789" * 4
    shared.give_inputs(UI, [Input(name="auth", result=result(1, commit=gone), base="HEAD")])
    diff = (directory.path / "inputs" / "3" / "auth.diff").read_text()
    assert diff.startswith("# no diff could be created: `git diff-tree` failed")


def test_findings_and_artifacts_are_collected(repo: Path, local_engine: LocalEngine) -> None:
    task = (
        'echo "- slow" > "$ORCHESTRATOR_FINDINGS"; mkdir "$ORCHESTRATOR_ARTIFACTS/deep"; '
        'echo r > "$ORCHESTRATOR_ARTIFACTS/deep/report.txt"; mkfifo "$ORCHESTRATOR_ARTIFACTS/f"; '
        'test -z "$ORCHESTRATOR_CONTEXT$ORCHESTRATOR_INPUTS$ORCHESTRATOR_TASK_ID"'
    )
    (worker,) = shell_run(repo, local_engine, task).results
    assert (worker.status, worker.artifacts) == (Status.SUCCESS, ["deep/report.txt"])
    assert worker.message == "1 of the worker's artifacts were not regular files and were left out"
    assert worker.files_modified == []
    root = Path(str(worker.log))
    assert (root / "artifacts" / "deep" / "report.txt").read_text() == "r\n"
    assert (root / "findings.md").read_text() == "- slow\n"
    assert not (root / "handed").exists()


def test_artifacts_count_towards_the_disk_limit(repo: Path, local_engine: LocalEngine) -> None:
    task = 'head -c 40000000 /dev/urandom > "$ORCHESTRATOR_ARTIFACTS/big"; sleep 60'
    limits = Limits(disk=8 * 1024**2, grace=0.3)
    (worker,) = shell_run(repo, local_engine, task, limits=limits).results
    assert worker.reason is Reason.DISK


def test_setup_and_teardown_have_the_shared_files_and_checks_do_not(
    repo: Path, local_engine: LocalEngine
) -> None:
    (worker,) = shell_run(
        repo, local_engine, 'cat "$ORCHESTRATOR_ARTIFACTS/s" > new.txt',
        setup=('test -z "$ORCHESTRATOR_ARTIFACTS" || echo s > "$ORCHESTRATOR_ARTIFACTS/s"',),
        teardown=('echo t > "$ORCHESTRATOR_ARTIFACTS/t"',),
        checks=({"run": 'test -z "$ORCHESTRATOR_ARTIFACTS$ORCHESTRATOR_FINDINGS"'},),
    ).results  # fmt: skip
    assert worker.status is Status.SUCCESS
    assert worker.artifacts == ["s", "t"]


def test_failed_attempt_keeps_its_artifacts(repo: Path, local_engine: LocalEngine) -> None:
    task = 'ls "$ORCHESTRATOR_ARTIFACTS"; echo x > "$ORCHESTRATOR_ARTIFACTS/$$"; exit 3'
    (worker,) = shell_run(repo, local_engine, task, retries=1, retry_delay=0).results
    (run,) = all_runs(Repository(repo).state_dir)
    ((_, first),) = run.attempts(1)
    assert len(worker.artifacts) == 1
    assert [path.name for path in (first / "artifacts").iterdir()] != worker.artifacts
    assert (run.worker(1) / "stdout.log").read_text() == ""
