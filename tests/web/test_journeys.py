"""What people come to the web view for, in Chromium, by mouse and by keyboard alone.

Each journey begins at the page of the run, and counts what is clicked until the decision is sent.
"""

import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.chromium import Page, browser
from tests.support.cli import orchestrator
from tests.support.live import eventually
from tests.support.plugin import install
from tests.support.reports import RUN_ID
from tests.support.repository import git
from tests.support.web import Server, ended_run, result_of

pytestmark = [pytest.mark.extra, pytest.mark.process, pytest.mark.timeout(900)]
How = tuple[str, int, str]
HOW = [
    ("mouse", 1400, "light"), ("mouse", 390, "dark"), ("keyboard", 1400, "dark"),
    ("keyboard", 390, "light"),
]  # fmt: skip
in_each_way = pytest.mark.parametrize("how", HOW, ids=lambda how: "-".join(map(str, how)))
_PLACE = """(() => {
  const el = %s;
  el.scrollIntoView({ block: "center" });
  const box = el.getBoundingClientRect();
  return [box.left + box.width / 2, box.top + box.height / 2];
})()"""
PROJECT = """
[project]
name = "orchestrator-scribe"
version = "1.0"

[project.entry-points."orchestrator.agents"]
scribe = "orchestrator_scribe:Scribe"
"""
SCRIBE = """
from orchestrator.agents.base import AgentCommand
from orchestrator.agents.shell import ShellAgent


class Scribe(ShellAgent):
    name = "scribe"

    def command(self, spec, settings):
        write = 'printf "%s\\\\n" "$1" >> notes.txt'
        return AgentCommand(argv=("sh", "-c", write, "sh", spec.prompt))
"""
"""An agent that needs no key: it writes what it is told into a file."""


@dataclass
class Person:
    """Somebody who uses a page with a mouse, or with the keyboard alone."""

    page: Page
    by: str
    clicks: int = 0
    began: float = field(default_factory=time.monotonic)

    def choose(self, text: str, selector: str = "a, button, summary") -> None:
        """Click the element with this text, or reach it with the Tab key and press Enter."""
        self.click(f"[...document.querySelectorAll({selector!r})].find((el) => "
                   f"el.checkVisibility() && el.textContent.includes({text!r}))")  # fmt: skip

    def click(self, element: str) -> None:
        """Click the element that a JavaScript expression finds."""
        self.clicks += 1
        self.page.wait_for(f"document.readyState == 'complete' && !!{element}")
        if self.by == "mouse":
            x, y = self.page.value(_PLACE % element)
            for kind in ("mousePressed", "mouseReleased"):
                self.page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left",
                               clickCount=1)  # fmt: skip
            return
        self.reach(element)
        assert self.page.value("document.activeElement.matches(':focus-visible')")
        self.press("Enter", 13, "\r")

    def reach(self, element: str) -> None:
        """Press the Tab key until an element has the focus."""
        for _ in range(120):
            if self.page.value(f"document.activeElement === {element}"):
                return
            self.press("Tab", 9)
        raise AssertionError(f"the Tab key does not reach {element}")

    def press(self, key: str, code: int, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text else {}
            self.page.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **typed
            )

    def types(self, text: str, name: str) -> None:
        """Type into the field of this name, to which an earlier click of a mouse has led."""
        focused = f"document.activeElement?.name === {name!r}"
        if self.by == "keyboard":
            self.page.wait_for(f"document.readyState == 'complete' && !!document.forms[0]?.{name}")
            self.reach(f"document.querySelector('[name={name}]:not([type=hidden])')")
        self.page.wait_for(focused)
        self.page.call("Input.insertText", text=text)

    def sees(self, text: str) -> None:
        """Wait for a text, and check that nothing was reported and nothing is cut off."""
        self.page.wait_for(f"!!document.body && document.body.innerText.includes({text!r})")
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        assert self.page.of(*kinds) == []
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.page.value(width) <= 0

    def decided(self, most: int) -> None:
        """Print how many clicks and seconds the decision took, and check the clicks."""
        seconds = time.monotonic() - self.began
        sys.stdout.write(f"by {self.by}: {self.clicks} clicks, {seconds:.1f} s\n")
        assert self.clicks <= most


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with browser(tmp_path / "chromium") as page:
        yield page


