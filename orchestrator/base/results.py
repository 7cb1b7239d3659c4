"""Results of a run: a `WorkerResult` for each worker, the run's overall status and exit code."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Form = Literal["merge", "squash", "rebase", "apply"]
"""How a branch is added: by a merge commit, as one commit, commit by commit, or as uncommitted
changes.
"""


class Status(StrEnum):
    """Final status of a worker or run."""

    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"
    TIMEOUT = "timeout"


class Reason(StrEnum):
    """Why a worker did not succeed."""

    AGENT_FAILED = "agent_failed"
    """The agent or command reported that it failed."""
    AGENT_ERROR = "agent_error"
    """The agent crashed: it ended without a usable report, or its model could not be reached."""
    NO_REPORT = "no_report"
    """The agent ended normally, but did not print the report that was expected of it."""
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
    """A check of the project failed on the worker's commit."""
    RATE_LIMITED = "rate_limited"
    REPEATED_ERROR = "repeated_error"
    NEEDS_INPUT = "needs_input"
    OUT_OF_SCOPE = "out_of_scope"
    DEPENDENCY = "dependency"
    """The task never ran: a task that it depends on failed."""
    CONFLICT = "conflict"
    """The task never ran: the commits of the tasks that it depends on cannot be merged."""
    CANCELLED = "cancelled"
    HARVEST_REFUSED = "harvest_refused"
    """The host refused some of the worker's commits; the branch has the accepted part."""
    UNFILTERED = "unfiltered"
    """The worker wrote files in plain text that a required filter of git would have changed."""
    NETWORK_LOST = "network_lost"
    """The worker's gateway, or the container that owns its network, ended before the worker."""
    SERVICE_DIED = "service_died"
    """A required service ended before the task."""
    SETUP_FAILED = "setup_failed"
    """The worktree or the container could not be created, or a service did not become ready."""
    ENGINE_ERROR = "engine_error"
    INTERNAL_ERROR = "internal_error"
    """A bug in the orchestrator."""

    @property
    def sentence(self) -> str:
        """What a page says of the reason beside its name."""
        return _SENTENCES.get(self, self.value.replace("_", " "))


_SENTENCES = {
    Reason.OOM: "out of memory", Reason.PIDS: "too many processes",
    Reason.OPEN_FILES: "too many open files", Reason.DISK: "disk limit reached",
    Reason.INODES: "too many files", Reason.LOG_LIMIT: "too much output",
    Reason.IDLE: "no output for too long", Reason.AUTH: "authentication failed",
    Reason.BUDGET: "budget used up", Reason.TIMEOUT: "time limit reached",
    Reason.NEEDS_INPUT: "waited for an answer",
}  # fmt: skip
"""Sentences for reasons whose names do not explain themselves."""
_BLOCKED = frozenset({Reason.DEPENDENCY, Reason.CONFLICT})
"""Reasons of tasks that could not start from the work of the tasks that they depend on."""


class CheckResult(BaseModel):
    """Result of one check of a worker's commit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    passed: bool
    exit_code: int | None = None
    """Exit code of the check; null if its end was not observed."""
    duration: float = Field(default=0.0, ge=0)
    """Duration in seconds."""
    log: str
    """File with the check's whole output."""
    message: str | None = None
    """Why the check did not pass, in one line."""


Trigger = Literal["silence", "repeated_error", "needs_input", "out_of_scope"]
"""Reason why a person should look at a worker."""


class Noticed(BaseModel):
    """A finding during the run because of which a person should have looked at the worker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    trigger: Trigger
    """`silence`, `repeated_error`, `needs_input` or `out_of_scope`."""
    detail: str
    """The finding in one line, for people."""
    at: datetime
    """Time of the finding."""


class NetworkCounts(BaseModel):
    """A worker's network use: counts of allowed and refused connections, transferred bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    allowed: int = Field(default=0, ge=0)
    """Number of connections to allowed hosts."""
    refused: int = Field(default=0, ge=0)
    """Number of refused connections and of refused host names; each name counts once."""
    sent: int = Field(default=0, ge=0)
    """Number of bytes that the worker sent."""
    received: int = Field(default=0, ge=0)
    """Number of bytes that the worker received."""


