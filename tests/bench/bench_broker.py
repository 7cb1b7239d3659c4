"""Cost of the credential broker: a call, an event of a stream, and the throughput.

Run it with `python tests/bench/bench_broker.py [--rounds 3] [--calls 500] [--streams 30]
[--megabytes 500]`. Workers measure a model's API on this machine: directly with `--keys env`,
and with `--keys broker` on an open network and, through a gateway as well, on none. The streams are
those of two workers, because a worker may only make 16 calls at the same time. It needs the images
of the base and of the broker: `orchestrator image build --agent broker`.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import measure

from tests.support.bridge import bridge_gateway

MOST_CALL = 1.0
"""Goal: milliseconds that the broker may add to a call, in the median."""
MOST_LAG = 20.0
"""Goal: milliseconds between an event's sending and its arrival, at the 95th percentile."""
LEAST_THROUGHPUT = 300.0
"""Goal: megabytes per second through the broker, and through gateway and broker."""
KEY = "sk-of-the-benchmark"
EVENTS = 200
"""Events of each stream."""
PAUSE = 0.02
"""Seconds between two events."""
PIECE = 256 * 1024
WORKERS = 2
"""Workers that share the streams."""
LONGEST = 300
"""Seconds after which a run has failed."""

SERVER = """
import asyncio, collections, json, sys, time
from aiohttp import web
groups = collections.defaultdict(lambda: [0, asyncio.Event()])
async def all_of(group, count):
    here = groups[group]
    here[0] += 1
    if here[0] == count:
        here[1].set()
    await asyncio.wait_for(here[1].wait(), 60)
async def call(request):
    body = json.loads(await request.read())
    kind = body["model"]
    if kind == "whole":
        return web.json_response({"model": "gpt-4o", "usage": {
            "prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}})
    stream = kind == "events"
    out = web.StreamResponse(headers={
        "Content-Type": "text/event-stream" if stream else "application/json"})
    await out.prepare(request)
    if stream:
        await all_of(body["group"], body["streams"])
        for _ in range(body["count"]):
            await asyncio.sleep(body["pause"])
            text = json.dumps({"time": time.time(), "choices": [{"delta": {"content": "word"}}]})
            await out.write(b"data: " + text.encode() + b"\\n\\n")
    else:
        piece = b"x" * body["piece"]
        for _ in range(body["count"]):
            await out.write(piece)
    await out.write_eof()
    return out
app = web.Application()
app.router.add_post("/v1/chat/completions", call)
async def main():
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, sys.argv[1], 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""

CLIENT = """
import http.client, json, os, statistics, sys, threading, time
from urllib.parse import urlsplit
base = urlsplit(os.environ["OPENAI_BASE_URL"])
head = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
def connect():
    return http.client.HTTPConnection(base.hostname, base.port, timeout=120)
def ask(connection, **body):
    connection.request("POST", base.path + "/chat/completions", json.dumps(body), head)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    return answer
def alone(calls, pieces, piece):
    one, times = connect(), []
    for _ in range(calls + 20):
        began = time.perf_counter()
        ask(one, model="whole").read()
        times.append(1000 * (time.perf_counter() - began))
    began, size = time.perf_counter(), 0
    answer = ask(connect(), model="bytes", count=pieces, piece=piece)
    while data := answer.read(1 << 20):
        size += len(data)
    assert size == pieces * piece, size
    seconds = time.perf_counter() - began
    return {"call": statistics.median(times[20:]), "throughput": size / seconds / 1e6}
