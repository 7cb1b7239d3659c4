"""Tests of a timeline: zoom, waits that are shortened, and bars that stay where events were."""

import re

import pytest

from orchestrator.base.events import WorkerDone, WorkerPreparing, WorkerRetrying, WorkerStarted
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.faces.web.run_catalog import RunCatalog
from orchestrator.faces.web.timeline import Timeline, timeline_of, zoom_of
from orchestrator.repository.repository import Repository
from tests.support.reports import RUN_ID, at
from tests.support.web import OPENED, begun, browser, result_of, write_run

RUN = f"/repo/{RUN_ID}"


@pytest.fixture(autouse=True)
def waited(repo):
    """Write a run whose worker worked for 100 seconds, waited for an hour, and worked again."""
    specs = [WorkerSpec(worker_id=1, task="t", model=None)]
    run = write_run(repo, specs, [
        *begun(specs),
        WorkerRetrying(at=at(100), worker_id=1, attempt=2, reason="rate_limited", delay=3600),
        WorkerPreparing(at=at(3700), worker_id=1),
        WorkerStarted(at=at(3701), worker_id=1, container="d"),
        WorkerDone(at=at(3800), result=result_of(1, attempts=2, started_at=at(3701), duration=99)),
    ])  # fmt: skip
    run.release()


@pytest.fixture
def snapshot(repo):
    catalog = RunCatalog([Repository(repo)])
    OPENED.append(catalog)
    return catalog.snapshot(catalog.readable(catalog.runs())[0])


def spans(axis: Timeline) -> list[tuple[str, float, float]]:
    bars = axis.bars(axis.axis.run.workers[0])
    return [(bar.look, float(bar.x[:-1]), float(bar.end[:-1])) for bar in bars]


def test_long_waits_are_shortened_and_their_length_is_shown(snapshot):
    axis = timeline_of(snapshot)
    (gap,) = axis.breaks
    assert (gap.x, gap.width, gap.title) == ("48.500%", "3.000%", "1h 00m of waiting")
    assert axis.idle == "1h 00m"
    look, x, end = spans(axis)[2]
    assert (look, round(x, 2), round(end, 2)) == ("danger", 0.97, 48.5)
    assert all(float(tick.x[:-1]) <= 48.5 or float(tick.x[:-1]) >= 51.5 for tick in axis.ticks)
    scaled = timeline_of(snapshot, {"idle": "show"})
    assert not scaled.breaks
    assert spans(scaled)[2][2] < 3


def test_a_part_of_the_run_can_be_shown(snapshot):
    axis = timeline_of(snapshot, {"from": "50", "to": "90"})
    assert (axis.axis.start, axis.axis.end) == (50.0, 90.0)
    assert spans(axis) == [("danger", 0.0, 100.0)]
    assert [tick.label for tick in axis.ticks] == ["50s", "1m", "1m 10s", "1m 20s", "1m 30s"]
    zoom = zoom_of(axis)
    assert zoom.label == "50s to 1m 30s"
    assert zoom.closer == {"from": "60.0", "to": "80.0"}
    assert zoom.wider == {"from": "30.0", "to": "110.0"}
    assert zoom_of(timeline_of(snapshot)).wider is None


@pytest.mark.parametrize("query", [
    {"from": "90", "to": "50"}, {"from": "99999999"}, {"to": "0"}, {"from": "-5"}, {"to": "x"},
    {"from": "1e9"}, {"from": "nan", "to": "inf"}, {"from": "3800"}, {"from": "9" * 20},
])  # fmt: skip
def test_senseless_ranges_show_something(snapshot, query):
    axis = timeline_of(snapshot, query)
    assert 0 <= axis.axis.start < axis.axis.end <= 3800
    for _, x, end in spans(axis):
        assert 0 <= x <= end <= 100.001
    zoom_of(axis)


def test_buttons_keep_the_rest_of_the_address(repo):
    page = browser(repo).get(f"{RUN}?from=50&to=90&q=t&evil=1").text
    assert 'href="?q=t&amp;from=60.0&amp;to=80.0"' in page
    assert 'id="zoom-all" href="?q=t"' in page
    assert "evil" not in page
    whole = browser(repo).get(RUN).text
    assert 'href="?idle=show"' in whole
    assert re.search(r'data-stretches="\[\[0\.0, 100\.0, 0\.0, 48\.5\]', whole)
