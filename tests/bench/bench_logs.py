"""MB/s of a container's output through the orchestrator, and its memory, against `docker run`.

Run it with `python tests/bench/bench_logs.py [--rounds 3] [--lines-mb 1000] [--line-mb 300]`.
"""

import argparse
import json
import subprocess
import sys
from functools import partial

import measure

MB = 1_000_000
SOURCES = {
    "JSON lines": """
import sys
line = b'{"type": "assistant", "text": "' + b'x' * 150 + b'"}\\n'
chunk = line * 500
for _ in range(%d // len(chunk)):
    sys.stdout.buffer.write(chunk)
""",
    "one line": """
import sys
chunk = b'x' * 100000
for _ in range(%d // len(chunk)):
    sys.stdout.buffer.write(chunk)
""",
}
# A separate process, so that its peak memory is that of this run alone.
_OURS = """
import json, resource, sys, time
from pathlib import Path
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.runs.runner import ParallelRunner
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.perf_counter()
result = ParallelRunner(ParallelConfig(
    tasks=(sys.argv[1],), workers=1, agent_cli="shell", isolation=Isolation(network="none"),
    **json.loads(sys.argv[3]),
), sys.argv[2]).run()[0]
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "status": result.status, "message": result.message, "seconds": time.perf_counter() - started,
    "bytes": (Path(result.log) / "stdout.log").stat().st_size,
    "before": before, "peak": used.ru_maxrss, "cpu": used.ru_utime + used.ru_stime,
}))
"""


def ours(source: str, size: int, notes: dict[str, list[float]]) -> float:
    with measure.repository() as root:
        (root / "source.py").write_text(SOURCES[source] % size)
        measure.run("git", "add", "-A", cwd=root)
        measure.run("git", "commit", "-q", "-m", "source", cwd=root)
        said = json.loads(
            measure.run(sys.executable, "-c", _OURS, "python3 source.py", str(root), "{}")
        )
    assert said["status"] == "success", said
    whole = size // len(chunk_of(source)) * len(chunk_of(source))
    assert said["bytes"] == whole, (said, whole)
    for name in notes:
        notes[name].append(said[name])
    return float(said["seconds"])


def chunk_of(source: str) -> bytes:
    found: dict[str, bytes] = {}
    exec(SOURCES[source].split("for _")[0], found)
    return found["chunk"]


def docker_to_cat(source: str, size: int) -> float:
    command = [
        "docker", "run", "--rm", "--label", measure.LABEL, "--network", "none", measure.IMAGE,
        "python3", "-c", SOURCES[source] % size,
    ]  # fmt: skip

    def pipe() -> None:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as docker:
            subprocess.run(["cat"], stdin=docker.stdout, stdout=subprocess.DEVNULL, check=True)
        assert docker.returncode == 0

    return measure.timed(pipe)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines-mb", type=int, default=1000)
    parser.add_argument("--line-mb", type=int, default=300)
    options = parser.parse_args()
    rows = []
    for source, size in (("JSON lines", options.lines_mb), ("one line", options.line_mb)):
        notes: dict[str, list[float]] = {"peak": [], "before": [], "cpu": []}
        ways = {
            "ours": partial(ours, source, size * MB, notes),
            "docker run | cat": partial(docker_to_cat, source, size * MB),
        }
        found = measure.medians(measure.interleaved(ways, options.rounds))
        rows.append(row(f"{size} MB of {source}", size, found, notes))
    head = [
        "output", "ours / docker run", "ours MB/s", "docker run MB/s", "our peak MB",
        "of it after imports MB", "our CPU s",
    ]  # fmt: skip
    measure.table("Reading output", head, rows)


def row(name: str, size: int, found: dict[str, float], notes: dict[str, list[float]]) -> list[str]:
    speeds = {way: size / seconds for way, seconds in found.items()}
    peak, before, cpu = (max(notes[what]) for what in ("peak", "before", "cpu"))
    return [
        name, measure.ratio(speeds["ours"], speeds["docker run | cat"]),
        *(f"{speed:.0f}" for speed in speeds.values()),
        f"{peak * 1024 / MB:.0f}", f"{(peak - before) * 1024 / MB:.0f}", f"{cpu:.1f}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
