"""List the artifacts of a worker (files besides its commits), and read them for downloads."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.text.quantities import size
from orchestrator.state.record.worker_view import WorkerView
from orchestrator.state.run_directory import RunDirectory
from orchestrator.worker.workspace.artifacts import ARTIFACTS, findings

_CHUNK = 256 * 1024
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Artifact:
    """A file that a worker handed over in addition to its commits."""

    number: int
    """Place in the list of the worker's artifacts; part of the download's address."""
    path: str
    """Path that the worker chose; untrusted."""
    size: int

    @property
    def amount(self) -> str:
        """The size of the file with a unit, such as `14.2 MB`."""
        return size(self.size)

    @property
    def name(self) -> str:
        """A safe name for the downloaded file: letters, digits, `.`, `_` and `-`."""
        # protection: names-of-downloads-are-harmless
        plain = _UNUSUAL.sub("_", Path(self.path).name).strip("._")
        return plain[-_LONGEST_NAME:] or f"artifact-{self.number}"


def artifacts_of(directory: RunDirectory, worker: WorkerView) -> list[Artifact]:
    """Return a worker's artifacts whose files still exist."""
    found = []
    for number, path in enumerate(worker.result.artifacts if worker.result else (), start=1):
        try:
            with _open_artifact(directory, worker, path) as file:
                size = os.fstat(file.fileno()).st_size
        except OSError:
            continue
        found.append(Artifact(number, path, size))
    return found


def findings_of(directory: RunDirectory, worker: WorkerView) -> str:
    """Return the text that a worker wrote as its findings; empty if it wrote none."""
    return findings(directory.worker(worker.spec.worker_id))


def content(directory: RunDirectory, worker: WorkerView, artifact: Artifact) -> Iterator[bytes]:
    """Yield the bytes of an artifact, at most as many as its file had when it was listed.

    Raises:
        OSError: The file cannot be read.
    """
    with _open_artifact(directory, worker, artifact.path) as file:
        left = artifact.size
        while left > 0 and (piece := file.read(min(left, _CHUNK))):
            left -= len(piece)
            yield piece


def _open_artifact(directory: RunDirectory, worker: WorkerView, path: str) -> BinaryIO:
    """Open a file in a worker's directory of artifacts, without following any symbolic link."""
    parts = Path(path).parts
    # protection: artifacts-are-below-their-directory
    if not parts or Path(path).is_absolute() or ".." in parts:
        raise FileNotFoundError(path)
    # protection: links-in-path-of-artifact-are-not-followed
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    folder = os.open(directory.worker(worker.spec.worker_id) / ARTIFACTS, flags)
    try:
        for part in parts[:-1]:
            inner = os.open(part, flags, dir_fd=folder)
            os.close(folder)
            folder = inner
        # protection: links-instead-of-artifacts-are-not-followed
        return open_regular(parts[-1], folder=folder)
    finally:
        os.close(folder)
