"""Tests that every setting is applied or refused: no setting is accepted and ignored.

Each setting has a row that says how its effect is observed: in one run on the local engine in which
all settings are set, as `parallel` and as a workflow, or by another test. A setting without a row
fails.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.events import Event, RunStarted
from orchestrator.base.results import RunResult
from orchestrator.config.settings.cluster import PodSettings
from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.config.settings.judging import Judging
from orchestrator.config.settings.project import Check, Project
from orchestrator.config.settings.run import ParallelConfig, Triggers
from orchestrator.config.workflow.model import Task, WorkerSettings, Workflow
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.labels import ROLE
from orchestrator.engine.interface.spec import BindMount, ContainerSpec, TmpfsMount
from orchestrator.runs.runner import ParallelRunner
from tests.support.local_engine import LocalContainer, LocalEngine
from tests.support.named_tests import missing_tests
from tests.support.repository import git

MIB = 1024**2
POD = "tests/engine/kubernetes/test_pod.py"


class Recording(LocalEngine):
    """Records the specifications of its containers."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch, images=("orchestrator/base:latest", "mine", "pg"))
        self.specs: list[ContainerSpec] = []

    def check(self, *, images: tuple[str, ...], runtime: str | None) -> EngineFeatures:
        """Accept the runtime that may be used with a network."""
        assert runtime == "runc"
        return super().check(images=images, runtime=None)

    def _make(self, spec: ContainerSpec, scratch: Path) -> LocalContainer:
        self.specs.append(spec)
        return super()._make(spec, scratch)


@dataclass(frozen=True)
class Seen:
    """The observed effects of one run."""

    result: RunResult
    specs: list[ContainerSpec]
    events: list[Event]

    def role(self, role: str) -> ContainerSpec:
        return next(spec for spec in self.specs if spec.labels[ROLE] == role)

    @property
    def worker(self) -> ContainerSpec:
        return self.role("worker")

    def slots(self) -> int:
        return next(event.slots for event in self.events if isinstance(event, RunStarted))


def all_of_it() -> ParallelConfig:
    return ParallelConfig(
        tasks=("echo x > made; cat mine.local a.txt",),
        model="m",
        workers=1,
        agent="plan",
        agent_cli="shell",
        budget_per_worker=1.5,
        tokens_per_worker=99,
        timeout_per_worker=55,
        image="mine",
        api_base="http://127.0.0.1:9",
        base="HEAD~1",
        worktree_dir=".worktrees/{id}-{n}",
        branch="solve/{id}",
        limits=Limits(cpus=0.5, memory=64 * MIB, pids=77, open_files=99, tmp=2 * MIB, grace=0.2,
                      log_limit=MIB),
        isolation=Isolation(
            network="open", setup_network="none", check_network="open", allow=("10.9.8.7:5",),
            runtime="runc", env={"MINE": "1"}, secrets=("TOKEN",), history="shallow",
            ports={"PORT": 3000}, copied=("*.local",),
        ),
        project=Project(
            setup=("true",), teardown=("true",), checks=(Check(run="true", name="fine"),),
            dotenv=".env",
        ),
    )  # fmt: skip


def has_tmpfs(spec: ContainerSpec, size: int) -> bool:
    return any(isinstance(mount, TmpfsMount) and mount.size == size for mount in spec.mounts)


def has_secret(spec: ContainerSpec) -> bool:
    return any(isinstance(m, BindMount) and m.target == "/run/secrets" for m in spec.mounts)


