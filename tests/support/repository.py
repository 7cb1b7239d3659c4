"""Temporary repositories, and fingerprints of what must not change in them."""

import atexit
import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path


def git(repo: Path, *arguments: str) -> str:
    """Run git as the user of the repository would, and return its stdout."""
    done = subprocess.run(
        ["git", *arguments], cwd=repo, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout.rstrip("\n")


probes: Path | None = None
"""Directory with what is known of the engine: tests of whole runs need not test it again."""


def make_repository(path: Path) -> Path:
    """Create a repository with two commits and a few files."""
    shutil.copytree(_template(), path, symlinks=True, dirs_exist_ok=True)
    if probes is not None and probes.is_dir():
        shutil.copytree(probes, path / ".git" / "orchestrator" / "probes")
    # The index contains inodes, which differ after the copy.
    git(path, "update-index", "-q", "--refresh")
    return path


def is_new(path: Path) -> bool:
    """Return whether nothing has changed since `make_repository` returned the repository."""
    return _content(path) == _content(_template())


def _content(top: Path) -> dict[Path, bytes]:
    files = (path for path in top.rglob("*") if path.name != "index" and path.is_file())
    return {path.relative_to(top): path.read_bytes() for path in files}


@functools.cache
def _template() -> Path:
    """Create, once per process, the repository from which all others are copied."""
    path = Path(tempfile.mkdtemp(prefix="orchestrator-tests-")) / "template"
    atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
    subprocess.run(["git", "init", "-q", "-b", "main", str(path)], check=True, timeout=300)
    git(path, "config", "user.name", "user")
    git(path, "config", "user.email", "user@example.org")
    (path / "a.txt").write_text("a\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "first")
    (path / "src").mkdir()
    (path / "src" / "app.py").write_text("print('hello')\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "second")
    return path


def fingerprint(repo: Path, *, with_git: bool = True) -> dict[str, str]:
    """Return everything in a base checkout that a run must leave unchanged."""
    files = sorted(path for path in repo.rglob("*") if path.is_file() and not _ours(repo, path))
    found = {
        str(path.relative_to(repo)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }
    if not with_git:
        return found
    refs = git(repo, "for-each-ref").splitlines()
    ours = ("refs/heads/architect/", "refs/orchestrator/base/")
    found["refs"] = "\n".join(line for line in refs if not any(one in line for one in ours))
    found["status"] = git(repo, "status", "--porcelain")
    found["head"] = git(repo, "rev-parse", "HEAD")
    return found


def _ours(repo: Path, path: Path) -> bool:
    relative = path.relative_to(repo)
    if relative.parts[0].startswith(".architect-parallel-"):
        return True
    if relative.parts[0] != ".git":
        return False
    # Git's data on worktrees and branches, the orchestrator's state, and the exclude file.
    return relative.parts[1] in {"worktrees", "objects", "orchestrator", "logs", "refs"} or (
        relative.parts[1:] in {("info", "exclude"), ("packed-refs",)}
    )
