"""What a run hands back: one `WorkerResult` per worker, and how they sum up."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Status(StrEnum):
    """How a worker ended."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"
    TIMEOUT = "timeout"


class Reason(StrEnum):
    """Why a worker did not succeed."""

    AGENT_FAILED = "agent_failed"
    """The agent, or the command, says that it failed."""
    AGENT_ERROR = "agent_error"
    """The agent broke: it died without a usable report, or its model could not be reached."""
    NO_REPORT = "no_report"
    """The agent ended well but printed no report."""
    MAX_STEPS = "max_steps"
    CONTEXT_FULL = "context_full"
    BUDGET = "budget"
    TIMEOUT = "timeout"
    OOM = "oom"
    PIDS = "pids"
    OPEN_FILES = "open_files"
    DISK = "disk"
    INODES = "inodes"
    LOG_LIMIT = "log_limit"
    IDLE = "idle"
    AUTH = "auth"
    CHECKS_FAILED = "checks_failed"
    """A check of the project's does not pass on what the worker committed."""
    RATE_LIMITED = "rate_limited"
    REPEATED_ERROR = "repeated_error"
    NEEDS_INPUT = "needs_input"
    OUT_OF_SCOPE = "out_of_scope"
    DEPENDENCY = "dependency"
    """It never ran: a task that it depends on failed."""
    CONFLICT = "conflict"
    """It never ran: what it depends on cannot be merged."""
    CANCELLED = "cancelled"
    HARVEST_REFUSED = "harvest_refused"
    """The checks on the host refused what the worker committed; what keeps the rules is on its
    branch."""
    SETUP_FAILED = "setup_failed"
    """The worktree or the container could not be made."""
    ENGINE_ERROR = "engine_error"
    INTERNAL_ERROR = "internal_error"
    """A bug in us."""


class CheckResult(BaseModel):
    """How one check of a worker's commit ended."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: str
    passed: bool
    exit_code: int | None = None
    """Null when it was not seen to its end."""
    duration: float = Field(default=0.0, ge=0)
    """Seconds."""
    log: str
    """File with all that it printed."""
    message: str | None = None
    """Why it did not pass, in one line."""


Trigger = Literal["silence", "repeated_error", "needs_input", "out_of_scope"]
"""Why somebody should look at a worker."""


class Noticed(BaseModel):
    """Something for which somebody should have looked at a worker while it ran."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    trigger: Trigger
    """`silence`, `repeated_error`, `needs_input` or `out_of_scope`."""
    detail: str
    """One line for people."""
    at: datetime
    """When it was noticed."""


class WorkerResult(BaseModel):
    """What one worker did. The first nine fields are those of `architect parallel`."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    worker_id: int
    """1-based; names the worktree and the branch."""
    branch: str
    """The worker's branch, without `refs/heads/`."""
    model: str
    """`default` when none was asked for."""
    status: Status
    """`success`, `partial`, `failed` or `timeout`."""
    steps: int = Field(default=0, ge=0)
    """Steps, by the agent's own word; 0 when unknown."""
    cost: float = Field(default=0.0, ge=0)
    """USD. 0.0 when unknown: see `cost_known`."""
    duration: float = Field(default=0.0, ge=0)
    """Seconds from the container's start to its end."""
    files_modified: list[str] = Field(default_factory=list)
    """Paths that differ between the base and the branch, by git's word: the first 10,000 of them,
    and 512 KiB, at most. `files_total` counts all."""
    worktree_path: str
    """Absolute."""

    name: str | None = None
    """The id of its task, in a workflow."""
    required: bool = True
    """Whether the run fails with it."""
    task: str | None = None
    """What it was asked to do."""
    reason: Reason | None = None
    """Why it is not a success; null when it is."""
    message: str | None = None
    """One line for people."""
    summary: str | None = None
    """The end of what the agent said last, 4000 characters at most; of a command, the last lines of
    its output."""
    attempts: int = 1
    """How often it was started: `cost` and `tokens` are of all attempts, all else is the last's."""
    exit_code: int | None = None
    """Of the container's main process; null when its end was not seen."""
    base: str | None = None
    """The commit it started from."""
    commit: str | None = None
    """The commit the branch points at."""
    kept_refs: list[str] = Field(default_factory=list)
    """Refs of commits that the worker left and its branch does not have: other branches, tags,
    stashes, a detached HEAD, staged content."""
    files_total: int | None = Field(default=None, ge=0)
    """How many paths differ between the base and the branch; null in results of older versions."""
    insertions: int = 0
    """Lines added, by git's word; files over 4 MiB count as binary."""
    deletions: int = 0
    """Lines removed, by git's word; files over 4 MiB count as binary."""
    checks: list[CheckResult] = Field(default_factory=list)
    """How the checks of what it committed ended; empty where there were none."""
    artifacts: list[str] = Field(default_factory=list)
    """Files that it handed over beside its commits, below `artifacts` in `log`; 1000 at most."""
    tokens: int | None = None
    """By the agent's own word; null when unknown."""
    cost_known: bool = False
    """Whether anyone said what it cost."""
    retry_after: float | None = None
    """Of one that is `rate_limited`: seconds from its end after which the model's API takes
    requests again, by its own word; null when unknown."""
    ports: dict[int, int] = Field(default_factory=dict)
    """Container port to the port on 127.0.0.1 where it was published."""
    limits_hit: list[str] = Field(default_factory=list)
    """Limits it ran into, also when it got over them."""
    interventions: list[Noticed] = Field(default_factory=list)
    """What somebody should have looked at while it ran, the latest 20: triggers that were set, and
    a question that it waited behind at its deadline."""
    peak_memory: int | None = None
    """Bytes in use, the most that was measured, once a second."""
    started_at: datetime | None = None
    """When its container ran; null when it never did."""
    log: str | None = None
    """Directory with the worker's whole stdout.log and stderr.log."""

    @property
    def file_count(self) -> int:
        """Number of files that it changed, those that are not listed included."""
        return len(self.files_modified) if self.files_total is None else self.files_total

    @property
    def title(self) -> str:
        """The worktree's directory name."""
        return Path(self.worktree_path).name

    @property
    def never_ran(self) -> bool:
        """Whether its container never started, as of a task that was skipped or not needed."""
        return self.started_at is None


