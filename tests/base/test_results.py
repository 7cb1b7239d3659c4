"""Tests of the overall status, the exit code and the JSON of results."""

import json
from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from orchestrator.base.results import (
    Reason,
    RunResult,
    Status,
    WorkerResult,
    exit_code,
    overall_status,
)

SEED_FIELDS = [
    "worker_id", "branch", "model", "status", "steps", "cost", "duration", "files_modified",
    "worktree_path",
]  # fmt: skip


def worker(status: str = "success", reason: Reason | None = None, **rest) -> WorkerResult:
    return WorkerResult(
        worker_id=1,
        branch="architect/parallel-1",
        model="default",
        status=Status(status),
        reason=reason,
        worktree_path="/repo/.architect-parallel-1",
        **rest,
    )


OK = worker()
FAILED = worker("failed", Reason.AGENT_FAILED)
PARTIAL = worker("partial", Reason.MAX_STEPS)
LATE = worker("timeout", Reason.TIMEOUT)
IDLE = worker("timeout", Reason.IDLE)
NO_KEY = worker("failed", Reason.AUTH)
SPENT = worker("partial", Reason.BUDGET)
ENGINE = worker("failed", Reason.ENGINE_ERROR)
BUG = worker("failed", Reason.INTERNAL_ERROR)
SKIPPED = worker("failed", Reason.DEPENDENCY)
OPTIONAL = worker("failed", Reason.AGENT_FAILED, required=False)
OPTIONAL_LATE = worker("timeout", Reason.TIMEOUT, required=False)
OPTIONAL_SKIPPED = worker("failed", Reason.DEPENDENCY, required=False)
CONFLICT = worker("failed", Reason.CONFLICT)
CANCELLED = worker("failed", Reason.CANCELLED)


@pytest.mark.parametrize(
    ("results", "any_code", "all_code", "status"),
    [
        ([OK, OK], 0, 0, "success"),
        ([], 0, 0, "success"),
        ([FAILED], 1, 1, "failed"),
        ([OK, FAILED], 1, 0, "failed"),
        ([PARTIAL], 2, 2, "partial"),
        ([OK, PARTIAL], 2, 0, "partial"),
        ([PARTIAL, FAILED], 1, 1, "failed"),
        ([LATE, LATE], 5, 5, "timeout"),
        ([LATE, IDLE], 5, 5, "timeout"),
        ([OK, LATE], 5, 0, "timeout"),
        ([PARTIAL, LATE], 5, 5, "timeout"),
        ([LATE, FAILED], 1, 1, "failed"),
        ([NO_KEY, NO_KEY], 4, 4, "failed"),
        ([OK, NO_KEY], 4, 0, "failed"),
        ([NO_KEY, FAILED], 1, 1, "failed"),
        ([SPENT], 6, 6, "partial"),
        ([OK, OPTIONAL], 0, 0, "success"),
        ([OPTIONAL], 0, 0, "success"),
        ([FAILED, OPTIONAL], 1, 1, "failed"),
        ([LATE, SKIPPED], 5, 5, "timeout"),
        ([OPTIONAL, SKIPPED], 1, 1, "failed"),
        ([OPTIONAL, SKIPPED, OK], 1, 0, "failed"),
        ([OPTIONAL_LATE, SKIPPED, OK], 5, 0, "timeout"),
        ([OPTIONAL, SKIPPED, LATE], 1, 1, "failed"),
        ([OPTIONAL, OPTIONAL_SKIPPED, OK], 0, 0, "success"),
        ([LATE, OPTIONAL_SKIPPED], 5, 5, "timeout"),
        ([OPTIONAL_LATE], 0, 0, "success"),
        ([SKIPPED, OK], 1, 0, "failed"),
        ([PARTIAL, SKIPPED], 1, 1, "failed"),
        ([SPENT, SKIPPED], 6, 6, "failed"),
        ([NO_KEY, SKIPPED], 4, 4, "failed"),
        ([FAILED, SKIPPED, OK], 1, 0, "failed"),
        ([ENGINE, SKIPPED], 7, 7, "failed"),
        ([BUG, SKIPPED], 70, 70, "failed"),
        ([CONFLICT, SKIPPED], 1, 1, "failed"),
        ([CANCELLED, LATE], 1, 1, "failed"),
        ([OK, SPENT], 6, 0, "partial"),
        ([SPENT, PARTIAL], 2, 2, "partial"),
        ([SPENT, FAILED], 1, 1, "failed"),
        ([ENGINE, LATE], 7, 7, "failed"),
        ([OK, ENGINE], 7, 0, "failed"),
        ([BUG, ENGINE], 70, 70, "failed"),
    ],
)
def test_exit_code_and_status(
    results: list[WorkerResult], any_code: int, all_code: int, status: str
) -> None:
    assert exit_code(results) == any_code
    assert exit_code(results, fail_on="all") == all_code
    assert overall_status(results) == status


def test_exit_code_does_not_depend_on_the_order_of_results() -> None:
    results = [OK, PARTIAL, LATE, FAILED, ENGINE, BUG]
    assert exit_code(results[::-1]) == exit_code(results) == 70
    assert overall_status(results[::-1]) == overall_status(results)


def test_fields_of_architect_parallel_come_first_in_the_json() -> None:
    dumped = json.loads(worker(cost=0.5, steps=3, files_modified=["a"]).model_dump_json())
    assert list(dumped)[:9] == SEED_FIELDS
    assert dumped["status"] == "success"
    assert dumped["reason"] is None


def test_run_result_survives_a_json_round_trip() -> None:
    run = RunResult(
        run_id="r", status=Status.FAILED, base="b", engine="e", duration=1.0, cost=0.5,
        results=[worker(ports={3000: 40000}), NO_KEY],
    )  # fmt: skip
    assert RunResult.model_validate_json(run.model_dump_json()) == run
    assert list(json.loads(run.model_dump_json())) == [
        "run_id", "status", "base", "engine", "duration", "cost", "results",
    ]  # fmt: skip


def test_result_rejects_unknown_fields_and_is_immutable() -> None:
    with pytest.raises(ValidationError):
        worker(cost=-1.0)
    with pytest.raises(ValidationError):
        WorkerResult.model_validate({**OK.model_dump(), "status": "finished"})
    with pytest.raises(ValidationError):
        OK.status = Status.FAILED


def test_title_is_the_name_of_the_worktree() -> None:
    assert OK.title == ".architect-parallel-1"


@pytest.mark.parametrize(
    ("result", "skipped"),
    [
        (worker(name="a"), True),
        (worker(), False),
        (worker(name="a", started_at=datetime(2026, 11, 21, tzinfo=UTC)), False),
        (worker("failed", Reason.SETUP_FAILED, name="a"), False),
        (worker("failed", Reason.CANCELLED, name="a"), False),
        (SKIPPED, True),
        (CONFLICT, True),
    ],
)
def test_only_skipped_tasks_never_ran(result: WorkerResult, skipped: bool) -> None:
    assert result.never_ran is skipped
