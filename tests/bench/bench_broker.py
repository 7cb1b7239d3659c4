"""Cost of the credential broker: a call, an event of a stream, and the throughput.

Run it with `python tests/bench/bench_broker.py [--rounds 3] [--calls 500] [--streams 30]
[--megabytes 1000]`. A worker measures a model's API on this machine: directly with `--keys env`,
and with `--keys broker` on an open network and, through a gateway as well, on none. It needs the
images of the base and of the broker: `orchestrator image build --agent broker`.
"""

import argparse
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

SERVER = """
import asyncio, json, sys, time
from aiohttp import web
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
calls, streams, events, pause, pieces, piece = map(float, sys.argv[1:])
base = urlsplit(os.environ["OPENAI_BASE_URL"])
head = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
def connect():
    return http.client.HTTPConnection(base.hostname, base.port, timeout=120)
def ask(connection, **body):
    connection.request("POST", base.path + "/chat/completions", json.dumps(body), head)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    return answer
one, times = connect(), []
for _ in range(int(calls) + 20):
    began = time.perf_counter()
    ask(one, model="whole").read()
    times.append(1000 * (time.perf_counter() - began))
lags = []
def follow():
    answer = ask(connect(), model="events", stream=True, count=int(events), pause=pause)
    for line in answer:
        if line.startswith(b"data: {"):
            sent = json.loads(line[6:]).get("time")
            if sent is not None:
                lags.append(1000 * (time.time() - sent))
threads = [threading.Thread(target=follow) for _ in range(int(streams))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert len(lags) == int(streams) * int(events), len(lags)
began, size = time.perf_counter(), 0
answer = ask(connect(), model="bytes", count=int(pieces), piece=int(piece))
while data := answer.read(1 << 20):
    size += len(data)
assert size == int(pieces) * int(piece), size
seconds = time.perf_counter() - began
print(json.dumps({
    "call": statistics.median(times[20:]), "lag": statistics.quantiles(lags, n=20)[18],
    "throughput": size / seconds / 1e6,
}))
"""


@contextmanager
def api() -> Iterator[str]:
    """Serve a model's API in a process of its own, and yield its base URL."""
    command = (sys.executable, "-c", SERVER, bridge_gateway())
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://{bridge_gateway()}:{int(process.stdout.readline())}/v1"
        process.kill()


def measured(repo: Path, url: str, options: tuple[str, ...], client: str) -> dict[str, float]:
    """Run the client in a worker, and return what it printed."""
    command = (
        *measure.ORCHESTRATOR, "parallel", "--agent-cli", "shell", "--workers", "1", "--quiet",
        "--json", "--env", "OPENAI_API_KEY", "--env", "OPENAI_BASE_URL", *options, client,
    )  # fmt: skip
    env = {**os.environ, "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": url}
    done = subprocess.run(command, cwd=repo, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(done.stdout)["results"]
    printed = (Path(result["log"]) / "stdout.log").read_text()
    found: dict[str, float] = json.loads(printed)
    return found


def main() -> None:
    """Measure, and print a table with the goals."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--streams", type=int, default=30)
    parser.add_argument("--megabytes", type=int, default=1000)
    given = parser.parse_args()
    pieces = given.megabytes * 1_000_000 // PIECE
    numbers = (given.calls, given.streams, EVENTS, PAUSE, pieces, PIECE)
    with tempfile.TemporaryDirectory() as folder, api() as url:
        repo = Path(folder) / "repo"
        measure.run("git", "init", "-q", str(repo))
        (repo / "client.py").write_text(CLIENT)
        measure.run("git", "add", "--all", cwd=repo)
        author = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
        measure.run("git", *author, "commit", "-qm", "client", cwd=repo)
        client = f"python3 client.py {' '.join(map(str, numbers))}"
        host = url.removeprefix("http://").removesuffix("/v1")
        ways = {
            "direct": ("--network", "open", "--allow", host),
            "broker": ("--keys", "broker", "--network", "open"),
            "gateway and broker": ("--keys", "broker", "--network", "none"),
        }
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        for number in range(given.rounds):
            for name, options in ways.items():
                rounds[name].append(measured(repo, url, options, client))
                measure.note(f"round {number + 1}/{given.rounds}  {name}: {rounds[name][-1]}")
    found = {
        name: {key: statistics.median(one[key] for one in several) for key in several[0]}
        for name, several in rounds.items()
    }
    measure.table(
        f"Calls of a worker; {given.streams} streams at once",
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
