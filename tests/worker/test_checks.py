"""Tests of the checks of a worker's commit, with real git and processes as containers."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import PlaceLostError
from orchestrator.base.events import Event, WorkerStage
from orchestrator.base.results import CheckResult, Reason, Status, exit_code
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.project import Check, Project
from orchestrator.engine.interface.labels import ROLE
from orchestrator.engine.interface.spec import BindMount
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.sandbox.supervision.output import findings_file
from orchestrator.sandbox.supervision.verdict import Verdict, judge_checks
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.worker.steps import checks as worker_checks
from orchestrator.worker.workspace.layout import WORKSPACE
from tests.support.local_engine import LocalEngine
from tests.support.recording_engine import RecordingEngine
from tests.support.repository import git
from tests.support.runs import configured, run_until, shell_run


def run_directory(repo: Path) -> RunDirectory:
    (run,) = all_runs(repo / ".git" / "orchestrator")
    return run


def checks(*commands: str, **timeouts: float) -> tuple[Check, ...]:
    return tuple(Check(run=command, **timeouts) for command in commands)


def test_checks_see_only_the_commit(repo: Path, local_engine: LocalEngine) -> None:
    task = "echo new > new.txt; echo x > left.log; echo '*.log' > .gitignore"
    (worker,) = shell_run(
        repo, local_engine, task,
        checks=checks("cat new.txt a.txt", "test ! -e left.log", "git log -1 --format=%H"),
    ).results  # fmt: skip
    assert (worker.status, worker.reason, worker.message) == (Status.SUCCESS, None, None)
    assert [(one.name, one.passed, one.exit_code) for one in worker.checks] == [
        ("cat new.txt a.txt", True, 0),
        ("test ! -e left.log", True, 0),
        ("git log -1 --format=%H", True, 0),
    ]
    assert Path(worker.checks[0].log).read_text().splitlines()[1:] == ["new", "a"]
    assert Path(worker.checks[2].log).read_text().splitlines()[-1] == worker.commit


def test_failed_check_makes_a_success_partial(repo: Path, local_engine: LocalEngine) -> None:
    result = shell_run(
        repo, local_engine, "echo new > new.txt", "echo old > old.txt",
        checks=checks("test -e new.txt", "echo fine", "echo why; test -e new.txt"),
    )  # fmt: skip
    fine, partial = result.results
    assert fine.status is Status.SUCCESS
    assert (partial.status, partial.reason) == (Status.PARTIAL, Reason.CHECKS_FAILED)
    assert [one.passed for one in partial.checks] == [False, True, False]
    assert partial.message == (
        "2 of 3 checks failed: `test -e new.txt` exited with 1; "
        "`echo why; test -e new.txt` exited with 1: why"
    )
    assert exit_code(result.results) == 2
    assert partial.files_modified == ["old.txt"]


def test_a_failed_worker_keeps_its_status(repo: Path, local_engine: LocalEngine) -> None:
    (worker,) = shell_run(
        repo, local_engine, "echo new > new.txt; exit 3", checks=checks("true", "false")
    ).results
    assert (worker.status, worker.reason) == (Status.FAILED, Reason.AGENT_FAILED)
    assert [one.passed for one in worker.checks] == [True, False]


def test_checks_are_skipped_without_a_commit(repo: Path, tmp_path: Path) -> None:
    engine = RecordingEngine(tmp_path / "engine")
    (worker,) = shell_run(repo, engine, "true", checks=checks("false")).results
    assert (worker.status, worker.checks) == (Status.SUCCESS, [])
    assert worker.message == "no checks were run, because nothing was committed"
    assert "check" not in [spec.labels[ROLE] for spec in engine.specs]


def test_files_and_commits_of_a_check_are_discarded(repo: Path, local_engine: LocalEngine) -> None:
    spoil = "echo spoilt > a.txt; git add -A; git commit -qm spoilt; git branch -f main HEAD"
    before = git(repo, "rev-parse", "main")
    (worker,) = shell_run(
        repo, local_engine, "echo new > new.txt", checks=checks(spoil, "cat a.txt")
    ).results
    assert worker.files_modified == ["new.txt"]
    assert git(repo, "rev-parse", "architect/parallel-1") == worker.commit
    assert git(repo, "rev-parse", "main") == before
    assert git(Path(worker.worktree_path), "status", "--porcelain") == ""
    assert not run_directory(repo).worker(1).joinpath("checked").exists()


def test_setup_runs_before_the_checks(repo: Path, local_engine: LocalEngine) -> None:
    (worker,) = shell_run(
        repo, local_engine, "cp ready.log new.txt",
        setup=("echo '*.log' >> .gitignore; echo ready > ready.log",),
        checks=checks("cat ready.log"),
    ).results  # fmt: skip
    assert [one.passed for one in worker.checks] == [True]
    setup = "test ! -e new.txt || { echo gone; exit 9; }"
    (worker,) = shell_run(
        repo, local_engine, "echo new > new.txt", setup=(setup,), checks=checks("true")
    ).results
    assert (worker.status, worker.reason) == (Status.PARTIAL, Reason.CHECKS_FAILED)
    assert worker.checks[0].exit_code is None
    assert worker.checks[0].message is not None
    assert (
        f"the setup for the checks failed: `{setup}` exited with 9: gone"
        in worker.checks[0].message
    )


def test_copied_files_are_present_in_checks(repo: Path, local_engine: LocalEngine) -> None:
    (repo / "settings.local").write_text("mine\n")
    (worker,) = shell_run(
        repo, local_engine, "echo new > new.txt; rm settings.local",
        checks=checks("cat settings.local; echo spoilt > settings.local; rm new.txt"),
        isolation=Isolation(network="none", copied=("settings.local",)),
    ).results  # fmt: skip
    assert Path(worker.checks[0].log).read_text().splitlines()[1:] == ["mine"]
    assert worker.files_modified == ["new.txt"]
    assert (Path(worker.worktree_path) / "settings.local").read_text() == "mine\n"
    assert (Path(worker.worktree_path) / "new.txt").exists()


def test_checks_run_in_a_separate_checkout(repo: Path, tmp_path: Path) -> None:
    engine = RecordingEngine(tmp_path / "engine")
    shell_run(
        repo, engine, "echo new > new.txt", checks=checks("true", "true"),
        isolation=Isolation(network="open"),
    )  # fmt: skip
    agent, _, *found = engine.specs
    assert [spec.labels[ROLE] for spec in found] == ["check", "check"]
    assert [(spec.network, spec.egress) for spec in found] == [("none", None)] * 2
    assert {(spec.user, spec.image, spec.memory) for spec in found} == {
        (agent.user, agent.image, agent.memory)
    }
    (tree,) = (mount for mount in found[0].mounts if mount.target == WORKSPACE)
    assert isinstance(tree, BindMount)
    assert tree.source == run_directory(repo).worker(1) / "checked" / "copy"


def test_network_of_checks_may_be_open(repo: Path, tmp_path: Path) -> None:
    engine = RecordingEngine(tmp_path / "engine")
    shell_run(
        repo, engine, "echo new > new.txt", checks=checks("true"),
        isolation=Isolation(network="none", check_network="open"),
    )  # fmt: skip
    assert [spec.network != "none" for spec in engine.specs] == [False, False, True]


def test_each_check_has_its_own_deadline(repo: Path, local_engine: LocalEngine) -> None:
    (worker,) = shell_run(
        repo, local_engine, "echo new > new.txt",
        checks=(Check(run="echo on; sleep 60", name="slow", timeout=4), Check(run="true")),
    ).results  # fmt: skip
    slow, fine = worker.checks
    assert (slow.name, slow.passed, fine.passed) == ("slow", False, True)
    assert slow.message == "`echo on; sleep 60` was stopped at its deadline of 4 s: on"
    assert slow.duration >= 4


@pytest.mark.parametrize("leaves_at", ["-check-1", "-check-2", "-check-setup"])
def test_finished_checks_are_not_repeated_after_a_resume(
    repo: Path, tmp_path: Path, leaves_at: str
) -> None:
    engine = RecordingEngine(tmp_path / "engine", lambda spec: spec.name.endswith(leaves_at))
    counts = tmp_path / "counts"
    first = shell_run(
        repo, engine, "echo new > new.txt", setup=("true",),
        checks=checks(f"echo one >> {counts}", f"echo two >> {counts}; false"),
    )  # fmt: skip
    assert first.results[0].reason is Reason.ENGINE_ERROR
    (worker,) = ResumedRun(run_directory(repo), engine=engine).execute().results
    assert (worker.status, worker.reason) == (Status.PARTIAL, Reason.CHECKS_FAILED)
    assert [one.passed for one in worker.checks] == [True, False]
    assert counts.read_text().split() == ["one", "two"]
    assert not run_directory(repo).worker(1).joinpath("checked").exists()


@pytest.mark.parametrize(("times", "passed"), [(1, [True, True]), (2, [True, False])])
def test_lost_place_of_checks_is_replaced_once(
    repo: Path,
    local_engine: LocalEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    times: int,
    passed: list[bool],
) -> None:
    real, lost = worker_checks._take_findings, []

    def take(place: Any, job: Any, into: Path) -> str | None:
        if job.name == "check-2" and len(lost) < times:
            lost.append(place)
            raise PlaceLostError("its node is gone", key="place.lost", restarts=True)
        return real(place, job, into)

    monkeypatch.setattr(worker_checks, "_take_findings", take)
    ran = tmp_path / "ran"
    (worker,) = shell_run(
        repo, local_engine, "echo new > new.txt",
        checks=checks(f"echo 1 >> {ran}", f"echo 2 >> {ran}"),
    ).results  # fmt: skip
    assert ([one.passed for one in worker.checks], len(set(lost))) == (passed, times)
    # A check that has ended is not repeated.
    assert ran.read_text() == "1\n2\n2\n"
    assert (worker.attempts, worker.restarts) == (1, 0)


def test_cancel_during_checks_keeps_the_work(repo: Path, local_engine: LocalEngine) -> None:
    def checks_sleep(event: Event) -> bool:
        return isinstance(event, WorkerStage) and event.name == "sleep 60"

    config = configured("echo new > new.txt", checks=checks("true", "sleep 60", "true"))
    worker = run_until(checks_sleep, config, repo, local_engine)
    assert (worker.status, worker.reason) == (Status.FAILED, Reason.CANCELLED)
    assert worker.message == "cancelled before this worker's checks were done"
    assert [one.name for one in worker.checks] == ["true"]
    assert worker.files_modified == ["new.txt"]


def test_worker_is_retried_after_failed_checks(repo: Path, local_engine: LocalEngine) -> None:
    mark = repo.parent / "mark"
    (worker,) = shell_run(
        repo, local_engine, f"echo new > new.txt; test ! -e {mark} || echo good > good.txt",
        checks=checks(f"touch {mark}; test -e good.txt"),
        retries=1, retry_delay=0, retry_on=(Reason.CHECKS_FAILED,),
    ).results  # fmt: skip
    assert (worker.status, worker.attempts) == (Status.SUCCESS, 2)
    assert [one.passed for one in worker.checks] == [True]


FAILED = CheckResult(name="t", passed=False, exit_code=1, log="l", message="`t` exited with 1")
PASSED = CheckResult(name="u", passed=True, exit_code=0, log="l")
SUCCESS = Verdict(Status.SUCCESS, None, None)


@pytest.mark.parametrize(
    ("verdict", "results", "wanted"),
    [
        (SUCCESS, [], SUCCESS),
        (SUCCESS, [PASSED], SUCCESS),
        (
            SUCCESS,
            [FAILED],
            Verdict(Status.PARTIAL, Reason.CHECKS_FAILED, "its check failed: `t` exited with 1"),
        ),
        *(
            (Verdict(status, reason, "m"), [FAILED, PASSED], Verdict(status, reason, "m"))
            for status, reason in [
                (Status.PARTIAL, Reason.BUDGET),
                (Status.FAILED, Reason.OOM),
                (Status.TIMEOUT, Reason.TIMEOUT),
            ]
        ),
    ],
)
def test_verdict_follows_from_the_checks(
    verdict: Verdict, results: list[CheckResult], wanted: Verdict
) -> None:
    assert judge_checks(verdict, results) == wanted


def test_check_is_a_command_or_a_mapping() -> None:
    project = Project.model_validate({"checks": ["npm test", {"run": "tox", "name": "t"}]})
    assert [one.title for one in project.checks] == ["npm test", "t"]
    assert project.checks[0] == Check(run="npm test", timeout=600)


def test_a_check_may_leave_findings(repo: Path, local_engine: LocalEngine) -> None:
    write = 'printf "%s" "$KEY {}" > "$ORCHESTRATOR_SARIF"'
    (worker,) = shell_run(
        repo, local_engine, "echo new > new.txt",
        checks=checks(write, f"{write}; exit 1", "true", 'mkdir "$ORCHESTRATOR_SARIF"',
                      'ln -s /etc/passwd "$ORCHESTRATOR_SARIF"'),
        isolation=Isolation(network="none", env={"KEY": "s3cret-value"}),
    ).results  # fmt: skip
    logs = [Path(one.log) for one in worker.checks]
    left = [findings_file(log).read_text() if findings_file(log).exists() else None for log in logs]
    assert left == ["[redacted:KEY] {}", "[redacted:KEY] {}", None, None, None]
    events = (run_directory(repo).path / "events.ndjson").read_text()
    assert events.count("the findings of check") == 2
    assert not (logs[0].parent / "checked").exists()


def test_findings_of_a_check_are_bounded(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_checks, "MOST_FINDINGS", 10)
    (worker,) = shell_run(
        repo, local_engine, "echo new > new.txt",
        checks=checks('echo 0123456789 > "$ORCHESTRATOR_SARIF"'),
    ).results  # fmt: skip
    assert worker.status is Status.SUCCESS
    assert not findings_file(Path(worker.checks[0].log)).exists()
    assert (
        "were not read: the file is larger"
        in (run_directory(repo).path / "events.ndjson").read_text()
    )
