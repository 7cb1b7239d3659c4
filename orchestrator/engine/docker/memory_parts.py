"""The parts of a place that are only in memory, and how a running step gets changes of them."""

import threading
from collections.abc import Iterable
from contextlib import suppress
from secrets import token_hex

from orchestrator.base.files.disk_usage import disk_use
from orchestrator.engine.docker.porter_calls import Porter
from orchestrator.engine.docker.volumes import Volumes
from orchestrator.engine.places.part_files import described, source_of
from orchestrator.engine.places.place import Part, PlaceSpec

MEMORY = "/memory"
"""Directory of the parts in the porter's container."""
_LEAST = 64 * 1024**2
"""Size in bytes of the smallest volume in memory; a larger one has room for its files four times.
"""
_PAGE = 4096
_MOST_FILES = 100_000


class MemoryParts:
    """Sends the parts of one place that are in memory."""

    def __init__(self, volumes: Volumes, porter: Porter) -> None:
        self._volumes, self._porter = volumes, porter
        self._sent: dict[str, str] = {}
        """Hashes of the parts as this process has sent them."""
        self._lock = threading.Lock()

    def send(self, part: Part) -> None:
        """Send the files of a part if they have changed, so that steps see whole files only.

        Raises:
            EngineError: The files could not be transferred.
            OSError: A file cannot be read.
        """
        source, directory = source_of(part), f"{MEMORY}/{part.name}"
        with self._lock:
            known = described(source)
            if self._sent.get(part.name) != known:
                folder = f"new-{token_hex(4)}"
                self._volumes.send_to_memory(source, self._porter.name, directory, folder)
                self._porter.call("settle", part.name, folder)
                self._sent[part.name] = known

    def refresh(self, parts: Iterable[Part]) -> None:
        """Send those parts in memory that have changed, and whose files still exist here.

        Raises:
            EngineError: The files could not be transferred.
            OSError: A file cannot be read.
        """
        for part in (part for part in parts if part.in_memory):
            with suppress(FileNotFoundError):
                self.send(part)


def options(spec: PlaceSpec, name: str) -> str:
    """Return the mount options of the volume for a part in memory, whose files may come later."""
    source = source_of(next(part for part in spec.parts if part.name == name))
    room = 4 * disk_use([source], most_files=_MOST_FILES).size if source.is_dir() else 0
    # In blocks of a page: Podman takes `size` for a quota on disk, which few file systems have.
    return f"nr_blocks={max(_LEAST, room) // _PAGE},mode=0755"
