"""Helpers of the benchmarks: rounds, medians, tables and repositories."""

# ruff: noqa: T201  # a benchmark prints

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.docker import DockerEngine
from orchestrator.repository.repository import Repository
from orchestrator.runs.planning.enforcement import check_enforcement
from orchestrator.worker.workspace.overlay_probe import choose_transfer

IMAGE = "orchestrator/base:latest"
LABEL = "orchestrator.managed=true"
ORCHESTRATOR = (sys.executable, "-m", "orchestrator")

# A simple script for comparison: worktree, container and commit, all workers at once. One of
# several simultaneous `git worktree add` fails at times, because it reads unfinished files of
# another one ("failed to read .git/worktrees/.../commondir"); it is then repeated.
_LOOP = r"""
for i in $(seq "$WORKERS"); do (
  add() { git worktree add -q --no-track -B "raw-$i" ".raw-$i" 2> /dev/null; }
  { add || add || add; } &&
  docker run --rm --label "$LABEL" $NETWORK -v "$PWD/.raw-$i:/workspace" -w /workspace \
    "$IMAGE" sh -c "$TASK" &&
  if [ "$TASK" != true ]; then
    git -C ".raw-$i" add -A && git -C ".raw-$i" commit -q -m work
  fi
) & done
wait
test "$(git for-each-ref refs/heads/raw-\* | wc -l)" = "$WORKERS"
"""

Way = Callable[[], float]
"""Executes one variant once, and returns the seconds it took, without preparation."""


def interleaved(ways: Mapping[str, Way], rounds: int) -> dict[str, list[float]]:
    """Run every variant once per round, so that other load affects all variants."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, way in ways.items():
            times[name].append(way())
            note(f"round {number + 1}/{rounds}  {name}: {times[name][-1]:.3f} s")
    return times


def medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in times.items()}


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


class Stopwatch:
    """Counts calls of functions of the package, and their seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    def watch(self, owner: object, name: str, part: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def outer(*arguments: Any, **options: Any) -> Any:
            answer: list[Any] = []
            took = timed(lambda: answer.append(inner(*arguments, **options)))
            self.seconds[part].append(took)
            return answer[0]

        setattr(owner, name, outer)


@contextmanager
def largest_of(read: Callable[[], float]) -> Iterator[list[float]]:
    """Yield a list, whose only item is the largest value that `read` has returned until then."""
    found, ended = [0.0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            found[0] = max(found[0], read())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield found
    finally:
        ended.set()
        watching.join()


def note(text: str) -> None:
    print(text, file=sys.stderr)


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(head) + " |")
    print("|---" + "|--:" * (len(head) - 1) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    sys.stdout.flush()


def run(
    *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, check: bool = True
) -> str:
    """Run a command to its end and return its stdout."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if check and done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


@contextmanager
def repository(files: int = 1, size: int = 40) -> Iterator[Path]:
    """Create a repository of one commit, and remove it afterwards."""
    root = Path(tempfile.mkdtemp(prefix="orchestrator-bench-"))
    try:
        run("git", "init", "-q", "-b", "main", str(root))
        configure(root)
        fill(root, files, size)
        run("git", "add", "-A", cwd=root)
        run("git", "commit", "-q", "-m", "base", cwd=root)
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def known_repository() -> Iterator[Path]:
    """Create a repository as after a run, because a first run tests overlays and limits there."""
    engine = DockerEngine()
    with repository() as root:
        found = Repository(root)
        found.state_dir.mkdir()
        features = engine.check(images=(), runtime=None)
        features = check_enforcement(engine, features, found, (ParallelConfig(tasks=("-",)),))
        choose_transfer(engine, features, found, Isolation())
        engine.close()
        yield root


def configure(root: Path) -> None:
    """Set an author, and disable what git does automatically beside measurements."""
    run("git", "config", "user.email", "bench@localhost", cwd=root)
    run("git", "config", "user.name", "bench", cwd=root)
    run("git", "config", "gc.auto", "0", cwd=root)


def shell_loop(root: Path, workers: int, task: str, network: str) -> float:
    """Run workers in a parallel shell loop of git and docker; return the seconds."""
    env = {
        "WORKERS": str(workers), "TASK": task, "IMAGE": IMAGE, "LABEL": LABEL,
        "NETWORK": "--network none" if network == "none" else "",
    }  # fmt: skip
    return timed(lambda: run("sh", "-c", _LOOP, cwd=root, env=env))


def undo_loop(root: Path, workers: int) -> None:
    """Remove the worktrees and branches of `shell_loop`."""
    for number in range(1, workers + 1):
        run("git", "worktree", "remove", "--force", f".raw-{number}", cwd=root)
        run("git", "branch", "-qD", f"raw-{number}", cwd=root)


def fill(root: Path, files: int, size: int) -> None:
    """Write `files` different files, a hundred per directory, of at least `size` bytes each."""
    for number in range(files):
        path = root / f"src/part{number // 100:04}/file{number:06}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        line = f"line of file {number}\n"
        path.write_text(line * max(size // len(line), 1))


def cpu_of(*command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> float:
    """Run a command and return the CPU seconds of the command and its children.

    Python may write and use compiled modules, as in an installed program.
    """
    environ = {**os.environ, **(env or {})}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command, cwd=cwd, env=environ, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f}"


def ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}"
