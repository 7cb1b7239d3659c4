"""Tests of the web view in a real browser: Debian's package `chromium`."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.events import (
    Event,
    Intervention,
    WorkerDone,
    WorkerHarvesting,
    WorkerPreparing,
    WorkerStarted,
)
from orchestrator.worker_spec import WorkerSpec
from tests.support.chromium import Page, browser
from tests.support.live import eventually
from tests.support.reports import RUN_ID, at
from tests.support.repository import git
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


# --- What people come for: at most so many clicks from the run's page to the decision.

_CENTRE = """(() => {
  const el = %s;
  if (!el) return null;
  el.scrollIntoView({ block: "center" });
  const box = el.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
})()"""


@dataclass
class Person:
    """Somebody who uses a page with a mouse, or with the keyboard alone."""

    page: Page
    by: str
    clicks: int = 0

    def choose(self, text: str, selector: str = "a, button, summary") -> None:
        """Click the element with this text, or reach it with the Tab key and press Enter."""
        self.clicks += 1
        element = (f"[...document.querySelectorAll({selector!r})].find((el) => "
                   f"el.checkVisibility() && el.textContent.includes({text!r}))")  # fmt: skip
        self.page.wait_for(f"!!{element}")
        if self.by == "mouse":
            x, y = self.page.value(_CENTRE % element)
            for kind in ("mousePressed", "mouseReleased"):
                self.page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left",
                               clickCount=1)  # fmt: skip
            return
        for _ in range(120):
            if self.page.value(f"document.activeElement === {element}"):
                break
            self.press("Tab", 9)
        assert self.page.value("document.activeElement.matches(':focus-visible')")
        self.press("Enter", 13, "\r")

    def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text else {}
            self.page.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed
            )

    def sees(self, text: str) -> None:
        """Wait for a text, and check that nothing was reported and nothing is cut off."""
        self.page.wait_for(f"!!document.body && document.body.innerText.includes({text!r})")
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        assert self.page.of(*kinds) == []
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.value(width) <= 0


HOW = [("mouse", 1400, "light"), ("keyboard", 390, "dark")]


@pytest.mark.parametrize(("by", "width", "theme"), HOW)
def test_branches_are_landed_and_a_merge_is_undone_in_four_clicks(
    repo: Path, server: Server, page: Page, by: str, width: int, theme: str
) -> None:
    before = git(repo, "rev-parse", "HEAD").strip()
    results = []
    for number in (1, 2):
        git(repo, "checkout", "-q", "-b", f"architect/parallel-{number}", before)
        (repo / f"{number}.txt").write_text("x\n")
        git(repo, "add", ".")
        git(repo, "commit", "-q", "-m", "work")
        tip = git(repo, "rev-parse", "HEAD").strip()
        results.append(result_of(number, commit=tip, files_modified=[f"{number}.txt"]))
        git(repo, "checkout", "-q", "main")
    ended_run(repo, *results)
    page.open(f"{sign_in(page, server)}{RUN}", width=width, theme=theme)
    person = Person(page, by)
    person.choose("Merge…")
    person.sees("If a branch conflicts")
    person.choose("Preview")
    person.sees("would be merged into")
    assert git(repo, "rev-parse", "HEAD").strip() == before
    person.choose("Merge now")
    person.sees("Done")
    assert (repo / "1.txt").exists()
    person.choose("Undo the merge")
    # The branch moves before the files.
    eventually(lambda: not (repo / "1.txt").exists() and not (repo / "2.txt").exists(), "the undo")
    assert git(repo, "rev-parse", "HEAD").strip() == before
    assert person.clicks <= 4


@pytest.mark.parametrize(("by", "width", "theme"), HOW)
def test_the_worker_that_needs_a_person_is_found_and_stopped(
    repo: Path, server: Server, page: Page, by: str, width: int, theme: str
) -> None:
    specs = [WorkerSpec(worker_id=n, task=f"task {n}", model=None) for n in range(1, 9)]
    alert = Intervention(at=at(3), worker_id=5, trigger="needs_input", detail="drop? (y/n)",
                         stops=False)  # fmt: skip
    run = write_run(repo, specs, [*begun(specs), alert])
    for spec in specs:
        run.worker(spec.worker_id).mkdir()
    page.open(f"{sign_in(page, server)}{RUN}", width=width, theme=theme)
    assert page.value("document.title").startswith("(1) ")
    assert "icon-attention" in page.value("document.getElementById('icon').href")
    person = Person(page, by)
    person.choose("Worker 5", ".callout a")
    person.sees("Needs attention")
    person.choose("Stop…")
    assert person.clicks <= 2
    person.choose("Stop worker 5")
    eventually(lambda: run.stop_requests() == {5}, "the request to stop")
    run.release()


@pytest.mark.parametrize(("by", "width", "theme"), HOW)
def test_a_new_run_shows_the_command_while_it_is_typed(
    server: Server, page: Page, by: str, width: int, theme: str
) -> None:
    page.open(sign_in(page, server), width=width, theme=theme)
    person = Person(page, by)
    person.choose("New run…")
    person.sees("orchestrator parallel --detach")
    page.value("document.querySelector('textarea[name=task]').focus()")
    page.call("Input.insertText", text="echo <b>it works</b>")
    person.sees("'--task=echo <b>it works</b>'")
