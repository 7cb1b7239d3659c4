"""Every button of the web view, pressed in Chromium, with real containers, commits and records."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chromium import browser
from tests.support.cli import start
from tests.support.forges import Forges, add_remote, install_forges
from tests.support.live import eventually
from tests.support.person import Person, cleaned_up, written
from tests.support.repository import git
from tests.support.web import Server

pytestmark = [
    pytest.mark.extra, pytest.mark.process, pytest.mark.docker, pytest.mark.timeout(900),
]  # fmt: skip
_ON_RUN = r"/^\/repo\/\d{8}-\d{6}-\w{6}$/.test(location.pathname)"
_LEADS_ON = ".row a.primary"
_ENDED = "document.readyState == 'complete' && document.body.dataset.live === undefined"


class User(Person):
    """Somebody who starts, follows and ends runs in one repository."""

    def __init__(self, page, repo: Path, server: Server) -> None:
        super().__init__(page, "mouse")
        self.repo, self.home = repo, f"http://127.0.0.1:{server.port}"
        page.open(f"{self.home}/open#{server.key}")
        page.wait_for("location.pathname == '/' && !!document.querySelector('.page')")

    def goes(self, *parts: object) -> None:
        self.page.open("/".join((self.home, "repo", *map(str, parts))))

    def opens_form(self, run_id: str, item: str) -> None:
        """Open a form of the menu of a run's page."""
        self.goes(run_id)
        self.choose("More", "summary")
        self.choose(item, ".menu a")

    def fills(self, **values: str) -> None:
        """Fill in fields of the form, each by its name."""
        for name, value in values.items():
            field = f"document.querySelector('form[data-command] [name={name}]')"
            self.page.wait_for(f"document.readyState == 'complete' && !!{field}")
            self.page.value(f"{field}.value = {value!r}")
            self.page.value(f"{field}.dispatchEvent(new Event('input', {{ bubbles: true }}))")

    def starts(self, button: str) -> str:
        """Press the button that starts a run; return the run's id when it is shown."""
        self.choose(button, "form[data-command] button")
        # On a busy machine, the page of the command is shown first.
        self.page.wait_for(f"{_ON_RUN} || !!document.querySelector('{_LEADS_ON}')")
        if not self.page.value(_ON_RUN):
            self.choose("Show", _LEADS_ON)
            self.page.wait_for(_ON_RUN)
        return str(self.page.value("location.pathname.split('/')[2]"))

    def runs(self, task: str) -> str:
        """Start a run of one worker by the form."""
        self.page.open(self.home)
        self.choose("New run")
        self.fills(task=task, agent_cli="shell", workers="1", network="none")
        return self.starts("Start")

    def sees_the_end(self, *said: str) -> None:
        """Wait until the run on the page has ended, as these texts say."""
        self.page.wait_for(_ENDED)
        for text in said:
            self.sees(text)


@pytest.fixture(autouse=True)
def forges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forges:
    return install_forges(tmp_path / "bin", monkeypatch, "gh")


@pytest.fixture
def user(repo: Path, tmp_path: Path) -> Iterator[User]:
    server = Server(repo, state=tmp_path / "state")
    with cleaned_up(repo), browser(tmp_path / "chromium") as page:
        yield User(page, repo, server)
    assert server.end(signal.SIGINT) == 0


def notices(repo: Path, run_id: str) -> str:
    """Return the record of a run's events."""
    return (repo / ".git/orchestrator/runs" / run_id / "events.ndjson").read_text()


