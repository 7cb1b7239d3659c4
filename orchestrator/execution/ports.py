"""Ports of this machine for workers: a block for each, the same for all of its attempts.

A block is reserved by an abstract Unix socket of its name. The kernel gives such a name to one
process of the machine, whoever runs it, and takes it back when that process ends, however it does.
"""

import errno
import socket
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import EngineError
from orchestrator.files.atomic import write_atomically
from orchestrator.state.run_directory import RunDirectory

LOWEST = 20_000
SIZE = 10
_BLOCKS = 1_276
"""Up to where the kernel takes ports from for programs that ask for any."""


class PortBlocks:
    """The blocks of one run's workers."""

    def __init__(self, directory: RunDirectory, repository: Path) -> None:
        """Reserve nothing yet.

        Args:
            directory: The run's.
            repository: What a worker's ports depend on, beside its number.
        """
        self._directory = directory
        self._page = zlib.crc32(str(repository).encode("utf-8", "surrogateescape"))
        self._held: dict[int, _Block] = {}

    def of(self, worker_id: int, wanted: Mapping[str, int]) -> "WorkerPorts":
        """Return a worker's, reserved when they are first asked for.

        Args:
            worker_id: The worker.
            wanted: Name of a variable to port in the container.
        """
        return WorkerPorts(self, wanted, worker_id)

    def first_port(self, worker_id: int) -> int:
        """Return the first port of a worker's block: the one it had, or else a free one.

        Raises:
            EngineError: All are taken.
        """
        held = self._held.get(worker_id)
        if held is None:
            held = self._again(worker_id) or self._another(worker_id, self._page + worker_id)
            self._held[worker_id] = held
        return held.first

    def move(self, worker_id: int) -> None:
        """Give a worker another block: somebody has a port of this one.

        Raises:
            EngineError: All are taken.
        """
        held = self._held.pop(worker_id)
        held.lock.close()
        self._held[worker_id] = self._another(worker_id, (held.first - LOWEST) // SIZE + 1)

    def release(self, worker_id: int) -> None:
        """Let go of a worker's block: it has its result."""
        held = self._held.pop(worker_id, None)
        if held is not None:
            held.lock.close()

    def _again(self, worker_id: int) -> "_Block | None":
        try:
            first = int(self._note(worker_id).read_text())
        except (OSError, ValueError):
            return None
        # Whether somebody listens there is not asked: it may be the worker's container.
        return _reserve(first)

    def _another(self, worker_id: int, start: int) -> "_Block":
        for number in range(start, start + _BLOCKS):
            block = _reserve(LOWEST + number % _BLOCKS * SIZE)
            if block is not None and _is_free(block.first):
                with suppress(OSError):  # a full disk: a resume gives it others
                    write_atomically(self._note(worker_id), str(block.first))
                return block
            if block is not None:
                block.lock.close()
        raise EngineError("no ports are free for the worker", hint="see what listens: `ss -ltn`")

    def _note(self, worker_id: int) -> Path:
        return self._directory.path / f"ports-{worker_id}"


@dataclass(frozen=True)
class WorkerPorts:
    """One worker's ports."""

    _blocks: PortBlocks
    wanted: Mapping[str, int]
    """Name of a variable to port in the container."""
    _worker_id: int

    def published(self) -> dict[int, int]:
        """Return container port to port on 127.0.0.1, reserved from now on.

        Raises:
            EngineError: All are taken.
        """
        if not self.wanted:
            return {}
        first = self._blocks.first_port(self._worker_id)
        return {inside: first + place for place, inside in enumerate(self.wanted.values())}

    def variables(self) -> dict[str, str]:
        """Tell the worker: where to listen, and where that is seen from outside.

        Raises:
            EngineError: All are taken.
        """
        published = self.published()
        found = {}
        for name, inside in self.wanted.items():
            host = published[inside]
            found[name] = str(inside)
            found[f"HOST_{name}"] = str(host)
            found[f"{name}_URL"] = f"http://127.0.0.1:{host}"
        return found

    def move(self) -> None:
        """Take others: one of these is in use.

        Raises:
            EngineError: All are taken.
        """
        self._blocks.move(self._worker_id)


@dataclass(frozen=True)
class _Block:
    first: int
    lock: socket.socket
    """Held for as long as it is open."""


def _reserve(first: int) -> _Block | None:
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0orchestrator-ports-{first}")
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise EngineError(f"ports cannot be reserved: {error.strerror}") from error
    return _Block(first, lock)


def _is_free(first: int) -> bool:
    return all(_can_listen(port) for port in range(first, first + SIZE))


def _can_listen(port: int) -> bool:
    with socket.socket() as probe:
        # As the engine does: connections that have ended keep no port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