class Turn(BaseModel):
    """One turn of a worker: the task, or a message that followed, and what came of it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int = 1
    """Number of the turn, counted from 1: the task."""
    message: str | None = None
    """The message that began the turn; null for the task."""
    cause: Literal["user", "checks"] = "user"
    """Who wrote the message: the user, or `orchestrator` because checks failed."""
    continued: Literal["session", "new_session", "prompt", "command"] | None = None
    """How the agent continued: its `session`, a `new_session` which the program began although it
    was told not to, a `prompt` with what happened before, or a `command` that is the message; null
    for the task.
    """
    status: Status
    reason: Reason | None = None
    summary: str | None = None
    """The end of the agent's last message."""
    attempts: int = 1
    """Number of attempts of the turn."""
    steps: int = Field(default=0, ge=0)
    """Steps of the last attempt."""
    cost: float = Field(default=0.0, ge=0)
    """Cost of all attempts of the turn in USD."""
    cost_known: bool = False
    tokens: int | None = None
    duration: float = Field(default=0.0, ge=0)
    """Seconds of the last attempt."""
    commit: str | None = None
    """The commit of the branch at the end of the turn."""


class Timings(BaseModel):
    """Seconds that each step of a worker took, in the process that wrote the result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prepare: float = Field(default=0.0, ge=0)
    """Seconds to create the worktree and the private git directory, and to start the services."""
    setup: float = Field(default=0.0, ge=0)
    """Seconds of the project's setup commands."""
    start: float = Field(default=0.0, ge=0)
    """Seconds of the wait for permission to start, and of creating and starting the container."""
    agent: float = Field(default=0.0, ge=0)
    """Seconds of the container's main process, until it ended or was asked to stop."""
    stop: float = Field(default=0.0, ge=0)
    """Seconds of the stop (from the request to the container's end), of the removal of containers,
    and of teardown commands."""
    harvest: float = Field(default=0.0, ge=0)
    """Seconds to pack the work in a container, to check it on the host, and to move the branch."""
    update: float = Field(default=0.0, ge=0)
    """Seconds to update the worktree, and to search commits for secrets."""
    checks: float = Field(default=0.0, ge=0)
    """Seconds to run the project's checks, and to list the changes."""


