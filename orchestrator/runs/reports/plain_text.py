"""Format results, counts and costs as plain text, for several formats of reports."""

from collections import Counter

from orchestrator.base.results import Status, WorkerResult
from orchestrator.base.text.quantities import duration, money, size, tally, total_cost
from orchestrator.runs.reports.model import RunReport
from orchestrator.state.record.worker_view import WorkerView


def heading(report: RunReport) -> str:
    """Return the result of a run in one line: `ci: failed, 2 of 3 workers succeeded`."""
    workers = "worker" if len(report.workers) == 1 else "workers"
    name = report.name or "orchestrator"
    return f"{name}: {report.word}, {report.passed} of {len(report.workers)} {workers} succeeded"


def state(report: RunReport) -> str:
    """Return a run's status, such as `failed`; if it has none, its state, such as `died`.

    Programs read it; people read `RunReport.word`.
    """
    return report.status.value if report.status else report.state.value


def tally_of_workers(report: RunReport) -> str:
    """Return the number of workers in each state: `2 success, 1 cancelled`."""
    return tally([worker.word for worker in report.workers], first=[*Status])


def sums(report: RunReport) -> str:
    """Return the id, base commit, duration and cost of a run in one line."""
    spent = total_cost([worker.cost for worker in report.workers])
    took = duration(report.duration)
    return f"run {report.run_id}, base {report.base[:12]}, {took}, cost {spent}"


def counts(report: RunReport) -> dict[str, int]:
    """Return the numbers of workers by status, and the number of workers without a result."""
    found = Counter(worker.status.value if worker.status else "" for worker in report.workers)
    named = {status.value: found[status.value] for status in Status}
    return {**named, "unfinished": found[""]}


def cost(worker: WorkerView) -> str:
    """Return the cost of a worker in USD."""
    return money(worker.cost or 0, known=worker.cost is not None)


def resources(result: WorkerResult) -> str:
    """Return the CPU time and the peak of memory of a worker; empty if neither was counted."""
    cpu, memory = result.cpu_time, result.peak_memory
    parts = [
        f"{duration(cpu)} of CPU time" if cpu is not None else "",
        f"at most {size(memory)} of memory" if memory is not None else "",
    ]
    return ", ".join(filter(None, parts))
