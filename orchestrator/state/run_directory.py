"""The files of a run on disk, for other processes and for users.

orchestrator/owners/<run-id>.json     what users who may not read the directory may know of the run
orchestrator/runs/<run-id>/           in the repository's git common directory
    lease                             locked for as long as the run's process lives
    switch          id of the dead man's switch in charge
    run.json                          the plan; written before anything is created
    events.ndjson                     every event but output
    result.json                       the result of the run
    status.md                         a table of all workers and their states
    stop-N                            a request to end worker N
    message-N                         a message that waits for worker N (see `turns`)
    base-N                            commit that worker N starts from, if not the run's base
    objects/                          git objects of the run's base commit
    bases/                            git objects of the commits in the files `base-N`
    worker-N/                         state directory of worker N (see `worker_directory`)
        result.json stdout.log stderr.log
    worker-N.attempt-K/               the same directory after its failed attempt K
"""

import fcntl
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from orchestrator.base.events import MOMENTARY, Event
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.remove_tree import entry_names, remove_tree
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.files.shared import make_shared
from orchestrator.base.machine import process_exists
from orchestrator.base.results import RunResult, WorkerResult
from orchestrator.state.present_paths import run_result_in, worker_result_in
from orchestrator.state.public_record import PublicRecord

STATUS = "status.md"
"""Name of the file with a table of all workers of a run and their states."""
_KILL = "kill"
_TURN = "turn"
_TEST = "test-of-merge"
_ATTEMPT = ".attempt-"
_ATTEMPTS = 10
_ORPHANS = 60.0
"""Seconds to wait for git processes of a killed orchestrator, which still lock the run's lease.
"""
_GLANCE = 0.02
"""Seconds between two attempts to lock a run's lease."""
_SECOND = len("20260101-000000")
MOST_OF_RUN = 64 * 1024**2
"""Maximum size in bytes of a run's result file that is read."""
MOST_OF_WORKER = 8 * 1024**2
"""Maximum size in bytes of a worker's result file that is read as a whole."""
_BEGINNING = 64 * 1024
"""Number of bytes at the start of a result file that contain the first fields of any result."""
_LIST = '"files_modified":'
"""Text before the list that follows the first seven fields in a worker's result file."""


