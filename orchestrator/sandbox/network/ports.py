"""Choose ports of this machine for workers: one block of ports for all attempts of a worker.

A block is reserved by its name, which one process of the machine can have at a time; the name is
free again when that process ends.
"""

import socket
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orchestrator.base.errors import EngineError
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.machine import reserve_name
from orchestrator.state.run_directory import RunDirectory

LOWEST = 20_000
SIZE = 10
_BLOCKS = 1_276
"""Number of blocks. They end below port 32768, as the kernel assigns the ports from 32768 on to
programs that ask for any port.
"""


class PortBlocks:
    """The blocks of port numbers that the workers of one run use."""

    def __init__(self, directory: RunDirectory, repository: Path) -> None:
        """Start without any reserved block.

        Args:
            directory: The run's directory.
            repository: Path that determines the preferred ports, together with the worker's number.
        """
        self._directory = directory
        self._page = zlib.crc32(str(repository).encode("utf-8", "surrogateescape"))
        self._held: dict[int, _Block] = {}

    def of(self, worker_id: int, wanted: Mapping[str, int]) -> "WorkerPorts":
        """Return a worker's ports, which are reserved when they are read for the first time.

        Args:
            worker_id: The worker.
            wanted: Ports in the container, each with the environment variable for it as the key.
        """
        return WorkerPorts(self, wanted, worker_id)

    def first_port(self, worker_id: int) -> int:
        """Return the first port of a worker's block: its earlier block if possible, or a new block.

        Raises:
            EngineError: All blocks are taken.
        """
        held = self._held.get(worker_id)
        if held is None:
            held = self._again(worker_id) or self._another(worker_id, self._page + worker_id)
            self._held[worker_id] = held
        return held.first

    def move(self, worker_id: int) -> None:
        """Reserve another block for a worker, because another program uses a port of its block.

        Raises:
            EngineError: All blocks are taken.
        """
        held = self._held.pop(worker_id)
        held.lock.close()
        self._held[worker_id] = self._another(worker_id, (held.first - LOWEST) // SIZE + 1)

    def release(self, worker_id: int) -> None:
        """Release the ports of a worker that has ended."""
        held = self._held.pop(worker_id, None)
        if held is not None:
            held.lock.close()

    def _again(self, worker_id: int) -> "_Block | None":
        try:
            first = int(self._note(worker_id).read_text())
        except (OSError, ValueError):
            return None
        # The ports are not probed: the listener may be the worker's own container.
        return _reserve(first)

    def _another(self, worker_id: int, start: int) -> "_Block":
        for number in range(start, start + _BLOCKS):
            block = _reserve(LOWEST + number % _BLOCKS * SIZE)
            ports = range(block.first, block.first + SIZE) if block else ()
            if block is not None and all(map(_can_listen, ports)):
                with suppress(OSError):  # full disk: a resumed run chooses other ports
                    write_atomically(self._note(worker_id), str(block.first))
                return block
            if block is not None:
                block.lock.close()
        raise EngineError(
            f"no {SIZE} adjacent ports are free for the worker: other programs or workers use them",
            key="ports.exhausted",
            hint="end other runs (`orchestrator ls`), or find listening programs with `ss -ltn`",
        )

    def _note(self, worker_id: int) -> Path:
        return self._directory.path / f"ports-{worker_id}"


@dataclass(frozen=True)
class WorkerPorts:
    """The ports of this machine that are reserved for one worker's container."""

    _blocks: PortBlocks | None
    wanted: Mapping[str, int]
    """Ports in the container to publish, each with the environment variable for it as the key."""
    _worker_id: int

    def host_ports(self) -> dict[int, int]:
        """Reserve the ports; return, for each port in the container, the port on 127.0.0.1.

        Raises:
            EngineError: All blocks are taken.
        """
        if self._blocks is None or not self.wanted:
            return {}
        first = self._blocks.first_port(self._worker_id)
        return {inside: first + place for place, inside in enumerate(self.wanted.values())}

    def variables(self) -> dict[str, str]:
        """Return environment variables with the ports' numbers in the container and on the host.

        Raises:
            EngineError: All blocks are taken.
        """
        published = self.host_ports()
        found = {}
        for name, inside in self.wanted.items():
            host = published[inside]
            found[name] = str(inside)
            found[f"HOST_{name}"] = str(host)
            found[f"{name}_URL"] = f"http://127.0.0.1:{host}"
        return found

    def move(self) -> None:
        """Reserve another block, because another program uses one of the ports.

        Raises:
            EngineError: All blocks are taken.
        """
        if self._blocks is not None:
            self._blocks.move(self._worker_id)


NO_PORTS = WorkerPorts(None, {}, 0)
"""The ports of a container that publishes none."""


@dataclass(frozen=True)
class _Block:
    first: int
    lock: IO[bytes] | socket.socket
    """Object that reserves the block of ports until it is closed."""


def _reserve(first: int) -> _Block | None:
    try:
        lock = reserve_name(f"orchestrator-ports-{first}")
    except OSError as error:
        raise EngineError(f"cannot reserve ports: {error.strerror}", key="ports.failed") from error
    return None if lock is None else _Block(first, lock)


def _can_listen(port: int) -> bool:
    with socket.socket() as probe:
        # As Docker does: closed connections do not occupy a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
