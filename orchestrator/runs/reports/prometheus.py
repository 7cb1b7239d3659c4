"""Render metrics in the text format of Prometheus, for the node exporter's textfile collector.

The counters add up all ended runs that the repository has a record of, so that they grow from run
to run; runs that only tested a commit for a merge or a judgement do not count. The gauges describe
the run of the report. No label has a value that a task could choose.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from orchestrator.base.results import RunResult, Status
from orchestrator.runs.reports.model import RunReport
from orchestrator.state.run_directory import all_runs

_BUCKETS = (1, 5, 15, 60, 300, 900, 1800, 3600, 7200)
"""Upper limits in seconds of the buckets in the histogram of durations."""


def render(report: RunReport) -> str:
    """Return the metrics of a report, and of all ended runs of its repository."""
    runs = (run for run in all_runs(report.directory.parents[1]) if not run.is_test)
    return metrics((result for run in runs if (result := run.run_result())), report)


def metrics(results: Iterable[RunResult], latest: RunReport | None = None) -> str:
    """Return metrics in the text format of Prometheus.

    Args:
        results: Results of ended runs.
        latest: The run that the gauges describe. Default: no gauges.
    """
    return "\n".join([*_counters(list(results)), *(_gauges(latest) if latest else ())]) + "\n"


def _counters(results: list[RunResult]) -> Iterator[str]:
    workers = [worker for result in results for worker in result.results]
    runs = Counter(result.status for result in results)
    yield from _family("runs_total", "counter", "Ended runs by status.")
    for status in Status:
        yield _line("runs_total", runs[status], status=status.value)
    ends = Counter(
        (worker.status.value, worker.reason.value if worker.reason else "") for worker in workers
    )
    yield from _family("workers_total", "counter", "Ended workers by status and reason.")
    for (ended, reason), number in sorted(ends.items()):
        yield _line("workers_total", number, status=ended, reason=reason)
    for name, unit, amount in (
        ("cost_usd_total", "Known cost of all workers in USD.", sum(w.cost for w in workers)),
        ("tokens_total", "Known tokens of all workers.", sum(w.tokens or 0 for w in workers)),
        (
            "cpu_seconds_total",
            "CPU time of the latest attempt of all workers.",
            sum(w.cpu_time or 0.0 for w in workers),
        ),
        ("attempts_total", "Started attempts of all workers.", sum(w.attempts for w in workers)),
    ):
        yield from _family(name, "counter", unit)
        yield _line(name, amount)
    name = "worker_duration_seconds"
    yield from _family(name, "histogram", "Duration of the workers' containers by status.")
    for status in Status:
        seconds = [worker.duration for worker in workers if worker.status is status]
        for limit in _BUCKETS:
            number = sum(duration <= limit for duration in seconds)
            yield _line(f"{name}_bucket", number, status=status.value, le=str(limit))
        yield _line(f"{name}_bucket", len(seconds), status=status.value, le="+Inf")
        yield _line(f"{name}_sum", sum(seconds), status=status.value)
        yield _line(f"{name}_count", len(seconds), status=status.value)


def _gauges(report: RunReport) -> Iterator[str]:
    until = (report.ended_at or report.until).timestamp()
    for name, help_text, value in (
        ("last_run_timestamp_seconds", "End of the latest run.", until),
        ("last_run_duration_seconds", "Duration of the latest run.", report.duration),
        ("last_run_success", "Whether the latest run succeeded.", report.status is Status.SUCCESS),
        ("last_run_workers", "Number of workers of the latest run.", len(report.workers)),
        (
            "last_run_peak_memory_bytes",
            "Largest memory use of a worker of the latest run.",
            max((w.result.peak_memory or 0 for w in report.workers if w.result), default=0),
        ),
        ("last_run_passed", "Workers of the latest run that succeeded.", report.passed),
    ):
        yield from _family(name, "gauge", help_text)
        yield _line(name, float(value))


def _family(name: str, kind: str, help_text: str) -> Iterator[str]:
    yield f"# HELP orchestrator_{name} {help_text}"
    yield f"# TYPE orchestrator_{name} {kind}"


def _line(name: str, value: float, **labels: str) -> str:
    # The values of labels are members of closed sets, and need no escapes.
    shown = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f"orchestrator_{name}{f'{{{shown}}}' if shown else ''} {value:.10g}"