class RunDirectory:
    """The directory with the files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id = path.name
        self.public = PublicRecord(path)
        self._lease: IO[str] | None = None
        self._events = threading.Lock()

    def worker(self, worker_id: int) -> Path:
        """Return the state directory of a worker."""
        return self.path / f"worker-{worker_id}"

    def attempt(self, worker_id: int, number: int) -> Path:
        """Return the name that a worker's state directory gets after a failed attempt."""
        return self.path / f"{self.worker(worker_id).name}{_ATTEMPT}{number}"

    def attempts(self, worker_id: int) -> list[tuple[int, Path]]:
        """Return number and directory of each failed attempt of a worker, first attempt first."""
        name = self.worker(worker_id).name
        paths = self.path.glob(f"{name}{_ATTEMPT}*")
        found = ((path.name.rpartition("-")[2], path) for path in paths)
        return sorted((int(number), path) for number, path in found if number.isdecimal())

    @property
    def objects(self) -> Path:
        """Return the object directory for the run's base commit."""
        return self.path / "objects"

    def objects_of(self, base: str) -> Path:
        """Return the object directory for another base commit, from which some workers start."""
        return self.path / "bases" / base

    def base_of(self, worker_id: int) -> str | None:
        """Return a worker's own base commit; None if it is the run's base commit or unknown."""
        try:
            return (self.path / f"base-{worker_id}").read_text()
        except OSError:
            return None

    def note_base(self, worker_id: int, commit: str) -> None:
        """Record the commit that a worker starts from, before anything is created for it."""
        write_atomically(self.path / f"base-{worker_id}", commit)

    def drop_objects(self) -> None:
        """Remove the object directories, which only running workers need."""
        shutil.rmtree(self.objects, ignore_errors=True)
        shutil.rmtree(self.path / "bases", ignore_errors=True)

    def create(self, plan: str, public: Mapping[str, object] | None = None) -> None:
        """Create the directory, lock the run's lease, and write the plan.

        Args:
            plan: The plan as JSON text.
            public: What users who may not read the directory may know of the plan.
        """
        make_shared(self.path.parent)
        make_shared(self.public.place)
        self.path.mkdir(mode=0o700)
        # protection: records-are-private-to-user
        self.path.chmod(0o700)
        self.public.write(public or {})
        self._lease = (self.path / "lease").open("w")
        fcntl.flock(self._lease, fcntl.LOCK_EX)
        os.set_inheritable(self._lease.fileno(), True)
        self._sign()
        write_atomically(self.path / "run.json", plan)

    def take_over(self, inherited: int | None = None) -> bool:
        """Lock the lease of a run whose process has died; return False if it is locked already.

        Args:
            inherited: A descriptor of the locked lease, inherited from the parent process.
        """
        if inherited is not None:
            self._lease = os.fdopen(inherited, "r+")
        else:
            lease = (self.path / "lease").open("r+")
            if not self._lock(lease):
                lease.close()
                return False
            self._lease = lease
        os.set_inheritable(self._lease.fileno(), True)
        self._sign()
        # After an incomplete last line, the next event must still start on its own line.
        with suppress(OSError), (self.path / "events.ndjson").open("rb+") as file:
            if file.seek(0, os.SEEK_END) and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                file.write(b"\n")
        return True

    @property
    def lease_descriptor(self) -> int:
        """Return the lease's file descriptor, for a child process that continues the run."""
        if self._lease is None:
            raise ValueError("another process owns the run: this one does not hold its lease")
        return self._lease.fileno()

    def _sign(self) -> None:
        if self._lease is not None:
            self._lease.seek(0)
            self._lease.write(f"{os.getpid()}\n")
            self._lease.truncate()
            self._lease.flush()
            self.public.sign()

    @property
    def other_user(self) -> str | None:
        """The user whose run this is, if this process may not read its directory; else None.

        Such a run is not chosen, changed or removed by any command.
        """
        return self.public.other_user()

    def remove(self) -> None:
        """Remove everything that is recorded about the run."""
        remove_tree(self.path)
        self.public.remove()

    @property
    def process(self) -> int | None:
        """Return the id of the process that executes or executed the run; None if unknown."""
        try:
            return int((self.path / "lease").read_text(errors="replace")[:20])
        except (OSError, ValueError):
            return None

    @property
    def is_test(self) -> bool:
        """Whether the run only tests a commit for a merge or a judgement."""
        try:
            return (self.path / _TEST).exists()
        except PermissionError:
            return False

    def mark_as_test(self) -> None:
        """Record that the run only tests a commit; commands do not select such a run by default."""
        # protection: queue-runs-of-checks-have-no-branches-to-merge
        (self.path / _TEST).touch()

    def is_live(self) -> bool:
        """Return whether the run's process lives: the kernel unlocks a dead process's lease.

        A run of another user is live unless its owner has published a process that is gone.
        """
        if self.other_user is not None:
            return self.public.is_live()
        try:
            lease = (self.path / "lease").open("r+")
        except OSError:
            return False
        with lease:
            try:
                # A shared lock, so that two processes checking at once do not take each other for
                # the run.
                fcntl.flock(lease, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    @contextmanager
    def hold(self) -> Iterator[bool]:
        """Lock the run; yield whether that was possible: False if the run is in progress."""
        with ExitStack() as stack:
            try:
                lease = stack.enter_context((self.path / "lease").open("r+"))
            except OSError:
                yield True
                return
            held = self._lock(lease)
            os.set_inheritable(lease.fileno(), held)
            yield held

    def _lock(self, lease: IO[str]) -> bool:
        """Lock a lease file; wait a moment, in case its present owner unlocks the file."""
        deadline = time.monotonic() + _ORPHANS
        while True:
            # Other processes lock the file briefly, to check for a live run.
            for _ in range(_ATTEMPTS):
                with suppress(BlockingIOError):
                    fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                time.sleep(_GLANCE)
            process = self.process
            if (process and process_exists(process)) or time.monotonic() > deadline:
                return False

    def release(self) -> None:
        """Unlock the run's lease, at the end of the run."""
        if self._lease is not None:
            self.public.sign_off()
            self._lease.close()
            self._lease = None

    def ask_to_stop(self, worker_id: int, *, kill: bool) -> None:
        """Ask the run's process to stop a worker; with `kill`, without a grace period."""
        write_atomically(self.path / f"stop-{worker_id}", _KILL if kill else "")

    def ask_to_end_turn(self, worker_id: int) -> None:
        """Ask the run's process to stop a worker, which then gets the message that waits for it."""
        write_atomically(self.path / f"stop-{worker_id}", _TURN)

    def end_of_turn_asked(self, worker_id: int) -> bool:
        """Return whether a worker was stopped only so that it gets a message."""
        return self._stop_request(worker_id) == _TURN

    def forget_stop(self, worker_id: int) -> None:
        """Remove the request to stop a worker."""
        (self.path / f"stop-{worker_id}").unlink(missing_ok=True)

    def stop_requests(self) -> frozenset[int]:
        """Return the numbers of the workers that another process asked to stop."""
        names = (n.removeprefix("stop-") for n in entry_names(self.path) if n.startswith("stop-"))
        return frozenset(int(number) for number in names if number.isdecimal())

    def stop_asked(self, worker_id: int) -> bool:
        """Return whether another process asked to stop a worker.

        That a message is waiting is no reason any more once the message was delivered.
        """
        request = self._stop_request(worker_id)
        return request is not None and (request != _TURN or self.message(worker_id).exists())

    def message(self, worker_id: int) -> Path:
        """Return the file of the message that waits for the end of a worker's turn."""
        return self.path / f"message-{worker_id}"

    def kill_asked(self, worker_id: int) -> bool:
        """Return whether another process asked to stop a worker without a grace period."""
        return self._stop_request(worker_id) == _KILL

    def _stop_request(self, worker_id: int) -> str | None:
        with suppress(OSError):
            return (self.path / f"stop-{worker_id}").read_text()
        return None

    def write_result(self, result: WorkerResult) -> None:
        """Write a worker's result to disk, so that it survives a crash."""
        path = self.worker(result.worker_id) / "result.json"
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, result.model_dump_json(indent=2))

    def write_run_result(self, result: RunResult) -> None:
        """Write the run's result to disk, so that it survives a crash."""
        write_atomically(self.path / "result.json", result.model_dump_json(indent=2))

    def run_result(self) -> RunResult | None:
        """Return the run's result; None if there is no result yet."""
        try:
            content = read_at_most(self.path / "result.json", MOST_OF_RUN)
            found = None if content is None else RunResult.model_validate_json(content)
        except (OSError, ValidationError):
            return None
        return found and run_result_in(self.path, found)

    def shallow(self) -> frozenset[str] | None:
        """Return the commits at which the base's history is cut off; None if not recorded."""
        try:
            return frozenset((self.path / "shallow").read_text().split())
        except OSError:
            return None

    def write_shallow(self, commits: frozenset[str]) -> None:
        """Record the commits at which the base's history is cut off."""
        text = "".join(f"{commit}\n" for commit in sorted(commits))
        write_atomically(self.path / "shallow", text)

    def result(self, worker_id: int) -> WorkerResult | None:
        """Return a worker's result; None if the worker has no result yet."""
        try:
            path = self.worker(worker_id) / "result.json"
            data = read_at_most(path, MOST_OF_WORKER) or _read_beginning(path)
            found = WorkerResult.model_validate_json(data)
        except (OSError, ValidationError):
            return None
        return worker_result_in(self.path, found)

    def log_event(self, event: Event) -> None:
        """Append an event to the run's file of events, unless its type is never recorded."""
        if isinstance(event, MOMENTARY):
            return
        line = json.dumps(event.model_dump(mode="json")) + "\n"
        # On a full disk, or if the run was removed, only a line of the log is lost; the workers
        # continue.
        with suppress(OSError), self._events, (self.path / "events.ndjson").open("a") as file:
            file.write(line)