Look = Callable[[Seen], bool]
TURNS = "tests/worker/test_turns.py"
ATTEMPTS, TRIGGERS = "tests/worker/test_attempts.py", "tests/sandbox/supervision/test_watchdog.py"
RUNNER, LIMITED = "tests/runs/test_runner.py", "tests/runs/scheduling/test_rate_limited_runs.py"
EACH_ENDS_ONE = (
    "tests/system/test_acceptance.py::test_disk_log_inodes_and_silence_each_end_one_worker"
)
STOPPED_BY_A_TRIGGER = f"{TRIGGERS}::test_on_alert_stop_stops_the_worker_and_keeps_its_work"
CAPACITY, RETENTION = "tests/runs/test_capacity.py", "tests/runs/cleanup/test_retention.py"
CONFINED, STAGES = "tests/worker/workspace/test_confined.py", "tests/worker/test_stages.py"
GATEWAY = "tests/system/test_gateway.py"
BROKER = "tests/system/test_broker.py"
SCHEDULER = "tests/runs/scheduling/test_scheduler.py"
DEPENDENCIES = "tests/runs/scheduling/test_dependencies.py"
SETTINGS: dict[tuple[str, ...], Look | str] = {
    ("tasks",): lambda seen: "cat mine.local" in seen.worker.command[-1],
    ("model",): lambda seen: seen.worker.env["ORCHESTRATOR_MODEL"] == "m",
    ("models",): f"{SCHEDULER}::test_more_models_than_tasks_repeat_the_first_task",
    ("workers",): lambda seen: seen.slots() == 1,
    ("agent",): lambda seen: seen.worker.env["ORCHESTRATOR_AGENT"] == "plan",
    ("agent_cli",): lambda seen: seen.worker.command[0] == "sh",
    ("max_steps",): f"{RUNNER}::test_worker_beyond_its_step_limit_is_stopped",
    ("budget_per_worker",): lambda seen: seen.worker.env["ORCHESTRATOR_BUDGET"] == "1.5",
    ("tokens_per_worker",): lambda seen: seen.worker.env["ORCHESTRATOR_TOKENS"] == "99",
    ("budget_total",): f"{LIMITED}::test_each_worker_gets_its_share_of_the_rest",
    ("tokens_total",): f"{LIMITED}::test_worker_over_its_token_limit_is_stopped",
    ("timeout_per_worker",): f"{RUNNER}::test_a_worker_past_its_deadline_keeps_its_work",
    ("image",): lambda seen: seen.worker.image == "mine",
    ("api_base",): lambda seen: "127.0.0.1" in seen.worker.env["ORCHESTRATOR_API_BASE"],
    ("agent_config",): (
        "tests/runs/test_secrets.py::test_file_is_given_to_the_program"
    ),
    ("base",): lambda seen: (seen.result.results[0].summary or "").endswith("a"),
    ("worktree_dir",): lambda seen: "/.worktrees/" in seen.result.results[0].worktree_path,
    ("branch",): lambda seen: seen.result.results[0].branch.startswith("solve/"),
    ("worktrees",): "tests/runs/test_worktrees_setting.py::*",
    ("include_uncommitted",): f"{RUNNER}::test_uncommitted_files_are_included_if_requested",
    ("context",): (
        "tests/worker/workspace/test_shared_files.py::"
        "test_context_is_provided_to_every_worker"
    ),
    ("closed_stages",): (
        "tests/config/test_untrusted_file.py::test_commands_of_a_discovered_file_are_closed_stages"
    ),
    ("auto_workers",): (
        "tests/runs/scheduling/test_admission.py::test_auto_reserves_chosen_limits_and_half_of_the_defaults"
    ),
    ("max_workers",): (
        "tests/config/test_validation.py"
        "::test_named_file_and_environment_may_raise_max_workers"
    ),
    ("max_worktrees",): f"{CAPACITY}::test_refusal_lists_removable_worktrees",
    ("retention",): f"{RETENTION}::test_run_removes_old_merged_workers",
    ("retries",): f"{ATTEMPTS}::test_task_that_passes_at_the_third_attempt_succeeds",
    ("fix_checks",): f"{TURNS}::test_failed_check_is_sent_back_at_most_twice",
    ("sessions",): f"{TURNS}::test_no_session_is_kept_unless_wanted",
    ("retry_delay",): f"{ATTEMPTS}::test_waiting_worker_occupies_no_slot",
    ("retry_on",): f"{ATTEMPTS}::test_timeout_is_retried_only_if_requested",
    ("retry_from",): f"{ATTEMPTS}::test_keep_continues_from_the_last_attempts_commits",
    ("rate_limit_wait",): f"{LIMITED}::test_pause_longer_than_the_limit_fails_at_once",
    ("stagger",): "tests/sandbox/supervision/test_start_throttle.py::test_starts_are_staggered",
    ("fail_fast",): f"{ATTEMPTS}::test_fail_fast_cancels_others_after_the_last_retry",
    ("fail_on",): (
        "tests/faces/cli/commands/test_parallel.py::"
        "test_exit_code_follows_from_the_results"
    ),
    ("preset",): "tests/config/test_presets.py::*",
    ("providers",): f"{LIMITED}::test_starts_follow_the_token_bucket",
    ("limits", "cpus"): lambda seen: seen.worker.cpus == 0.5,
    ("limits", "memory"): lambda seen: seen.worker.memory == 64 * MIB,
    ("limits", "pids"): lambda seen: seen.worker.pids == 77,
    ("limits", "open_files"): lambda seen: seen.worker.open_files == 99,
    ("limits", "tmp"): lambda seen: has_tmpfs(seen.worker, 2 * MIB),
    ("limits", "disk"): EACH_ENDS_ONE,
    ("limits", "inodes"): EACH_ENDS_ONE,
    ("limits", "log_limit"): EACH_ENDS_ONE,
    ("limits", "idle_timeout"): EACH_ENDS_ONE,
    ("limits", "grace"): f"{RUNNER}::test_a_worker_past_its_deadline_keeps_its_work",
    ("isolation", "network"): lambda seen: seen.worker.network != "none",
    ("isolation", "setup_network"): lambda seen: seen.role("setup").network == "none",
    ("isolation", "check_network"): lambda seen: any(
        spec.network != "none" for spec in seen.specs if spec.labels[ROLE] == "check"
    ),
    ("isolation", "allow"): lambda seen: any(
        "10.9.8.7" in address and port == 5
        for address, port in (seen.worker.egress.allowed if seen.worker.egress else ())
    ),
    ("isolation", "allow_sets"): "tests/engine/test_egress.py::test_sets_are_expanded",
    ("isolation", "setup_allow"): f"{GATEWAY}::test_each_stage_has_a_list_of_its_own",
    ("isolation", "check_allow"): f"{GATEWAY}::test_each_stage_has_a_list_of_its_own",
    ("isolation", "keys"): f"{BROKER}::*",
    ("isolation", "git_read"): "tests/system/test_git_hosts.py::*",
    ("isolation", "key_models"): f"{BROKER}::test_models_and_calls_a_minute_are_limited",
    ("isolation", "prices"): f"{BROKER}::test_budget_needs_a_price",
    ("isolation", "calls_per_minute"): f"{BROKER}::test_models_and_calls_a_minute_are_limited",
    ("isolation", "company"): "tests/system/test_company.py::*",
    ("isolation", "allow_unenforced"): "tests/runs/test_enforcement.py::*",
    ("isolation", "engine"): "tests/engine/kubernetes/test_refusals.py::*",
    ("isolation", "transfer"): "tests/system/test_transfer.py::*",
    ("isolation", "read_only"): "tests/worker/workspace/test_private_git.py::*",
    ("isolation", "runtime"): lambda seen: seen.worker.runtime == "runc",
    ("isolation", "env"): lambda seen: seen.worker.env["MINE"] == "1",
    ("isolation", "secrets"): lambda seen: has_secret(seen.worker),
    ("isolation", "history"): "tests/runs/test_repositories.py::*",
    ("isolation", "ports"): lambda seen: 3000 in seen.worker.ports,
    ("isolation", "copied"): lambda seen: "copied" in (seen.result.results[0].summary or ""),
    ("triggers", "silence"): f"{TRIGGERS}::test_each_silence_alerts_again",
    ("triggers", "repeated_errors"): f"{TRIGGERS}::test_repeated_error_alerts",
    ("triggers", "prompts"): f"{TRIGGERS}::test_unanswered_question_alerts",
    ("triggers", "paths"): f"{TRIGGERS}::test_changes_outside_of_the_paths_alert",
    ("triggers", "enforce"): f"{CONFINED}::test_only_the_paths_are_writable",
    ("triggers", "on_trigger"): STOPPED_BY_A_TRIGGER,
    ("triggers", "notify"): (
        "tests/runs/test_notifications.py::test_command_receives_events_as_json"
    ),
    ("judge", "instruments"): "tests/faces/cli/test_judging_run.py::test_instruments_are_a_setting",
    **{("cluster", name): f"{POD}::test_settings_of_pods_are_part_of_the_job_and_of_the_proof"
       for name in PodSettings.model_fields if name != "registry"},
    ("cluster", "registry"):
        "tests/engine/kubernetes/test_refusals.py::test_images_that_were_not_pushed_are_refused",
    ("project", "setup"): lambda seen: "true" in seen.role("setup").command,
    ("project", "setup_timeout"): f"{STAGES}::test_setup_has_its_own_deadline",
    ("project", "teardown"): lambda seen: "true" in seen.role("teardown").command,
    ("project", "checks"): lambda seen: [c.name for c in seen.result.results[0].checks] == ["fine"],
    ("project", "caches"): "tests/worker/workspace/test_caches.py::*",
    ("project", "services"): "tests/worker/test_services.py::*",
    ("project", "dotenv"): "tests/worker/test_dotenv.py::*",
}  # fmt: skip
PARTS = {"limits": Limits, "isolation": Isolation, "triggers": Triggers, "project": Project,
         "judge": Judging, "cluster": PodSettings}  # fmt: skip
