"""Git objects and packs written byte by byte, so that they may be invalid in every way."""

import hashlib
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CODES = {"commit": 1, "tree": 2, "blob": 3, "tag": 4}
OFS_DELTA, REF_DELTA = 6, 7
Entry = tuple[bytes, bytes, str]
"""Mode, name and object id of a tree entry."""


@dataclass(frozen=True)
class Thing:
    """A git object, whose kind and content may be invalid."""

    kind: str
    body: bytes
    algorithm: str = "sha1"

    @property
    def id(self) -> str:
        """The id of the object."""
        return hashlib.new(self.algorithm, self.framed).hexdigest()

    @property
    def framed(self) -> bytes:
        """The object with its header, as git hashes it and stores it loose."""
        return f"{self.kind} {len(self.body)}\0".encode() + self.body


def tree_body(entries: Iterable[Entry]) -> bytes:
    """Return the body of a tree with entries in the given order."""
    return b"".join(
        mode + b" " + name + b"\0" + bytes.fromhex(object_id) for mode, name, object_id in entries
    )


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Sort the entries of a tree as git does: directories as if their names ended with a slash."""
    return sorted(entries, key=lambda e: e[1] + b"/" if e[0] == b"40000" else e[1])


def header(code: int, size: int) -> bytes:
    """Return the header of a pack's entry."""
    first, size = (code << 4) | (size & 15), size >> 4
    return _groups(first, size)


def number(size: int) -> bytes:
    """Encode a size as in a delta."""
    return _groups(size & 127, size >> 7)


def _groups(first: int, rest: int) -> bytes:
    out = bytearray()
    while rest:
        out.append(first | 128)
        first, rest = rest & 127, rest >> 7
    out.append(first)
    return bytes(out)


def whole(thing: Thing) -> bytes:
    """Return the pack entry of an object that is not a delta."""
    return header(CODES[thing.kind], len(thing.body)) + zlib.compress(thing.body, 1)


def insertions(data: bytes) -> bytes:
    """Return the instructions of a delta that only inserts data."""
    parts = (data[at : at + 127] for at in range(0, len(data), 127))
    return b"".join(bytes([len(part)]) + part for part in parts)


def ref_delta(base: str, base_size: int, target: bytes) -> bytes:
    """Return a pack entry with a delta whose base is given by its id."""
    delta = number(base_size) + number(len(target)) + insertions(target)
    return raw_delta(base, delta)


def raw_delta(base: str, delta: bytes) -> bytes:
    """Return a pack entry with any bytes as a delta whose base is given by its id."""
    return header(REF_DELTA, len(delta)) + bytes.fromhex(base) + zlib.compress(delta, 1)


def offset_delta(offset: bytes, delta: bytes) -> bytes:
    """Return a pack entry with any bytes as a delta whose base is `offset` before it."""
    return header(OFS_DELTA, len(delta)) + offset + zlib.compress(delta, 1)


def pack(
    entries: Sequence[bytes], *, algorithm: str, count: int | None = None, version: int = 2
) -> bytes:
    """Return a pack of entries, with a correct trailer."""
    said = len(entries) if count is None else count
    return sealed(b"PACK" + struct.pack(">II", version, said) + b"".join(entries), algorithm)


def sealed(data: bytes, algorithm: str) -> bytes:
    """Return data with its checksum as the trailer."""
    return data + hashlib.new(algorithm, data).digest()