class RunResult(BaseModel):
    """One run: what `--json` prints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    status: Status
    base: str
    engine: str
    duration: float
    cost: float
    results: list[WorkerResult]


def overall_status(results: Sequence[WorkerResult]) -> Status:
    """Sum up: success only if all succeeded, timeout only if all failures are timeouts."""
    causes, skipped = _causes(results)
    statuses = {result.status for result in causes}
    if not causes and not skipped:
        return Status.SUCCESS
    if Status.FAILED in statuses or (skipped and Status.TIMEOUT not in statuses):
        return Status.FAILED
    return Status.TIMEOUT if Status.TIMEOUT in statuses else Status.PARTIAL


def sum_up(
    results: Iterable[WorkerResult], *, run_id: str, base: str, engine: str, duration: float
) -> RunResult:
    """Make a run's result of its workers'.

    Args:
        results: One per worker, in any order.
        run_id: The run.
        base: The commit it started from.
        engine: The engine's version.
        duration: Seconds.
    """
    ordered = sorted(results, key=lambda result: result.worker_id)
    return RunResult(
        run_id=run_id,
        status=overall_status(ordered),
        base=base,
        engine=engine,
        duration=round(duration, 3),
        cost=sum(result.cost for result in ordered),
        results=ordered,
    )


def exit_code(results: Sequence[WorkerResult], *, fail_on: str = "any") -> int:
    """Return the process exit code for a finished run.

    Args:
        results: One per worker.
        fail_on: `any`, or `all`: with `all` a run in which any worker succeeded is 0.
    """
    causes, skipped = _causes(results)
    succeeded = any(one.required and one.status is Status.SUCCESS for one in results)
    if not (causes or skipped) or (fail_on == "all" and succeeded):
        return 0
    failed = [result for result in causes if result.status is not Status.PARTIAL]
    reasons = {result.reason for result in failed}
    if Reason.INTERNAL_ERROR in reasons:
        return 70
    if Reason.ENGINE_ERROR in reasons:
        return 7
    if {result.reason for result in causes} == {Reason.BUDGET}:
        return 6
    if not failed:
        return 1 if skipped else 2
    if all(result.status is Status.TIMEOUT for result in failed):
        return 5
    if all(result.reason is Reason.AUTH for result in failed):
        return 4
    return 1


def _causes(results: Sequence[WorkerResult]) -> tuple[list[WorkerResult], bool]:
    """Return the results that fail a run by themselves, and whether required tasks were skipped.

    A required task that never ran because another failed is a failure of the run, whether or not
    the other one is required; what made the others fail is then a cause too.
    """
    bad = [result for result in results if result.status is not Status.SUCCESS]
    skipped = any(one.required and one.reason is Reason.DEPENDENCY for one in bad)
    own = [one for one in bad if one.reason is not Reason.DEPENDENCY]
    return [one for one in own if one.required or skipped], skipped
