"""One and eight trivial workers in a repository with a long past, against git and `docker run`.

Run it with `python tests/bench/bench_history.py [--commits 40000] [--files 2000] [--workers 8]
[--rounds 5]`; `TMPDIR` decides on which disk. The repository is generated: its first commit has all
files, three directories deep, and every other commit changes three of them.

`--checkout DIR` measures clones of another repository instead. Nothing is written into `DIR`.
`--generate DIR` only writes the generated repository.

"Plain" is `git worktree add` and `docker run`. Every round measures the shapes twice, each time in
a fresh clone: through the Python API, and with the command.
"""

import argparse
import os
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import measure

from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.runs.runner import ParallelRunner

_LINES = 20
_CHANGED = 3
_PACKED = (".pack", ".idx", ".rev", ".bitmap", ".graph", "commit-graph")
"""Ends of the names of files with packed objects, or made from them."""
Run = Callable[[Path, int], float]
"""Runs so many trivial workers in a repository, and returns the seconds."""


def generate(root: Path, commits: int, files: int) -> None:
    """Write a repository, the same for the same arguments, whose commits are all in one pack."""
    measure.run("git", "init", "-q", "-b", "main", str(root))
    form = ("fast-import", "--quiet", "--depth=50")
    # Few objects would not be packed otherwise.
    command = ("git", "-C", str(root), "-c", "fastimport.unpackLimit=0", *form)
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        texts = [[f"file {file}, line {line}" for line in range(_LINES)] for file in range(files)]
        for number in range(commits):
            message = f"change {number}\n"
            process.stdin.write(
                f"commit refs/heads/main\ncommitter bench <bench@localhost> "
                f"{1_500_000_000 + number * 600} +0000\ndata {len(message)}\n{message}".encode()
            )
            for file in _files_of(number, files):
                if number:
                    texts[file][(number * 13 + file) % _LINES] = f"file {file} of commit {number}"
                text = "\n".join(texts[file]) + "\n"
                place = f"area{file % 10}/part{file // 10 % 10}/unit{file // 100 % 10}"
                process.stdin.write(
                    f"M 100644 inline {place}/file{file:05}.txt\n"
                    f"data {len(text)}\n{text}\n".encode()
                )
    if process.returncode:
        raise RuntimeError(f"git fast-import ended with {process.returncode}")
    measure.run("git", "reset", "-q", "--hard", cwd=root)


def _files_of(number: int, files: int) -> range | list[int]:
    """Return the files that a commit changes; its successors change others."""
    if not number:
        return range(files)
    return [(number * 7919 + number**2 * 31 + at * 104_729) % files for at in range(_CHANGED)]


@contextmanager
def clone(source: Path) -> Iterator[Path]:
    """Clone a repository, and remove the clone afterwards."""
    with tempfile.TemporaryDirectory(
        prefix="orchestrator-bench-", ignore_cleanup_errors=True
    ) as scratch:
        root = Path(scratch) / "clone"
        # Shares no file with the source, whose owner and permissions could change with it.
        measure.run("git", "clone", "-q", "--no-hardlinks", str(source), str(root))
        measure.configure(root)
        yield root


def commit_one(root: Path) -> None:
    (root / "one-commit-on.txt").write_text("one commit on\n")
    measure.run("git", "add", "one-commit-on.txt", cwd=root)
    measure.run("git", "commit", "-q", "--no-verify", "-m", "one commit on", cwd=root)


def api(root: Path, workers: int) -> float:
    config = ParallelConfig(
        tasks=("true",), workers=workers, agent_cli="shell", max_worktrees=1000,
        isolation=Isolation(network="none"),
    )  # fmt: skip
    results = []
    seconds = measure.timed(lambda: results.extend(ParallelRunner(config, root).run()))
    assert [result.status for result in results] == ["success"] * workers, results
    return seconds


def command(root: Path, workers: int) -> float:
    words = (
        *measure.ORCHESTRATOR, "parallel", "true", "--workers", str(workers), "--agent-cli",
        "shell", "--network", "none", "--quiet",
    )  # fmt: skip
    return measure.timed(lambda: measure.run(*words, cwd=root))


