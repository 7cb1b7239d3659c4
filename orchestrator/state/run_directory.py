"""What a run leaves on disk for other processes and for people to read.

orchestrator/runs/<run-id>/           in the repository's git common directory
    lease                             locked for as long as the run's process lives
    switch                            which dead man's switch watches its containers
    run.json                          the plan; written before anything is made
    events.ndjson                     every transition
    result.json                       what it came to
    status.md                         who does what, as it is now
    stop-N                            somebody asks for worker N's end
    base-N                            what worker N starts from, if not from the run's base
    bases/                            what those reach, as `objects` is for the run's
    worker-N/                         state directory of worker N (see `store`)
        result.json stdout.log stderr.log
    worker-N.attempt-K/               what that was when its attempt K was given up; attempt.json
"""

import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from orchestrator.events import Event, WorkerMeasured, WorkerOutput
from orchestrator.files.atomic import write_atomically
from orchestrator.files.safe_open import open_regular
from orchestrator.results import RunResult, WorkerResult
from orchestrator.state.run_record import RunRecord, _hidden, _private

_KILL = "kill"
_ATTEMPT = ".attempt-"
_ATTEMPTS = 10
_ORPHANS = 60.0
"""Seconds for a git to end whose orchestrator was killed; until then it has the run's lease."""
_GLANCE = 0.02
"""Seconds; a look at a lease takes far less."""
_SECOND = len("20260101-000000")
MOST_OF_RUN = 64 * 1024**2
"""Bytes of a run's result that are read."""
MOST_OF_WORKER = 8 * 1024**2
"""Bytes of a worker's result that are read whole."""
_BEGINNING = 64 * 1024
"""Bytes in which the first fields of any result lie."""
_LIST = '"files_modified":'
"""What follows the first seven fields in a worker's result."""


class RunDirectory:
    """One run's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name
        self._lease: IO[str] | None = None
        self._events = threading.Lock()
        self.left_open = False
        """Whether somebody is to resume the run, since its engine went away."""

    def worker(self, worker_id: int) -> Path:
        """The state directory of one worker."""
        return self.path / f"worker-{worker_id}"

    def attempt(self, worker_id: int, number: int) -> Path:
        """What the state directory of a worker becomes when one of its attempts is given up."""
        return self.path / f"{self.worker(worker_id).name}{_ATTEMPT}{number}"

    def attempts(self, worker_id: int) -> list[tuple[int, Path]]:
        """Return the attempts of a worker that were given up, the first one first."""
        name = self.worker(worker_id).name
        paths = self.path.glob(f"{name}{_ATTEMPT}*")
        found = ((path.name.rpartition("-")[2], path) for path in paths)
        return sorted((int(number), path) for number, path in found if number.isdecimal())

    @property
    def objects(self) -> Path:
        """The objects that the run's base reaches."""
        return self.path / "objects"

    def objects_of(self, base: str) -> Path:
        """The objects that another base reaches, which some workers start from."""
        return self.path / "bases" / base

    def base_of(self, worker_id: int) -> str | None:
        """Return what a worker starts from, if that is not the run's base, or not known yet."""
        try:
            return (self.path / f"base-{worker_id}").read_text()
        except OSError:
            return None

    def note_base(self, worker_id: int, commit: str) -> None:
        """Keep what a worker starts from, before anything of it is made."""
        write_atomically(self.path / f"base-{worker_id}", commit)

    def drop_objects(self) -> None:
        """Remove what only running workers need."""
        shutil.rmtree(self.objects, ignore_errors=True)
        shutil.rmtree(self.path / "bases", ignore_errors=True)

    def create(self, record: RunRecord) -> None:
        """Make the directory, take its lease, write the plan."""
        self.path.mkdir(parents=True)
        self.path.chmod(0o700)
        self._lease = (self.path / "lease").open("w")
        fcntl.flock(self._lease, fcntl.LOCK_EX)
        os.set_inheritable(self._lease.fileno(), True)
        self._sign()
        # Values of the caller's variables may be secrets, and need not outlive the run.
        without = {
            "config": _private(record.config),
            "programs": {name: _private(config) for name, config in record.programs.items()},
            "workflow": _hidden(record.workflow),
        }
        plan = record.model_dump_json(indent=2, exclude=without)
        write_atomically(self.path / "run.json", plan)

    def take_over(self, inherited: int | None = None) -> bool:
        """Take the lease of a run whose process is dead; False when somebody has it.

        Args:
            inherited: A descriptor of the lease, locked, that a parent process handed us.
        """
        if inherited is not None:
            self._lease = os.fdopen(inherited, "r+")
        else:
            lease = (self.path / "lease").open("r+")
            if not self._locked(lease):
                lease.close()
                return False
            self._lease = lease
        os.set_inheritable(self._lease.fileno(), True)
        self._sign()
        self._end_last_line()
        return True

    def _end_last_line(self) -> None:
        # A line that was cut short must not take the next one with it.
        with suppress(OSError), (self.path / "events.ndjson").open("rb+") as file:
            if file.seek(0, os.SEEK_END) and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                file.write(b"\n")

    @property
    def lease_descriptor(self) -> int:
        """The lease, for a child process that goes on with the run."""
        if self._lease is None:
            raise ValueError("the lease is not ours")
        return self._lease.fileno()

    def _sign(self) -> None:
        if self._lease is not None:
            self._lease.seek(0)
            self._lease.write(f"{os.getpid()}\n")
            self._lease.truncate()
            self._lease.flush()

    @property
    def process(self) -> int | None:
        """The process that runs it, or did."""
        try:
            return int((self.path / "lease").read_text(errors="replace")[:20])
        except (OSError, ValueError):
            return None

    def is_live(self) -> bool:
        """Return whether the run's process lives: the kernel drops the lock of a dead process."""
        try:
            lease = (self.path / "lease").open("r+")
        except OSError:
            return False
        with lease:
            try:
                # Shared: two that look at once must not take each other for the run.
                fcntl.flock(lease, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Keep everybody else from taking over a run that is not live; False when it is live."""
        with ExitStack() as stack:
            try:
                lease = stack.enter_context((self.path / "lease").open("r+"))
            except OSError:
                yield True
                return
            held = self._locked(lease)
            os.set_inheritable(lease.fileno(), held)
            yield held

    def _locked(self, lease: IO[str]) -> bool:
        """Lock a lease, unless somebody has it who will not let go of it soon."""
        deadline = time.monotonic() + _ORPHANS
        while not _locked(lease):
            if _lives(self.process) or time.monotonic() > deadline:
                return False
        return True

    def release(self) -> None:
        """Give the lease up: the run has ended."""
        if self._lease is not None:
            self._lease.close()
            self._lease = None

    def record(self) -> RunRecord | None:
        """Read the plan; None when it was never written or is not ours."""
        try:
            return RunRecord.model_validate_json((self.path / "run.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def ask_to_stop(self, worker_id: int, *, kill: bool) -> None:
        """Ask whoever runs it to end a worker; with `kill`, without its grace."""
        write_atomically(self.path / f"stop-{worker_id}", _KILL if kill else "")

    def stop_asked(self, worker_id: int) -> bool:
        """Return whether somebody asks for a worker's end."""
        return (self.path / f"stop-{worker_id}").exists()

    def kill_asked(self, worker_id: int) -> bool:
        """Return whether its end cannot wait."""
        try:
            return (self.path / f"stop-{worker_id}").read_text() == _KILL
        except OSError:
            return False

    def write_result(self, result: WorkerResult) -> None:
        """Keep a worker's result, durably."""
        path = self.worker(result.worker_id) / "result.json"
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, result.model_dump_json(indent=2))

    def write_run_result(self, result: RunResult) -> None:
        """Keep what the run came to, durably."""
        write_atomically(self.path / "result.json", result.model_dump_json(indent=2))

    def run_result(self) -> RunResult | None:
        """Read what the run came to, if that was written."""
        try:
            content = read_at_most(self.path / "result.json", MOST_OF_RUN)
            return None if content is None else RunResult.model_validate_json(content)
        except (OSError, ValidationError):
            return None

    def shallow(self) -> frozenset[str] | None:
        """Return the commits that the base's objects are cut off at; None while those are made."""
        try:
            return frozenset((self.path / "shallow").read_text().split())
        except OSError:
            return None

    def write_shallow(self, commits: frozenset[str]) -> None:
        """The base's objects are complete."""
        text = "".join(f"{commit}\n" for commit in sorted(commits))
        write_atomically(self.path / "shallow", text)

    def result(self, worker_id: int) -> WorkerResult | None:
        """Read a worker's result, if it has one."""
        try:
            path = self.worker(worker_id) / "result.json"
            content = read_at_most(path, MOST_OF_WORKER)
            return _begun(path) if content is None else WorkerResult.model_validate_json(content)
        except (OSError, ValidationError):
            return None

    def log_event(self, event: Event) -> None:
        """Append a transition to the event log; output lines are in the logs already."""
        if isinstance(event, (WorkerOutput, WorkerMeasured)):
            return
        line = json.dumps(event.model_dump(mode="json")) + "\n"
        # A full disk, or a run that was undone, costs the log a line and no worker its end.
        with suppress(OSError), self._events, (self.path / "events.ndjson").open("a") as file:
            file.write(line)


