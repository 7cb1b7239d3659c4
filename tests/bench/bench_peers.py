"""Time to the first command and memory of each worker, compared with other programs and `docker`.

Run `python tests/bench/bench_peers.py [--rounds 5] [--workers 1,8] [--minutes 15]`. The other
programs (SWE-ReX, mini-swe-agent, inspect_ai) are installed from the package index into a
temporary environment. Every program starts the same number of containers of the same image; each
container prints the uptime of the machine and waits, and meanwhile the memory of all processes
that did not exist before is counted (proportional set size). Only the orchestrator also creates a
worktree for each worker, applies its limits and harvests its files; the others start bare
containers. Each program has imported its modules before the time to its first command begins.

A program that cannot be installed, fails or does not end is left out of the medians; the table
shows how many rounds it completed. A program that fails in the round that fills the caches is not
tried again. No round starts after `--minutes`.

inspect_ai needs a newer Docker than some machines have. It gets a stand-in for `docker compose`
that does no more than `docker run` and `docker exec`, so its figures are lower bounds.
"""

import argparse
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import measure

PEERS = {
    "mini-swe-agent": "mini-swe-agent==2.4.6",
    "SWE-ReX": "swe-rex==1.4.0",
    "inspect_ai": "inspect-ai==0.3.153",
}
"""The package of each program."""
OWN = ("docker run", "orchestrator")
WAIT = 4
_PATIENCE = 60.0
"""Maximum number of seconds that a program may take for one round."""
_INSTALLATION = 300.0
"""Maximum number of seconds that the installation of one program may take."""
COMMAND = f"cut -d ' ' -f 1 /proc/uptime; sleep {WAIT}"
_RUN = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
workers, image, command = int(sys.argv[1]), sys.argv[2], sys.argv[3]
def started():
    print("started", time.clock_gettime(time.CLOCK_BOOTTIME), flush=True)
def first(output):
    print("first", output.split()[0], flush=True)
def each(work):
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
"""
_LABEL = f"orchestrator.bench={os.getpid()}"
PROGRAMS = {
    "docker run": f"""
import subprocess
started()
each(lambda n: first(subprocess.run(
    ["docker", "run", "--rm", "--network", "none", "--label", "{_LABEL}", image, "sh", "-c",
     command], capture_output=True, text=True, check=True).stdout))
""",
    "orchestrator": """
from pathlib import Path
import orchestrator.engine.docker
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.runs.runner import ParallelRunner
config = ParallelConfig(tasks=(command,), workers=workers, agent_cli="shell",
    isolation=Isolation(network="none"), max_worktrees=1000)
started()
for result in ParallelRunner(config, Path.cwd()).run():
    assert result.status == "success", result
    first(result.summary)
""",
    "mini-swe-agent": f"""
from minisweagent.environments.docker import DockerEnvironment
def one(number):
    environment = DockerEnvironment(image=image, cwd="/",
        run_args=["--rm", "--network", "none", "--label", "{_LABEL}"])
    first(environment.execute({{"command": command}})["output"])
    environment.cleanup()
started()
each(one)
""",
    "SWE-ReX": f"""
import asyncio, logging
logging.disable(logging.CRITICAL)
from swerex.deployment.docker import DockerDeployment
from swerex.runtime.abstract import Command
async def one():
    deployment = DockerDeployment(image=image, pull="never", remove_container=True,
        python_standalone_dir=None, startup_timeout=120.0, docker_args=[
            "--label", "{_LABEL}", "-v", os.environ["PEERS"] + ":/peers:ro",
            "-e", "PATH=/peers/start:/usr/local/bin:/usr/bin:/bin"])
    await deployment.start()
    answer = await deployment.runtime.execute(Command(command=command, shell=True, timeout=60))
    first(answer.stdout)
    await deployment.stop()
async def main():
    await asyncio.gather(*(one() for _ in range(workers)))
started()
asyncio.run(main())
""",
    "inspect_ai": """
import asyncio
from inspect_ai.util._sandbox.docker.docker import DockerSandboxEnvironment as Docker
async def one(number):
    environments = await Docker.sample_init("bench", None, {})
    answer = await environments["default"].exec(["sh", "-c", command])
    first(answer.stdout)
    await Docker.sample_cleanup("bench", None, environments, False)
async def main():
    await Docker.task_init("bench", None)
    await asyncio.gather(*(one(n) for n in range(workers)))
    await Docker.task_cleanup("bench", None, True)
