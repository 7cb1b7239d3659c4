"""Tests of copied files and submodules in real containers, overlay and bind."""

import subprocess
from pathlib import Path

import pytest

from tests.support.cli import orchestrator, printed, run_one
from tests.support.repository import fingerprint, git
from tests.support.submodules import with_submodules

pytestmark = [pytest.mark.docker, pytest.mark.variants("*overlay*")]
# Overlay options cannot contain a comma, so the mode `bind` is used there.
PLACES = {"overlay": "plain", "bind": "with,comma"}


@pytest.fixture(params=PLACES)
def repo(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a repository with submodules and untracked files."""
    repo = with_submodules(tmp_path / PLACES[request.param] / "repo")
    (repo / ".gitignore").write_text("/deps/\n.env\n")
    git(repo, "add", ".gitignore")
    git(repo, "commit", "-qm", "ignore")
    (repo / "deps" / "inner").mkdir(parents=True)
    (repo / "deps" / "inner" / "index.js").write_text("deps\n")
    (repo / "deps" / "link").symlink_to("inner/index.js")
    (repo / ".env").write_text("TOKEN=1\n")
    return repo


@pytest.mark.variants("bind")
def test_copied_files_are_present_and_not_committed(repo: Path) -> None:
    before = fingerprint(repo)
    task = (
        "cat deps/link .env; git status --porcelain; echo x > deps/own; echo y > .env; "
        "echo '!.env' >> .gitignore; echo w > w"
    )
    result = run_one(repo, task, "--copy", "deps/", "--copy", ".env")
    assert printed(result) == "deps\nTOKEN=1\n"
    assert result["files_modified"] == [".gitignore", "w"]
    seen = Path(result["worktree_path"])
    assert (seen / ".env").read_text() == "TOKEN=1\n"
    assert (seen / "deps" / "link").readlink() == Path("inner/index.js")
    assert fingerprint(repo) == before
    own = subprocess.run(["find", str(seen), "!", "-user", Path(repo).owner()],
                         capture_output=True, text=True, check=True)  # fmt: skip
    assert own.stdout == ""


def test_submodules_are_checked_out(repo: Path) -> None:
    before = fingerprint(repo)
    task = (
        "set -e; git status --porcelain; cat vendor/lib/deep/src/app.py; cd vendor/lib; "
        "git status --porcelain; git log -1 --format=%s; cd deep; git status --porcelain; "
        "git log -1 --format=%s; find /workspace -user root ! -path /workspace ! -name .git"
    )
    result = run_one(repo, task)
    assert printed(result) == "print('hello')\nadd deep\nsecond\n"
    assert result["files_modified"] == []
    seen = Path(result["worktree_path"])
    assert (seen / "vendor" / "lib" / "a.txt").read_text() == "a\n"
    assert not (seen / "vendor" / "lib" / ".git").exists()
    assert git(seen, "status", "--porcelain") == ""
    assert fingerprint(repo) == before


@pytest.mark.extra
def test_changes_in_a_submodule_are_saved_as_a_patch(repo: Path) -> None:
    link = git(repo, "rev-parse", "HEAD:vendor/lib")
    task = (
        "cd vendor/lib; echo more >> a.txt; git commit -qam inner; echo new > deep/new; "
        "printf '\\0\\1' > binary; cd ../..; echo w > w; git add w; git commit -qm mine"
    )
    result = run_one(repo, task)
    assert result["files_modified"] == ["w"]
    assert git(repo, "log", "-1", "--format=%s", result["branch"]) == "mine"
    assert git(repo, "rev-parse", f"{result['branch']}:vendor/lib") == link
    kept = [Path(result["log"]) / f"submodule-{number}.patch" for number in (0, 1)]
    assert all(str(patch) in result["message"] for patch in kept)
    git(repo / "vendor" / "lib", "apply", str(kept[0]))
    git(repo / "vendor" / "lib" / "deep", "apply", str(kept[1]))
    assert (repo / "vendor" / "lib" / "a.txt").read_text() == "a\nmore\n"
    assert (repo / "vendor" / "lib" / "binary").read_bytes() == b"\0\1"
    assert (repo / "vendor" / "lib" / "deep" / "new").read_text() == "new\n"


@pytest.mark.extra
def test_moved_submodule_is_reset_on_the_branch(repo: Path) -> None:
    link = git(repo, "rev-parse", "HEAD:vendor/lib")
    task = (
        "cd vendor/lib; echo more >> a.txt; git commit -qam inner; cd ../..; "
        "echo w > w; git add -A; git commit -qm outer"
    )
    result = run_one(repo, task)
    assert result["files_modified"] == ["w"]
    assert "commits moved a submodule" in result["message"]
    assert git(repo, "rev-parse", f"{result['branch']}:vendor/lib") == link
    assert "+more" in (Path(result["log"]) / "submodule-0.patch").read_text()


@pytest.mark.variants("bind")
@pytest.mark.extra
def test_removed_submodule_is_committed(repo: Path) -> None:
    result = run_one(repo, "rm -r vendor; git add -A; git commit -qm gone")
    assert result["files_modified"] == ["vendor/lib"]
    done = orchestrator("parallel-cleanup", cwd=repo)
    assert done.returncode == 0, done.stderr
    backup = git(repo, "for-each-ref", "--format=%(objectname)", "refs/orchestrator/backup/")
    assert git(repo, "log", "-1", "--format=%s", backup) == "gone"


@pytest.mark.variants("bind")
def test_hostile_git_directory_of_a_submodule_runs_nothing(repo: Path) -> None:
    task = (
        "cd vendor/lib; rm .git; git init -q .; git config core.fsmonitor 'touch /workspace/ran'; "
        "git config --file /git/modules/0/config core.fsmonitor 'touch /workspace/ran2'; "
        "echo w > /workspace/w"
    )
    result = run_one(repo, task)
    assert result["files_modified"] == ["w"]


@pytest.mark.extra
def test_retry_has_copies_and_submodules(repo: Path) -> None:
    task = "cat vendor/lib/a.txt deps/link; echo w >> w; test $(wc -l < w) = 2"
    result = run_one(
        repo, task, "--copy", "deps/", "--retries", "1", "--retry-delay", "0",
        "--retry-from", "keep",
    )  # fmt: skip
    assert (result["status"], result["attempts"]) == ("success", 2)
    assert (printed(result), result["files_modified"]) == ("a\ndeps\n", ["w"])