class WorkerResult(BaseModel):
    """The result of one worker.

    The first nine fields are the same as in results of another program, `architect parallel`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    worker_id: int
    """Number of the worker, counted from 1; part of the names of its worktree and branch."""
    branch: str
    """The worker's branch, without `refs/heads/`."""
    model: str
    """Model of the worker; `default` if none was requested."""
    status: Status
    """`success`, `partial`, `failed` or `timeout`."""
    steps: int = Field(default=0, ge=0)
    """Number of steps that the agent reported; 0 when unknown."""
    cost: float = Field(default=0.0, ge=0)
    """Cost in USD; 0.0 when unknown: see `cost_known`."""
    duration: float = Field(default=0.0, ge=0)
    """Seconds from the start to the end of the worker's container."""
    files_modified: list[str] = []
    """Paths that git reports as different between base and branch: at most the first 10,000, and at
    most 512 KiB. `files_total` counts all.
    """
    worktree_path: str
    """Absolute path of the worktree; empty with `worktrees: none`."""

    name: str | None = None
    """Id of the worker's task in a workflow."""
    required: bool = True
    """Whether the run fails if this worker fails."""
    task: str | None = None
    """The worker's task."""
    reason: Reason | None = None
    """Reason why the worker did not succeed; null for `success`."""
    message: str | None = None
    """Explanation in one line, for people."""
    summary: str | None = None
    """The end of the agent's last message, at most 4000 characters; for a command, the last lines
    of its output."""
    attempts: int = 1
    """Number of times that the worker was started. With several attempts, `cost`, `tokens` and
    `kept_refs` cover all attempts, and every other field covers the last attempt.
    """
    exit_code: int | None = None
    """Exit code of the container's main process; null when its end was not observed."""
    base: str | None = None
    """The commit that the worker started from."""
    commit: str | None = None
    """The commit that the branch points at."""
    kept_refs: list[str] = []
    """Refs of the worker's commits that its branch does not contain: other branches, tags, stashes,
    a detached HEAD, staged content.
    """
    files_total: int | None = Field(default=None, ge=0)
    """Number of paths that differ between base and branch; null in results of older versions."""
    insertions: int = 0
    """Lines added, as counted by git; files over 4 MiB count as binary."""
    deletions: int = 0
    """Lines removed, as counted by git; files over 4 MiB count as binary."""
    checks: list[CheckResult] = []
    """Results of the checks of the worker's commit; empty without checks."""
    artifacts: list[str] = []
    """Files that the worker handed over, relative to `artifacts` in the directory `log`; at most
    1000."""
    tokens: int | None = None
    """Number of tokens, reported by the agent or measured by the broker; null when unknown."""
    cost_known: bool = False
    """Whether `cost` was reported by the agent or measured by the broker."""
    retry_after: float | None = None
    """For `rate_limited`: seconds after the worker's end until the model's API accepts requests
    again, as the API reported; null when unknown.
    """
    ports: dict[int, int] = {}
    """Published ports: container port to port on 127.0.0.1."""
    limits_hit: list[str] = []
    """Limits that the worker reached, even if it continued afterwards. The kernel counts `memory`
    (it killed a process) and `pids` (it refused a new process)."""
    limits_unenforced: list[str] = []
    """Limits that the engine did not enforce, as `allow_unenforced` permits."""
    transfer: Literal["mounts", "streams"] | None = None
    """How the containers got the worker's files: mounted from this machine, or as copies in volumes
    of the engine; null in results of older versions."""
    interventions: list[Noticed] = []
    """The latest 20 findings for which a person should have looked at the worker: enabled alerts,
    and a question whose answer the agent was waiting for when its time limit ended.
    """
    cpu_time: float | None = None
    """CPU time of the container's processes in seconds, summed over all CPUs, as the kernel counted
    it; null when unknown: see `uncounted`.
    """
    peak_memory: int | None = None
    """Largest memory use of the container in bytes, with the page cache, as the kernel counted it;
    null when unknown: see `uncounted`.
    """
    uncounted: str | None = None
    """Why a counter of the kernel could not be read, or what it leaves out: with systemd and cgroup
    v2, a container's last fractions of a second may be missing. Null if all were read at the end,
    if the container never started, and in results of older versions."""
    restarts: int = Field(default=0, ge=0)
    """How many of the attempts were lost, with the node of their pod or by an eviction, and made
    again: at most one in each turn. The task may then have run twice."""
    started_at: datetime | None = None
    """Start of the container; null if it never started."""
    timings: Timings | None = None
    """Seconds of each step; null if the worker never began, and in results of older versions."""
    network: NetworkCounts | None = None
    """Sums over the connections through the worker's gateways; null without gateways."""
    log: str | None = None
    """Directory with the worker's complete stdout.log and stderr.log."""
    turns: list[Turn] = []
    """The turns of a worker that was continued with a message, the task first; else empty. `cost`
    and `tokens` cover all turns, `base` is the same in all turns, and every other field covers the
    last turn.
    """

    @property
    def file_count(self) -> int:
        """Return the number of changed files, including files that `files_modified` leaves out."""
        return len(self.files_modified) if self.files_total is None else self.files_total

    @property
    def title(self) -> str:
        """Return the name of the worktree's directory."""
        return Path(self.worktree_path).name

    @property
    def never_ran(self) -> bool:
        """Return whether the task was skipped because of other tasks, and so did not run.

        It was not needed, or it could not start from the work of the tasks that it depends on.
        """
        is_unneeded = self.status is Status.SUCCESS and self.started_at is None
        return self.reason in _BLOCKED or (is_unneeded and self.name is not None)

    @property
    def word(self) -> str:
        """Return the name of the final state, for people: `skipped`, `cancelled` or the status."""
        if self.never_ran:
            return "skipped"
        return (Reason.CANCELLED if self.reason is Reason.CANCELLED else self.status).value

    @property
    def ending(self) -> str:
        """Return the final state with its reason: `failed (oom)`, `skipped (dependency)`."""
        told = self.reason is None or self.reason.value == self.word
        return self.word if told else f"{self.word} ({self.reason})"

    @property
    def outcome(self) -> str:
        """Return the final state, its reason, turn and attempts: `failed (oom), attempt 2`."""
        attempts, turn = self.attempts, ""
        if self.turns:
            attempts, turn = self.turns[-1].attempts, f", turn {self.turns[-1].number}"
            turn = f", fixed after {self.turns[-1].number} turns" if self.is_fixed else turn
        return self.ending + turn + (f", attempt {attempts}" if attempts > 1 else "")

    @property
    def is_fixed(self) -> bool:
        """Return whether checks that had failed passed in a turn that they began."""
        return bool(
            self.turns and self.turns[-1].cause == "checks" and self.status is Status.SUCCESS
        )