started()
asyncio.run(main())
""",
}
# Starts SWE-ReX's server with the container's own Python and the modules of the environment.
_SERVER = """#!/bin/sh
export PYTHONPATH=/peers/lib PYTHONDONTWRITEBYTECODE=1
exec python3 -c 'from swerex.server import main; main()' "$@"
"""
# Answers what inspect_ai asks `docker compose`, with one container for each project.
_COMPOSE = """#!/bin/sh
export PATH="$REAL_PATH"
case "$1" in
  version) echo '{"Client": {"Version": "27.0.0", "ApiVersion": "1.47"}}'; exit ;;
  compose) shift ;;
  *) exec docker "$@" ;;
esac
while :; do
  case "$1" in
    --project-name) name="$2"; shift 2 ;;
    --ansi|--progress|-f) shift 2 ;;
    *) break ;;
  esac
done
action="$1"; shift
case "$action" in
  version) echo '{"version": "v2.30.0"}' ;;
  config) [ "$1" = --images ] || echo "services: {default: {image: $IMAGE, x-local: true}}" ;;
  up) exec docker run -d --init --network none --label "$LABEL" --name "$name" "$IMAGE" \\
        tail -f /dev/null ;;
  ps) case "$*" in *running*)
        echo "{\\"Service\\": \\"default\\", \\"Name\\": \\"$name\\", \\"ExitCode\\": 0}" ;; esac ;;
  exec)
    where=/
    while [ "$1" != default ]; do [ "$1" != --workdir ] || where="$2"; shift; done
    shift; exec docker exec -w "$where" "$name" "$@" ;;
  down) exec docker rm -f "$name" ;;
