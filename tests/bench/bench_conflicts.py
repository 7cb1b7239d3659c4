"""Time of the conflict matrix of 10 branches in a repository of 10,000 files.

Run it with `python tests/bench/bench_conflicts.py [--files 10000] [--branches 10] [--rounds 3]`;
it needs no container engine. The comparison is `git merge-tree` once for every pair.
"""

import argparse
import resource
import subprocess
import tempfile
from itertools import combinations
from pathlib import Path

import measure

from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch
from orchestrator.review.landing.conflict_matrix import find_conflicts

MOST_SECONDS = 3.0
"""Maximum duration of the matrix in seconds."""


def make_branches(repo: Path, files: int, branches: int) -> list[Branch]:
    """Create a repository whose branches change 100 files each; neighbours conflict in one."""
    measure.run("git", "init", "-q", "-b", "main", str(repo))
    stream = [
        "commit refs/heads/main\nmark :1\ncommitter u <u@example.org> 1700000000 +0000\n"
        "data 4\nbase"
    ]
    lines = "".join(f"line {number}\n" for number in range(30))
    for number in range(files):
        text = f"{number}\n{lines}"
        stream.append(f"M 644 inline src/{number % 100}/file-{number}\ndata {len(text)}\n{text}")
    for one in range(branches):
        stream.append(
            f"commit refs/heads/w{one}\ncommitter u <u@example.org> 1700000001 +0000\n"
            "data 4\nwork\nfrom :1"
        )
        for place in range(100):
            number = (one * 99 + place) % files
            text = f"{number}\nworker {one}\n{lines}"
            stream.append(
                f"M 644 inline src/{number % 100}/file-{number}\ndata {len(text)}\n{text}"
            )
    subprocess.run(
        ["git", "fast-import", "--quiet"],
        cwd=repo, input="\n".join([*stream, ""]).encode(), check=True,
    )  # fmt: skip
    repository = Repository(repo)
    base = repository.resolve("main")
    return [
        Branch(one + 1, "work", base, repository.resolve(f"w{one}"), None)
        for one in range(branches)
    ]


def main() -> None:
    """Measure, print a table, and fail if the matrix takes too long."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--branches", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orchestrator-bench-") as directory:
        repo = Path(directory) / "repository"
        branches = make_branches(repo, options.files, options.branches)
        repository = Repository(repo)
        base = branches[0].base
        found = find_conflicts(repository, branches, run_id="r", base=base)

        def matrix() -> float:
            return measure.timed(
                lambda: find_conflicts(repository, branches, run_id="r", base=base)
            )

        def alone() -> float:
            commits = [base, *(one.commit for one in branches)]
            return measure.timed(
                lambda: [
                    subprocess.run(
                        ["git", "merge-tree", "--write-tree", a, b],
                        cwd=repo, capture_output=True, check=False,
                    )
                    for a, b in combinations(commits, 2)
                ]
            )  # fmt: skip

        times = measure.medians(
            measure.interleaved(
                {"orchestrator conflicts": matrix, "git merge-tree": alone}, options.rounds
            )
        )
    pairs = f"{len(found.pairs)} pairs, {len(found.conflicting)} conflicts"
    rows = [(name, pairs, f"{seconds:.2f}") for name, seconds in times.items()]
    measure.table(f"{options.branches} branches, {options.files} files", ("", "", "s"), rows)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    measure.note(f"processor time of git: {used.ru_utime + used.ru_stime:.1f} s")
    if times["orchestrator conflicts"] > MOST_SECONDS:
        raise SystemExit(f"the matrix took more than {MOST_SECONDS} s")


if __name__ == "__main__":
    main()
