"""A real project that is broken in five ways: see tests/data/judging/README.md."""

import hashlib
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support.repository import git

DATA = Path(__file__).parents[1] / "data" / "judging"
SDIST = DATA / "cachetools-5.5.2.tar.gz"
_SHA256 = "1a661caa9175d26759571b2e19580f9d6393969e5dfca11fdb1f947a23e640d4"
NAMES = ("right", "partly", "edits", "deletes", "hardcodes", "idle", "conflicts", "slow")
"""The candidates; the models of the workers have these names."""
AREAS = ("keys", "cache", "lfu", "lru", "ttl")
"""The five broken parts; each has a file of tests."""
PYTHON = "PYTHONPATH=src PYTHONDONTWRITEBYTECODE=1 python3"
SUITE = f"{PYTHON} -m unittest discover -s tests -t ."
SLOW = f"{PYTHON} tools/slow.py"
BEHAVIOUR = f"{PYTHON} tools/behaviour.py"


def test_of(area: str) -> str:
    """Return the check of one of the broken parts."""
    return f"{PYTHON} -m unittest tests.test_{area}"


def make_project(repo: Path) -> None:
    """Commit the broken project to an existing repository, in place of its files."""
    assert hashlib.sha256(SDIST.read_bytes()).hexdigest() == _SHA256
    git(repo, "rm", "-q", "-r", ".")
    with tarfile.open(SDIST) as archive:
        archive.extractall(repo.parent / "sdist", filter="data")
    (top,) = (repo.parent / "sdist").iterdir()
    for path in top.iterdir():
        path.rename(repo / path.name)
    subprocess.run([sys.executable, DATA / "break.py"], cwd=repo, check=True)
    (repo / "tools").mkdir()
    for name in ("slow.py", "behaviour.py"):
        (repo / "tools" / name).write_text((DATA / name).read_text())
    (repo / ".gitignore").write_text("__pycache__/\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "cachetools, broken in five ways")


def make_hidden(place: Path) -> Path:
    """Create the directory of hidden tests."""
    (place / "tests").mkdir(parents=True)
    (place / "tests" / "test_held_back.py").write_text((DATA / "held_back.py").read_text())
    return place


def script_of(name: str) -> str:
    """Return the commands by which a candidate works."""
    return (DATA / "candidates" / f"{name}.sh").read_text()


def task() -> str:
    """Return a task that each model carries out in its own way."""
    cases = "".join(f"{name})\n{script_of(name)};;\n" for name in NAMES)
    return f"case $ORCHESTRATOR_MODEL in\n{cases}esac"
