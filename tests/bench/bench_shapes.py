"""Three shapes of work at 1/60 of their size, one task after the other and side by side.

The original shapes: three agents of five minutes, five that depend on each other, ten of one
minute. "Side by side" is one `spec run`. It is compared with one `orchestrator` command for each
task, as in a shell script, and with the bare tasks in a shell, without containers and worktrees;
the latter includes the whole overhead of the orchestrator. "At best" is the speed-up of a scheduler
without any cost: ten tasks of one second take three rounds in four slots, so at most 3.33 is
possible.

Run it with `python tests/bench/bench_shapes.py [--rounds 3]`.
"""

import argparse
import json
from pathlib import Path

import measure

Shape = dict[str, tuple[float, tuple[str, ...]]]
"""Duration in seconds, and dependencies, of each task."""

INDEPENDENT: Shape = {f"agent-{number}": (5.0, ()) for number in range(3)}
DEPENDENT: Shape = {
    "design": (2.0, ()),
    "backend": (4.0, ("design",)),
    "frontend": (4.0, ("design",)),
    "database": (3.0, ("design",)),
    "tests": (2.0, ("backend", "frontend", "database")),
}
SIMPLE: Shape = {f"agent-{number}": (1.0, ()) for number in range(10)}
UNEVEN: Shape = {f"agent-{number}": (nap, ()) for number, nap in enumerate((1, 1, 4, 1, 1, 1))}
SHAPES = {
    "3 independent, 5 s each": (INDEPENDENT, 3, 2.9),
    "5 with dependencies": (DEPENDENT, 3, 1.85),
    "10 simple, 1 s each": (SIMPLE, 4, 3.3),
    "10 simple, 1 s each, ten slots": (SIMPLE, 10, 3.9),
    # The longest task takes 4 s; a scheduler that waits for whole batches needs at least 5 s.
    "1, 1, 4, 1, 1, 1 s": (UNEVEN, 3, 2.0),
}
"""Tasks, slots, and the expected speed-up over one `orchestrator` command per task."""


def manifest(shape: Shape) -> str:
    tasks = [
        {"id": name, "task": f"sleep {seconds}", "depends_on": needs}
        for name, (seconds, needs) in shape.items()
    ]
    return json.dumps({"name": "shape", "tasks": tasks})


OPTIONS = (
    "--agent-cli", "shell", "--network", "none", "--cpus", "0.5", "--json", "--quiet",
)  # fmt: skip


def one_by_one(repository: Path, shape: Shape) -> float:
    commands = [
        (*measure.ORCHESTRATOR, "parallel", f"sleep {seconds}", "--workers", "1", *OPTIONS)
        for seconds, _ in shape.values()
    ]
    try:
        return measure.timed(lambda: [measure.run(*one, cwd=repository) for one in commands])
    finally:
        clean_up(repository)


def bare(shape: Shape) -> float:
    """Measure the tasks alone, one after the other in a shell."""
    commands = [("sh", "-c", f"sleep {seconds}") for seconds, _ in shape.values()]
    return measure.timed(lambda: [measure.run(*one, cwd=Path.cwd()) for one in commands])


def at_best(shape: Shape, slots: int) -> float:
    """Return the speed-up of a scheduler without overhead that starts tasks in their order."""
    ends: dict[str, float] = {}
    free = [0.0] * slots
    for name, (seconds, needs) in shape.items():
        free.sort()
        ends[name] = max([free[0], *(ends[one] for one in needs)]) + seconds
        free[0] = ends[name]
    return sum(seconds for seconds, _ in shape.values()) / max(ends.values())


def clean_up(repository: Path) -> None:
    measure.run(*measure.ORCHESTRATOR, "parallel-cleanup", "--purge", cwd=repository)


def side_by_side(repository: Path, shape: Shape, slots: int) -> float:
    path = repository.parent / f"{repository.name}.json"
    path.write_text(manifest(shape))
    command = (
        *measure.ORCHESTRATOR, "spec", "run", str(path), "--workers", str(slots), *OPTIONS,
    )  # fmt: skip
    try:
        return measure.timed(lambda: measure.run(*command, cwd=repository))
    finally:
        path.unlink()
        clean_up(repository)


def row(name: str, rounds: int) -> list[str]:
    shape, slots, wanted = SHAPES[name]
    with measure.repository() as repository:
        ways = {
            f"{name}, one by one": lambda: one_by_one(repository, shape),
            f"{name}, bare": lambda: bare(shape),
            f"{name}, {slots} slots": lambda: side_by_side(repository, shape, slots),
        }
        one, plain, several = measure.medians(measure.interleaved(ways, rounds)).values()
    times = (f"{seconds:.1f}" for seconds in (one, plain, several))
    ratios = (one / several, wanted, plain / several, at_best(shape, slots))
    return [name, str(slots), *times, *(f"{ratio:.2f}" for ratio in ratios)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows = [row(name, options.rounds) for name in SHAPES]
    head = [
        "tasks", "slots", "one by one, s", "bare, s", "side by side, s",
        "speed-up", "wanted", "over bare", "at best",
    ]  # fmt: skip
    measure.table("Shapes of work", head, rows)


if __name__ == "__main__":
    main()
