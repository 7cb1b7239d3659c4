"""Tests of setup and teardown, with real git and processes as containers."""

from pathlib import Path

import pytest

from orchestrator.agents.programs.shell import ShellAgent
from orchestrator.base.errors import EngineError
from orchestrator.base.events import Event, WorkerStage, WorkerStageDone, WorkerStarted
from orchestrator.base.results import Reason, Status
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.project import Project
from orchestrator.config.settings.run import StageKey
from orchestrator.engine.interface.labels import ROLE
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.worker.checkpoints import Checkpoints
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.recording_engine import RecordingEngine
from tests.support.repository import git
from tests.support.runs import configured, run_until, shell_run, show


def run_directory(repo: Path) -> RunDirectory:
    (run,) = all_runs(repo / ".git" / "orchestrator")
    return run


def log(repo: Path, stage: str, worker: int = 1) -> str:
    return (run_directory(repo).worker(worker) / f"{stage}.log").read_text()


def test_files_written_by_setup_are_kept_for_the_agent(
    repo: Path, local_engine: LocalEngine
) -> None:
    heard: list[Event] = []
    config = configured(
        "cat made >> a.txt; rm made",
        setup=("echo one; echo two >&2; echo ready > made", "test -f made"),
    )
    result = ParallelRunner(config, repo, emit=heard.append, engine=local_engine).execute()

    assert result.status is Status.SUCCESS, result
    assert result.results[0].files_modified == ["a.txt"]
    assert show(repo, "architect/parallel-1:a.txt").splitlines()[-1] == "ready"
    said = log(repo, "setup").splitlines()
    assert said == (
        ["[setup 1/2] echo one; echo two >&2; echo ready > made", "one", "two",
         "[setup 2/2] test -f made"]
    )  # fmt: skip
    kinds = (WorkerStage, WorkerStageDone, WorkerStarted)
    assert [type(event) for event in heard if isinstance(event, kinds)] == list(kinds)
    assert run_directory(repo).worker(1).joinpath("stdout.log").read_text() == ""


def test_without_commands_no_stage_container_is_created(repo: Path, tmp_path: Path) -> None:
    engine = Counting(tmp_path / "engine")
    shell_run(repo, engine, "true")
    assert engine.roles == ["worker", "harvest"]