class RunResult(BaseModel):
    """The result of one run, as printed by `--json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    status: Status
    base: str
    engine: str
    duration: float
    cost: float
    results: list[WorkerResult]


def ended_word(status: Status, results: Iterable[WorkerResult]) -> str:
    """Return the name of a run's final state: its status, or `cancelled` if all workers were."""
    is_cancelled = {result.reason for result in results} == {Reason.CANCELLED}
    return (Reason.CANCELLED if is_cancelled else status).value


def overall_status(results: Sequence[WorkerResult]) -> Status:
    """Return the worst worker status, in the order `failed`, `timeout`, `partial`, `success`.

    Workers that are not required count only if a required task was skipped.
    """
    causes, skipped = causes_of(results)
    statuses = {result.status for result in causes}
    if not causes and not skipped:
        return Status.SUCCESS
    if Status.FAILED in statuses or (skipped and Status.TIMEOUT not in statuses):
        return Status.FAILED
    return Status.TIMEOUT if Status.TIMEOUT in statuses else Status.PARTIAL


def sum_up(
    results: Iterable[WorkerResult], *, run_id: str, base: str, engine: str, duration: float
) -> RunResult:
    """Create a run's result from the results of its workers; `duration` is in seconds."""
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
        fail_on: `any`, or `all`: with `all`, the code is 0 if any required worker succeeded.
    """
    causes, skipped = causes_of(results)
    succeeded = any(result.required and result.status is Status.SUCCESS for result in results)
    if not (causes or skipped) or (fail_on == "all" and succeeded):
        return 0
    failed = [result for result in causes if result.status is not Status.PARTIAL]
    reasons = {result.reason for result in failed}
    for reason, code in ((Reason.INTERNAL_ERROR, 70), (Reason.ENGINE_ERROR, 7)):
        if reason in reasons:
            return code
    if {result.reason for result in causes} == {Reason.BUDGET}:
        return 6
    if not failed:
        return 1 if skipped else 2
    if all(result.status is Status.TIMEOUT for result in failed):
        return 5
    if all(result.reason is Reason.AUTH for result in failed):
        return 4
    return 1


def causes_of(results: Sequence[WorkerResult]) -> tuple[list[WorkerResult], bool]:
    """Return the results that make a run fail, and whether a required task was skipped.

    A required task that was skipped because another task failed makes the run fail, even if that
    other task is not required. Failures of tasks that are not required then count as causes too.
    """
    bad = [result for result in results if result.status is not Status.SUCCESS]
    # protection: skipped-required-task-fails-run
    skipped = any(result.required and result.reason is Reason.DEPENDENCY for result in bad)
    own = [result for result in bad if result.reason is not Reason.DEPENDENCY]
    return [result for result in own if result.required or skipped], skipped
