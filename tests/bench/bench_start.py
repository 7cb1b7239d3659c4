"""Measure the CPU time of command line starts, compared with the bare interpreter.

Run it with `python tests/bench/bench_start.py [--rounds 9]`.
"""

import argparse
import sys

import measure

COMMANDS = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "python -c 'import typer'": (sys.executable, "-c", "import typer"),
    "--help": (*measure.ORCHESTRATOR, "--help"),
    "--version": (*measure.ORCHESTRATOR, "--version"),
    "parallel --help": (*measure.ORCHESTRATOR, "parallel", "--help"),
    "ls": (*measure.ORCHESTRATOR, "ls"),
    "completion bash": (*measure.ORCHESTRATOR, "completion", "bash"),
    "parallel --dry-run": (*measure.ORCHESTRATOR, "parallel", "true", "--dry-run"),
    "doctor": (*measure.ORCHESTRATOR, "doctor"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    ways = {
        name: lambda command=command: measure.cpu_of(*command)
        for name, command in COMMANDS.items()
    }  # fmt: skip
    found = measure.medians(measure.interleaved(ways, options.rounds))
    bare = found["python -c pass"]
    rows = [
        [name, measure.ratio(seconds, bare), measure.milliseconds(seconds)]
        for name, seconds in found.items()
    ]
    measure.table("Start of the command line", ["command", "CPU / interpreter", "CPU ms"], rows)


if __name__ == "__main__":
    main()