def read_at_most(path: Path, most: int) -> bytes | None:
    """Read a file; None when it has more than `most` bytes.

    Raises:
        OSError: It is not there, or no file.
    """
    with open_regular(path) as file:
        content = file.read(most + 1)
    return content if len(content) <= most else None


def _begun(path: Path) -> WorkerResult:
    """Read the beginning of a result that is too large, which an older version wrote.

    Raises:
        OSError: It is not there.
        ValidationError: It begins otherwise.
    """
    with open_regular(path) as file:
        head, listed, _ = file.read(_BEGINNING).decode("utf-8", "replace").partition(_LIST)
    size = path.stat().st_size
    rest = {
        "files_modified": [],
        "worktree_path": "",
        "message": f"its result has {size} bytes, of which the beginning was read",
    }
    text = json.dumps(rest)[1:] if listed else ""
    return WorkerResult.model_validate_json(head + text)


def all_runs(state_dir: Path) -> Iterator[RunDirectory]:
    """Yield every run of a repository, oldest first."""
    runs = state_dir / "runs"
    if runs.is_dir():
        for path in sorted(runs.iterdir(), key=_made_at):
            if path.is_dir() and not path.is_symlink():
                yield RunDirectory(path)


def _made_at(run: Path) -> tuple[str, int, str]:
    # Its name has the second; within one, several runs may have started.
    try:
        written = (run / "run.json").stat().st_mtime_ns
    except OSError:
        written = 0
    return run.name[:_SECOND], written, run.name


def live_numbers(state_dir: Path) -> frozenset[int]:
    """Return the worker numbers of runs that go on, whatever became of their branches."""
    records = (run.record() for run in all_runs(state_dir) if run.is_live())
    return frozenset(spec.worker_id for record in records if record for spec in record.workers)


def _lives(process: int | None) -> bool:
    if process is None:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _locked(lease: IO[str]) -> bool:
    """Lock a lease; whoever only looks whether a run is live holds it for a moment."""
    for _ in range(_ATTEMPTS):
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_GLANCE)
        else:
            return True
    return False
