"""Run the benchmarks one after another, and write the tables of docs/performance.md.

A table of the page is between `<!-- measured: NAME -->` and `<!-- end -->`. Run it with
`python tests/bench/all.py [--rounds 5] [NAME ...]`, on a machine that does nothing else.
"""

import argparse
import os
import platform
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

import measure
from page import PAGE, with_tables

HERE = Path(__file__).parent
PARTS: dict[str, tuple[str, ...]] = {
    "trivial": ("bench_trivial.py", "--no-reference"),
    "start": ("bench_start.py",),
    "growth": ("bench_growth.py",),
    "worktrees": ("bench_worktrees.py",),
    "logs": ("bench_logs.py",),
    "peers": ("bench_peers.py",),
    "conflicts": ("bench_conflicts.py",),
    "gateway": ("bench_gateway.py",),
    "broker": ("bench_broker.py",),
}
_HEADING = re.compile(r"^### (.*)$", re.MULTILINE)


def measured(name: str, rounds: int) -> str:
    """Run one benchmark, and return its tables with a description of the machine."""
    program, *arguments = PARTS[name]
    load = os.getloadavg()[0]
    printed = measure.run(
        sys.executable, str(HERE / program), *arguments, "--rounds", str(rounds), cwd=HERE
    )
    tables = _HEADING.sub(r"**\1**", printed.strip())
    where = (
        f"{os.cpu_count()} CPUs, load {load:.1f} at the start, Python {platform.python_version()}"
    )
    return f"{datetime.now(UTC):%Y-%m-%d}, {where}, medians of {rounds}.\n\n{tables}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for name in options.parts or PARTS:
        text = measured(name, options.rounds)
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_tables(page, name, text), encoding="utf-8")
        measure.note(text)


if __name__ == "__main__":
    main()