def test_runs_are_started_repeated_continued_and_stopped(repo: Path, user: User) -> None:
    first = user.runs("echo one > one.txt")
    user.sees_the_end("Success")
    assert written(repo, 1, "one.txt") == "one"

    user.opens_form(first, "Run again")
    user.sees(f"Run again: {first}")
    second = user.starts("Start")
    assert second != first
    user.sees_the_end("Success")
    assert written(repo, 2, "one.txt") == "one"

    user.goes(second, 2)
    user.choose("Retry…")
    user.fills(message="echo three > three.txt")
    third = user.starts("Retry worker 2")
    user.sees_the_end("Success")
    assert third not in (first, second)
    assert written(repo, 3, "three.txt") == "three"
    assert written(repo, 3, "one.txt") == "", "it starts from the base"

    user.goes(second, 2)
    user.choose("Continue…")
    user.fills(message="echo two >> one.txt")
    user.choose("Send", "form[data-command] button")
    eventually(lambda: written(repo, 2, "one.txt") == "one\ntwo", "the next turn")
    assert f"orchestrator continue 2 --run {second}`" in notices(repo, second)

    last = user.runs("echo four > four.txt; echo written $((2 * 2)); sleep 600")
    user.sees("written 4")
    user.choose("Stop run…")
    user.choose("Stop", "form button")
    user.sees_the_end("Cancelled")
    assert written(repo, 4, "four.txt") == "four", "the work until then is kept"
    assert "asked to stop worker 4" in notices(repo, last)


def test_a_run_whose_process_was_killed_is_resumed(repo: Path, user: User) -> None:
    options = ("--agent-cli=shell", "--network=none", "--workers=1", "--quiet")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = start(
        "parallel", *options, "--task=echo once >> early.txt; sleep 8; echo late > late.txt",
        cwd=repo, fork=False, start_new_session=True, **quiet,
    )  # fmt: skip
    runs = repo / ".git/orchestrator/runs"
    eventually(lambda: any("worker_started" in notices(repo, one.name) for one in runs.iterdir()
                           if (one / "events.ndjson").exists())
               if runs.is_dir() else False, "the start")  # fmt: skip
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (run,) = (one for one in runs.iterdir() if one.is_dir())
    user.goes(run.name)
    user.sees("The run's process is gone.")
    user.choose("Resume…")
    user.choose("Resume", "form[data-command] button")
    eventually(lambda: written(repo, 1, "late.txt") == "late", "the end of the task")
    assert written(repo, 1, "early.txt") == "once", "the task ran once"
    user.goes(run.name)
    user.sees_the_end("Success")


def test_work_is_judged_landed_taken_back_published_and_cleaned_up(
    repo: Path, tmp_path: Path, user: User, forges: Forges
) -> None:
    remote, before = add_remote(repo, tmp_path / "remote.git"), git(repo, "rev-parse", "HEAD")
    run = user.runs("echo one > one.txt")
    user.sees_the_end("Success")

    user.opens_form(run, "Judge")
    user.fills(check="grep -q one one.txt")
    user.choose("Judge", "form[data-command] button")
    record = repo / ".git/orchestrator/runs" / run / "judgement-1.json"
    eventually(record.exists, "the judgement")
    user.goes(run, "judgement")
    user.sees("grep -q one one.txt")

    user.choose("Pick…", "tbody a")
    user.choose("Preview", "form button")
    user.sees("would be merged into")
    assert git(repo, "rev-parse", "HEAD") == before
    user.choose("Merge now", "form button")
    user.sees("Done")
    assert (repo / "one.txt").read_text() == "one\n"
    user.choose("Undo the merge", "form button")
    eventually(lambda: not (repo / "one.txt").exists(), "the undo")
    assert git(repo, "rev-parse", "HEAD") == before

    user.opens_form(run, "Pull request")
    user.choose("Preview", "form[data-command] button")
    user.sees("gh pr create")
    assert forges.calls("create") == []
    user.choose("Push and create", "form[data-command] button")
    eventually(lambda: forges.calls("create"), "the pull request")
    user.sees("https://forge.example/gh/7")
    pushed = git(remote, "for-each-ref", "--format=%(refname)").split()
    pushed.remove("refs/heads/main")
    assert [git(remote, "show", f"{ref}:one.txt") for ref in pushed] == ["one"]

    user.opens_form(run, "Clean up")
    user.choose("Preview", "form[data-command] button")
    user.sees("architect/parallel-1")
    assert (repo / ".architect-parallel-1").is_dir()
    user.choose("Clean up", "form[data-command] button")
    eventually(lambda: not git(repo, "branch", "--list", "architect/parallel-1"), "the cleanup")
    assert not (repo / ".architect-parallel-1").exists()
    backups = git(repo, "for-each-ref", "--format=%(refname)", "refs/orchestrator/backup")
    assert run in backups, "the work is not merged, and is kept"
