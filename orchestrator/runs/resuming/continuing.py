"""Check whether a worker of an ended run can continue with a message, and leave it the message."""

import shlex
from dataclasses import dataclass

from orchestrator.base.errors import ConfigError
from orchestrator.base.results import WorkerResult
from orchestrator.base.text.redact import Redactor
from orchestrator.repository.checkouts.worktree_list import ListedWorktree, all_worktrees
from orchestrator.repository.git_directory import is_same
from orchestrator.repository.repository import WORKER_MARK, Repository
from orchestrator.runs.cleanup.inventory import RecordedWorker, is_clean
from orchestrator.runs.planning.reservation import keep_private
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import RunRecord
from orchestrator.state.worker.turns import LONGEST_MESSAGE, NextTurn, current_turn, queue_message
from orchestrator.worker.checked_run import CheckedRequest
from orchestrator.worker.turns.turns import awaits_turn, message_about_checks


@dataclass(frozen=True)
class Message:
    """A message for a worker that has a result, or will have one."""

    worker_id: int
    turn: NextTurn


def check_message(text: str) -> str:
    """Return the text of a message.

    Raises:
        ConfigError: The text is empty or too long, or cannot be an argument of a program.
    """
    data = text.encode("utf-8", "replace")
    if not text.strip() or "\0" in text or data.decode() != text:
        raise ConfigError(
            "the message is empty, or contains NUL or half a character", key="message.empty"
        )
    if len(data) > LONGEST_MESSAGE:
        raise ConfigError(
            f"the message is longer than {LONGEST_MESSAGE // 1024} KiB",
            key="message.too-long",
            hint="commit a long text as a file to the worker's branch, and name the file",
        )
    return text


def message_from_checks(directory: RunDirectory, record: RunRecord, worker_id: int) -> str:
    """Return a message with the output of the checks that failed for a worker.

    Raises:
        ConfigError: The worker has not ended, or no check failed.
    """
    result, worker = directory.result(worker_id), _recorded(directory, record, worker_id)
    checks = worker.config.project.checks
    text = result and message_about_checks(checks, result, worker.state, Redactor())
    if not text:
        raise ConfigError(
            f"no check of worker {worker_id} failed in run {directory.run_id}", key="checks.passed"
        )
    return text


def check_continues(directory: RunDirectory, record: RunRecord, message: Message) -> None:
    """Check that a worker of a run that is not live can continue.

    Raises:
        ConfigError: It cannot.
    """
    number, run_id = message.worker_id, directory.run_id
    results = {spec.worker_id: directory.result(spec.worker_id) for spec in record.workers}
    # protection: undelivered-message-is-not-replaced
    if None in results.values() or awaits_turn(directory, number):
        raise ConfigError(
            f"the process of run {run_id} died before its workers were done, or had their messages",
            key="run.unfinished",
            hint=f"resume the run first: `orchestrator resume {run_id}`",
        )
    check_ended_worker(directory, record, message)


def check_ended_worker(directory: RunDirectory, record: RunRecord, message: Message) -> None:
    """Check that a worker that has a result can continue, whether its run is live or not.

    Raises:
        ConfigError: It cannot.
    """
    number, run_id = message.worker_id, directory.run_id
    worker, result = _recorded(directory, record, number), directory.result(number)
    if message.turn.fix_checks and not worker.config.project.checks:
        raise ConfigError(
            f"worker {number} of run {run_id} has no checks to send back", key="option.unused"
        )
    if result is None:
        return
    repository = Repository(record.top)
    with repository.lock():
        tip, owns = repository.commit_of(worker.spec.ref), worker.still_owns_its_number(repository)
    if result.never_ran or tip is None or not owns:
        raise ConfigError(
            f"worker {number} of run {run_id} cannot continue: it never ran, or its branch was "
            "removed",
            key="worker.gone",
            hint=f"`orchestrator restore {number}` brings a branch back; `orchestrator retry "
            f"{number}` runs the task again",
        )
    if not repository.git.succeeds("merge-base", "--is-ancestor", worker.base, tip):
        raise ConfigError(
            f"`{worker.spec.branch}` does not descend from {worker.base[:12]}, where worker "
            f"{number} began",
            key="branch.rebased",
            hint="do not rebase the branch of a worker that is to continue",
        )
    _check_worktree(repository, worker)
    _check_budget(worker, result, message)


