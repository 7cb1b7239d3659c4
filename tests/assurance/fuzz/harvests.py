"""Harvests that a hostile worker could hand over: a pack, a tip and notes, made from a seed."""

import os
import random
import socket
import zlib
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

from tests.assurance.fuzz import objects
from tests.assurance.fuzz.objects import Thing
from tests.assurance.fuzz.trees import Trees
from tests.assurance.fuzz.world import World

Entries = list[bytes]


class HostileHarvest:
    """Writes the output directory of a worker, and lists in `what` how it is hostile."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.trees = Trees(world, self.rng)
        self.what = self.trees.what
        self.tip = self._history()

    def write(self) -> None:
        """Write the files."""
        out = self.world.store.out
        out.mkdir(parents=True, exist_ok=True)
        (out / "pack").write_bytes(self._pack())
        (out / "tip").write_bytes(self._tip())
        (out / "notes").write_bytes(self._notes())
        if self.rng.random() < 0.06:
            self._odd_file(out / self.rng.choice(("pack", "tip", "notes")))

    def _history(self) -> str:
        """Create commits on top of the base, some of them invalid or hostile."""
        parent = self.world.base
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            honest = (b"100644", b"honest.txt", self.trees.blob())
            entries = [*self.world.entries, honest]
            hostile_tree = self.rng.random() < 0.5
            tree = self.trees.hostile_tree(entries) if hostile_tree else self.trees.tree(entries)
            hostile_commit = self.rng.random() < 0.15
            make = self.trees.hostile_commit if hostile_commit else self.trees.commit
            parent = make(tree, parent)
        return parent

    def _tip(self) -> bytes:
        if self.rng.random() < 0.85:
            return self.tip.encode() + self.rng.choice((b"", b"\n"))
        self.what.append("tip")
        tag = f"object {self.tip}\ntype commit\ntag x\ntagger W <w> 1 +0000\n\nx\n"
        size = len(self.tip)
        return self.rng.choice(
            (b"", b"HEAD", b"-" * size, b"main", self.tip[:-1].encode(), self.tip.upper().encode(),
             self.tip.encode() + b"^", b"\0" + self.tip.encode(), b"\xff" * size, b"0" * size,
             self.tip.encode() + b"\n" + self.tip.encode(), self.world.base.encode(),
             self.trees.add("tag", tag.encode()).encode(), b"x" * 100_000,
             "\u0661".encode() * size, self.trees.some_id().encode())
        )  # fmt: skip

    def _notes(self) -> bytes:
        return self.rng.choice(
            (b"[]", b'["a note"]', b"", b"{}", b"null", b"[1, null, {}]", b"[" * 30_000,
             b'["' + b"x" * 100_000 + b'"]', b'["\\u001b[2J\\ud800"]', b"\xff\xfe", b"\0" * 100,
             b'"text"', b"1" * 6000, b"[" * 100_000, b"NaN", b'["' + b'","' * 9000 + b'"]')
        )  # fmt: skip

    def _odd_file(self, path: Path) -> None:
        """Replace a file by an object of another kind, such as a FIFO."""
        self.what.append(f"odd {path.name}")
        path.unlink()
        kind = self.rng.randrange(6)
        if kind == 0:
            path.mkdir()
        elif kind == 1:
            os.mkfifo(path)
        elif kind == 2:
            path.symlink_to(self.rng.choice(("/dev/zero", "/dev/stdin", "missing", path.name)))
        elif kind == 3:
            path.symlink_to(self.world.trap / "secret")
        elif kind == 4:
            with chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
                server.bind(path.name)

    def _pack(self) -> bytes:
        things = list(self.trees.things.values())
        self.rng.shuffle(things)
        entries = [objects.whole(thing) for thing in things]
        if self.rng.random() < 0.7:
            return objects.pack(entries, algorithm=self.world.algorithm)
        way = self.rng.choice(PACK_WAYS)
        self.what.append(way.__name__)
        return way(self, things, entries)

    def finish(self, entries: Entries) -> bytes:
        """Return a correct pack of entries."""
        return objects.pack(entries, algorithm=self.world.algorithm)


def cut(harvest: HostileHarvest, _: list[Thing], entries: Entries) -> bytes:
    """Return a truncated pack."""
    data = harvest.finish(entries)
    return data[: harvest.rng.randrange(len(data))]


def flipped(harvest: HostileHarvest, _: list[Thing], entries: Entries) -> bytes:
    """Return a pack with changed bits, in some cases with a correct trailer."""
    size = 20 if harvest.world.algorithm == "sha1" else 32
    data = bytearray(harvest.finish(entries))
    for _bit in range(harvest.rng.choice((1, 1, 5))):
        data[harvest.rng.randrange(len(data))] ^= 1 << harvest.rng.randrange(8)
    if harvest.rng.random() < 0.6:
        return objects.sealed(bytes(data[:-size]), harvest.world.algorithm)
    return bytes(data)


def garbage(harvest: HostileHarvest, _: list[Thing], entries: Entries) -> bytes:
    """Return a pack followed by other bytes, or bytes that are not a pack."""
    data, rng = harvest.finish(entries), harvest.rng
    return rng.choice((data + rng.randbytes(500), data + data, rng.randbytes(999), b"", b"PACK"))


def miscounted(harvest: HostileHarvest, _: list[Thing], entries: Entries) -> bytes:
    """Return a pack whose header has a wrong number of objects or another version."""
    count = harvest.rng.choice((0, 1, len(entries) + 1, 2**31, 2**32 - 1))
    version = harvest.rng.choice((2, 2, 3, 0, 99))
    algorithm = harvest.world.algorithm
    return objects.pack(entries, algorithm=algorithm, count=count, version=version)


def wrong_size(harvest: HostileHarvest, _: list[Thing], entries: Entries) -> bytes:
    """Return a pack with a wrong size of an object."""
    size = harvest.rng.choice((0, 1, 2**24, 2**32, 2**40, 2**62, 2**70))
    code = harvest.rng.choice((0, 1, 2, 3, 4, 5))
    return harvest.finish([*entries, objects.header(code, size) + zlib.compress(b"little")])


def delta_of_base(harvest: HostileHarvest, things: list[Thing], entries: Entries) -> bytes:
    """Return a thin pack, whose delta base is in the repository, private or missing."""
    base, size = harvest.rng.choice(harvest.world.sizes)
    base = harvest.rng.choice((base, base, harvest.trees.some_id()))
    size = harvest.rng.choice((size, size, size + 1))
    place = next((i for i, thing in enumerate(things) if thing.kind == "blob"), 0)
    entries[place] = objects.ref_delta(base, size, things[place].body)
    return harvest.finish(entries)


def delta_chain(harvest: HostileHarvest, _: list[Thing], entries: Entries) -> bytes:
    """Return a pack with a long chain of deltas."""
    body = b"link 0000"
    thing = Thing("blob", body, harvest.world.algorithm)
    entries.append(objects.whole(thing))
    for number in range(harvest.rng.choice((3, 60, 600))):
        after = b"link %04d" % (number + 1)
        entries.append(objects.ref_delta(thing.id, len(thing.body), after))
        thing = Thing("blob", after, harvest.world.algorithm)
    if harvest.rng.random() < 0.5:
        harvest.rng.shuffle(entries)
    return harvest.finish(entries)


def delta_cycle(harvest: HostileHarvest, things: list[Thing], entries: Entries) -> bytes:
    """Return a pack with two deltas that are each other's base."""
    ends = Thing("blob", b"one", things[0].algorithm), Thing("blob", b"two", things[0].algorithm)
    entries += [
        objects.ref_delta(ends[0].id, 3, ends[1].body),
        objects.ref_delta(ends[1].id, 3, ends[0].body),
    ]
    return harvest.finish(entries)


