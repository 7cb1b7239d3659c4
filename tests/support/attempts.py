"""Tasks that fail a number of times, and the remains of each attempt."""

from pathlib import Path

from orchestrator.state.run_directory import RunDirectory
from tests.support.live import newest
from tests.support.repository import git

REFS = "refs/orchestrator/attempts/"


def flaky(tally: Path, *, failures: int, rest: str = "") -> str:
    """Return a task that fails so many times, and writes one file per attempt."""
    return (
        f"echo x >> {tally}; n=$(wc -l < {tally}); ls; echo attempt $n; "
        f"echo $n > of-$n; echo $n >> a.txt; {rest} [ $n -gt {failures} ]"
    )


def count(tally: Path) -> int:
    return len(tally.read_text().splitlines())


def kept(repo: Path) -> dict[str, str]:
    listing = git(repo, "for-each-ref", "--format=%(refname) %(objectname)", REFS)
    pairs = (line.split(" ") for line in listing.splitlines())
    return {ref.removeprefix(REFS).partition("/")[2]: commit for ref, commit in pairs}


def state_of(repo: Path) -> RunDirectory:
    return newest(repo).directory