WORKFLOW_OF_TESTS = "tests/runs/test_workflows.py::test_each_task_has_its_own_settings"
OF_A_TASK: dict[str, tuple[Any, Look] | str] = {
    "agent": ("review", lambda seen: seen.worker.env["ORCHESTRATOR_AGENT"] == "review"),
    "agent_cli": "tests/runs/test_workflows.py::"
    "test_task_with_another_agent_program_gets_its_settings",
    "model": ("own", lambda seen: seen.worker.env["ORCHESTRATOR_MODEL"] == "own"),
    "image": ("pg", lambda seen: seen.worker.image == "pg"),
    "max_steps": (
        "tests/faces/cli/test_every_option.py::test_options_against_a_workflow_are_refused"
    ),
    "budget": (0.5, lambda seen: seen.worker.env["ORCHESTRATOR_BUDGET"] == "0.5"),
    "timeout": WORKFLOW_OF_TESTS,
    "retries": f"{DEPENDENCIES}::test_retry_starts_from_the_tasks_base",
    "retry_delay": f"{DEPENDENCIES}::test_retry_starts_from_the_tasks_base",
    "limits": ({"pids": 55}, lambda seen: seen.worker.pids == 55 and seen.worker.cpus == 0.5),
    "network": "tests/faces/cli/test_every_option.py::test_options_against_a_workflow_are_refused",
    "allow": f"{GATEWAY}::test_tasks_of_a_workflow_have_lists_of_their_own",
    "keys": f"{BROKER}::test_tasks_of_a_workflow_have_keys_of_their_own",
    "ports": ([3001], lambda seen: 3001 in seen.worker.ports),
    "services": "tests/worker/test_services.py::*",
    "setup": (["echo own"], lambda seen: "echo own" in seen.role("setup").command),
    "checks": (
        [{"run": "true", "name": "own"}],
        lambda seen: [check.name for check in seen.result.results[0].checks] == ["own"],
    ),
    "paths": "tests/runs/test_workflows.py::test_changes_outside_of_the_paths_make_a_task_partial",
    "enforce": "tests/worker/workspace/test_confined.py::test_a_task_of_a_workflow_is_confined",
}


