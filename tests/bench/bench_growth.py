"""Measure whether costs grow: in a long queue, and in a repository with many old runs.

The queue runs on the engine of plain processes, without the cost of Docker. Run it with
`python tests/bench/bench_growth.py [--tasks 1000] [--runs 500]`.
"""

import argparse
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import measure

sys.path.insert(0, str(Path(__file__).parents[2]))

from orchestrator.base.events import Event, WorkerDone
from orchestrator.runs.runner import ParallelRunner
from tests.support.local_engine import LocalEngine
from tests.support.runs import configured, shell_run

SLOTS = 4
COMMANDS = (("ls",), ("ls", "--all"), ("watch",), ("parallel-cleanup", "--dry-run"))


def resident() -> int:
    """Return the memory of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def children() -> float:
    """Return the CPU seconds of all processes that this process started and that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def queue(tasks: int, worktrees: str) -> list[list[str]]:
    """Run a queue of tasks, and return a table row for each tenth of it."""
    step = max(tasks // 10, 1)
    rows: list[list[str]] = []
    clocks = [time.perf_counter(), time.process_time(), children()]
    ended = 0

    def emit(event: Event) -> None:
        nonlocal ended, clocks
        if not isinstance(event, WorkerDone):
            return
        ended += 1
        if ended % step:
            return
        now = [time.perf_counter(), time.process_time(), children()]
        wall, cpu, theirs = (
            (after - before) / step for after, before in zip(now, clocks, strict=True)
        )
        clocks = now
        rows.append([
            str(ended), measure.milliseconds(wall), f"{cpu * 1000:.1f}",
            measure.milliseconds(theirs),
            f"{resident() / 1024**2:.0f}", str(threading.active_count()),
            str(len(list(Path("/proc/self/fd").iterdir()))),
        ])  # fmt: skip

    with measure.repository() as root, tempfile.TemporaryDirectory() as scratch:
        config = configured(*["true"] * tasks, workers=SLOTS, worktrees=worktrees)
        engine = LocalEngine(Path(scratch) / "engine")
        ParallelRunner(config, root, emit=emit, engine=engine).execute()
    return rows


def old_runs(root: Path, runs: int) -> None:
    """Create a repository with the records of many runs whose worktrees were cleaned up."""
    with tempfile.TemporaryDirectory() as scratch:
        first = shell_run(root, LocalEngine(Path(scratch) / "engine"), "echo x > x", "true").run_id
    measure.run(*measure.ORCHESTRATOR, "parallel-cleanup", "--purge", cwd=root)
    directory = root / ".git" / "orchestrator" / "runs"
    for number in range(1, runs):
        name = f"20250101-000000-{number:06x}"
        shutil.copytree(directory / first, directory / name)
        for file in (directory / name).rglob("*.*json"):
            file.write_text(file.read_text().replace(first, name))


def commands(runs: int, rounds: int) -> list[list[str]]:
    """Return the CPU time of commands in repositories without and with old runs."""
    rows = []
    with measure.repository() as empty, measure.repository() as full:
        old_runs(full, runs)
        for command in COMMANDS:
            ways = {
                name: lambda root=root, command=command: measure.cpu_of(
                    *measure.ORCHESTRATOR, *command, cwd=root
                )
                for name, root in (("without", empty), ("with", full))
            }
            found = measure.medians(measure.interleaved(ways, rounds))
            rows.append([
                f"`{' '.join(command)}`", measure.milliseconds(found["without"]),
                measure.milliseconds(found["with"]),
            ])  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worktrees", choices=("start", "end", "none"), default="start")
    options = parser.parse_args()
    head = [
        "tasks ended", "ms per task", "our CPU ms per task", "CPU ms of git and the tasks",
        "our MB", "threads", "descriptors",
    ]  # fmt: skip
    rows = queue(options.tasks, options.worktrees)
    measure.table(
        f"{options.tasks} tasks in {SLOTS} slots, worktrees {options.worktrees}", head, rows
    )
    head = ["command", "CPU ms without old runs", f"CPU ms with {options.runs}"]
    measure.table("Old runs", head, commands(options.runs, options.rounds))


if __name__ == "__main__":
    main()
