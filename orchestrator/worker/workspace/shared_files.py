"""Files that the workers of one run share; workers cannot communicate in any other way.

In every worker's container:

    /run/orchestrator/out       writable, for this worker: `findings.md` and `artifacts/`
    /run/orchestrator/shared    read-only, in a workflow or with a context from the user:
                                `context.md`, and in a workflow `findings.md`, `status.md`
    /run/orchestrator/inputs    read-only, results of other tasks, if the task combines them
    /run/orchestrator/check     writable, in the container of a check only: its SARIF file

On the host, in the run's directory: `shared/`, `inputs/N/` and `context.md`, the user's context.
"""

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.base.errors import ConfigError, OrchestratorError
from orchestrator.base.events import Emit, Event, WorkerDone, WorkerPreparing, WorkerRetrying
from orchestrator.base.files.atomic import write_private
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.base.text.redact import Redactor
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.workflow.shared_findings import (
    INPUTS,
    Entry,
    bulletin,
    merge_findings,
    title_of,
)
from orchestrator.engine.interface.spec import BindMount
from orchestrator.repository.commits.changes import patch
from orchestrator.repository.repository import Repository
from orchestrator.state.run_directory import STATUS, RunDirectory
from orchestrator.worker.workspace import artifacts
from orchestrator.worker.workspace.artifacts import Handover
from orchestrator.worker.workspace.layout import Mounts

SHARED = "/run/orchestrator/shared"
OUT = "/run/orchestrator/out"
CHECK_OUT = "/run/orchestrator/check"
SARIF = "results.sarif"
"""Name of the file in `CHECK_OUT` to which a check may write its findings."""
INPUTS_PLACE = "inputs"
"""Name of the directory in a run's directory with results for workers; not needed after the run."""
RESULTS = "results.json"
"""Name of the file with the results of all tasks whose results a worker gets."""
MOST_DIFF = 8 * 1024**2
"""Maximum size in bytes of the diff of one task."""
MOST_GIVEN = 256 * 1024
"""Maximum size in bytes of the user's context file."""
_GIVEN = "context.md"
_READABLE = 0o644
_VARIABLES = {
    SHARED: {"ORCHESTRATOR_CONTEXT": f"{SHARED}/context.md"},
    INPUTS: {"ORCHESTRATOR_INPUTS": INPUTS, "ORCHESTRATOR_RESULTS": f"{INPUTS}/{RESULTS}"},
    OUT: {
        "ORCHESTRATOR_FINDINGS": f"{OUT}/{artifacts.FINDINGS}",
        "ORCHESTRATOR_ARTIFACTS": f"{OUT}/{artifacts.ARTIFACTS}",
    },
    CHECK_OUT: {"ORCHESTRATOR_SARIF": f"{CHECK_OUT}/{SARIF}"},
}


@dataclass(frozen=True, kw_only=True)
class Input:
    """The result of a task, for a worker whose task combines several results."""

    name: str
    """Id of the task with this result."""
    result: WorkerResult
    base: str
    """The commit with which the task's changes are compared."""


def variables(spec: WorkerSpec, mounts: Mounts) -> dict[str, str]:
    """Return environment variables with the task's id and the paths of the files for a worker."""
    found = {} if spec.name is None else {"ORCHESTRATOR_TASK_ID": spec.name}
    for mount in mounts:
        found |= _VARIABLES.get(mount.target, {})
    return found


def read_given(top: Path, file: str | None) -> str | None:
    """Return the text of the context file that the user gives to all workers.

    Raises:
        ConfigError: The file is unreadable, not text, or too long.
    """
    if file is None:
        return None
    try:
        # protection: size-of-context-limited
        # protection: context-is-not-read-from-fifo
        return read_limited(top / file, most=MOST_GIVEN).decode("utf-8")
    except OSError as error:
        raise ConfigError(
            f"context file `{file}` cannot be read: {error.strerror}",
            key="context.unreadable",
            hint="`--context FILE` takes a text file",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"context file `{file}` is not UTF-8 text", key="context.encoding"
        ) from error


def keep_given(directory: RunDirectory, redactor: Redactor, given: str | None) -> None:
    """Store the user's context in the run's directory.

    Raises:
        OSError: The disk is full.
    """
    if given is not None:
        # protection: secrets-are-redacted-from-context
        _write(directory.path / _GIVEN, redactor.text(given).encode("utf-8", "replace"))


