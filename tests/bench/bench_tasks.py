"""A queue of short tasks against `docker run` through xargs: the whole, and the start of each task.

Run it with `python tests/bench/bench_tasks.py [--tasks 100] [--at-once 10] [--starts 200]
[--networks none,open] [--rounds 3]`. Each task prints the time; its start lasts from the moment in
which its turn came (the event `worker_preparing`, or the moment before `docker run`) until then.
Rounds are added until there are `--starts` starts of each way: with `--at-once` slots, and with one
slot in the first network.

The CPU time is that of the orchestrator and of its children, such as git, but not the daemon's.
"""

import argparse
import math
import os
import statistics
import time
from collections import defaultdict

import measure

from orchestrator.base.events import Event, WorkerPreparing
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.runs.runner import ParallelRunner

SAY_WHEN = "date +%s.%N"
# Prints when each `docker run` began, and when its task ran.
_XARGS = r"""
seq "$TASKS" | xargs -P "$SLOTS" -I{} bash -c 'began=$EPOCHREALTIME
  echo "$began $(docker run --rm --label "$LABEL" $NETWORK "$IMAGE" sh -c "$TASK")"'
"""
DOCKER, API, COMMAND = "docker run", "API", "command"
PERCENTILES = (50, 95, 99)


class Bench:
    """The measurements of every way, network and number of slots."""

    def __init__(self, tasks: int) -> None:
        self.seconds: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        self.starts: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        self.cpu: dict[tuple[str, str, int], list[float]] = defaultdict(list)
        self._tasks = tasks

    def docker(self, network: str, slots: int) -> None:
        env = {
            "TASKS": str(self._tasks), "SLOTS": str(slots), "LABEL": measure.LABEL,
            "IMAGE": measure.IMAGE, "TASK": SAY_WHEN,
            "NETWORK": "--network none" if network == "none" else "",
        }  # fmt: skip
        began = time.perf_counter()
        printed = measure.run("sh", "-c", _XARGS, env=env)
        self.seconds[DOCKER, network, slots].append(time.perf_counter() - began)
        pairs = [line.split() for line in printed.splitlines()]
        assert len(pairs) == self._tasks, printed
        self.starts[DOCKER, network, slots] += [float(end) - float(start) for start, end in pairs]

    def api(self, network: str, slots: int) -> None:
        """Measure a run through the Python API, without imports and the test of overlays."""
        began: dict[int, float] = {}

        def emit(event: Event) -> None:
            if isinstance(event, WorkerPreparing):
                began[event.worker_id] = event.at.timestamp()

        config = ParallelConfig(
            tasks=(SAY_WHEN,) * self._tasks, workers=slots, agent_cli="shell", worktrees="none",
            isolation=Isolation(network=network), max_worktrees=10_000,
        )  # fmt: skip
        with measure.known_repository() as root:
            runner = ParallelRunner(config, root, emit=emit)
            before = cpu()
            results = []
            seconds = measure.timed(lambda: results.extend(runner.run()))
            self.cpu[API, network, slots].append(cpu() - before)
        assert [result.status for result in results] == ["success"] * self._tasks, results
        self.seconds[API, network, slots].append(seconds)
        self.starts[API, network, slots] += [
            float(result.summary or "nan") - began[result.worker_id] for result in results
        ]

    def command(self, network: str, slots: int) -> None:
        words = (
            *measure.ORCHESTRATOR, "parallel", *("--task", SAY_WHEN) * self._tasks, "--workers",
            str(slots), "--agent-cli", "shell", "--worktrees", "none", "--network", network,
            "--quiet",
        )  # fmt: skip
        with measure.known_repository() as root:
            before = cpu()
            seconds = measure.timed(lambda: measure.run(*words, cwd=root))
            self.cpu[COMMAND, network, slots].append(cpu() - before)
        self.seconds[COMMAND, network, slots].append(seconds)

    def note(self, way: str, network: str, slots: int) -> None:
        where = (way, network, slots)
        text = f"{way}, network {network}, {slots} at once: {self.seconds[where][-1]:.2f} s"
        if where in self.cpu:
            text += f", {self.cpu[where][-1] / self._tasks * 1000:.1f} ms CPU per task"
        measure.note(text)

    def row(self, network: str, slots: int) -> list[str]:
        """Return the row of a network in the table of whole queues."""
        whole, used = (
            {way: statistics.median(found[way, network, slots]) for way in ways}
            for found, ways in ((self.seconds, (DOCKER, API, COMMAND)), (self.cpu, (API,)))
        )
        return [
            network, measure.ratio(whole[API], whole[DOCKER]),
            measure.ratio(whole[COMMAND], whole[DOCKER]),
            *(f"{seconds:.1f}" for seconds in whole.values()),
            f"{used[API] / self._tasks * 1000:.1f}",
        ]  # fmt: skip

    def percentiles(self, way: str, network: str, slots: int, starts: int) -> list[str]:
        """Return the row of a way in the table of starts."""
        found = sorted(self.starts[way, network, slots][:starts])
        name = "orchestrator" if way == API else way
        shown = (found[math.ceil(len(found) * one / 100) - 1] for one in PERCENTILES)
        return [f"{network}, {slots} at once, {name}", *map(measure.milliseconds, shown)]


def cpu() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=10)
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--networks", default="none,open")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    networks, slots = options.networks.split(","), options.at_once
    bench = Bench(options.tasks)
    enough = math.ceil(options.starts / options.tasks)
    for number in range(max(options.rounds, enough)):
        for network in networks:
            ways = {DOCKER: bench.docker, API: bench.api}
            if number < enough and network == networks[0]:
                for way, run in ways.items():
                    run(network, 1)
                    bench.note(way, network, 1)
            for way, run in {**ways, COMMAND: bench.command}.items():
                run(network, slots)
                bench.note(way, network, slots)
    report(bench, networks, options)


def report(bench: Bench, networks: list[str], options: argparse.Namespace) -> None:
    tasks, slots = options.tasks, options.at_once
    head = [
        "network", "API / docker run", "command / docker run", "docker run s", "API s", "command s",
        "our CPU ms per task (API)",
    ]  # fmt: skip
    rows = [bench.row(network, slots) for network in networks]
    measure.table(f"{tasks} tasks, {slots} at once, no worktrees", head, rows)
    if not options.starts:
        return
    rows = [
        bench.percentiles(way, network, count, options.starts)
        for network in networks
        for count in ((1, slots) if network == networks[0] else (slots,))
        for way in (DOCKER, API)
    ]
    head = ["network, way", *(f"p{one} ms" for one in PERCENTILES)]
    measure.table(f"Time to the first command, {options.starts} starts", head, rows)


if __name__ == "__main__":
    main()
