"""What a finished run prints: a table or JSON on stdout, where things are on stderr."""

import json
import os
import sys
from collections import Counter

from orchestrator.cli.formats import (
    UNKNOWN,
    count,
    duration,
    explanation,
    money,
    outcome,
    shown_sum,
    size,
    table,
)
from orchestrator.cli.messages import show, tell
from orchestrator.config import ParallelConfig
from orchestrator.results import RunResult, Status, WorkerResult, exit_code
from orchestrator.runner import RunPlan
from orchestrator.sanitize import one_line

_HEADING = ("WORKER", "TASK", "MODEL", "STATUS", "STEPS", "COST", "DURATION", "FILES")
_PLAN_HEADING = ("WORKER", "TASK", "MODEL", "BRANCH", "WORKTREE")


def run_table(result: RunResult, *, width: int | None = None) -> str:
    """Give the table, what went wrong, and the sum."""
    rows = [_HEADING, *(_row(worker) for worker in result.results)]
    if any(worker.checks for worker in result.results):
        checks = ["CHECKS", *(checks_sum(worker) for worker in result.results)]
        rows = [(*row, cell) for row, cell in zip(rows, checks, strict=True)]
    bad = [worker for worker in result.results if worker.status is not Status.SUCCESS]
    parts = [table(rows, width=width or terminal_width()), *map(_failure, bad), _sum(result)]
    return "\n".join([parts[0], "", *parts[1:]])


def terminal_width() -> int | None:
    """Give the width of the terminal on stdout, or None where nothing must be cut."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def _row(worker: WorkerResult) -> tuple[str, ...]:
    return (
        str(worker.worker_id),
        one_line(worker.task or ""),
        one_line(worker.model),
        worker.status.value,
        str(worker.steps),
        money(worker.cost, known=worker.cost_known),
        duration(worker.duration),
        str(len(worker.files_modified)),
    )


def checks_sum(worker: WorkerResult) -> str:
    """Give `2/3`: how many checks of how many were passed."""
    passed = sum(check.passed for check in worker.checks)
    return f"{passed}/{len(worker.checks)}" if worker.checks else ""


def _failure(worker: WorkerResult) -> str:
    log = f"\n  log: {worker.log}" if worker.log else ""
    return f"worker {worker.worker_id} {outcome(worker)}{explanation(worker)}{log}"


def _sum(result: RunResult) -> str:
    statuses = Counter(worker.status for worker in result.results)
    parts = [f"{statuses[status]} {status.value}" for status in Status if statuses[status]]
    return (
        f"{count(len(result.results), 'worker')}: {', '.join(parts)}; "
        f"cost {_total(result)}; {duration(result.duration)}"
    )


def _total(result: RunResult) -> str:
    unknown = sum(not worker.cost_known for worker in result.results)
    if unknown == len(result.results):
        return UNKNOWN
    rest = f" and {unknown} unknown" if unknown else ""
    return money(shown_sum(worker.cost for worker in result.results)) + rest


def run_json(result: RunResult) -> str:
    """Give the one JSON object, in ASCII: it may be shown on a terminal."""
    return json.dumps(result.model_dump(mode="json"), indent=2)


def show_run(
    result: RunResult, config: ParallelConfig, *, quiet: bool = False, as_json: bool = False
) -> int:
    """Show the result of a run, say what can be done with it, and give the exit code."""
    show(run_json(result) if as_json else run_table(result))
    if not quiet:
        tell(after_run(result))
    return exit_code(result.results, fail_on=config.fail_on)


def after_run(result: RunResult) -> str:
    """Say where the work is and how to get rid of it."""
    first = result.results[0]
    return (
        f"{_places(result)}\n"
        f"see a worker's changes: git diff {result.base[:12]} {first.branch}\n"
        f"{_printed(first)}"
        "remove worktrees and branches: orchestrator parallel-cleanup"
    )


def _printed(first: WorkerResult) -> str:
    # A worker that was never started has printed nothing.
    return f"see what it printed: {first.log}/stdout.log\n" if first.log else ""


def _places(result: RunResult) -> str:
    first, last = result.results[0], result.results[-1]
    if first is last:
        return f"the work is in {first.worktree_path}, branch {first.branch}"
    return (
        f"the work is in {first.worktree_path} to {last.title}, "
        f"branches {first.branch} to {last.branch}"
    )


def plan_table(plan: RunPlan) -> str:
    """Give what `--dry-run` shows."""
    rows = [_PLAN_HEADING]
    for spec in plan.workers:
        worktree = str(plan.top / spec.directory)
        task, model = one_line(spec.task), one_line(spec.model_name)
        rows.append((str(spec.worker_id), task, model, spec.branch, worktree))
    timeout = "none" if plan.timeout is None else duration(plan.timeout)
    facts = {"base": plan.base, "image": plan.image, "timeout": timeout, **_terms(plan)}
    lines = [f"{name}: {value}" for name, value in facts.items()]
    return "\n".join([table(rows, width=terminal_width()), "", *lines])


def _terms(plan: RunPlan) -> dict[str, str]:
    """Say what a worker may use, presets and defaults put in."""
    limits = plan.limits
    cpus = "2 or all CPUs" if limits.cpus is None else f"{limits.cpus:g} CPUs"
    sizes = {"memory": limits.memory, "tmp": limits.tmp, "disk": limits.disk}
    found = [cpus, *(f"{size(number)} {name}" for name, number in sizes.items())]
    idle = limits.idle_timeout
    terms = {
        "preset": plan.preset or "",
        "limits": ", ".join([*found, f"{limits.pids} pids", f"{limits.inodes} inodes"]),
        "idle timeout": duration(idle) if idle else "none",
        "grace": duration(limits.grace),
        "runtime": plan.runtime or "",
        "network": plan.network,
        "allow": ", ".join(plan.allow),
        "ports": ", ".join(f"{name}={inside}" for name, inside in plan.ports.items()),
        "services": ", ".join(f"{name} ({image})" for name, image in plan.services.items()),
        "history": plan.history,
        "caches": ", ".join(plan.caches),
        "setup": "; ".join(map(one_line, plan.setup)),
        "teardown": "; ".join(map(one_line, plan.teardown)),
        "checks": "; ".join(map(one_line, plan.checks)),
        "env": ", ".join(plan.env),
        "secrets": ", ".join(plan.secrets),
    }
    return {name: value for name, value in terms.items() if value}


def plan_json(plan: RunPlan) -> str:
    """Give what `--dry-run --json` shows."""
    workers = [
        {
            "worker_id": spec.worker_id,
            **({"name": spec.name} if spec.name else {}),
            "task": spec.task,
            "model": spec.model_name,
            "branch": spec.branch,
            "worktree_path": str(plan.top / spec.directory),
        }
        for spec in plan.workers
    ]
    facts = plan.model_dump(mode="json", exclude={"workers", "top", "notices"})
    return json.dumps({**facts, "workers": workers}, indent=2)
