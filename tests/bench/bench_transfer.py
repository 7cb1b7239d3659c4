"""Workers whose files are sent to the engine (streams), against workers whose files are mounted.

Run it with `python tests/bench/bench_transfer.py [--rounds 3] [--workers 8] [--files 5000]
[--size 40000]`. Nothing else may use the engine.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import measure

from orchestrator.base.results import Timings, WorkerResult
from orchestrator.config.settings.container import Isolation, Transfer
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.docker.porter_calls import Porter
from orchestrator.engine.docker.volume_place import VolumePlace
from orchestrator.engine.docker.volume_step import VolumeStep
from orchestrator.engine.docker.volumes import Volumes
from orchestrator.runs.runner import ParallelRunner

TASK = "echo work > work.txt"
STEPS = ("prepare", "start", "agent", "stop", "harvest", "update")
# Class, function, and its name in the table.
CALLS: tuple[tuple[type, str, str], ...] = (
    (VolumePlace, "put", "files: put"),
    (Volumes, "_unpack", "of it: send an archive"),
    (Volumes, "_run", "of it: copy in the engine"),
    (VolumePlace, "_start_porter", "of it: volumes and porter"),
    (VolumePlace, "order", "step: create and order"),
    (VolumeStep, "start", "step: start"),
    (VolumeStep, "remove", "step: remove"),
    (VolumePlace, "take", "results: take"),
    (VolumePlace, "changed", "results: list what is left behind"),
    (VolumePlace, "release", "release"),
    (Porter, "call", "in all of them: calls of the porter"),
)


def run(root: Path, workers: int, transfer: Transfer) -> tuple[float, list[WorkerResult]]:
    """Run workers that write a file, and return the seconds and the results."""
    config = ParallelConfig(
        tasks=(TASK,) * workers,
        workers=workers,
        agent_cli="shell",
        isolation=Isolation(network="none", transfer=transfer),
        max_workers=max(10, workers),
        max_worktrees=1000,
    )
    results: list[WorkerResult] = []
    seconds = measure.timed(lambda: results.extend(ParallelRunner(config, root).run()))
    assert {result.status for result in results} == {"success"}, results
    assert {result.transfer for result in results} == {transfer}, results
    return seconds, results


def measure_case(
    title: str, workers: int, rounds: int, files: int, size: int
) -> tuple[list[str], list[Sequence[str]]]:
    """Measure both ways, and return their row and the rows of the steps."""
    times: dict[str, list[float]] = defaultdict(list)
    steps: dict[str, list[Timings]] = defaultdict(list)
    for number in range(1, rounds + 1):
        for transfer in ("mounts", "streams"):
            # A new repository each time: files of an earlier run may stay in the engine.
            with measure.repository(files, size) as root:
                run(root, 1, transfer)
                seconds, results = run(root, workers, transfer)
                measure.run(*measure.ORCHESTRATOR, "parallel-cleanup", "--purge", cwd=root)
            measure.note(f"round {number}, {title}, {transfer}: {seconds:.3f} s")
            times[transfer].append(seconds)
            steps[transfer] += [result.timings for result in results if result.timings]
    mounts, streams = (measure.medians(times)[way] for way in ("mounts", "streams"))
    spread = " to ".join(f"{value:.2f}" for value in (min(times["mounts"]), max(times["mounts"])))
    row = [title, measure.ratio(streams, mounts), f"{mounts:.2f}", spread, f"{streams:.2f}"]
    means = [
        (title, step, *(f"{mean(getattr(t, step) for t in steps[w]):.2f}" for w in times))
        for step in STEPS
    ]
    return row, means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--size", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    watch = measure.Stopwatch()
    for owner, name, part in CALLS:
        watch.watch(owner, name, part)
    megabytes = options.files * options.size // 1_000_000
    cases = (
        ("1 worker, 1 file", 1, 1, 40),
        (f"{options.workers} workers, {megabytes} MB in {options.files} files", options.workers,
         options.files, options.size),
    )  # fmt: skip
    rows, steps, calls = [], [], []
    for title, workers, files, size in cases:
        watch.seconds.clear()
        row, means = measure_case(title, workers, options.rounds, files, size)
        rows.append(row)
        steps += means
        # One run of a single worker precedes each measured one.
        ran = options.rounds * (workers + 1)
        calls += [
            (title, part, f"{len(found) / ran:.1f}", f"{sum(found) / ran:.2f}")
            for _, _, part in CALLS
            if (found := watch.seconds.get(part))
        ]
    head = ["", "streams / mounts", "mounts s", "lowest to highest", "streams s"]
    measure.table("Streams and mounts", head, rows)
    measure.table(
        "Seconds of each step, mean of the workers", ["", "step", "mounts", "streams"], steps
    )
    measure.table(
        "Calls of a worker's place with streams", ["", "call", "number", "seconds"], calls
    )


if __name__ == "__main__":
    main()
