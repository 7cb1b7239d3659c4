"""Tests of one run from plan to results, with real git and processes as containers."""

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from orchestrator.agents.base import AgentSettings, ProgressReader
from orchestrator.agents.programs.shell import ShellAgent
from orchestrator.base.errors import EngineError, PortTakenError
from orchestrator.base.events import (
    Event,
    RunDone,
    RunStarted,
    WorkerDone,
    WorkerOutput,
    WorkerStarted,
)
from orchestrator.base.results import Reason, RunResult, Status, exit_code
from orchestrator.config.settings.container import Isolation
from orchestrator.engine.interface.labels import ROLE, WORKER
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_record import read_record
from orchestrator.worker.steps import agent_container
from tests.support.live import LATE, newest
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.repository import fingerprint, git
from tests.support.runs import GRACE, branches, configured, shell_run, show


def run_directory(repo: Path, result: RunResult) -> RunDirectory:
    return RunDirectory(repo / ".git" / "orchestrator" / "runs" / result.run_id)


def test_each_worker_commits_on_its_own_branch(repo: Path, local_engine: LocalEngine) -> None:
    base = git(repo, "rev-parse", "HEAD")
    result = shell_run(
        repo, local_engine,
        "echo one > one.txt",
        "echo two >> a.txt && git add -A && git commit -qm 'by hand' && rm src/app.py",
        "cat a.txt",
    )  # fmt: skip
    assert (result.status, result.base) == (Status.SUCCESS, base)
    first, second, third = result.results
    assert [one.worker_id for one in result.results] == [1, 2, 3]
    assert (first.files_modified, first.insertions, first.deletions) == (["one.txt"], 1, 0)
    assert second.files_modified == ["a.txt", "src/app.py"]
    assert (third.files_modified, third.commit) == ([], base)
    assert (first.base, first.summary, third.base, third.summary) == (base, None, base, "a")
    assert show(repo, "architect/parallel-1:one.txt") == "one"
    log = git(repo, "log", "--format=%s", f"{base}..architect/parallel-2").splitlines()
    assert log == ["architect: uncommitted work of worker 2", "by hand"]
    for worker in result.results:
        assert git(repo, "rev-parse", worker.branch) == worker.commit
        assert git(repo, "merge-base", base, worker.branch) == base


def test_worktree_equals_the_branch(repo: Path, local_engine: LocalEngine) -> None:
    task = "rm a.txt; mkdir -p 'new folder'; echo x > 'new folder/é\n.txt'; chmod +x src/app.py"
    (worker,) = shell_run(repo, local_engine, task).results
    tree = Path(worker.worktree_path)
    assert tree == repo / ".architect-parallel-1"
    assert not (tree / "a.txt").exists()
    assert (tree / "new folder" / "é\n.txt").read_text() == "x\n"
    assert (tree / "src" / "app.py").stat().st_mode & 0o111
    assert git(tree, "status", "--porcelain") == ""
    assert git(tree, "rev-parse", "--abbrev-ref", "HEAD") == "architect/parallel-1"
    assert worker.files_modified == ["a.txt", "new folder/é\n.txt", "src/app.py"]


def test_files_of_a_worktree_that_others_changed_are_not_overwritten(
    repo: Path, local_engine: LocalEngine
) -> None:
    file = repo / ".architect-parallel-1" / "a.txt"
    (worker,) = shell_run(repo, local_engine, f"echo more >> a.txt; echo mine > {file}").results
    assert (worker.status, file.read_text()) == (Status.SUCCESS, "mine\n")
    assert show(repo, "architect/parallel-1:a.txt") == "a\nmore"
    assert worker.message
    assert "worktree could not be updated to the branch: `git read-tree` failed" in worker.message


def test_a_failed_worker_keeps_its_work(repo: Path, local_engine: LocalEngine) -> None:
    failed, fine = shell_run(
        repo, local_engine, "echo half > half.txt; echo broke >&2; exit 3", "true"
    ).results
    assert (failed.status, failed.reason) == (Status.FAILED, Reason.AGENT_FAILED)
    assert (failed.exit_code, failed.message) == (3, "broke")
    assert show(repo, "architect/parallel-1:half.txt") == "half"
    assert fine.status is Status.SUCCESS


