"""Archives of a place: what comes out goes in again, and a hostile one writes nothing outside."""

import io
import itertools
import os
import stat
import tarfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.engine.places.in_place.archive import ArchiveError, pack, unpack

MOST = {"limit": 10**6, "most": 1000}


def header(name: str, **rest: object) -> bytes:
    entry = tarfile.TarInfo(name)
    for key, value in rest.items():
        setattr(entry, key, value)
    return entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def file(name: str, data: bytes = b"x", **rest: object) -> bytes:
    return header(name, size=len(data), **rest) + data + bytes(-len(data) % 512)


END = bytes(1024)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    """Return the directory that is unpacked into, beside a file that must not change."""
    (tmp_path / "outside").write_text("ours")
    (tmp_path / "into").mkdir()
    return tmp_path / "into"


def make_tree(top: Path) -> None:
    (top / "empty").mkdir(parents=True)
    (top / "deep" / ("n" * 200)).mkdir(parents=True)
    (top / "deep" / ("n" * 200) / ("m" * 200)).write_bytes(b"deep")
    (top / "nothing").touch()
    (top / "block").write_bytes(b"b" * 512)
    (top / "run").write_bytes(b"#!/bin/sh\n")
    (top / "run").chmod(0o755)
    Path(os.fsdecode(os.fsencode(top) + b"/odd \xff\n name")).write_bytes(b"odd")


def seen(top: Path) -> dict[str, tuple[bool, bytes | None]]:
    return {
        str(path.relative_to(top)): (
            bool(path.stat().st_mode & stat.S_IXUSR),
            path.read_bytes() if path.is_file() else None,
        )
        for path in top.rglob("*")
    }


def test_what_is_packed_is_unpacked(tmp_path: Path, into: Path) -> None:
    make_tree(tmp_path / "tree")
    for _ in range(2):  # an interrupted call is repeated
        unpack(pack(tmp_path / "tree", **MOST), into, **MOST)
        assert seen(into) == seen(tmp_path / "tree")


def test_archive_is_one_that_tar_reads(tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    names = {f"a/b/{name}" for name in seen(tmp_path / "tree")}
    (tmp_path / "tree" / "link").symlink_to("../outside")
    made = io.BytesIO(b"".join(pack(tmp_path / "tree", **MOST, top="a/b")))
    with tarfile.open(fileobj=made) as archive:
        assert {entry.name for entry in archive} == names | {"a/b", "a/b/link"}
        assert archive.getmember("a/b/link").linkname == "../outside"
        found = archive.extractfile(f"a/b/deep/{'n' * 200}/{'m' * 200}")
        assert found is not None
        assert found.read() == b"deep"


def test_only_files_and_directories_are_packed(tmp_path: Path, into: Path) -> None:
    tree = tmp_path / "tree"
    make_tree(tree)
    expected = seen(tree)
    os.mkfifo(tree / "pipe")
    (tree / "link").symlink_to("/etc/passwd")
    (tree / "folder").symlink_to("/etc")
    unpack(pack(tree, **MOST), into, **MOST)
    assert seen(into) == expected


@pytest.mark.parametrize("make", ["sparse", "many"])
def test_limits_of_packing(tmp_path: Path, make: str) -> None:
    if make == "sparse":
        with (tmp_path / "giant").open("wb") as giant:
            giant.truncate(2**40)
    else:
        for number in range(1001):
            (tmp_path / str(number)).touch()
    begun = time.monotonic()
    with pytest.raises(ArchiveError, match="more than"):
        list(itertools.islice(pack(tmp_path, **MOST), 5000))
    assert time.monotonic() - begun < 30


def test_what_does_not_fit_is_left_out_and_named(tmp_path: Path, into: Path) -> None:
    tree = tmp_path / "tree"
    make_tree(tree)
    expected = seen(tree)
    with (tree / "giant").open("wb") as giant:
        giant.truncate(2**40)
    (tree / "link").symlink_to("giant")
    omitted: list[str] = []
    unpack(pack(tree, **MOST, omitted=omitted), into, **MOST)
    assert (seen(into), sorted(omitted)) == (expected, ["giant", "link"])


def test_files_beyond_the_limits_of_number_and_path_are_left_out(
    tmp_path: Path, into: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "many").mkdir(parents=True)
    for number in range(1001):
        (tree / "many" / str(number)).touch()
    omitted: list[str] = []
    unpack(pack(tree, **MOST, omitted=omitted), into, **MOST)
    assert (len(seen(into)), len(omitted)) == (1000, 1)

    folder = os.open(tree, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=folder)
        outer, folder = folder, os.open("d" * 200, os.O_RDONLY, dir_fd=folder)
        os.close(outer)
    os.close(folder)
    omitted.clear()
    unpack(pack(tree, limit=10, most=5000, omitted=omitted), into, limit=10, most=5000)
    assert len(omitted) == 10
    assert {len(path.encode()) > 4096 for path in omitted} == {True}


def test_file_that_shrinks_while_it_is_packed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1_000_000))
    pieces = pack(tmp_path, **MOST)
    next(pieces)
    os.truncate(tmp_path / "file", 10)
    with pytest.raises(ArchiveError, match="shorter"):
        list(pieces)


