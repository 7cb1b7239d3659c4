"""Runs observed from outside: a live run, and a run whose process was killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from orchestrator.base.results import RunResult
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.state.record.history import RunHistory, choose_run
from orchestrator.state.record.states import WorkerState
from orchestrator.state.run_directory import all_runs
from orchestrator.state.run_record import read_record
from tests.support.runs import shell_run

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = float(os.environ.get("TEST_PATIENCE", "180"))
"""Seconds to wait for an expected event; fewer in `make mutation`, where many tests fail."""
LATE = min(30.0, PATIENCE)
"""Accepted delay on a busy machine, in seconds, far below the delay by a bug."""
_CODE = """
import sys
from pathlib import Path
from tests.support.local_engine import LocalEngine
from tests.support.runs import shell_run

shell_run(Path(sys.argv[1]), LocalEngine(Path(sys.argv[2])), *sys.argv[3:])
"""


def eventually(holds: Callable[[], Any], what: str = "it") -> Any:
    """Wait until `holds` returns a true value, and return that value."""
    deadline = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < deadline, f"{what} did not happen within {PATIENCE:g} s"
        time.sleep(0.02)
    return found


def newest(repo: Path) -> RunHistory:
    """Open the newest run."""
    return choose_run(list(all_runs(repo / ".git" / "orchestrator")))


def states(repo: Path) -> list[WorkerState]:
    """Return the states of the newest run's workers."""
    if not any(read_record(run) for run in all_runs(repo / ".git" / "orchestrator")):
        return []
    with newest(repo) as history:
        while history.read():
            pass
        return [worker.state for worker in history.workers.values()]


class LiveRun:
    """A run in a thread, whose tasks may wait for `open_gate`."""

    def __init__(self, repo: Path, gate: Path) -> None:
        self.repo = repo
        self._gate = gate
        self.result: RunResult | None = None

    @property
    def wait_for_gate(self) -> str:
        """A command that ends when the gate is opened."""
        return f"while [ ! -e {self._gate} ]; do sleep 0.02; done"

    def open_gate(self) -> None:
        """Create the file that the waiting tasks wait for."""
        self._gate.touch()

    @contextmanager
    def going_on(
        self, engine: ContainerEngine, *tasks: str, running: int = 1, **rest: Any
    ) -> Iterator[None]:
        """Run the tasks during the block, which begins when `running` of them are running."""

        def execute() -> None:
            self.result = shell_run(self.repo, engine, *tasks, **rest)

        thread = threading.Thread(target=execute)
        thread.start()
        try:
            eventually(lambda: states(self.repo).count(WorkerState.RUNNING) >= running, "the start")
            yield
        finally:
            self.open_gate()
            thread.join(PATIENCE)
            assert not thread.is_alive()


def killed_run(repo: Path, scratch: Path, *tasks: str) -> None:
    """Leave behind a run that was killed after each of its tasks had printed something."""
    scratch.mkdir()
    # Each task leads a process group, and records its id so that it can be killed.
    noted = [f"echo $$ > {scratch / f'task-{i}'}; {task}" for i, task in enumerate(tasks)]
    process = subprocess.Popen(
        [sys.executable, "-c", _CODE, str(repo), str(scratch), *noted], cwd=ROOT
    )
    try:
        eventually(lambda: states(repo) == [WorkerState.RUNNING] * len(tasks), "the start")
        state = newest(repo).directory.worker
        for number in range(1, len(tasks) + 1):
            eventually((state(number) / "stdout.log").read_bytes, "output")
    finally:
        process.kill()
        process.wait()
        for group in scratch.glob("task-*"):
            with suppress(ProcessLookupError):
                os.killpg(int(group.read_text()), signal.SIGKILL)
