"""A further turn of a worker against its first, and against another run with the same worker.

Run it with `python tests/bench/bench_turns.py [--rounds 5] [--networks none,open]`.
"""

import argparse
from collections import defaultdict

import measure

FIRST, FURTHER = "parallel", "continue"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--networks", default="none,open")
    options = parser.parse_args()
    rows = []
    for network in options.networks.split(","):
        found = defaultdict(list)
        for number in range(1, options.rounds + 1):
            for way, seconds in worker_with_a_message(network).items():
                found[way].append(seconds)
                measure.note(f"round {number}, {network}, {way}: {seconds:.3f} s")
        first, further = (measure.medians(found)[way] for way in (FIRST, FURTHER))
        rows.append(
            [network, measure.ratio(further, first), *map(measure.milliseconds, (first, further))]
        )
    head = ["network", "continue / parallel", "parallel ms", "continue ms"]
    measure.table("A further turn of one worker that writes a file", head, rows)


def worker_with_a_message(network: str) -> dict[str, float]:
    """Start a worker by the command, continue it with a message, and return the seconds of each.

    It is the second worker of the repository: the first run also packs the past.
    """
    start = ("parallel", "echo 1 > one.txt", "--agent-cli", "shell", "--network", network)
    ways = {"": start, FIRST: start, FURTHER: ("continue", "2", "-m", "echo 2 > two.txt")}
    with measure.known_repository() as root:
        found = {
            way: measure.timed(
                lambda words=words: measure.run(*measure.ORCHESTRATOR, *words, "--quiet", cwd=root)
            )
            for way, words in ways.items()
        }
        count = measure.run("git", "rev-list", "--count", "main..architect/parallel-2", cwd=root)
        assert count == "2\n", count
    return found


if __name__ == "__main__":
    main()