def bad_delta(harvest: HostileHarvest, _: list[Thing], entries: Entries) -> bytes:
    """Return a pack with an invalid delta."""
    base, size = harvest.rng.choice(harvest.world.sizes)
    sizes = objects.number(size)
    delta = harvest.rng.choice(
        (sizes + objects.number(2**40) + b"\x80", sizes + objects.number(9) + b"\0",
         sizes + objects.number(65536) + b"\x8f\xff\xff\xff\x7f", sizes + objects.number(0), b"",
         b"\xff" * 30, sizes + objects.number(100) + b"\x7fshort",
         sizes + objects.number(2**28) + b"\x80" * 4096)
    )  # fmt: skip
    if harvest.rng.random() < 0.5:
        offset = harvest.rng.choice((b"\0", b"\x01", b"\x7f", b"\xff" * 12 + b"\x7f"))
        return harvest.finish([*entries, objects.offset_delta(offset, delta)])
    return harvest.finish([*entries, objects.raw_delta(base, delta)])


def inflated(harvest: HostileHarvest, _: list[Thing], entries: Entries) -> bytes:
    """Return a pack with a blob that is small when compressed and large when not."""
    size = harvest.rng.choice((2**20, 2**25))
    body = zlib.compress(bytes(size), 9)
    said = harvest.rng.choice((size, size - 1, 10))
    return harvest.finish([*entries, objects.header(3, said) + body])


def repeated(harvest: HostileHarvest, _: list[Thing], entries: Entries) -> bytes:
    """Return a pack with repeated objects, and objects that nothing refers to."""
    extra = Thing("blob", harvest.rng.randbytes(50), harvest.world.algorithm)
    more = [objects.whole(extra), *harvest.rng.choices(entries, k=3)]
    return harvest.finish(entries + more)


def lacking(harvest: HostileHarvest, _: list[Thing], entries: Entries) -> bytes:
    """Return a pack without one of its objects."""
    entries.pop(harvest.rng.randrange(len(entries)))
    return harvest.finish(entries)


PACK_WAYS: tuple[Callable[[HostileHarvest, list[Thing], Entries], bytes], ...] = (
    cut, flipped, flipped, garbage, miscounted, wrong_size, delta_of_base, delta_of_base,
    delta_chain, delta_cycle, bad_delta, bad_delta, inflated, repeated, lacking,
)  # fmt: skip
