"""Print the result of a run: a table or JSON on stdout, and next steps on stderr."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.results import (
    Reason,
    RunResult,
    Status,
    Timings,
    WorkerResult,
    causes_of,
    ended_word,
    exit_code,
)
from orchestrator.base.text.quantities import count, duration, money, size, tally, total_cost
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Workflow
from orchestrator.config.workflow.timing import summarise
from orchestrator.faces.cli.output.event_lines import explanation, is_consequence
from orchestrator.faces.cli.output.file_matrix import file_matrix
from orchestrator.faces.cli.output.formats import (
    kept_line,
    name_of,
    table,
    terminal_width,
    title_of,
)
from orchestrator.faces.cli.output.messages import show, show_json, tell
from orchestrator.repository.commits.changes import branch_to_type
from orchestrator.repository.incoming.kept_refs import note_of_refs
from orchestrator.repository.repository import Repository

_CONFLICTS = "\nsee conflicts: orchestrator conflicts\n"
_HEADING = ("WORKER", "TASK", "MODEL", "STATUS", "STEPS", "COST", "DURATION", "FILES")


def run_table(
    result: RunResult,
    *,
    slots: int | None = None,
    workflow: Workflow | None = None,
    width: int | None = None,
) -> str:
    """Return the table of workers with failures, notes, totals and timing.

    Args:
        result: Result of the run.
        slots: Maximum number of workers at the same time. Default: all.
        workflow: The workflow, if the run executed one.
        width: Columns of the terminal. Default: those of the terminal on stdout.
    """
    rows: list[tuple[str, ...]] = [_HEADING]
    rows += [
        (
            title_of(worker.worker_id, worker.name),
            one_line(worker.task or ""),
            one_line(worker.model),
            worker.word,
            str(worker.steps),
            money(worker.cost, known=worker.cost_known),
            duration(worker.duration),
            str(worker.file_count),
        )
        for worker in result.results
    ]
    if any(worker.checks for worker in result.results):
        checks = ["CHECKS", *(checks_sum(worker) for worker in result.results)]
        rows = [(*row, cell) for row, cell in zip(rows, checks, strict=True)]
    bad = [worker for worker in result.results if worker.status is not Status.SUCCESS]
    failures = []
    for worker in bad:
        who, log = name_of(worker.worker_id, worker.name), f"\n  log: {worker.log}"
        said = f"{who} {worker.outcome}{explanation(worker)}"
        failures.append(f"{said}{log if worker.log else ''}")
    words = tally([worker.word for worker in result.results], first=[*Status])
    parts = [
        *failures,
        *notes_of(result.results),
        f"{count(len(result.results), 'worker')}: {words}; "
        f"cost {_total(result)}; {duration(result.duration)}",
        *network_line(result.results),
        *time_lines(result, slots=slots, workflow=workflow),
        *failure_lines(bad),
    ]
    return "\n".join([table(rows, width=width or terminal_width()), "", *parts])


def timings_table(result: RunResult) -> str:
    """Return the seconds that each step of each worker took, its CPU time and peak of memory."""
    rows = [("WORKER", *(step.upper() for step in Timings.model_fields), "CPU", "MEMORY")]
    for worker in result.results:
        steps = worker.timings.model_dump().values() if worker.timings else ()
        cells = [f"{seconds:.2f}" for seconds in steps] or ["-"] * len(Timings.model_fields)
        cpu = "-" if worker.cpu_time is None else f"{worker.cpu_time:.2f}"
        memory = "-" if worker.peak_memory is None else size(worker.peak_memory)
        rows.append((title_of(worker.worker_id, worker.name), *cells, cpu, memory))
    return "\n" + table(rows, shrink=0)


def checks_sum(worker: WorkerResult) -> str:
    """Return a worker's number of passed checks and of all checks, such as `2/3`."""
    passed = sum(check.passed for check in worker.checks)
    return f"{passed}/{len(worker.checks)}" if worker.checks else ""


def notes_of(workers: Sequence[WorkerResult]) -> list[str]:
    """Return notes on workers that succeeded, and the refs of commits that are on no branch."""
    lines = []
    for worker in workers:
        who = name_of(worker.worker_id, worker.name)
        names_refs = worker.message == "; ".join(note_of_refs(worker.kept_refs))
        if worker.status is Status.SUCCESS and not names_refs and not is_consequence(worker):
            lines += [f"{who}{said}"] if (said := explanation(worker)) else []
        if worker.kept_refs:
            lines.append(f"{who}: {kept_line(worker.kept_refs)}")
    return lines


def network_line(workers: Sequence[WorkerResult]) -> list[str]:
    """Return a line with the sums of all workers' connections; no line without any gateway."""
    found = [worker.network for worker in workers if worker.network is not None]
    if not found:
        return []
    sent, received = (size(sum(getattr(log, way) for log in found)) for way in ("sent", "received"))
    refused = sum(log.refused for log in found)
    more = f"; {refused} refused: see `orchestrator network log`" if refused else ""
    allowed = count(sum(log.allowed for log in found), "connection")
    return [f"network: {allowed}, {sent} sent, {received} received{more}"]


def time_lines(
    result: RunResult, *, slots: int | None = None, workflow: Workflow | None = None
) -> list[str]:
    """Return lines on the duration and parallelism of a run; none for fewer than two workers."""
    ran = [worker for worker in result.results if worker.started_at is not None]
    if len(ran) < 2:
        return []
    workers = len(result.results)
    timing = summarise(
        result.results, wall=result.duration, slots=slots or workers, workflow=workflow
    )
    times = f"sequential {duration(timing.sequential)}, wall {duration(timing.wall)}"
    lines = [f"{times}, {timing.speedup:.1f}x"]
    if workflow is not None:
        path = ", ".join(map(one_line, timing.critical_path))
        lines.append(f"critical path: {path} ({duration(timing.critical_seconds)})")
        used = f"{timing.utilisation:.0%} of {count(timing.slots, 'slot')} used"
        lines.append(f"{used}, at most {timing.widest} at the same time")
    return lines


