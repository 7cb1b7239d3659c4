"""Tests of the HTML report in a real browser: Debian's package `chromium`, without a network."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.runs.reports import html
from orchestrator.runs.reports.model import RunReport
from tests.runs.reports.test_html import XSS
from tests.support.chromium import Page, browser
from tests.support.ci_parsers import HOSTILE_LINES
from tests.support.reports import at, ended, ended_run, judged, three_workers

pytestmark = [pytest.mark.extra, pytest.mark.process]

BARS = """[...document.querySelectorAll(".timeline g rect")].map(bar => {
  const all = bar.closest("svg").getBoundingClientRect(), own = bar.getBoundingClientRect();
  return [own.left - all.left, own.right - all.left, all.width];
})"""
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
ELEMENTS = "document.querySelectorAll('script, iframe, img, object, embed, form, base').length"
SAID = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as page:
        yield page


def opened(page: Page, report: RunReport, place: Path, **how: object) -> None:
    """Open a report, and check what must be true of every report."""
    path = place / "report.html"
    path.write_text(html.render(report), encoding="utf-8")
    page.open(path, **how)  # type: ignore[arg-type]
    assert page.value(OVERFLOW) == 0
    assert page.of(*SAID, "Page.javascriptDialogOpening") == []
    requests = [one["request"]["url"] for one in page.of("Network.requestWillBeSent")]
    assert requests == [path.as_uri()]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_report_fits_and_bars_are_where_the_phases_are(
    page: Page, tmp_path: Path, width: int, theme: str
) -> None:
    workers = [ended(tmp_path, number, log="line\n" * 300) for number in range(1, 9)]
    report = ended_run(tmp_path, workers, until=at(7.3), judgement=judged(report_workers=8))
    opened(page, report, tmp_path, width=width, theme=theme)
    phases = [phase for worker in workers for phase in worker.phases]
    bars = page.value(BARS)
    assert len(bars) == len(phases) == 32
    for (left, right, whole), phase in zip(bars, phases, strict=True):
        assert abs(left - (phase.start - at(0)).total_seconds() / 7.3 * whole) < 1
        assert abs(right - (phase.end - at(0)).total_seconds() / 7.3 * whole) < 1
    page.picture(tmp_path / "report.png")
    assert struct.unpack(">I", (tmp_path / "report.png").read_bytes()[16:20]) == (width,)
    background = page.value("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (theme == "light")


def test_hostile_text_does_nothing(page: Page, tmp_path: Path) -> None:
    attack = "\n".join((*XSS, *(line[:2000] for line in HOSTILE_LINES)))
    report = three_workers(tmp_path, text=attack, task=attack)
    opened(page, report, tmp_path, width=400, theme="light")
    assert page.value("document.title") == "nightly: failed, 1 of 3 workers succeeded"
    assert page.value(ELEMENTS) == 0
    assert page.value("document.styleSheets.length") == 1