esac
"""


class Peers:
    """An environment with the other programs, and what they need around them."""

    def __init__(self, place: Path) -> None:
        """Install the programs; one that cannot be installed is left out."""
        self.python = place / "bin/python"
        self.compose = place / "compose"
        measure.run(sys.executable, "-m", "venv", str(place))
        # One after another: no set of versions satisfies the requirements of all at once.
        self.installed = [name for name, package in PEERS.items() if self._install(name, package)]
        for path, text in (
            (place / "shared/start/swerex-remote", _SERVER),
            (self.compose / "docker", _COMPOSE),
        ):
            path.parent.mkdir(parents=True)
            path.write_text(text)
            path.chmod(0o755)
        self.shared = place / "shared"
        # The server of SWE-ReX runs with the image's own Python.
        printed = measure.run(
            "docker", "run", "--rm", "--pull", "never", "--label", _LABEL, "--network", "none",
            measure.IMAGE, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])",
        )  # fmt: skip
        into = (
            *("--only-binary", ":all:", "--python-version", printed.strip()),
            *("--target", str(self.shared / "lib")),
        )
        if "SWE-ReX" in self.installed and not self._install("SWE-ReX", PEERS["SWE-ReX"], *into):
            self.installed.remove("SWE-ReX")

    def _install(self, name: str, package: str, *options: str) -> bool:
        """Install a package; return whether that succeeded."""
        command = (str(self.python), "-m", "pip", "install", "--quiet", *options, package)
        try:
            subprocess.run(
                command, check=True, capture_output=True, text=True, timeout=_INSTALLATION
            )
        except subprocess.CalledProcessError as error:
            measure.note(f"{name} could not be installed: {error.stderr[-2000:]}")
            return False
        except subprocess.TimeoutExpired:
            measure.note(f"{name} could not be installed within {_INSTALLATION:g} s")
            return False
        return True

    def environ(self, name: str) -> dict[str, str]:
        """Return the environment variables for one program."""
        path = os.environ["PATH"]
        found = {"PEERS": str(self.shared), "MSWEA_SILENT_STARTUP": "1", "REAL_PATH": path}
        if name == "inspect_ai":
            found["PATH"] = f"{self.compose}:{path}"
        return {**os.environ, **found, "IMAGE": measure.IMAGE, "LABEL": _LABEL}


def attempt(
    name: str, python: str, workers: int, env: dict[str, str], cwd: Path
) -> dict[str, float]:
    """Run one program once.

    Returns:
        `first`: seconds until the last container ran its command; `memory`: MB per worker while all
        containers wait; `all`: seconds of the process without the wait. NaN: the program failed or
        did not end within `_PATIENCE`.
    """
    before = set(processes())
    began = time.perf_counter()
    samples: dict[float, int] = {}
    # Files, because pipes would stay open as long as a process that the program left.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [python, "-c", _RUN + PROGRAMS[name], str(workers), measure.IMAGE, COMMAND],
            env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
        try:
            while process.poll() is None and time.perf_counter() - began < _PATIENCE:
                moment = time.clock_gettime(time.CLOCK_BOOTTIME)
                samples[moment] = sum(pss(pid) for pid in processes() if pid not in before)
                time.sleep(0.3)
            took = time.perf_counter() - began
            is_late = process.returncode is None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    lines = [line.split() for line in texts[0].splitlines()]
    started = [float(words[1]) for words in lines if words[:1] == ["started"]]
    firsts = [float(words[1]) for words in lines if words[:1] == ["first"]]
    if process.returncode or len(firsts) != workers:
        why = f"did not end within {_PATIENCE:g} s" if is_late else "failed"
        measure.note(f"{name} {why}: {texts[1][-2000:]}")
        remove_containers(name, cwd)
        return dict.fromkeys(("first", "memory", "all"), math.nan)
    waiting = [size for at, size in samples.items() if 0 < at - max(firsts) < WAIT - 1]
    return {
        "first": max(firsts) - started[0],
        "memory": max(waiting, default=math.nan) / workers / 1e6,
        "all": took - WAIT,
    }


def remove_containers(name: str, cwd: Path) -> None:
    """Remove the containers that a program left."""
    if name == "orchestrator":
        measure.run(*measure.ORCHESTRATOR, "parallel-cleanup", "--purge", cwd=cwd, check=False)
    found = measure.run("docker", "ps", "-aq", "--filter", f"label={_LABEL}").split()
    if found:
        measure.run("docker", "rm", "-f", *found, check=False)


def processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def median(parts: dict[str, list[float]]) -> dict[str, float]:
    """Return the medians of the completed rounds; NaN if none was completed."""
    found = dict.fromkeys(("first", "memory", "all"), math.nan)
    for part, values in parts.items():
        completed = [value for value in values if not math.isnan(value)]
        if completed:
            found[part] = statistics.median(completed)
    return found


def shown(value: float, digits: int = 0) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def pss(pid: int) -> int:
    """Return the proportional set size of a process in bytes; 0 if the process has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(s.split()[1]) * 1024 for s in text.splitlines() if s.startswith("Pss:")), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", default="1,8")
    parser.add_argument("--minutes", type=float, default=15.0)
    options = parser.parse_args()
    counts = [int(count) for count in options.workers.split(",")]
    found: dict[tuple[int, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory() as place, measure.repository() as root:
        peers = Peers(Path(place))
        wanted = [(count, name) for count in counts for name in (*OWN, *peers.installed)]
        end = time.monotonic() + options.minutes * 60
        for number in range(options.rounds + 1):
            for workers, name in tuple(wanted):
                if time.monotonic() > end:
                    measure.note(f"no further measurement after {options.minutes:g} minutes")
                    break
                python = sys.executable if name in OWN else str(peers.python)
                parts = attempt(name, python, workers, peers.environ(name), root)
                measure.note(f"round {number}: {workers} {name} {parts}")
                # The first round only fills caches; what fails in it is not tried again.
                if not number and math.isnan(parts["first"]):
                    wanted.remove((workers, name))
                for part, value in parts.items() if number else ():
                    found[workers, name][part].append(value)
    report(found, [(count, name) for count in counts for name in (*OWN, *PEERS)])


def report(
    found: dict[tuple[int, str], dict[str, list[float]]], wanted: Sequence[tuple[int, str]]
) -> None:
    """Print a row for each number of workers and program, also for programs that failed."""
    rows = []
    for workers, name in wanted:
        own, bare = (median(found[workers, one]) for one in (name, "docker run"))
        firsts = found[workers, name]["first"]
        done = sum(not math.isnan(value) for value in firsts)
        rows.append([
            f"{workers}, {name}", shown(own["first"] / bare["first"], 2),
            shown(own["first"] * 1000), shown(own["all"] * 1000), shown(own["memory"], 1),
            f"{done} of {len(firsts)}",
        ])  # fmt: skip
    head = [
        "workers, program", "first command / docker run", "first command ms",
        "process without the wait ms", "MB per worker", "completed rounds",
    ]  # fmt: skip
    measure.table("Other programs that run commands in containers", head, rows)


if __name__ == "__main__":
    main()
