"""Time of a worker in a repository of 20,000 files, against `git worktree add`.

Run it with `python tests/bench/bench_repository.py [--files 20000] [--changed 200] [--rounds 3]`;
as an ordinary user, put
`setpriv --reuid 1234 --regid 1234 --groups "$(stat -c %g /var/run/docker.sock)" env HOME=/tmp`
before it.
"""

import argparse
import os
from collections import defaultdict
from pathlib import Path

import measure

from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.runs.runner import ParallelRunner
from orchestrator.worker import lifecycle as worker
from orchestrator.worker import prepare as preparation
from orchestrator.worker.harvest import harvest as homecoming
from orchestrator.worker.workspace.mounts import Workspace

# Module or class, name of the measured function, name of the step in the table.
PARTS: tuple[tuple[object, str, str], ...] = (
    (preparation, "base_objects", "objects of the base"),
    (preparation, "add_worktree", "worktree add"),
    (preparation, "check_out", "its files"),
    (preparation, "make_store", "prepare"),
    (worker, "harvest_worker", "harvest and finish"),
    (homecoming, "pack", "of it: pack"),
    (homecoming, "import_harvest", "check"),
    (Workspace, "reclaim_worktree", "owner, beside it"),
    (Worktree, "update", "files"),
)
BEYOND = ("prepare", "harvest and finish")
# The worker commits half of the edits and leaves the others to the harvest.
CHANGE = """set -e
edit() { git ls-files 'src/*' | sed -n "$1" | while read -r f; do echo changed >> "$f"; done; }
edit '1~{step}p'
git add -A && git commit -q -m half
edit '2~{step}p'
"""


def run_one(root: Path, task: str, changed: int) -> None:
    config = ParallelConfig(
        tasks=(task,),
        workers=1,
        agent_cli="shell",
        isolation=Isolation(network="none"),
        max_worktrees=1000,
    )
    result = ParallelRunner(config, root).run()[0]
    assert result.status == "success", result
    assert len(result.files_modified) == changed, (len(result.files_modified), changed)


def raw(root: Path, number: int) -> float:
    branch = f"raw-{number}"
    return measure.timed(
        lambda: measure.run(
            "git", "worktree", "add", "-q", "--no-track", "-b", branch, f".{branch}", cwd=root
        )
    )


def tasks(files: int, changed: int) -> dict[str, tuple[str, int]]:
    step = max(files * 2 // changed, 2)
    return {
        f"{changed} changed": (CHANGE.replace("{step}", str(step)), len(range(0, files, step)) * 2),
        # Reads the index, and writes an object so that the harvest is not skipped.
        "git status only": ("git status > /tmp/s; git hash-object -w /tmp/s; true", 0),
        "nothing at all": ("true", 0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--changed", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with measure.repository(options.files, size=1000) as root:
        rows = compare(root, tasks(options.files, options.changed), options.rounds)
    title = f"{options.files} files, uid {os.getuid()}"
    head = ["worker", "beyond / raw add", "raw add ms", *(f"{part} ms" for _, _, part in PARTS)]
    measure.table(title, head, rows)


def compare(root: Path, work: dict[str, tuple[str, int]], rounds: int) -> list[list[str]]:
    watch = measure.Stopwatch()
    for owner, name, part in PARTS:
        watch.watch(owner, name, part)
    # The first run in a repository tests whether overlays work there.
    run_one(root, "true", 0)
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in work}
    for number in range(rounds):
        for name, (task, changed) in work.items():
            found[name]["raw"].append(raw(root, number * len(work) + list(work).index(name)))
            watch.seconds.clear()
            run_one(root, task, changed)
            for part, seconds in watch.seconds.items():
                found[name][part] += seconds
            total = sum(watch.seconds[part][0] for part in BEYOND)
            measure.note(f"{name}: beyond {total:.2f} s, raw add {found[name]['raw'][-1]:.2f} s")
    return [_row(name, measure.medians(parts)) for name, parts in found.items()]


def _row(name: str, parts: dict[str, float]) -> list[str]:
    shown = ("raw", *(part for _, _, part in PARTS))
    beyond = sum(parts[part] for part in BEYOND)
    return [
        name,
        measure.ratio(beyond, parts["raw"]),
        *(measure.milliseconds(parts.get(part, 0.0)) for part in shown),
    ]


if __name__ == "__main__":
    main()