def at_once(group, all_streams, streams, events, pause):
    lags = []
    def follow():
        answer = ask(connect(), model="events", stream=True, count=events, pause=pause,
                     group=group, streams=all_streams)
        for line in answer:
            if line.startswith(b"data: {"):
                sent = json.loads(line[6:]).get("time")
                if sent is not None:
                    lags.append(1000 * (time.time() - sent))
    threads = [threading.Thread(target=follow) for _ in range(streams)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(lags) == streams * events, len(lags)
    return {"lag": statistics.quantiles(lags, n=20)[18]}
print(json.dumps(globals()[sys.argv[1]](*map(json.loads, sys.argv[2:]))))
"""


@contextmanager
def api() -> Iterator[str]:
    """Serve a model's API in a process of its own, and yield its base URL."""
    command = (sys.executable, "-c", SERVER, bridge_gateway())
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://{bridge_gateway()}:{int(process.stdout.readline())}/v1"
        finally:
            process.kill()


def measured(
    repo: Path, url: str, options: tuple[str, ...], *arguments: object, workers: int = 1
) -> dict[str, float]:
    """Run the client in workers, and return the largest of each number that they printed."""
    client = f"python3 client.py {' '.join(map(str, arguments))}"
    command = (
        *measure.ORCHESTRATOR, "parallel", "--agent-cli", "shell", "--workers", str(workers),
        "--quiet", "--json", "--env", "OPENAI_API_KEY", "--env", "OPENAI_BASE_URL", *options,
        client,
    )  # fmt: skip
    env = {**os.environ, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": url}
    env["ORCHESTRATOR_MAX_WORKTREES"] = "1000"
    done = subprocess.run(
        command, cwd=repo, env=env, capture_output=True, text=True, check=False, timeout=LONGEST
    )
    results = json.loads(done.stdout).get("results", []) if done.stdout else []
    logs = [Path(result["log"]) for result in results]
    errors = (log / "stderr.log" for log in logs)
    assert done.returncode == 0, done.stderr + "".join(error.read_text() for error in errors)
    found = [json.loads((log / "stdout.log").read_text()) for log in logs]
    return {name: max(one[name] for one in found) for name in found[0]}


def main() -> None:
    """Measure, and print a table with the goals."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--streams", type=int, default=30, help="an even number")
    parser.add_argument("--megabytes", type=int, default=500)
    given = parser.parse_args()
    pieces = given.megabytes * 1_000_000 // PIECE
    streams = given.streams // WORKERS
    with tempfile.TemporaryDirectory() as folder, api() as url:
        repo = Path(folder) / "repo"
        measure.run("git", "init", "-q", str(repo))
        (repo / "client.py").write_text(CLIENT)
        measure.run("git", "add", "--all", cwd=repo)
        author = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
        measure.run("git", *author, "commit", "-qm", "client", cwd=repo)
        host = url.removeprefix("http://").removesuffix("/v1")
        ways = {
            "direct": ("--network", "open", "--allow", host),
            "broker": ("--keys", "broker", "--network", "open"),
            "gateway and broker": ("--keys", "broker", "--network", "none"),
        }
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        groups = itertools.count()
        for number in range(given.rounds):
            for name, options in ways.items():
                alone = measured(repo, url, options, "alone", given.calls, pieces, PIECE)
                at_once = measured(
                    repo, url, options, "at_once", next(groups), WORKERS * streams, streams, EVENTS,
                    PAUSE, workers=WORKERS,
                )  # fmt: skip
                rounds[name].append({**alone, **at_once})
                measure.note(f"round {number + 1}/{given.rounds}  {name}: {rounds[name][-1]}")
    found = {
        name: {key: statistics.median(one[key] for one in several) for key in several[0]}
        for name, several in rounds.items()
    }
    measure.table(
        f"Calls of a worker; {given.streams} streams of {WORKERS} workers at once",
        ("way", "call, median ms", "event lag, 95th ms", "MB/s"),
        [
            (name, f"{one['call']:.2f}", f"{one['lag']:.1f}", f"{one['throughput']:.0f}")
            for name, one in found.items()
        ],
    )
    added = found["broker"]["call"] - found["direct"]["call"]
    slowest = found["gateway and broker"]
    rows = [
        ("added to a call by the broker, ms", f"{added:.2f}", f"{MOST_CALL:g}", added <= MOST_CALL),
        ("event lag with gateway and broker, 95th ms", f"{slowest['lag']:.1f}", f"{MOST_LAG:g}",
         slowest["lag"] <= MOST_LAG),
        ("through gateway and broker, MB/s", f"{slowest['throughput']:.0f}",
         f"{LEAST_THROUGHPUT:g}", slowest["throughput"] >= LEAST_THROUGHPUT),
    ]  # fmt: skip
    measure.table(
        "Goals of the broker", ("measured", "found", "goal"),
        [(name, one, goal if met else f"{goal} (missed)") for name, one, goal, met in rows],
    )  # fmt: skip


if __name__ == "__main__":
    main()
