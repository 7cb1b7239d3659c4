"""Eight workers in a large repository: worktrees at the start, at the end or never, against git.

Run `python tests/bench/bench_worktrees.py [--files 60000] [--size 3900] [--workers 8]
[--rounds 5]`. The environment variable `TMPDIR` decides on which disk: `/dev/shm` is a RAM disk
on most machines. Each worker prints only when it was started, as the uptime of the
machine.
"""

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import measure

from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.runner import ParallelRunner

SAY_WHEN = "cut -d ' ' -f 1 /proc/uptime"
# One of several simultaneous `git worktree add` fails at times, because it reads unfinished files
# of another one ("failed to read .git/worktrees/.../commondir"); it is then repeated.
_ADDS = """
for i in $(seq "$WORKERS"); do
  (add() { git worktree add -q --no-track -B "raw-$i" ".raw-$i" 2> /dev/null; }
   add || add || add) &
done
wait
test "$(ls -d .raw-* | wc -l)" = "$WORKERS"
"""
_CONTAINERS = """
for i in $(seq "$WORKERS"); do
  docker run --rm --label "$LABEL" --network none -v "$PWD/.raw-$i:/workspace" -w /workspace \\
    "$IMAGE" sh -c "$TASK" > /dev/null &
done
wait
"""
_UNDO = """
for i in $(seq "$WORKERS"); do
  git worktree remove --force ".raw-$i"; git branch -qD "raw-$i"
done
"""
_ALL = "all"
_FIRST = "until the last worker's first command"
_DISK = "disk, MB"


class Bench:
    """One repository, and the measurements of each way of using it."""

    def __init__(self, root: Path, workers: int) -> None:
        self.root = root
        self.found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self._workers = workers

    def git_alone(self) -> None:
        """Measure git alone: one worktree, a worktree per worker at once, and their containers."""
        one = measure.timed(lambda: self._script(_ADDS, workers=1))
        self._script(_UNDO, workers=1)
        with disk_of(self.root) as used:
            several = measure.timed(lambda: self._script(_ADDS))
            containers = measure.timed(lambda: self._script(_CONTAINERS))
        self._script(_UNDO)
        for name, seconds in (("one", one), ("several", several), ("containers", containers)):
            self.found["git"][name].append(seconds)
        self.found["git"][_DISK] += used

    def ours(self, worktrees: str, *, fresh: bool) -> None:
        """Measure a run; with `fresh`, without a shared checkout from an earlier run."""
        if fresh:
            cleanup(self.root, engine=None)
        config = ParallelConfig(
            tasks=(SAY_WHEN,), workers=self._workers, agent_cli="shell", worktrees=worktrees,
            isolation=Isolation(network="none"), max_worktrees=1000,
        )  # fmt: skip
        started = time.clock_gettime(time.CLOCK_BOOTTIME)
        with disk_of(self.root) as used:
            results = []
            seconds = measure.timed(lambda: results.extend(ParallelRunner(config, self.root).run()))
        assert [result.status for result in results] == ["success"] * self._workers, results
        name = worktrees if fresh else f"{worktrees}, again"
        self.found[name][_ALL].append(seconds)
        last = max(float(result.summary or "nan") for result in results)
        self.found[name][_FIRST].append(last - started)
        self.found[name][_DISK] += used
        measure.note(f"{name}: {seconds:.2f} s, first commands {last - started:.2f} s")
        # The cleanup keeps a checkout for later runs.
        cleanup(self.root, engine=None, run_id=self._run_id())

    def _run_id(self) -> str:
        return max(path.name for path in (self.root / ".git/orchestrator/runs").glob("*/"))

    def _script(self, script: str, workers: int | None = None) -> None:
        env = {
            "WORKERS": str(workers or self._workers), "TASK": SAY_WHEN, "IMAGE": measure.IMAGE,
            "LABEL": measure.LABEL,
        }  # fmt: skip
        measure.run("sh", "-ec", script, cwd=self.root, env=env)


@contextmanager
def disk_of(root: Path) -> Iterator[list[float]]:
    """Yield a list, to which the largest growth of the file system in MB is added at the end."""
    found: list[float] = []
    before = used(root)
    with measure.largest_of(partial(used, root)) as peak:
        yield found
    found.append((max(peak[0], before) - before) / 1e6)


def used(root: Path) -> int:
    info = os.statvfs(root)
    return (info.f_blocks - info.f_bfree) * info.f_frsize


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=60_000)
    parser.add_argument("--size", type=int, default=3900)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with measure.repository(options.files, options.size) as root:
        measure.run("git", "repack", "-adq", "--window=0", cwd=root)
        bench = Bench(root, options.workers)
        bench.ours("start", fresh=True)  # not measured: tests whether overlays work
        bench.found.clear()
        for _ in range(options.rounds):
            bench.git_alone()
            bench.ours("start", fresh=True)
            bench.ours("end", fresh=True)
            bench.ours("none", fresh=True)
            bench.ours("none", fresh=False)
            cleanup(root, engine=None)
    report(bench, options.workers, options.files)


def report(bench: Bench, workers: int, files: int) -> None:
    git = measure.medians(bench.found.pop("git"))
    floor = git["several"] + git["containers"]
    soon = git["one"] + git["containers"]
    head = [
        "worktrees", "whole run / git", "whole run / one", "first commands / one", "whole run ms",
        "first commands ms", "disk MB",
    ]  # fmt: skip
    rows = [
        [
            name, measure.ratio(parts[_ALL], floor), measure.ratio(parts[_ALL], soon),
            measure.ratio(parts[_FIRST], soon), measure.milliseconds(parts[_ALL]),
            measure.milliseconds(parts[_FIRST]), f"{parts[_DISK]:.0f}",
        ]
        for name, parts in ((name, measure.medians(p)) for name, p in bench.found.items())
    ]  # fmt: skip
    measure.table(f"{workers} workers, {files} files, uid {os.getuid()}", head, rows)
    rest = (f"{name} {measure.milliseconds(git[name])} ms" for name in ("one", "several"))
    measure.note(
        f"git worktree add: {', '.join(rest)}; containers "
        f"{measure.milliseconds(git['containers'])} ms; disk {git[_DISK]:.0f} MB"
    )


if __name__ == "__main__":
    main()