class Counting(LocalEngine):
    """Records the roles of its containers."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.specs: list[ContainerSpec] = []

    @property
    def roles(self) -> list[str]:
        return [spec.labels[ROLE] for spec in self.specs]

    def create(self, spec: ContainerSpec) -> LocalContainer:
        self.specs.append(spec)
        return super().create(spec)


def test_failed_setup_fails_the_worker(repo: Path, local_engine: LocalEngine) -> None:
    failed, fine = shell_run(
        repo, local_engine, "echo agent > agent", "true",
        setup=(
            "echo kept > kept",
            "if [ $ORCHESTRATOR_WORKER_ID = 1 ]; then echo the last word >&2; exit 7; fi",
            "echo third > third",
        ),
        teardown=("echo tidy > tidy",),
    ).results  # fmt: skip
    assert (failed.status, failed.reason) == (Status.FAILED, Reason.SETUP_FAILED)
    assert failed.message is not None
    assert failed.message.startswith("setup: `if [ $ORCHESTRATOR_WORKER_ID = 1 ]")
    assert failed.message.endswith("exited with 7: the last word")
    assert (failed.exit_code, failed.started_at) == (None, None)
    assert failed.files_modified == ["kept", "tidy"]
    assert fine.status is Status.SUCCESS
    assert fine.files_modified == ["kept", "third", "tidy"]


def test_setup_has_its_own_deadline(repo: Path, local_engine: LocalEngine) -> None:
    (worker,) = shell_run(
        repo, local_engine, "true", setup=("true", "echo waiting; sleep 60"), setup_timeout=4
    ).results
    assert (worker.status, worker.reason) == (Status.FAILED, Reason.SETUP_FAILED)
    assert worker.message == (
        "setup: `echo waiting; sleep 60` was stopped at its deadline of 4 s: waiting"
    )


@pytest.mark.parametrize(
    ("task", "status"), [("echo a > new", Status.SUCCESS), ("echo a > new; false", Status.FAILED)]
)
def test_teardown_runs_after_every_end(
    repo: Path, local_engine: LocalEngine, task: str, status: Status
) -> None:
    (worker,) = shell_run(repo, local_engine, task, teardown=("mv new renamed",)).results
    assert worker.status is status
    assert worker.files_modified == ["renamed"]
    assert log(repo, "teardown") == "[teardown 1/1] mv new renamed\n"


def test_failed_teardown_is_a_note(repo: Path, local_engine: LocalEngine) -> None:
    (worker,) = shell_run(repo, local_engine, "echo a > new", teardown=("echo no; false",)).results
    assert (worker.status, worker.reason) == (Status.SUCCESS, None)
    assert worker.message == "teardown: `echo no; false` exited with 1: no"
    assert worker.files_modified == ["new"]


def test_stages_have_the_agents_limits_and_mounts(repo: Path, tmp_path: Path) -> None:
    engine = Counting(tmp_path / "engine")
    look = 'echo "$GREETING" >> seen'
    shell_run(
        repo, engine, look, setup=(look,), teardown=(look,),
        isolation=Isolation(network="none", env={"GREETING": "hello"}),
    )  # fmt: skip
    assert show(repo, "architect/parallel-1:seen") == "hello\nhello\nhello"
    setup, agent, teardown, _ = engine.specs
    assert [setup.labels[ROLE], teardown.labels[ROLE]] == ["setup", "teardown"]
    for name in ("image", "user", "workdir", "mounts", "memory", "pids", "cpus", "runtime"):
        assert getattr(setup, name) == getattr(agent, name) == getattr(teardown, name)


def test_setup_may_have_another_network(repo: Path, tmp_path: Path) -> None:
    engine = Counting(tmp_path / "engine")
    shell_run(
        repo, engine, "true", setup=("true",), teardown=("true",),
        isolation=Isolation(network="none", setup_network="open"),
    )  # fmt: skip
    networks = {spec.labels[ROLE]: spec.network for spec in engine.specs}
    assert networks.pop("setup").startswith("orchestrator-")
    assert set(networks.values()) == {"none"}
    assert [spec.egress is not None for spec in engine.specs] == [True, False, False, False]


def test_failed_setup_is_retried(repo: Path, local_engine: LocalEngine) -> None:
    mark = repo.parent / "mark"
    (worker,) = shell_run(
        repo, local_engine, "echo agent > agent", retries=1, retry_delay=0,
        setup=(f"test -f {mark} || {{ touch {mark}; exit 3; }}",),
    ).results  # fmt: skip
    assert (worker.status, worker.attempts) == (Status.SUCCESS, 2)
    ((_, first),) = run_directory(repo).attempts(1)
    assert "[setup 1/1]" in (first / "setup.log").read_text()


def test_cancel_during_setup_runs_the_teardown(repo: Path, local_engine: LocalEngine) -> None:
    config = configured("true", setup=("echo half > half; sleep 60",), teardown=("echo t > tidy",))
    worker = run_until(lambda event: isinstance(event, WorkerStage), config, repo, local_engine)
    assert (worker.status, worker.reason) == (Status.FAILED, Reason.CANCELLED)
    assert "tidy" in worker.files_modified


@pytest.mark.parametrize(
    ("role", "setups", "teardowns"),
    [("setup", 1, 1), ("worker", 1, 1), ("teardown", 1, 1), ("harvest", 1, 1)],
)
def test_finished_stages_are_not_repeated_after_a_resume(
    repo: Path, tmp_path: Path, role: str, setups: int, teardowns: int
) -> None:
    engine = RecordingEngine(tmp_path / "engine", lambda spec: spec.labels[ROLE] == role)
    counts = tmp_path / "counts"
    first = shell_run(
        repo, engine, "true",
        setup=(f"echo setup >> {counts}",), teardown=(f"echo teardown >> {counts}",),
    )  # fmt: skip
    assert first.results[0].reason is Reason.ENGINE_ERROR
    result = ResumedRun(run_directory(repo), engine=engine).execute()
    assert result.status is Status.SUCCESS, result
    said = counts.read_text().split()
    assert (said.count("setup"), said.count("teardown")) == (setups, teardowns)


class Broken(LocalEngine):
    """An engine that cannot start the containers of setup."""

    def create(self, spec: ContainerSpec) -> LocalContainer:
        if spec.labels[ROLE] == "setup":
            raise EngineError("no room for a container", key="engine.refusal")
        return super().create(spec)


def test_setup_that_cannot_start_fails_the_worker(repo: Path, tmp_path: Path) -> None:
    (worker,) = shell_run(repo, Broken(tmp_path / "e"), "true", setup=("true",)).results
    assert (worker.status, worker.reason) == (Status.FAILED, Reason.ENGINE_ERROR)
    assert worker.message is not None
    assert "no room for a container" in worker.message


def test_forged_announcement_does_not_change_the_named_command(
    repo: Path, local_engine: LocalEngine
) -> None:
    (worker,) = shell_run(
        repo, local_engine, "true", setup=("echo '[setup 9/9] x'; exit 4", "true")
    ).results
    assert worker.message is not None
    assert worker.message.startswith("setup: `echo '[setup 9/9] x'; exit 4` exited with 4")


def test_ends_of_stages_are_recorded(repo: Path, local_engine: LocalEngine) -> None:
    shell_run(repo, local_engine, "true", setup=("true",), teardown=("exit 5",))
    checkpoints = Checkpoints(run_directory(repo).worker(1))
    setup, teardown = checkpoints.stage("setup"), checkpoints.stage("teardown")
    assert setup is not None
    assert teardown is not None
    assert setup.exit_status is not None
    assert teardown.exit_status is not None
    assert (setup.exit_status.exit_code, teardown.exit_status.exit_code) == (0, 5)


@pytest.mark.parametrize("commands", [("",), ("true", " "), ("a\0b",)])
def test_empty_command_is_refused(commands: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="a command must not"):
        Project(setup=commands)


def test_git_works_in_setup(repo: Path, local_engine: LocalEngine) -> None:
    (worker,) = shell_run(
        repo,
        local_engine,
        "true",
        setup=("git rev-parse HEAD",),
    ).results
    assert worker.status is Status.SUCCESS
    assert git(repo, "rev-parse", "HEAD") in log(repo, "setup")


class Keyed(ShellAgent):
    """An agent program to which an API key of the caller is passed on."""

    inherited_env = ("A_KEY",)


@pytest.mark.parametrize("closed", [(), ("setup", "teardown", "checks")])
def test_stages_get_no_untrusted_or_agent_variables(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: tuple[StageKey, ...]
) -> None:
    """Commands of a discovered file get no variables; no command gets the agent's keys."""
    monkeypatch.setenv("A_KEY", "sk-agents-alone")
    monkeypatch.setenv("A_SECRET", "the-secret-value")
    engine = Counting(tmp_path / "engine")
    isolation = Isolation(env={"MINE": "1"}, secrets=("A_SECRET",))
    config = configured(
        "echo a > a", setup=("true",), teardown=("true",), checks=("true",), isolation=isolation,
        closed_stages=closed, api_base="http://user:pass-word@model",
    )  # fmt: skip
    (worker,) = ParallelRunner(config, repo, engine=engine, agent=Keyed()).execute().results
    assert worker.status is Status.SUCCESS, worker.message
    seen = {spec.labels[ROLE]: spec for spec in engine.specs}
    agent, probe = seen.pop("worker"), seen.pop("probe", None)
    assert probe is None or "A_KEY" not in probe.env
    assert (agent.env["A_KEY"], agent.env["MINE"]) == ("sk-agents-alone", "1")
    assert "/run/secrets" in {mount.target for mount in agent.mounts}
    assert sorted(seen) == ["check", "harvest", "setup", "teardown"]
    del seen["harvest"]
    for spec in seen.values():
        assert "A_KEY" not in spec.env
        assert spec.env["ORCHESTRATOR_WORKER_ID"] == "1"
        given = "MINE" in spec.env, "/run/secrets" in {mount.target for mount in spec.mounts}
        assert given == (not closed, not closed)
        assert ("ORCHESTRATOR_SECRETS" in spec.env) == (not closed)
        assert ("pass-word" in str(spec.env)) == (not closed)
    networks = {role: spec.egress is not None for role, spec in seen.items()}
    opened = not closed
    # The last setup container belongs to the checks; checks have no network by default.
    assert networks == {"setup": opened, "teardown": opened, "check": False}