def test_every_setting_has_a_row() -> None:
    fields = {(name,) for name in ParallelConfig.model_fields if name not in PARTS}
    fields |= {(part, name) for part, model in PARTS.items() for name in model.model_fields}
    assert fields == SETTINGS.keys()
    assert set(WorkerSettings.model_fields) == OF_A_TASK.keys()


def test_every_referenced_test_exists() -> None:
    assert missing_tests([*SETTINGS.values(), *OF_A_TASK.values()]) == []


def ready(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "a secret of mine")
    (repo / "a.txt").write_text("later\n")
    git(repo, "commit", "-qam", "later")
    (repo / "mine.local").write_text("copied\n")


def look(repo: Path, scratch: Path, workflow: Workflow | None) -> Seen:
    events: list[Event] = []
    engine = Recording(scratch)
    result = ParallelRunner(
        all_of_it(), repo, engine=engine, emit=events.append, workflow=workflow
    ).execute()
    return Seen(result, engine.specs, events)


@pytest.mark.parametrize("kind", ["parallel", "workflow"])
def test_every_setting_is_applied(
    kind: str, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(repo, monkeypatch)
    task = Task(id="one", task=all_of_it().tasks[0])
    flow = Workflow(name="flow", tasks=(task,)) if kind == "workflow" else None
    seen = look(repo, tmp_path / "engine", flow)
    looks = {field: row for field, row in SETTINGS.items() if not isinstance(row, str)}
    assert [field for field, row in looks.items() if not row(seen)] == []


def test_every_setting_of_a_task_is_applied(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(repo, monkeypatch)
    looks = {name: row for name, row in OF_A_TASK.items() if not isinstance(row, str)}
    own = WorkerSettings.model_validate({name: value for name, (value, _) in looks.items()})
    task = Task(id="one", task="echo x > made", settings=own)
    seen = look(repo, tmp_path / "engine", Workflow(name="flow", tasks=(task,)))
    assert [name for name, (_, row) in looks.items() if not row(seen)] == []
