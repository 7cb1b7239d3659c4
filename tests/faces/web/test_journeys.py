"""What people come to the web view for, in Chromium, by mouse and by keyboard alone.

Each journey begins at the page of the run, and counts what is clicked until the decision is sent.
"""

import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chromium import Page, browser
from tests.support.cli import orchestrator
from tests.support.live import eventually
from tests.support.person import Person, cleaned_up, written
from tests.support.plugin import install
from tests.support.reports import RUN_ID
from tests.support.repository import git
from tests.support.web import Server, ended_run, result_of

pytestmark = [pytest.mark.extra, pytest.mark.process, pytest.mark.timeout(900)]
How = tuple[str, int, str]
HOW = list(itertools.product(("mouse", "keyboard"), (1400, 390), ("light", "dark")))
in_each_way = pytest.mark.parametrize("how", HOW, ids=lambda how: "-".join(map(str, how)))
PROJECT = """
[project]
name = "orchestrator-scribe"
version = "1.0"

[project.entry-points."orchestrator.agents"]
scribe = "orchestrator_scribe:Scribe"
"""
SCRIBE = """
from orchestrator.agents.base import AgentCommand
from orchestrator.agents.programs.shell import ShellAgent


class Scribe(ShellAgent):
    name = "scribe"

    def command(self, spec, settings):
        write = 'printf "%s\\\\n" "$1" >> notes.txt'
        return AgentCommand(argv=("sh", "-c", write, "sh", spec.prompt))
"""
"""An agent that needs no key: it writes what it is told into a file."""


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
    with cleaned_up(repo):
        yield


def visit(page: Page, server: Server, run_id: str, how: How) -> Person:
    """Sign in, and open the page of a run."""
    address, (by, width, theme) = f"http://127.0.0.1:{server.port}", how
    page.open(f"{address}/open#{server.key}")
    page.wait_for("location.pathname == '/' && !!document.querySelector('.page')")
    page.open(f"{address}/repo/{run_id}", width=width, theme=theme)
    return Person(page, by)


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
