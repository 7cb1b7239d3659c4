"""N trivial workers: with the orchestrator, with a shell loop, and with the reference program.

Run it with `python tests/bench/bench_trivial.py [--rounds 5] [--workers 1,3,10]`.
"""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager

import measure

from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.runs.runner import ParallelRunner

REFERENCE_IMAGE = "orchestrator/worker:architect"
TASKS = {"nothing": "true", "one file": "echo work > work.txt"}
# Runs in the container of the reference program: its Python API, or its command line.
_REFERENCE = r"""
import json, os, subprocess, sys, tempfile, time
workers = int(sys.argv[1])
def repository():
    root = tempfile.mkdtemp()
    for command in (["init", "-q", "-b", "main"], ["config", "user.email", "b@localhost"],
                    ["config", "user.name", "b"], ["commit", "-q", "--allow-empty", "-m", "base"]):
        subprocess.run(["git", "-C", root, *command], check=True)
    return root
started = time.perf_counter()
from architect.features.parallel import ParallelConfig, ParallelRunner
imported = time.perf_counter() - started
root = repository()
os.chdir(root)
started = time.perf_counter()
found = ParallelRunner(ParallelConfig(tasks=["nothing"], workers=workers), root).run()
ran = time.perf_counter() - started
assert [result.status for result in found] == ["success"] * workers, found
root = repository()
started = time.perf_counter()
subprocess.run(["/opt/agent/commands/architect", "parallel", "--task", "nothing",
    "--workers", str(workers)], check=True, cwd=root, capture_output=True)
print(json.dumps({"import": imported, "runner": ran, "command": time.perf_counter() - started}))
"""
_STUB = """#!/bin/sh
echo '{"status": "success", "steps": 1, "cost": 0.0}'
"""


def ours(workers: int, task: str, network: str) -> float:
    """Run the Python API; imports, and objects created before `run()`, are not measured."""
    with measure.known_repository() as root:
        config = ParallelConfig(
            tasks=(task,), workers=workers, agent_cli="shell",
            isolation=Isolation(network="none" if network == "none" else "open"),
        )  # fmt: skip
        runner = ParallelRunner(config, root)
        results = []
        seconds = measure.timed(lambda: results.extend(runner.run()))
        assert [result.status for result in results] == ["success"] * workers, results
        assert all(bool(result.files_modified) == (task != "true") for result in results)
        return seconds


def command_line(workers: int, task: str, network: str) -> float:
    """Run `orchestrator parallel` as a separate process."""
    with measure.known_repository() as root:
        command = (
            *measure.ORCHESTRATOR, "parallel", task, "--workers", str(workers),
            "--agent-cli", "shell", "--network", "none" if network == "none" else "open", "--quiet",
        )  # fmt: skip
        return measure.timed(lambda: measure.run(*command, cwd=root))


def shell_loop(workers: int, task: str, network: str) -> float:
    """Run docker and git in a parallel shell loop."""
    with measure.repository() as root:
        return measure.shell_loop(root, workers, task, network)


class Reference:
    """The reference program in a container that lives for the whole benchmark."""

    def __init__(self, container: str) -> None:
        self._container = container
        self.parts: dict[str, list[float]] = {"import": [], "runner": [], "command": []}

    def __call__(self, workers: int) -> float:
        answer = measure.run(
            "docker", "exec", self._container, "/opt/agent/bin/python3", "-c", _REFERENCE,
            str(workers),
        )  # fmt: skip
        parts = json.loads(answer.splitlines()[-1])
        for name, seconds in parts.items():
            self.parts[name].append(seconds)
        return float(parts["runner"])


@contextmanager
def reference() -> Iterator[Reference]:
    container = measure.run(
        "docker", "run", "-d", "--rm", "--init", "--label", measure.LABEL, "--network", "none",
        "-e", "PATH=/stub:/usr/local/bin:/usr/bin:/bin", REFERENCE_IMAGE, "sleep", "infinity",
    ).strip()  # fmt: skip
    try:
        write = 'mkdir /stub && printf %s "$1" > /stub/architect && chmod 755 /stub/architect'
        measure.run("docker", "exec", "-u", "0", container, "sh", "-c", write, "sh", _STUB)
        yield Reference(container)
    finally:
        measure.run("docker", "rm", "-f", container)


def compare(workers: int, what: str, rounds: int, other: Reference | None) -> list[list[str]]:
    """Measure one number of workers with both networks, and return the rows of the table."""
    task = TASKS[what]
    ways: dict[str, measure.Way] = {}
    for network in ("none", "open"):
        ways[f"shell loop {network}"] = lambda n=network: shell_loop(workers, task, n)
        ways[f"API {network}"] = lambda n=network: ours(workers, task, n)
        ways[f"command line {network}"] = lambda n=network: command_line(workers, task, n)
    if other:
        for parts in other.parts.values():
            parts.clear()
        ways["reference"] = lambda: other(workers)
    found = measure.medians(measure.interleaved(ways, rounds))
    return [_row(workers, what, network, found, other) for network in ("none", "open")]


def _row(
    workers: int, what: str, network: str, found: dict[str, float], other: Reference | None
) -> list[str]:
    loop, api, command = (
        found[f"{way} {network}"] for way in ("shell loop", "API", "command line")
    )
    row = [
        f"{workers}, {what}, {network}", measure.ratio(api, loop), measure.ratio(command, loop),
        *(measure.milliseconds(seconds) for seconds in (loop, api, command)),
    ]  # fmt: skip
    if other:
        parts = measure.medians(other.parts)
        row += [measure.ratio(command, parts["command"])]
        row += [measure.milliseconds(parts[name]) for name in ("runner", "import", "command")]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", default="1,3,10")
    parser.add_argument("--tasks", default="nothing,one file")
    parser.add_argument("--no-reference", action="store_true")
    options = parser.parse_args()
    head = [
        "workers, each writes, network", "API / loop", "command / loop", "loop ms", "API ms",
        "command ms",
    ]  # fmt: skip
    counts = [int(count) for count in options.workers.split(",")]
    for what in options.tasks.split(","):
        if what == "nothing" and not options.no_reference:
            extra = ["command / reference", "its runner ms", "its import ms", "its command ms"]
            with reference() as other:
                rows = [r for n in counts for r in compare(n, what, options.rounds, other)]
            measure.table(f"Workers that write {what}", head + extra, rows)
        else:
            rows = [r for n in counts for r in compare(n, what, options.rounds, None)]
            measure.table(f"Workers that write {what}", head, rows)


if __name__ == "__main__":
    main()