class Shared:
    """The files that the workers of one run share. Thread-safe."""

    def __init__(
        self,
        directory: RunDirectory,
        repository: Repository,
        redactor: Redactor,
        *,
        workers: Sequence[WorkerSpec],
        title: str | None = None,
    ) -> None:
        """Write the shared files, or write them again after another process did.

        Args:
            directory: The run's directory.
            repository: The user's repository with the workers' commits.
            redactor: Knows the secrets.
            workers: All workers of the run.
            title: The workflow's name; None if the workers must not know of each other.

        Raises:
            OSError: The disk is full.
        """
        self._directory = directory
        self._repository = repository
        self._redactor = redactor
        self._title = title
        self._lock = threading.Lock()
        titles = {worker.worker_id: redactor.text(worker.name or worker.task) for worker in workers}
        self._entries = {n: Entry(number=n, title=title_of(text)) for n, text in titles.items()}
        for number in self._entries if title is not None else ():
            known = directory.result(number)
            if known is not None:
                self._entries[number] = self._ended(known)
        self._given = self._read_given()
        if self._has_context:
            (directory.path / "shared").mkdir(exist_ok=True)
            (directory.path / "shared").chmod(0o755)
            self._publish()

    @property
    def _has_context(self) -> bool:
        # protection: workers-without-workflow-see-no-shared-files
        return self._title is not None or self._given is not None

    def _read_given(self) -> str | None:
        try:
            return (self._directory.path / _GIVEN).read_text(encoding="utf-8")
        except OSError:
            return None

    def mounts(self, spec: WorkerSpec, user: tuple[int, int]) -> Mounts:
        """Return the mounts of the shared files, and of the directory that the worker may write to.

        Raises:
            OSError: The disk is full.
        """
        found = [handed_mount(self._directory.worker(spec.worker_id), user)]
        if self._has_context:
            shared = self._directory.path / "shared"
            # protection: shared-files-read-only
            found.append(BindMount(source=shared, target=SHARED, read_only=True))
        inputs = self._inputs(spec)
        if inputs.is_dir():
            # protection: inputs-read-only
            found.append(BindMount(source=inputs, target=INPUTS, read_only=True))
        return tuple(found)

    def _inputs(self, spec: WorkerSpec) -> Path:
        return self._directory.path / INPUTS_PLACE / str(spec.worker_id)

    def give_inputs(self, spec: WorkerSpec, inputs: Sequence[Input]) -> None:
        """Write the results of other tasks for a worker whose task combines them.

        Nothing is done if the files exist already, so that every attempt gets the same files. Must
        be called before the worker is prepared.

        Raises:
            OSError: The disk is full.
        """
        place = self._inputs(spec)
        if not inputs or place.is_dir():
            return
        half = place.with_name(f"{place.name}.half")
        remove_tree(half)
        half.mkdir(parents=True)
        half.chmod(0o755)
        # protection: secrets-are-redacted-from-inputs
        clean = [replace(entry, result=self._redactor.model(entry.result)) for entry in inputs]
        for entry in clean:
            result = entry.result
            said = result.summary or result.message or ""
            content = json.dumps(result.model_dump(mode="json"), indent=2).encode()
            _write(half / f"{entry.name}.json", content)
            _write(half / f"{entry.name}.summary.md", f"{said}\n".encode("utf-8", "replace"))
            _write(half / f"{entry.name}.diff", self._diff(entry))
        every = [{"id": entry.name, **entry.result.model_dump(mode="json")} for entry in clean]
        _write(half / RESULTS, json.dumps(every, indent=2).encode())
        half.rename(place)

    def _diff(self, entry: Input) -> bytes:
        """Return a task's diff; if git fails, a comment with the reason."""
        commit = entry.result.commit
        if commit is None or commit == entry.base:
            return b""
        try:
            # protection: size-of-diffs-limited
            found = patch(self._repository, base=entry.base, tip=commit, limit=MOST_DIFF + 1)
        except OrchestratorError as error:
            return f"# no diff could be created: {error.message}\n".encode()
        if len(found) <= MOST_DIFF:
            return found
        cut = (
            f"\n# truncated after {MOST_DIFF // 1024**2} MiB; the full diff: git diff "
            f"{entry.base} {commit}\n"
        )
        # protection: long-diffs-are-truncated
        return found[:MOST_DIFF] + cut.encode()

    def collect(self, spec: WorkerSpec) -> Handover:
        """Collect the files that a worker handed over before it ended; may be repeated."""
        return collect(self._directory.worker(spec.worker_id), self._redactor)

    def following(self, emit: Emit) -> Emit:
        """Return an event handler that calls `emit` and then updates the shared files."""
        # protection: workers-without-workflow-share-no-names
        if self._title is None:
            return emit

        def told(event: Event) -> None:
            emit(event)
            match event:
                case WorkerPreparing(worker_id=number):
                    self._put(replace(self._entries[number], state="running"))
                case WorkerRetrying(worker_id=number):
                    state = f"failed: {event.reason}, retrying"
                    self._put(replace(self._entries[number], state=state))
                case WorkerDone(result=result):
                    self._put(self._ended(result))
                case _:
                    pass

        return told

    def _ended(self, result: WorkerResult) -> Entry:
        done = result.status is Status.SUCCESS and result.started_at is not None
        state = "complete" if done else f"{result.status}: {result.reason}"
        if result.reason is Reason.DEPENDENCY or (result.reason is None and not done):
            state = "skipped"
        before = self._entries[result.worker_id]
        found = artifacts.findings(self._directory.worker(result.worker_id))
        return replace(before, state=state, done=done, findings=found)

    def _put(self, entry: Entry) -> None:
        # On a full disk the other workers keep reading the previous state.
        with self._lock, suppress(OSError):
            self._entries[entry.number] = entry
            self._publish()

    def _publish(self) -> None:
        shared = self._directory.path / "shared"
        head = self._given or f"# {self._redactor.text(str(self._title))}"
        if self._title is None:
            _write(shared / "context.md", head.encode("utf-8", "replace"))
            return
        entries = list(self._entries.values())
        _write(shared / "context.md", bulletin(head, entries).encode("utf-8", "replace"))
        _write(shared / "findings.md", merge_findings(entries).encode("utf-8", "replace"))
        with suppress(FileNotFoundError):
            _write(shared / STATUS, (self._directory.path / STATUS).read_bytes())


def handed_mount(directory: Path, user: tuple[int, int]) -> BindMount:
    """Return the mount of the directory in which a worker hands over files; create it if necessary.

    Raises:
        OSError: The disk is full.
    """
    return BindMount(source=artifacts.make_place(directory, user), target=OUT, read_only=False)


def collect(directory: Path, redactor: Redactor) -> Handover:
    """Collect the files that a worker handed over before it ended. Repeating the call is safe."""
    try:
        return artifacts.take(directory, redactor)
    except OSError as error:
        return Handover(
            notes=(f"the worker's artifacts and findings could not be collected ({error})",)
        )


def _write(path: Path, content: bytes) -> None:
    """Replace a file atomically, and make it readable for all workers."""
    write_private(path, content, mode=_READABLE)