def test_a_worker_past_its_deadline_keeps_its_work(repo: Path, local_engine: LocalEngine) -> None:
    task = (
        "echo a > done.txt; git add -A; git commit -qm mine; echo b > doing.txt; "
        "trap '' TERM; while :; do sleep 0.05; done"
    )
    (worker,) = shell_run(repo, local_engine, task, timeout_per_worker=4).results
    assert (worker.status, worker.reason) == (Status.TIMEOUT, Reason.TIMEOUT)
    assert worker.exit_code == 137
    assert 4 + GRACE <= worker.duration < 4 + GRACE + LATE
    assert worker.files_modified == ["doing.txt", "done.txt"]
    assert git(repo, "log", "-1", "--format=%s", f"{worker.branch}~1") == "mine"


def test_a_worker_over_its_budget_is_stopped(repo: Path, local_engine: LocalEngine) -> None:
    task = """echo w > w; echo '{"type": "orchestrator.report", "cost": 0.5}'; exec sleep 60"""
    (worker,) = shell_run(repo, local_engine, task, budget_per_worker=0.1).results
    assert (worker.status, worker.reason) == (Status.PARTIAL, Reason.BUDGET)
    assert (worker.cost, worker.cost_known) == (0.5, True)
    # At its end, the worker would also be `partial`: it must be stopped before.
    assert worker.duration < 60
    assert worker.files_modified == ["w"]


class Agent(ShellAgent):
    """A command whose steps count towards the limit."""

    def unsupported(self, settings: AgentSettings) -> None:
        """Support a limit of steps."""

    def progress_reader(self) -> ProgressReader:
        read = super().progress_reader()
        return lambda line: None if (said := read(line)) is None else replace(said, bounded=True)


def test_steps_of_a_shell_command_are_not_limited(repo: Path, local_engine: LocalEngine) -> None:
    task = """echo '{"type": "orchestrator.report", "cost": 0, "steps": 5000}'; sleep 0.7"""
    (worker,) = shell_run(repo, local_engine, task).results
    assert (worker.status, worker.steps) == (Status.SUCCESS, 5000)


def test_worker_beyond_its_step_limit_is_stopped(repo: Path, local_engine: LocalEngine) -> None:
    takes = (
        """echo w > w; echo '{"type": "orchestrator.report", "cost": 0, "steps": %d}'; sleep 0.7"""
    )
    config = configured(takes % 2, takes % 3 + "; exec sleep 60", max_steps=2)
    within, beyond = (
        ParallelRunner(config, repo, engine=local_engine, agent=Agent()).execute().results
    )
    assert within.status is Status.SUCCESS
    assert (beyond.status, beyond.reason) == (Status.PARTIAL, Reason.MAX_STEPS)
    assert beyond.message == "stopped: the worker exceeded 2 steps"
    assert (beyond.steps, beyond.files_modified) == (3, ["w"])


def test_cancel_keeps_work_and_starts_no_further_worker(
    repo: Path, local_engine: LocalEngine
) -> None:
    def press(event: Event) -> None:
        if isinstance(event, WorkerOutput) and event.line == "ready":
            runner.cancel()

    config = configured("echo w > w; echo ready; exec sleep 60", "true", "true", workers=1)
    runner = ParallelRunner(config, repo, engine=local_engine, emit=press)
    first, *rest = runner.execute().results
    assert (first.status, first.reason) == (Status.FAILED, Reason.CANCELLED)
    assert (first.files_modified, first.exit_code) == (["w"], 143)
    assert {one.reason for one in rest} == {Reason.CANCELLED}
    assert branches(repo) == ["architect/parallel-1"]
    assert not (repo / ".architect-parallel-2").exists()


def test_cancel_with_kill_skips_the_grace_period(repo: Path, local_engine: LocalEngine) -> None:
    def press(event: Event) -> None:
        if isinstance(event, WorkerOutput):
            runner.cancel(kill=True)

    config = configured("trap '' TERM; echo up; while :; do sleep 0.05; done")
    config = config.model_copy(update={"limits": config.limits.model_copy(update={"grace": 50.0})})
    runner = ParallelRunner(config, repo, engine=local_engine, emit=press)
    (worker,) = runner.run()
    assert (worker.reason, worker.exit_code) == (Reason.CANCELLED, 137)
    assert worker.duration < 50


