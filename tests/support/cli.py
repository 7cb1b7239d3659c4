"""Run the real command line in a separate process, and measure its memory."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.support.forks import Fork, can_fork


@dataclass(frozen=True)
class Completed:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    peak_memory: int
    """Peak resident memory, in bytes."""

    @property
    def json(self) -> Any:
        """The parsed JSON of stdout."""
        return json.loads(self.stdout)

    @property
    def error(self) -> dict[str, Any]:
        """The error that the command, which was called with `--json`, printed on stdout."""
        error: dict[str, Any] = self.json["error"]
        assert error["exit_code"] == self.returncode
        return error

    @property
    def results(self) -> dict[int, dict[str, Any]]:
        """The results by worker number."""
        return {result["worker_id"]: result for result in self.json["results"]}


def orchestrator(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 500,
    module: str = "orchestrator",
    fork: bool = True,
) -> Completed:
    """Run `orchestrator ARGUMENTS`, or another module, in `cwd` until it ends."""
    started = time.monotonic()
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = start(
            *arguments, cwd=cwd, env=env, module=module, fork=fork, stdout=stdout, stderr=stderr
        )
        peak_memory = _wait(process, timeout)
        learn_of_overlays(cwd)
        return Completed(
            returncode=process.returncode,
            stdout=_text(stdout),
            stderr=_text(stderr),
            seconds=time.monotonic() - started,
            peak_memory=peak_memory,
        )


def run_one(repo: Path, task: str, *options: str) -> dict[str, Any]:
    """Run one command in a worker without network, and return its result, which is a success."""
    command = ("parallel", "--agent-cli", "shell", "--workers", "1", "--network", "none", "--json")
    done = orchestrator(*command, *options, task, cwd=repo)
    assert done.returncode == 0, done.stderr + done.stdout
    (result,) = done.results.values()
    return result


def printed(result: Mapping[str, Any]) -> str:
    """Return the stdout of a worker."""
    return (Path(result["log"]) / "stdout.log").read_text()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def start(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    module: str = "orchestrator",
    fork: bool = True,
    **streams: Any,
) -> "subprocess.Popen[bytes]":
    """Start `orchestrator ARGUMENTS`, or another module, in `cwd`.

    With `fork`, the process is a fork of a process that has imported the module, if a fork behaves
    the same: see `tests.support.forks`. Without `fork`, nothing is written to the repository.
    """
    whole = {**os.environ, **(env or {})}
    if fork and module == "orchestrator" and arguments[:1] in (("parallel",), ("spec",)):
        spare_probe(cwd)
    if fork and can_fork(whole, streams):
        return Fork(module, arguments, cwd=cwd, env=whole, **streams)  # type: ignore[return-value]
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=cwd,
        env=whole,
        stdin=subprocess.DEVNULL,
        **streams,
    )


_overlays: list[str] = []
"""Content of the file in which a run records that overlays work; empty if unknown."""


def learn_of_overlays(repo: Path) -> None:
    noted = repo / ".git" / "orchestrator" / "overlay"
    # The file is empty for a moment while another run writes it.
    if not _overlays and noted.is_file() and (text := noted.read_text()):
        _overlays.append(text)


def spare_probe(repo: Path) -> None:
    """Record in a new repository whether overlays work, as another repository's run found out."""
    if _overlays and (repo / ".git").is_dir() and not (repo / ".git" / "orchestrator").exists():
        (repo / ".git" / "orchestrator").mkdir()
        (repo / ".git" / "orchestrator" / "overlay").write_text(_overlays[0])


def _wait(process: "subprocess.Popen[bytes]", timeout: float) -> int:
    """Wait for the end of a process, and return the most memory that it had.

    The kernel's sum (`ru_maxrss`) would include the memory of the parent at the fork.
    """
    peak = 0
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        peak = max(peak, high_water(process.pid))
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
        return peak
    process.kill()
    process.wait()
    raise AssertionError(f"orchestrator still ran after {timeout} s")


def high_water(pid: int) -> int:
    """Return the most memory that a process has had so far in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and the children it waited for; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