def plain(root: Path, workers: int) -> float:
    seconds = measure.shell_loop(root, workers, "true", "none")
    measure.undo_loop(root, workers)
    return seconds


def shapes(root: Path, run: Run, workers: int) -> dict[str, tuple[float, float]]:
    """Measure the shapes in a fresh clone; return the seconds of git and docker, and ours."""
    one, several = plain(root, 1), plain(root, workers)
    first, again = run(root, 1), run(root, 1)
    commit_one(root)
    further = run(root, 1)
    return {
        "first run": (one, first),
        "again": (one, again),
        "one commit on": (one, further),
        f"{workers} workers": (several, run(root, workers)),
    }


def measured_shapes(source: Path, workers: int, rounds: int) -> list[list[str]]:
    bare: dict[str, list[float]] = defaultdict(list)
    ours: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(rounds):
        for way, run in (("API", api), ("command", command)):
            with clone(source) as root:
                found = shapes(root, run, workers)
            for shape, (theirs, own) in found.items():
                bare[shape].append(theirs)
                ours[way, shape].append(own)
                seconds = f"{own:.2f} s, plain {theirs:.2f} s"
                measure.note(f"round {number + 1}/{rounds}  {way}, {shape}: {seconds}")
    rows = []
    for shape, floor in measure.medians(bare).items():
        took = measure.medians({way: ours[way, shape] for way in ("API", "command")})
        rows.append([
            shape, *(f"{seconds - floor:.2f}" for seconds in took.values()),
            *(measure.milliseconds(seconds) for seconds in (floor, *took.values())),
        ])  # fmt: skip
    return rows


def disk(source: Path, workers: int) -> list[list[str]]:
    """Return a row about the copies of the past, in runs with one and with several workers."""
    rows = []
    with clone(source) as root:
        past = sum(packed(root / ".git/objects").values()) / 1e6
        for count in (1, workers):
            with measure.largest_of(partial(added, root)) as peak:
                api(root, count)
            copies = (past, *peak, added(root))
            rows.append([
                f"{count}", measure.ratio(*peak, past), *(f"{size:.1f}" for size in copies),
            ])  # fmt: skip
    return rows


def packed(directory: Path) -> dict[int, int]:
    """Return the space that files with packed objects take, by inode."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            if name.endswith(_PACKED):
                with suppress(FileNotFoundError):
                    info = Path(folder, name).lstat()
                    found[info.st_ino] = info.st_blocks * 512
    return found


def added(root: Path) -> float:
    """Return the space in MB of packed objects in our state that the repository does not share."""
    found = packed(root / ".git/orchestrator")
    own = packed(root / ".git/objects")
    return sum(size for inode, size in found.items() if inode not in own) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=40_000)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--checkout", type=Path, metavar="DIR")
    parser.add_argument("--generate", type=Path, metavar="DIR")
    options = parser.parse_args()
    if options.generate:
        generate(options.generate, options.commits, options.files)
        return
    with tempfile.TemporaryDirectory(prefix="orchestrator-bench-") as scratch:
        source = Path(scratch) / "source"
        if options.checkout:
            measure.run("git", "clone", "-q", "--no-hardlinks", str(options.checkout), str(source))
        else:
            generate(source, options.commits, options.files)
        report(source, options.workers, options.rounds)


def report(source: Path, workers: int, rounds: int) -> None:
    commits = measure.run("git", "rev-list", "--count", "HEAD", cwd=source).strip()
    files = len(measure.run("git", "ls-files", cwd=source).splitlines())
    head = [
        "run", "API - plain, s", "command - plain, s", "plain ms", "API ms", "command ms",
    ]  # fmt: skip
    rows = measured_shapes(source, workers, rounds)
    measure.table(f"{commits} commits, {files} files, network none", head, rows)
    head = ["workers", "copies / past", "past MB", "copies MB", "copies afterwards MB"]
    measure.table("Disk space of the shared past", head, disk(source, workers))


if __name__ == "__main__":
    main()