@pytest.fixture
def server(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Serve the runs of a repository, with the agent `scribe` installed."""
    install(tmp_path / "site", PROJECT, {"orchestrator_scribe.py": SCRIBE})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    server = Server(repo, state=tmp_path / "state")
    yield server
    assert server.end(signal.SIGINT) == 0


@pytest.fixture
def cleanup(repo: Path) -> Iterator[None]:
    """Remove what the runs of a test have created."""
    yield
    orchestrator("stop", "--all", "--kill", cwd=repo)
    # The process of a live run ends by itself after its workers.
    eventually(lambda: "live" not in orchestrator("ls", "--json", cwd=repo).stdout, "the end")
    assert orchestrator("parallel-cleanup", "--purge", cwd=repo).returncode == 0


def visit(page: Page, server: Server, run_id: str, how: How) -> Person:
    """Sign in, and open the page of a run."""
    address, (by, width, theme) = f"http://127.0.0.1:{server.port}", how
    page.open(f"{address}/open#{server.key}")
    page.wait_for("location.pathname == '/' && !!document.querySelector('.page')")
    page.open(f"{address}/repo/{run_id}", width=width, theme=theme)
    return Person(page, by)


def written(repo: Path, number: int, file: str) -> str:
    """Return a file of a worker's branch; empty if there is none."""
    branch = f"architect/parallel-{number}"
    if not git(repo, "branch", "--list", branch):
        return ""
    listed = git(repo, "ls-tree", "--name-only", branch).split()
    return git(repo, "show", f"{branch}:{file}") if file in listed else ""


@pytest.mark.docker
@pytest.mark.usefixtures("cleanup")
@in_each_way
def test_which_of_eight_workers_needs_me_and_i_answer_it(
    repo: Path, server: Server, page: Page, how: How
) -> None:
    tasks = ["sleep 600"] * 8
    tasks[4] = "echo work > work.txt; printf 'Drop the table? (y/n) '; sleep 600"
    options = ["--agent-cli=shell", "--network=none", "--workers=8", "--alert-prompt=1", "--detach"]
    started = orchestrator(
        "parallel", "--json", *options, *(f"--task={task}" for task in tasks), cwd=repo
    )
    visit(page, server, started.json["run_id"], how)
    page.wait_for("!!document.querySelector('.callout a')")
    assert page.value("document.title").startswith("(1) ")
    assert "icon-attention" in page.value("document.getElementById('icon').href")
    person = Person(page, how[0])
    person.choose("Worker 5", ".callout a")
    person.sees("Drop the table?")
    person.types("echo 'keep it' > answer.txt", "message")
    person.choose("Send", "form.answer button")
    person.decided(2)
    eventually(lambda: written(repo, 5, "answer.txt") == "keep it", "the next turn")
    assert written(repo, 5, "work.txt") == "work", "the work of the first turn is kept"
    person.sees("Turns")


@pytest.mark.docker
@pytest.mark.usefixtures("cleanup")
@in_each_way
def test_which_candidate_is_best_and_i_tell_it_what_to_change(
    repo: Path, server: Server, page: Page, how: How
) -> None:
    options = ["--agent-cli=scribe", "--network=none", "--workers=2", "--quiet", "--json"]
    run = orchestrator("parallel", *options, "--task=a guess", "--task=the solution", cwd=repo)
    run_id = run.json["run_id"]
    orchestrator("judge", run_id, "--check=grep -q solution notes.txt", cwd=repo)
    person = visit(page, server, run_id, how)
    person.choose("Judgement", ".tabs a")
    # It is the best by its check alone, so that its change is to be looked at.
    person.sees("a person has to review worker 2 first")
    person.sees("nothing shows that `grep -q solution notes.txt` reports failures")
    person.choose("the solution", "tbody a")
    person.sees("notes.txt")
    if person.by == "mouse":
        person.click("""document.querySelector('.diff .n[data-n="1"]')""")
    else:
        person.choose("Comment on a line")
        person.types("1", "line")
    person.types("say <b>why</b>", "text")
    person.choose("Send to worker", "#comment button")
    person.decided(4)
    message = "> the solution\nsay <b>why</b>"
    eventually(lambda: message in written(repo, 2, "notes.txt"), "the next turn")
    page.wait_for("!location.pathname.endsWith('/diff')")
    if "/command/" in page.value("location.pathname"):
        person.choose("Show what it did")
    person.choose("Turns", ".tabs a")
    person.sees("say <b>why</b>")


@in_each_way
def test_branches_are_landed_and_a_merge_is_undone(
    repo: Path, server: Server, page: Page, how: How
) -> None:
    before = git(repo, "rev-parse", "HEAD")
    results = []
    for number in (1, 2):
        git(repo, "checkout", "-q", "-b", f"architect/parallel-{number}", before)
        (repo / f"{number}.txt").write_text("x\n")
        git(repo, "add", ".")
        git(repo, "commit", "-q", "-m", "work")
        tip = git(repo, "rev-parse", "HEAD")
        results.append(result_of(number, commit=tip, files_modified=[f"{number}.txt"]))
        git(repo, "checkout", "-q", "main")
    ended_run(repo, *results)
    person = visit(page, server, RUN_ID, how)
    person.choose("Merge…")
    person.sees("If a branch conflicts")
    person.choose("Preview")
    person.sees("would be merged into")
    assert git(repo, "rev-parse", "HEAD") == before
    person.choose("Merge now")
    person.sees("Done")
    assert (repo / "1.txt").exists()
    person.choose("Undo the merge")
    person.decided(4)
    # The branch moves before the files.
    eventually(lambda: not (repo / "1.txt").exists() and not (repo / "2.txt").exists(), "the undo")
    assert git(repo, "rev-parse", "HEAD") == before


def test_a_new_run_shows_the_command_while_it_is_typed(server: Server, page: Page) -> None:
    page.open(f"http://127.0.0.1:{server.port}/open#{server.key}")
    person = Person(page, "keyboard")
    person.choose("New run…")
    person.types("echo <b>it works</b>", "task")
    person.sees("'--task=echo <b>it works</b>'")