def read_at_most(path: Path, most: int) -> bytes | None:
    """Return a file's content; None if the file has more than `most` bytes.

    Raises:
        OSError: The file does not exist or is not a regular file.
    """
    with open_regular(path) as file:
        # protection: length-of-read-results-limited
        content = file.read(most + 1)
    # protection: large-results-are-not-parsed
    return content if len(content) <= most else None


def _read_beginning(path: Path) -> str:
    """Return the first fields of a very large result that an older version wrote, as JSON text.

    Raises:
        OSError: The file does not exist.
    """
    with open_regular(path) as file:
        head, listed, _ = file.read(_BEGINNING).decode("utf-8", "replace").partition(_LIST)
    size = path.stat().st_size
    rest = {
        "files_modified": [],
        "worktree_path": "",
        "message": f"the result file has {size} bytes, of which only the beginning was read",
    }
    return head + (json.dumps(rest)[1:] if listed else "")


def all_runs(state_dir: Path) -> Iterator[RunDirectory]:
    """Yield every run of a repository, oldest first."""
    try:
        with os.scandir(state_dir / "runs") as entries:
            found = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return
    yield from map(RunDirectory, sorted(found, key=_made_at))


def _made_at(run: Path) -> tuple[str, int, str]:
    # The run's id contains the second of its start; file times order runs of the same second.
    try:
        written = (run / "run.json").stat().st_mtime_ns
    except OSError:
        written = 0
    return run.name[:_SECOND], written, run.name
