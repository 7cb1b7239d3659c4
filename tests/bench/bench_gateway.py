"""Measure the start of containers with a network, and the memory of gateways.

Run it with `python tests/bench/bench_gateway.py [--rounds 9]`. Nothing connects to any host. Each
start includes the worker's own container. Most workers with an open network are filtered by the
run's helper; only those with ports or a broker, or without a helper, have a guard.
"""

import argparse
import secrets
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

import measure

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.docker.container import DockerContainer
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import MANAGED, ROLE, RUN
from orchestrator.engine.interface.spec import ContainerSpec, Egress
from orchestrator.network.gateway.hosts import parse_host

AT_ONCE = 8
MOST_MORE = 0.150
"""Goal: seconds that a gateway may take longer than a guard alone."""
MOST_AT_ONCE = 3.0
"""Goal: seconds in which `AT_ONCE` workers with gateways run."""
MOST_MEMORY = 12.0
"""Goal: MiB of an idle gateway."""
OPEN = Egress(image=BASE_IMAGE)
LISTED = Egress(image=BASE_IMAGE, hosts=(parse_host("a.example.net"), parse_host("*.example.com")))
LEARNING = Egress(image=BASE_IMAGE, hosts=(), learn=True)


@dataclass(frozen=True)
class Bench:
    """An engine with a network for containers."""

    engine: DockerEngine
    network: str
    helped: str
    """A network with a helper, which filters its containers."""
    labels: dict[str, str]

    def started(self, egress: Egress, *, helped: bool = False) -> DockerContainer:
        return self.engine.start(
            ContainerSpec(
                name=f"orchestrator-bench-{secrets.token_hex(6)}",
                image=BASE_IMAGE,
                command=("sleep", "600"),
                user="65534:65534",
                workdir="/",
                labels=self.labels,
                network=self.helped if helped else self.network,
                egress=egress,
            )
        )

    def start(self, egress: Egress, *, count: int = 1, helped: bool = False) -> float:
        """Return the seconds from the request until as many containers run."""
        started = partial(self.started, helped=helped)
        with ThreadPoolExecutor(count) as pool, ExitStack() as stack:
            found: list[DockerContainer] = []
            seconds = measure.timed(lambda: found.extend(pool.map(started, [egress] * count)))
            for container in found:
                stack.callback(container.remove)
            return seconds

    def memory(self) -> float:
        """Return the MiB of one idle gateway."""
        container = self.started(LISTED)
        try:
            gateway = container.guard and container.guard.gateway
            usage = gateway.container.usage() if gateway and gateway.container else None
            return (usage.memory or 0) / 2**20 if usage else 0.0
        finally:
            container.remove()


@contextmanager
def bench() -> Iterator[Bench]:
    engine = DockerEngine()
    run = f"bench-{secrets.token_hex(4)}"
    labels = {MANAGED: "true", RUN: run, ROLE: "probe"}
    name = f"orchestrator-{run}"
    try:
        network, helped = (engine.create_network(f"{name}-{n}", labels) for n in range(2))
        if engine.close_host(f"{name}-host", helped, OPEN, labels) is not None:
            raise RuntimeError("the helper does not filter containers here")
        yield Bench(engine, network, helped, labels)
    finally:
        for leftover in engine.leftovers(labels):
            engine.remove(leftover)
        engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with bench() as one:
        kinds = {"guard alone": OPEN, "gateway": LISTED, "gateway that learns": LEARNING}
        ways = {name: partial(one.start, egress) for name, egress in kinds.items()}
        ways["the run's helper, no guard"] = partial(one.start, OPEN, helped=True)
        several = {"guards alone": (OPEN, False), "gateways": (LISTED, False),
                   "workers of the run's helper": (OPEN, True)}  # fmt: skip
        for name, (egress, helped) in several.items():
            ways[f"{AT_ONCE} {name} at once"] = partial(
                one.start, egress, count=AT_ONCE, helped=helped
            )
        found = measure.medians(measure.interleaved(ways, options.rounds))
        memory = statistics.median(one.memory() for _ in range(3))
    alone, all_alone = found["guard alone"], found[f"{AT_ONCE} guards alone at once"]
    goals = {
        "gateway": _goal(found["gateway"] - alone, MOST_MORE, f"+{1000 * MOST_MORE:.0f}"),
        f"{AT_ONCE} gateways at once": _goal(
            found[f"{AT_ONCE} gateways at once"], MOST_AT_ONCE, f"{1000 * MOST_AT_ONCE:.0f}"
        ),
    }
    rows = [
        [name, measure.milliseconds(seconds),
         measure.milliseconds(seconds - (all_alone if name.endswith("at once") else alone)),
         goals.get(name, "-")]
        for name, seconds in found.items()
    ]  # fmt: skip
    measure.table(
        "Start of containers with a network", ["network", "ms", "more, ms", "goal, ms"], rows
    )
    measure.table(
        "Memory of an idle gateway", ["container", "MiB", "goal, MiB"],
        [["gateway", f"{memory:.1f}", _goal(memory, MOST_MEMORY, f"{MOST_MEMORY:.0f}")]],
    )  # fmt: skip


def _goal(found: float, most: float, shown: str) -> str:
    """Return the goal as text, marked if it is missed."""
    return shown if found <= most else f"{shown} (missed)"


if __name__ == "__main__":
    main()