class AgentWithABug(ShellAgent):
    """Raises for a certain task, but not in the checks before the run."""

    def __init__(self) -> None:
        self.asked = 0

    def command(self, spec, settings):
        self.asked += spec.task == "bug"
        if spec.task == "bug" and self.asked > 1:
            raise KeyError("a bug of ours")
        return super().command(spec, settings)


def test_bug_in_one_worker_does_not_affect_others(repo: Path, local_engine: LocalEngine) -> None:
    config = configured("echo 1 > one", "bug", "echo 3 > three", workers=2)
    runner = ParallelRunner(config, repo, engine=local_engine, agent=AgentWithABug())
    result = runner.execute()
    assert [one.status for one in result.results] == ["success", "failed", "success"]
    assert result.results[1].reason is Reason.INTERNAL_ERROR
    assert "a bug of ours" in (result.results[1].message or "")
    assert exit_code(result.results) == 70
    log = (run_directory(repo, result).path / "internal-error.log").read_text()
    assert "Traceback" in log
    assert "a bug of ours" in log


def test_container_is_removed_after_a_bug_while_it_runs(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []

    def broken(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("a bug of ours")

    def look(event: Event) -> None:
        if isinstance(event, WorkerDone):
            left.extend(one.kind for one in local_engine.leftovers({}))

    monkeypatch.setattr(agent_container, "attend", broken)
    runner = ParallelRunner(configured("sleep 60"), repo, engine=local_engine, emit=look)
    (worker,) = runner.run()
    assert (worker.reason, "container" in left) == (Reason.INTERNAL_ERROR, False)


class RefusingEngine(LocalEngine):
    """Refuses worker 2's container, and the first container with ports."""

    attempts = 0

    def create(self, spec: ContainerSpec) -> LocalContainer:
        if (spec.labels[ROLE], spec.labels[WORKER]) == ("worker", "2"):
            raise EngineError("no room for it", key="engine.refusal")
        self.attempts += 1
        if spec.ports and self.attempts == 1:
            raise PortTakenError("taken meanwhile", key="port.taken")
        return super().create(spec)


def test_container_that_cannot_start_fails_only_its_worker(repo: Path, tmp_path: Path) -> None:
    engine = RefusingEngine(tmp_path / "engine")
    first, second = shell_run(repo, engine, "echo 1 > one", "echo 2 > two").results
    assert (first.status, first.files_modified) == (Status.SUCCESS, ["one"])
    assert (second.reason, second.message) == (Reason.ENGINE_ERROR, "no room for it")
    assert engine.leftovers({}) == []


def test_ports_in_use_are_replaced(repo: Path, tmp_path: Path) -> None:
    engine = RefusingEngine(tmp_path / "engine")
    task = 'echo "$PORT $PORT_URL $API_PORT_URL"'
    isolation = Isolation(ports=(3000, 3001))
    (worker,) = shell_run(repo, engine, task, isolation=isolation).results
    assert list(worker.ports) == [3000, 3001]
    urls = " ".join(f"http://127.0.0.1:{port}" for port in worker.ports.values())
    assert (Path(worker.log or "") / "stdout.log").read_text() == f"3000 {urls}\n"
    assert engine.leftovers({}) == []


def test_base_checkout_is_unchanged(repo: Path, local_engine: LocalEngine) -> None:
    (repo / "a.txt").write_text("edited\n")
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    (repo / "untracked.txt").write_text("untracked\n")
    git(repo, "stash", "list")
    before = fingerprint(repo)
    result = shell_run(repo, local_engine, "echo w > w; cat a.txt; ls", "exit 1")
    assert fingerprint(repo) == before
    seen = (Path(result.results[0].log or "") / "stdout.log").read_text()
    assert "edited" not in seen
    assert "staged.txt" not in seen
    git(repo, "fsck", "--strict", "--no-dangling")


def test_uncommitted_files_are_included_if_requested(repo: Path, local_engine: LocalEngine) -> None:
    (repo / "a.txt").write_text("edited\n")
    (repo / "untracked.txt").write_text("untracked\n")
    (repo / ".gitignore").write_text("secret\n")
    (repo / "secret").write_text("sesame\n")
    before, head = fingerprint(repo), git(repo, "rev-parse", "HEAD")
    task = "cat a.txt untracked.txt; test ! -e secret; echo more >> a.txt"
    result = shell_run(repo, local_engine, task, include_uncommitted=True)
    (worker,) = result.results
    assert worker.status is Status.SUCCESS
    assert worker.files_modified == ["a.txt"]
    assert show(repo, f"{worker.branch}:a.txt") == "edited\nmore"
    assert git(repo, "rev-parse", f"{worker.branch}~2") == head
    assert git(repo, "rev-parse", f"{worker.branch}~1") == result.base
    assert fingerprint(repo) == before


def test_events_are_emitted_and_recorded(repo: Path, local_engine: LocalEngine) -> None:
    told: list[Event] = []
    config = configured("echo hello", "true", workers=1)
    runner = ParallelRunner(config, repo, engine=local_engine, emit=told.append)
    result = runner.execute()
    kinds = [event.type for event in told]
    assert isinstance(told[0], RunStarted)
    assert told[0].slots == 1
    worker = ["worker_preparing", "worker_started", "worker_harvesting", "worker_done"]
    quiet = [kind for kind in kinds if kind != "worker_output"]
    assert quiet == ["run_started", *worker, *worker, "run_done"]
    assert [one.line for one in told if isinstance(one, WorkerOutput)] == ["hello"]
    assert isinstance(told[-1], RunDone)
    assert told[-1].result == result
    assert [one.result for one in told if isinstance(one, WorkerDone)] == result.results
    directory = run_directory(repo, result)
    record = read_record(directory)
    assert record is not None
    assert (record.run_id, record.base, len(record.workers)) == (result.run_id, result.base, 2)
    assert [directory.result(n) for n in (1, 2)] == result.results
    assert not directory.is_live()
    assert not directory.objects.exists()
    lines = (directory.path / "events.ndjson").read_text().splitlines()
    assert len(lines) == len(quiet)


def test_a_run_is_live_while_it_runs(repo: Path, local_engine: LocalEngine) -> None:
    seen: list[bool] = []

    def look(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            (directory,) = all_runs(repo / ".git" / "orchestrator")
            seen.append(directory.is_live())

    ParallelRunner(configured("true"), repo, engine=local_engine, emit=look).run()
    assert seen == [True]


def test_network_of_a_run_is_removed(repo: Path, local_engine: LocalEngine) -> None:
    during: list[int] = []

    def look(event: Event) -> None:
        if isinstance(event, WorkerStarted):
            left = local_engine.leftovers({})
            during.append(sum(leftover.kind == "network" for leftover in left))

    config = configured("true", "true", isolation=Isolation(network="open"))
    ParallelRunner(config, repo, engine=local_engine, emit=look).run()
    assert during == [1, 1]
    assert local_engine.leftovers({}) == []


@pytest.mark.parametrize("when", [RunStarted, WorkerStarted, WorkerDone, RunDone])
def test_failing_callback_does_not_stop_the_run(
    repo: Path, local_engine: LocalEngine, when: type[RunStarted]
) -> None:
    told: list[str] = []

    def broken(event: Event) -> None:
        told.append(event.type)
        if isinstance(event, when):
            raise ValueError("the view broke")

    config = configured("echo 1 > one", "echo 2 > two", workers=1)
    result = ParallelRunner(config, repo, engine=local_engine, emit=broken).execute()
    assert [one.files_modified for one in result.results] == [["one"], ["two"]]
    assert result.status is Status.SUCCESS
    with newest(repo) as history:
        assert (history.result(), history.directory.is_live()) == (result, False)
        events = (history.directory.path / "events.ndjson").read_text()
    assert events.count("the callback `emit` raised ValueError: the view broke and is not") == 1
    assert '"run_done"' in events
    assert told.count(told[-1]) == 1
    assert told[-1] == when.model_fields["type"].default


@pytest.mark.parametrize("variable", ["GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"])
def test_run_inside_a_git_hook(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "/nonexistent")
    (worker,) = shell_run(repo, local_engine, "echo w > w").results
    assert (worker.status, worker.files_modified) == (Status.SUCCESS, ["w"])