def _check_worktree(repository: Repository, worker: RecordedWorker) -> None:
    """Check that the files in the worker's worktree, if there is one, are those of its branch.

    Its branch may also be checked out in another worktree, such as that which the user moved.
    """
    # protection: worker-continues-only-in-its-own-worktree
    for other in all_worktrees(repository):
        if other.head != worker.spec.ref or not other.is_present or other.path is None:
            continue
        if is_same(other.path, worker.path):
            continue
        moved = (other.git_dir / WORKER_MARK).exists()
        back = ("git", "-C", str(repository.top), "worktree", "move", str(other.path))
        raise ConfigError(
            f"`{worker.spec.branch}` is checked out in {other.path}, which is not the worktree of "
            f"worker {worker.spec.worker_id}",
            key="worktree.elsewhere",
            hint=f"move it back: `{shlex.join((*back, str(worker.path)))}`"
            if moved
            else "switch that worktree to another branch: the worker moves its own",
        )
    worktree = worker.worktree()
    if worktree is not None:
        head = ListedWorktree(worktree.path, worktree.git_dir, is_present=True).head
        # protection: worker-continues-only-from-its-own-branch
        if head != worker.spec.ref:
            switch = ("git", "-C", str(worker.path), "switch", worker.spec.branch)
            raise ConfigError(
                f"`{worker.spec.branch}` is not checked out in {worker.path}",
                key="worktree.switched",
                hint=f"the worker continues from its branch: `{shlex.join(switch)}`",
            )
    # protection: uncommitted-changes-are-not-workers
    if not is_clean(repository, worker):
        raise ConfigError(
            f"{worker.path} has uncommitted changes",
            key="worktree.dirty",
            hint="commit or stash them: the worker continues from its branch",
        )


def _check_budget(worker: RecordedWorker, result: WorkerResult, message: Message) -> None:
    """Check that something is left of the limits of the worker and of its run."""
    turn, own, run = current_turn(worker.directory, worker.number), worker.config, worker.plan
    before = turn.given.budget_per_worker if turn is not None else None
    budget = message.turn.budget_per_worker or before or own.budget_per_worker
    is_limited = run.config.budget_total is not None or run.config.tokens_total is not None
    found = [worker.directory.result(spec.worker_id) for spec in run.workers if is_limited]
    results = [other for other in found if other is not None]
    who, total = f"worker {worker.number}", sum(other.cost for other in results)
    tokens = sum(other.tokens or 0 for other in results)
    larger = "give a larger budget for all of its turns: `--budget-per-worker`"
    again = f"`orchestrator retry {worker.number} --retry-from keep` starts a run of its own"
    limits = (
        (result.cost, budget, f"{who} has spent ${result.cost:.4f} of its budget of $", larger),
        (total, run.config.budget_total, f"the run has spent ${total:.4f} of $", again),
        (result.tokens or 0, own.tokens_per_worker, f"{who} has used its tokens: ", again),
        (tokens, run.config.tokens_total, "the run has used its tokens: ", again),
    )
    for spent, most, said, hint in limits:
        # protection: message-needs-something-left-of-budget
        if most is not None and spent >= most:
            raise ConfigError(f"{said}{most:g}", key="budget.spent", hint=hint)


def deliver(
    directory: RunDirectory, record: RunRecord, message: Message, request: CheckedRequest
) -> None:
    """Leave a message to a worker of an ended run; from now on, a resumed run delivers it.

    Raises:
        ConfigError: The message contains a secret.
        OSError: The disk is full.
    """
    # protection: message-with-secret-refused
    if request.redactor.text(message.turn.message) != message.turn.message:
        raise ConfigError(
            "the message contains the value of a secret, which would be recorded",
            key="message.secret",
            hint="name the variable instead: the worker has its value",
        )
    keep_private(request, record)
    leave_message(directory, message)


def leave_message(directory: RunDirectory, message: Message) -> None:
    """Leave a message for a worker.

    Raises:
        ConfigError: Another message waits.
        OSError: The disk is full.
    """
    if not queue_message(directory, message.worker_id, message.turn):
        raise ConfigError(
            f"another message waits for worker {message.worker_id}",
            key="message.waiting",
            hint="wait for the end of its turn",
        )


def _recorded(directory: RunDirectory, record: RunRecord, worker_id: int) -> RecordedWorker:
    specs = (spec for spec in record.workers if spec.worker_id == worker_id)
    spec = next(specs, None)
    if spec is None:
        raise ConfigError(f"run {directory.run_id} has no worker {worker_id}", key="worker.unknown")
    return RecordedWorker(directory, record, spec)
