"""Run the benchmarks one after another, and print the tables of docs/performance.md.

Run `python tests/bench/all.py [--rounds 5] [--write] [NAME ...]` on a machine that does nothing
else. A table of the page is between `<!-- measured: NAME -->` and `<!-- end -->`; `--write` writes
the new tables there. Without names, all parts run but those that install other programs.
"""

# ruff: noqa: T201  # a benchmark prints

import argparse
import os
import platform
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import measure
from page import PAGE, with_tables

HERE = Path(__file__).parent
PARTS: dict[str, tuple[str, ...]] = {
    "trivial": ("bench_trivial.py", "--no-reference", "--rounds", "3"),
    "turns": ("bench_turns.py", "--rounds", "5"),
    "tasks": ("bench_tasks.py", "--rounds", "2"),
    "history": ("bench_history.py", "--rounds", "5"),
    "worktrees": ("bench_worktrees.py", "--rounds", "3"),
    "start": ("bench_start.py", "--rounds", "9"),
    "growth": ("bench_growth.py", "--rounds", "3"),
    "logs": ("bench_logs.py", "--rounds", "3"),
    "gateway": ("bench_gateway.py", "--rounds", "5"),
    "broker": ("bench_broker.py", "--rounds", "3"),
    "conflicts": ("bench_conflicts.py", "--rounds", "3"),
    "transfer": ("bench_transfer.py", "--rounds", "3"),
    "sandbox": ("bench_sandbox.py", "--many", "1000", "--rounds", "5"),
    "peers": ("bench_peers.py", "--rounds", "3"),
}
MINUTES = {
    "trivial": 4.0, "turns": 0.5, "tasks": 6.0, "history": 2.5, "worktrees": 3.0, "start": 0.3,
    "growth": 2.5, "logs": 1.5, "gateway": 1.0, "broker": 1.0, "conflicts": 0.3, "peers": 7.0,
    "transfer": 6.0, "sandbox": 12.0,
}  # fmt: skip
"""Duration of each part on an idle machine with two processors."""
ON_REQUEST = frozenset({"peers"})
"""Parts that install other programs from the package index."""
_HEADING = re.compile(r"^### (.*)$", re.MULTILINE)


def measured(name: str, rounds: int | None) -> str:
    """Run one benchmark, and return its tables with a description of the machine."""
    program, *arguments = PARTS[name]
    if rounds is not None:
        arguments += ["--rounds", str(rounds)]
    load = os.getloadavg()[0]
    printed = measure.run(sys.executable, str(HERE / program), *arguments, cwd=HERE)
    tables = _HEADING.sub(r"**\1**", printed.strip())
    where = (
        f"{os.cpu_count()} CPUs, load {load:.1f} at the start, Python {platform.python_version()}"
    )
    return f"{datetime.now(UTC):%Y-%m-%d}, {where}, medians of {arguments[-1]}.\n\n{tables}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, help="rounds of every part")
    parser.add_argument("--write", action="store_true", help="write the tables into the page")
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    names = options.parts or [name for name in PARTS if name not in ON_REQUEST]
    listed = ", ".join(f"{name} {MINUTES[name]:g}" for name in names)
    measure.note(
        f"about {sum(MINUTES[name] for name in names):.0f} minutes on an idle machine: {listed}"
    )
    for name in names:
        began = time.monotonic()
        text = measured(name, options.rounds)
        print(f"<!-- measured: {name} -->\n{text}\n<!-- end -->\n", flush=True)
        if options.write:
            page = PAGE.read_text(encoding="utf-8")
            PAGE.write_text(with_tables(page, name, text), encoding="utf-8")
        measure.note(f"{name}: {(time.monotonic() - began) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