def failure_lines(bad: Sequence[WorkerResult]) -> list[str]:
    """Return lines with the tasks of a workflow that did not succeed; none if all succeeded.

    Each line names one final state. Tasks that decided the run's status come first.
    """
    decided = {worker.worker_id for worker in causes_of(bad)[0]}
    lines: dict[str, list[str]] = {}
    for worker in sorted(bad, key=lambda result: result.worker_id not in decided):
        if worker.name is not None and not is_consequence(worker):
            more = "" if worker.worker_id in decided else ", not critical"
            how = f"exit {worker.exit_code}" if worker.exit_code else worker.reason or worker.status
            cause = f"{name_of(worker.worker_id, worker.name)} {how}"
            lines.setdefault(worker.word.capitalize() + more, []).append(cause)
    return [f"{word}: {', '.join(causes)}" for word, causes in lines.items()]


def _total(result: RunResult) -> str:
    return total_cost([worker.cost if worker.cost_known else None for worker in result.results])


def run_json(result: RunResult, more: Mapping[str, object] | None = None) -> str:
    """Return a run's result as one JSON object, in ASCII because it may be shown on a terminal.

    `more` has further keys of the object, with their values.
    """
    return json.dumps({**result.model_dump(mode="json"), **(more or {})}, indent=2)


def show_run(
    result: RunResult,
    config: ParallelConfig,
    *,
    workflow: Workflow | None = None,
    quiet: bool = False,
    as_json: bool = False,
) -> int:
    """Print the result of a run and next steps, and return the exit code."""
    if as_json:
        show_json(run_json(result))
    else:
        show(run_table(result, slots=config.workers, workflow=workflow))
    if not quiet:
        tell(after_run(result, typed=name_to_type))
    return exit_code(result.results, fail_on=config.fail_on)


def summary_line(result: RunResult) -> str:
    """Return a run's result as one line: failures, duration and cost."""
    good = sum(worker.status is Status.SUCCESS for worker in result.results)
    others = [worker for worker in result.results if worker.status is not Status.SUCCESS]
    named = []
    for worker in others[:_NAMED]:
        name = f" ({one_line(worker.name, limit=60)})" if worker.name else ""
        named.append(f"worker {worker.worker_id}{name} {worker.ending}")
    more = [f"{len(others) - _NAMED} more"] if len(others) > _NAMED else []
    return "; ".join(
        [
            f"run {result.run_id}: {ended_word(result.status, result.results)}",
            f"{good} of {len(result.results)} workers succeeded",
            *named,
            *more,
            duration(result.duration),
            f"cost {_total(result)}",
        ]
    )


_NAMED = 3
"""Maximum number of workers that the line about failures names."""


def name_to_type(branch: str) -> str:
    """Return the name of a branch of the repository for a git command: in full if ambiguous."""
    try:
        return branch_to_type(Repository(Path.cwd()), branch)
    except OrchestratorError:
        return branch


def after_run(result: RunResult, *, typed: Callable[[str], str] = str) -> str:
    """Return text on where the work is, with commands to review and remove it.

    Args:
        result: The result of the run.
        typed: Returns the name of a branch for a git command.
    """
    # Workers may have been removed while the run went on.
    left = [known for known in result.results if Path(known.worktree_path).exists()]
    result = result.model_copy(update={"results": left or result.results})
    first = result.results[0]
    shared = file_matrix(result.results)
    # A worker that never started has no output.
    output = f"see a worker's output: {first.log}/stdout.log\n" if first.log else ""
    failed = [known for known in result.results if known.reason is Reason.CHECKS_FAILED]
    back = (
        f"send the checks' output back: orchestrator continue {failed[0].worker_id} --checks\n"
        if failed
        else ""
    )
    return (
        f"{_locations(result)}\n"
        f"{f'{shared}{_CONFLICTS}' if shared else ''}"
        f"{review_order(result.results)}"
        f"see a worker's changes: git diff {result.base[:12]} {typed(first.branch)}\n"
        f"{output}{back}remove worktrees and branches: orchestrator parallel-cleanup"
    )


def review_order(results: Sequence[WorkerResult]) -> str:
    """Return a line with an order to review work: successes, most passed checks, fewest lines."""
    found = []
    for worker in results:
        passed = sum(check.passed for check in worker.checks) / max(len(worker.checks), 1)
        lines = worker.insertions + worker.deletions
        rank = worker.status is not Status.SUCCESS, -passed, lines, worker.worker_id
        checks = f", checks {checks_sum(worker)}" if worker.checks else ""
        changes = f"+{worker.insertions} -{worker.deletions}"
        if worker.file_count:
            found.append((rank, f"{name_of(worker.worker_id, worker.name)} {changes}{checks}"))
    texts = [text for _, text in sorted(found)]
    return f"review order: {'; '.join(texts)}\n" if len(texts) > 1 else ""


def _locations(result: RunResult) -> str:
    first, last = result.results[0], result.results[-1]
    if not first.worktree_path:
        last_branch = "" if first is last else f" to {last.branch}"
        return f"the work is on branch {first.branch}{last_branch}"
    if first is last:
        return f"the work is in {first.worktree_path}, branch {first.branch}"
    return (
        f"the work is in {first.worktree_path} to {last.title}, "
        f"branches {first.branch} to {last.branch}"
    )
