"""Worktrees that appear at the end or never: workers share a checkout that none of them changes."""

import os
import shutil
from pathlib import Path

import docker
import pytest

from orchestrator.base.events import Event, WorkerMeasured
from orchestrator.engine import load_engine
from orchestrator.state.record.states import WorkerState
from orchestrator.state.record.usage_monitor import UsageMonitor
from orchestrator.worker.workspace.shared_checkout import is_intact
from tests.support.cli import orchestrator, printed, run_one
from tests.support.daemon import touch_in_workers
from tests.support.live import eventually, newest, states
from tests.support.repository import fingerprint, git, make_repository
from tests.support.screen import Screen

pytestmark = [pytest.mark.docker, pytest.mark.variants("*overlay*")]
# Overlay options cannot contain a comma, so the mode `bind` is used there.
PLACES = {"overlay": "plain", "bind": "with,comma"}
TASK = (
    "set -e; cat a.txt; echo w > a.txt; rm -r src; chmod +x a.txt; echo new > new; "
    "mkdir sub; echo one > sub/one; git add sub; git commit -qm one; git status --porcelain; "
    "! touch /git-objects/x 2> /dev/null"
)


@pytest.fixture(params=PLACES)
def repo(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return make_repository(tmp_path / PLACES[request.param] / "repo")


def checkouts(repo: Path) -> list[Path]:
    place = repo / ".git" / "orchestrator" / "checkouts"
    return sorted(path for path in place.iterdir() if path.is_dir())


@pytest.mark.parametrize("worktrees", ["end", "none"])
@pytest.mark.variants("overlay-end")
def test_workers_share_a_checkout_and_none_changes_it(repo: Path, worktrees: str) -> None:
    before = fingerprint(repo)
    options = ("--worktrees", worktrees, "--workers", "2", "--network", "none", "--json")
    command = ("parallel", "--agent-cli", "shell", TASK, *options)
    first = orchestrator(*command, cwd=repo)
    assert first.returncode == 0, first.stderr
    (checkout,) = checkouts(repo)
    made = (checkout / "tree" / "a.txt").stat()
    for number, result in first.results.items():
        assert result["files_modified"] == ["a.txt", "new", "src/app.py", "sub/one"]
        shown = repo / f".architect-parallel-{number}"
        assert result["worktree_path"] == ("" if worktrees == "none" else str(shown))
        assert shown.exists() == (worktrees == "end")
        if worktrees == "end":
            assert git(shown, "status", "--porcelain") == ""
            assert git(shown, "rev-parse", "HEAD") == result["commit"]
            assert {path.lstat().st_uid for path in shown.rglob("*")} == {os.getuid()}
            assert (shown / "a.txt").read_text() == "w\n"
    assert orchestrator(*command, cwd=repo).returncode == 0
    assert checkouts(repo) == [checkout]
    assert is_intact(checkout)
    assert (checkout / "tree" / "a.txt").stat() == made
    assert fingerprint(repo) == before
    done = orchestrator("parallel-cleanup", cwd=repo)
    assert done.returncode == 0, done.stderr
    assert checkouts(repo) == []
    assert not list(repo.glob(".architect-parallel-*"))
    assert git(repo, "for-each-ref", "refs/heads/architect") == ""
    restored = orchestrator("restore", "1", cwd=repo)
    assert restored.returncode == 0, restored.stderr
    assert (repo / ".architect-parallel-1" / "a.txt").read_text() == "w\n"


def test_what_is_added_to_a_worker_is_not_added_to_the_checkout(repo: Path) -> None:
    (repo / ".gitignore").write_text(".env\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "ignore")
    (repo / ".env").write_text("TOKEN=1\n")
    task = "cat .env; echo w > w; git status --porcelain"
    result = run_one(repo, task, "--worktrees", "end", "--copy", ".env")
    assert printed(result) == "TOKEN=1\n?? w\n"
    assert result["files_modified"] == ["w"]
    (checkout,) = checkouts(repo)
    assert not (checkout / "tree" / ".env").exists()
    assert is_intact(checkout)


@pytest.mark.extra
def test_directories_of_a_confined_worker_are_not_made_in_the_checkout(repo: Path) -> None:
    task = "echo x > docs/x; ! touch src/y 2> /dev/null"
    result = run_one(
        repo, task, "--worktrees", "none", "--alert-outside", "docs", "--enforce", "ro"
    )
    assert result["files_modified"] == ["docs/x"]
    (checkout,) = checkouts(repo)
    assert is_intact(checkout)


@pytest.mark.parametrize("retry_from", ["base", "keep"])
@pytest.mark.variants("overlay-keep", "bind-base")
@pytest.mark.extra
def test_a_retry_starts_from_the_base_or_from_what_was_committed(
    repo: Path, retry_from: str
) -> None:
    task = "ls; test -e one && exit 0; echo 1 > one; git add one; git commit -qm one; exit 1"
    again = ("--retries", "1", "--retry-delay", "0", "--retry-from", retry_from)
    command = ("parallel", "--agent-cli", "shell", task, "--workers", "1", "--worktrees", "end")
    done = orchestrator(*command, *again, "--network", "none", "--json", cwd=repo)
    (result,) = done.results.values()
    assert result["attempts"] == 2
    assert result["status"] == ("success" if retry_from == "keep" else "failed")
    shown = Path(result["worktree_path"])
    assert (shown / "one").read_text() == "1\n"
    assert git(shown, "status", "--porcelain") == ""


@pytest.mark.variants("bind")
@pytest.mark.extra
def test_worktree_that_appears_after_a_teardown_has_the_work(repo: Path) -> None:
    taken = repo / ".architect-parallel-1"
    task = "echo w > w"
    result = run_one(repo, task, "--worktrees", "end", "--teardown", "sleep 0.1")
    assert (taken / "w").exists()
    assert result["message"] is None


@pytest.mark.variants("bind")
@pytest.mark.extra
def test_a_running_worker_is_entered_and_a_deleted_checkout_is_made_again(
    client: docker.APIClient, repo: Path
) -> None:
    task = "echo new > new; until test -e /tmp/go; do sleep 0.1; done"
    command = ("parallel", "--agent-cli", "shell", task, "--workers", "1", "--network", "none")
    begun = orchestrator(*command, "--worktrees", "none", "--detach", cwd=repo)
    assert begun.returncode == 0, begun.stderr
    eventually(lambda: WorkerState.RUNNING in states(repo), "the start")
    eventually(
        lambda: (
            orchestrator("exec", "1", "--", "cat", "a.txt", "new", cwd=repo).stdout == "a\nnew\n"
        ),
        "what the worker wrote",
    )
    (checkout,) = checkouts(repo)
    shutil.rmtree(checkout)
    touch_in_workers(client, repo, "/tmp/go")
    done = orchestrator("wait", "--json", cwd=repo)
    assert done.results[1]["status"] == "success", done.stdout
    assert done.results[1]["files_modified"] == ["new"]


@pytest.mark.parametrize("worktrees", ["end", "none"])
@pytest.mark.variants("bind-end")
@pytest.mark.extra
def test_commands_show_the_files_of_a_running_worker(
    client: docker.APIClient, repo: Path, worktrees: str
) -> None:
    task = "echo new > new; echo said; until test -e /tmp/go; do sleep 0.1; done"
    command = ("parallel", "--agent-cli", "shell", task, "--workers", "1", "--network", "none")
    begun = orchestrator(*command, "--worktrees", worktrees, "--detach", cwd=repo)
    assert begun.returncode == 0, begun.stderr
    eventually(
        lambda: orchestrator("exec", "1", "--", "cat", "new", cwd=repo).stdout == "new\n",
        "what the worker wrote",
    )
    assert not (repo / ".architect-parallel-1").exists()
    # Only a worker with a checkout of its own needs a copy of the index for its harvest.
    copies = list(repo.glob(".git/orchestrator/runs/*/worker-1/harvest/index"))
    assert len(copies) == ("," in str(repo))
    screen = Screen(repo, "shell", "1")
    try:
        screen.read_until(r"[$#] ")
        screen.type("cat a.txt new; exit\n")
        screen.read_until(r"a\r\nnew\r\n")
        assert screen.finish() == 0
    finally:
        screen.close()
    shown: list[Event] = []
    with newest(repo) as history:
        while history.read():
            pass
        monitor = UsageMonitor(history, shown.append, connect=lambda: load_engine("docker"))
        monitor.look()
    (measured,) = shown
    assert isinstance(measured, WorkerMeasured)
    assert measured.files == 1
    assert measured.memory
    touch_in_workers(client, repo, "/tmp/go")
    watched = orchestrator("watch", cwd=repo)
    assert (watched.returncode, "said" in watched.stderr) == (0, True), watched.stderr
    assert (repo / ".architect-parallel-1" / "new").exists() == (worktrees == "end")


def test_a_plan_names_no_worktree_that_will_not_exist(repo: Path) -> None:
    command = ("parallel", "--agent-cli", "shell", "true", "--workers", "1", "--dry-run", "--json")
    plan = orchestrator(*command, "--worktrees", "none", cwd=repo).json
    assert [worker["worktree_path"] for worker in plan["workers"]] == [""]