HOSTILE: dict[str, Callable[[], Iterator[bytes]]] = {
    "absolute": lambda: iter([file("/tmp/outside")]),
    "parent": lambda: iter([file("../outside")]),
    "hidden parent": lambda: iter([header("a", type=tarfile.DIRTYPE), file("a/../../outside")]),
    "dot": lambda: iter([file("./a")]),
    "empty name": lambda: iter([file("")]),
    "double slash": lambda: iter([file("a//b")]),
    "link": lambda: iter([header("l", type=tarfile.SYMTYPE, linkname=".."), file("l/outside")]),
    "hard link": lambda: iter([header("l", type=tarfile.LNKTYPE, linkname="../outside")]),
    "device": lambda: iter([header("d", type=tarfile.CHRTYPE, devmajor=1, devminor=3)]),
    "FIFO": lambda: iter([header("p", type=tarfile.FIFOTYPE)]),
    "sparse": lambda: iter([header("s", type=tarfile.GNUTYPE_SPARSE, size=2**40)]),
    "pax": lambda: iter([header("x", type=tarfile.XHDTYPE, size=2**33)]),
    "global pax": lambda: iter([header("x", type=tarfile.XGLTYPE, size=2**33)]),
    "long link": lambda: iter([header("x", type=tarfile.GNUTYPE_LONGLINK, size=2**33)]),
    "giant": lambda: iter([header("g", size=2**40), bytes(10**6)]),
    "negative": lambda: iter([header("n", size=-512), END]),
    "directory with content": lambda: iter([header("d", type=tarfile.DIRTYPE, size=512)]),
    "many entries": lambda: (header(f"f{number}") for number in range(5000)),
    "giant name": lambda: itertools.chain(
        [header("x", type=tarfile.GNUTYPE_LONGNAME, size=2**33)], itertools.repeat(b"n" * 2**20, 16)
    ),
    "name over 4096 bytes": lambda: iter([file("/".join("a" * 200 for _ in range(21)))]),
    "name over 255 bytes": lambda: iter([file("a" * 256)]),
    "two names": lambda: iter([file("././@LongLink", b"a\0", type=tarfile.GNUTYPE_LONGNAME)] * 2),
    "no parent": lambda: iter([file("a/b")]),
    "file as parent": lambda: iter([file("a"), file("a/b")]),
    "file for a directory": lambda: iter([header("a", type=tarfile.DIRTYPE), file("a")]),
    "directory for a file": lambda: iter([file("a"), header("a", type=tarfile.DIRTYPE)]),
    "damaged": lambda: iter([b"\1" * 512]),
    "too short": lambda: iter([file("a")[:700]]),
    "no end": lambda: iter([file("a")]),
    "more behind the end": lambda: iter([file("a"), END, file("b")]),
    "padding without an end": lambda: itertools.chain([file("a")], (END for _ in range(10_000))),
    "nothing": lambda: iter([]),
}


def test_padding_of_other_programs_is_accepted(into: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("a"))
    assert len(made.getvalue()) == 10_240
    unpack(iter([made.getvalue()]), into, **MOST)
    assert (into / "a").exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archive_is_refused(into: Path, name: str) -> None:
    # Archives without an end are refused for what is before it.
    made = itertools.chain(HOSTILE[name](), () if name in ("no end", "too short") else (END,))
    if name in ("more behind the end", "nothing"):
        made = HOSTILE[name]()
    begun = time.monotonic()
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError):
            unpack(made, into, **MOST)
        assert tracemalloc.get_traced_memory()[1] < 8 * 10**6
    finally:
        tracemalloc.stop()
    assert time.monotonic() - begun < 30
    assert (into.parent / "outside").read_text() == "ours"
    assert {path.name for path in into.parent.iterdir()} == {"outside", "into"}
    assert not any(path.is_symlink() for path in into.rglob("*"))
    assert sum(path.stat().st_size for path in into.rglob("*") if path.is_file()) <= 10**6


def test_links_in_the_target_are_not_followed(into: Path) -> None:
    (into / "a").symlink_to("..")
    with pytest.raises(ArchiveError):
        unpack(iter([file("a/outside"), END]), into, **MOST)
    (into / "b").symlink_to("../outside")
    unpack(iter([file("b", b"new"), END]), into, **MOST)
    assert ((into / "b").read_text(), (into / "b").is_symlink()) == ("new", False)
    assert (into.parent / "outside").read_text() == "ours"


def test_special_modes_are_not_kept(into: Path) -> None:
    unpack(iter([file("a", mode=0o6777), END]), into, **MOST)
    assert stat.S_IMODE((into / "a").stat().st_mode) & 0o7000 == 0
