"""Tests of metrics, read by Prometheus' own parser."""

from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from orchestrator.base.results import Status, sum_up
from orchestrator.runs.reports import prometheus
from orchestrator.runs.reports.model import RunReport
from orchestrator.state.run_directory import RunDirectory
from tests.support.reports import RUN_ID, every_status

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(text: str) -> Samples:
    families = text_string_to_metric_families(text)
    return {
        (sample.name.removeprefix("orchestrator_"), tuple(sorted(sample.labels.items()))):
            sample.value
        for family in families for sample in family.samples
    }  # fmt: skip


def recorded(tmp_path: Path, runs: int) -> RunReport:
    """Return the report of the last of several runs that are on disk."""
    hostile = 'x"} 1\nevil 1\n'
    report = every_status(tmp_path / "workers", text=hostile, task=hostile)
    results = [worker.result for worker in report.workers if worker.result]
    result = sum_up(results, run_id=RUN_ID, base="", engine="", duration=5)
    for number in range(runs):
        directory = RunDirectory(tmp_path / "state" / "runs" / f"20261121-09300{number}-5f0c2a")
        directory.path.mkdir(parents=True, exist_ok=True)
        directory.write_run_result(result)
    return replace(report, directory=directory.path)


def test_counters_add_up_all_runs_and_gauges_show_the_latest(tmp_path: Path) -> None:
    report = recorded(tmp_path, 2)
    found = read(prometheus.render(report))
    assert found["runs_total", (("status", "failed"),)] == 2
    assert found["workers_total", (("reason", "oom"), ("status", "failed"))] == 2
    assert found["cost_usd_total", ()] == 1.0
    assert found["last_run_success", ()] == 0
    assert found["last_run_workers", ()] == len(report.workers)
    more = read(prometheus.render(recorded(tmp_path, 3)))
    assert all(more[key] >= value for key, value in found.items())
    labels = {label for _, pairs in found for label in pairs}
    assert {name for name, _ in labels} == {"status", "reason", "le"}


def test_runs_that_tested_commits_do_not_count(tmp_path: Path) -> None:
    report = recorded(tmp_path, 3)
    RunDirectory(report.directory.parent / "20261121-093001-5f0c2a").mark_as_test()
    found = read(prometheus.render(report))
    assert found["runs_total", (("status", "failed"),)] == 2
    assert found["cost_usd_total", ()] == 1.0


def test_the_histogram_is_cumulative(tmp_path: Path) -> None:
    found = read(prometheus.render(recorded(tmp_path, 1)))
    for status in Status:
        buckets = [
            value for (name, labels), value in found.items()
            if name == "worker_duration_seconds_bucket" and ("status", status.value) in labels
        ]  # fmt: skip
        count = found["worker_duration_seconds_count", (("status", status.value),)]
        assert buckets == sorted(buckets)
        assert buckets[-1] == count
