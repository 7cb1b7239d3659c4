"""Tests of the web view in a real browser: Debian's package `chromium`."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.base.events import (
    Event,
    WorkerDone,
    WorkerHarvesting,
    WorkerPreparing,
    WorkerStarted,
)
from orchestrator.base.worker_spec import WorkerSpec
from tests.support.chromium import Page, browser
from tests.support.live import eventually
from tests.support.reports import RUN_ID, at
from tests.support.web import Server, begun, ended_run, result_of, write_run

pytestmark = [pytest.mark.extra, pytest.mark.process]
RUN = f"/repo/{RUN_ID}"
SIGNED_IN = "location.pathname == '/' && !!document.querySelector('.page')"
ANSWERS = "window.answers()"
OBSERVE = """
  window.shown = {};
  // Browsers abort requests when networks of containers come and go: these are not counted.
  window.answers = () => performance.getEntriesByType("resource").filter(
    (one) => one.responseStatus).length;
  new MutationObserver(() => {
    for (const el of document.querySelectorAll(".item .sub > :first-child")) {
      window.shown[el.textContent] ??= window.answers();
    }
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
"""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with browser(tmp_path / "chromium") as page:
        yield page


@pytest.fixture
def server(repo: Path, tmp_path: Path) -> Iterator[Server]:
    server = Server(repo, state=tmp_path / "state")
    yield server
    assert server.end(signal.SIGINT) == 0


def sign_in(page: Page, server: Server) -> str:
    """Use the link; return the address of the server."""
    address = f"http://127.0.0.1:{server.port}"
    page.open(f"{address}/open#{server.key}")
    page.wait_for(SIGNED_IN)
    return address


def test_signing_in_survives_an_aborted_request(server: Server, page: Page) -> None:
    page.call("Fetch.enable", patterns=[{"urlPattern": "*/open", "resourceType": "Fetch"}])
    page.open(f"http://127.0.0.1:{server.port}/open#{server.key}")

    def paused(number: int) -> str:
        def found() -> list[str]:
            page.value("0")
            return [one["requestId"] for one in page.of("Fetch.requestPaused")][number:]

        return str(eventually(found, "a request")[0])

    page.call("Fetch.failRequest", requestId=paused(0), errorReason="ConnectionAborted")
    page.call("Fetch.continueRequest", requestId=paused(1))
    page.wait_for(SIGNED_IN)


def test_a_change_of_state_is_shown_by_the_next_request(
    repo: Path, server: Server, page: Page
) -> None:
    specs = [WorkerSpec(worker_id=1, task="migrate", model=None)]
    run = write_run(repo, specs, begun(specs)[:1])
    run.worker(1).mkdir()
    page.open(f"{sign_in(page, server)}{RUN}")
    page.wait_for("document.getElementById('live').textContent == 'Live'")
    page.value(OBSERVE)
    changes: dict[str, Event] = {
        "Preparing": WorkerPreparing(at=at(1), worker_id=1),
        "Running": WorkerStarted(at=at(2), worker_id=1, container="c"),
        "Harvesting": WorkerHarvesting(at=at(3), worker_id=1),
        "Success": WorkerDone(at=at(4), result=result_of(1)),
    }
    for word, event in changes.items():
        before = page.value(ANSWERS)
        run.log_event(event)
        page.wait_for(f"{word!r} in window.shown")
        # The browser asks once a second; one request may have been on its way already.
        assert page.value(f"window.shown[{word!r}]") - before <= 2
    assert page.of("Runtime.exceptionThrown") == []
    run.release()


def test_times_of_lines_are_shown_on_request(repo: Path, server: Server, page: Page) -> None:
    specs = [WorkerSpec(worker_id=1, task="migrate", model=None)]
    run = write_run(repo, specs, begun(specs)[:1])
    run.worker(1).mkdir()
    run.log_event(WorkerStarted(at=at(2), worker_id=1, container="c"))
    log, times = run.worker(1) / "stdout.log", run.worker(1) / "stdout.times"
    times.write_text("0 1790000000\n")
    log.write_text("one\n")
    address = f"{sign_in(page, server)}{RUN}/1"
    page.open(address)
    page.wait_for("document.getElementById('lines')?.innerText == 'one\\n'")
    page.value("document.getElementById('times').click()")
    for _ in ("switched on", "stays on"):
        page.open(address)
        page.wait_for("document.getElementById('lines')?.innerText == '14:13:20Z one\\n'")
    assert page.value("document.getElementById('times').ariaPressed") == "true"
    times.write_text("0 1790000000\n4 1790000060\n")
    log.write_text("one\n\x1b[31mtwo\x1b[0m\n")
    page.wait_for("document.getElementById('lines').innerText.endsWith('14:14:20Z two\\n')")
    page.value("getSelection().selectAllChildren(document.getElementById('lines'))")
    assert page.value("getSelection().toString().trim()") == "one\ntwo", "copies have no times"
    assert page.of("Runtime.exceptionThrown", "Log.entryAdded") == []
    run.release()


def test_two_workers_are_chosen_and_an_artifact_is_saved(
    repo: Path, server: Server, page: Page, tmp_path: Path
) -> None:
    handed = result_of(2, artifacts=["coverage.html"])
    run = ended_run(repo, result_of(1), handed, result_of(3))
    place = run.worker(2) / "artifacts"
    place.mkdir(parents=True)
    (place / "coverage.html").write_text("<h1>93 %</h1>")
    address = sign_in(page, server)
    page.open(f"{address}{RUN}/compare")
    page.value("""(() => {
      const choice = document.querySelectorAll(".versus select")[1];
      choice.value = "3";
      choice.dispatchEvent(new Event("change", { bubbles: true }));
    })()""")
    page.wait_for("location.search == '?a=1&b=3'")
    page.wait_for("document.body.innerText.includes('From worker 1 to worker 3')")
    saved = tmp_path / "saved" / "coverage.html"
    saved.parent.mkdir()
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(saved.parent))
    page.open(f"{address}{RUN}/2/findings")
    page.value("document.querySelector('a[href*=artifact]').click()")
    eventually(lambda: saved.is_file() and saved.read_text() == "<h1>93 %</h1>", "the download")
