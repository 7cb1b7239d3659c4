"""Sandboxes: submissions, a warm pool, commands in a living sandbox, and files, beside `docker`.

Run `python tests/bench/bench_sandbox.py [--rounds 5] [--submissions 50] [--many 1000]`. Every
figure is measured in turn with what it is compared with. `docker run` gets the same image, limits,
user and input. Imports are not measured. `--many` adds submissions by the thousand, with the memory
of this process.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker
import measure

from orchestrator import Sandbox, SandboxLimits, SandboxPool, Submission, Template, run_all
from orchestrator.engine.docker import DockerEngine

TEMPLATE = Template(
    image=measure.IMAGE, limits=SandboxLimits(memory="128m", cpus=1, pids=64, disk="512m")
)
PROGRAM = "read a b; echo $((a+b))"
PLAIN = (
    "docker", "run", "--rm", "-i", "--init", "--network", "none", "--read-only",
    "--memory", "128m", "--memory-swap", "128m", "--cpus", "1", "--pids-limit", "64",
    "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "30000:30000",
    "--tmpfs", "/tmp:size=256m", "--tmpfs", "/home/sandbox:size=256m", "--workdir", "/tmp",
    "--label", measure.LABEL, measure.IMAGE,
)  # fmt: skip
AT_ONCE = 4
SIZE = 100 * 1024**2


def ours(engine: DockerEngine, number: int, program: str = PROGRAM) -> float:
    """Run submissions, four at once."""
    asked = (
        Submission(id=str(n), command=("sh", "-c", program), stdin=b"3 4\n") for n in range(number)
    )

    def work() -> None:
        found = list(run_all(asked, template=TEMPLATE, at_once=AT_ONCE, engine=engine))
        assert [each.reason for each in found] == ["exited"] * number, found

    return measure.timed(work)


def plain(number: int, program: str = PROGRAM) -> float:
    """Run `docker run`, four at once in threads."""

    def one(_: int) -> None:
        words = (*PLAIN, "sh", "-c", program)
        subprocess.run(words, input=b"3 4\n", capture_output=True, check=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return measure.timed(lambda: list(pool.map(one, range(number))))


def xargs(number: int) -> float:
    """Run `docker run` by `xargs -P4`."""
    words = [*(word for word in PLAIN if word != "-i"), "sleep", "0.1"]
    numbers = "\n".join(map(str, range(number))).encode()
    command = ["xargs", "-P", str(AT_ONCE), "-I{}", *words]
    return measure.timed(lambda: subprocess.run(command, input=numbers, check=True))


def submissions(engine: DockerEngine, number: int, rounds: int) -> list[list[str]]:
    rows = []
    for count in (1, number):
        ways = {"docker": lambda n=count: plain(n), "ours": lambda n=count: ours(engine, n)}
        found = measure.medians(measure.interleaved(ways, rounds))
        rows.append([
            f"{count} at most 4 at once", measure.ratio(found["ours"], found["docker"]),
            measure.milliseconds(found["docker"]), measure.milliseconds(found["ours"]),
        ])  # fmt: skip
    return rows


def commands(engine: DockerEngine, times: int) -> list[list[str]]:
    """Compare `run` in a living sandbox with the calls of the Docker SDK."""
    client = docker.APIClient(version="auto")
    with Sandbox.create(TEMPLATE, engine=engine) as box:
        container = engine.leftovers({"orchestrator.sandbox": box.id})[0].id

        def sdk() -> None:
            started = client.exec_create(container, ["true"])["Id"]
            client.exec_start(started)
            assert client.exec_inspect(started)["ExitCode"] == 0

        def run() -> None:
            assert box.run(["true"]).ok

        found = measure.medians(
            measure.interleaved(
                {"sdk": lambda: measure.timed(sdk), "run": lambda: measure.timed(run)}, times
            )
        )
    return [[
        "`true`", measure.ratio(found["run"], found["sdk"]), measure.milliseconds(found["sdk"]),
        measure.milliseconds(found["run"]),
    ]]  # fmt: skip


def warm(engine: DockerEngine, times: int) -> list[list[str]]:
    """Measure the time from `take` to the first byte of output of a warm sandbox."""
    found = []
    with SandboxPool(TEMPLATE, warm=2, engine=engine) as pool:
        for _ in range(times):
            time.sleep(1.0)  # the pool makes the next one
            started = time.perf_counter()
            box = pool.take()
            process = box.start(["echo", "ready"], stdin=False)
            assert process.output(timeout=30) == b"ready\n"
            found.append(time.perf_counter() - started)
            process.wait()
            box.kill()
    ordered = sorted(found)
    return [[
        "first byte", measure.milliseconds(statistics.median(found)),
        measure.milliseconds(ordered[int(len(ordered) * 0.95) - 1]),
    ]]  # fmt: skip


def files(engine: DockerEngine, rounds: int) -> list[list[str]]:
    """Compare a directory of 100 MB into and out of a sandbox with `docker cp`."""
    scratch = Path(tempfile.mkdtemp())
    try:
        (scratch / "in").mkdir()
        for number in range(100):
            (scratch / "in" / str(number)).write_bytes(os.urandom(SIZE // 100))
        with Sandbox.create(TEMPLATE, engine=engine) as box:
            other = measure.run("docker", "run", "-d", "--label", measure.LABEL, measure.IMAGE,
                                "sleep", "600").strip()  # fmt: skip

            def copied(*words: str) -> float:
                return measure.timed(lambda: measure.run("docker", "cp", *words))

            def fetched(work: Callable[[Path], object]) -> float:
                shutil.rmtree(scratch / "out", ignore_errors=True)
                return measure.timed(lambda: work(scratch / "out"))

            ways = {
                "cp in": lambda: copied(str(scratch / "in"), f"{other}:/in"),
                "in": lambda: measure.timed(lambda: box.files.upload(scratch / "in", "in")),
                "cp out": lambda: fetched(
                    lambda out: measure.run("docker", "cp", f"{other}:/in", str(out))
                ),
                "out": lambda: fetched(lambda out: box.files.download("in", out)),
            }
            found = measure.medians(measure.interleaved(ways, rounds))
            measure.run("docker", "rm", "-f", other)
    finally:
        shutil.rmtree(scratch)
    return [
        [
            f"100 MB {way}", measure.ratio(found[f"cp {way}"], found[way]),
            measure.milliseconds(found[f"cp {way}"]), measure.milliseconds(found[way]),
        ]
        for way in ("in", "out")
    ]  # fmt: skip


def many(engine: DockerEngine, number: int) -> list[list[str]]:
    """Compare submissions by the thousand with `xargs`; sample the memory of this process."""
    largest, done = [0], threading.Event()

    def sample() -> None:
        while not done.wait(0.5):
            text = Path("/proc/self/smaps_rollup").read_text()
            pss = next(line for line in text.splitlines() if line.startswith("Pss:"))
            largest[0] = max(largest[0], int(pss.split()[1]) * 1024)

    sampler = threading.Thread(target=sample)
    sampler.start()
    taken = ours(engine, number, "sleep 0.1")
    threads = threading.active_count() - 1
    done.set()
    sampler.join()
    other = xargs(number)
    return [[
        f"{number:,} of 0.1 s", measure.ratio(other, taken), f"{other:.1f}", f"{taken:.1f}",
        f"{largest[0] / 1e6:.0f}", str(threads), str(len([*Path("/proc/self/fd").iterdir()])),
    ]]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--submissions", type=int, default=50)
    parser.add_argument("--many", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp()
    engine = DockerEngine()
    ours(engine, AT_ONCE)  # fills caches
    measure.table(
        "Submissions, each in a sandbox of its own",
        ["submissions", "ours / docker run", "docker run ms", "ours ms"],
        submissions(engine, options.submissions, options.rounds),
    )
    measure.table(
        "A command in a living sandbox",
        ["command", "ours / SDK's exec", "SDK ms", "ours ms"],
        commands(engine, 6 * options.rounds),
    )
    measure.table(
        "A sandbox from a warm pool", ["until", "median ms", "95th percentile ms"],
        warm(engine, 4 * options.rounds),
    )  # fmt: skip
    measure.table(
        "Directories of 100 files",
        ["what", "speed of ours / docker cp", "docker cp ms", "ours ms"],
        files(engine, options.rounds),
    )
    if options.many:
        measure.table(
            "Many submissions, four at once",
            ["submissions", "speed of ours / xargs", "xargs s", "ours s", "memory MB", "threads",
             "descriptors"],
            many(engine, options.many),
        )  # fmt: skip
    engine.close()


if __name__ == "__main__":
    main()
