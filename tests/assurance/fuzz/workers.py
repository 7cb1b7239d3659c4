"""Files that a hostile worker could leave in its work tree and its store, made from a seed."""

import os
import random
import socket
import zlib
from collections.abc import Callable
from contextlib import chdir, suppress
from pathlib import Path

from tests.assurance.fuzz.objects import Thing
from tests.assurance.fuzz.trees import LINK, NAMES, Trees
from tests.assurance.fuzz.world import BRANCH, World

_OBSTRUCTIONS = (
    FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError,
)  # fmt: skip
_STARS = b"**/**/**/**/**/*x\n" * 200
"""Patterns whose comparison with a deep path takes git longer than any time limit."""
_TEXT = b"[core]\n\tfsmonitor = touch MARK\n\tworktree = /\n[include]\n\tpath = /dev/zero\n"


class HostileWorker:
    """Leaves hostile files, and lists in `what` which kinds."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.tree = world.store.copy
        self.store = world.store.git
        self.evil = _TEXT.replace(b"MARK", os.fsencode(world.mark))
        self.what: list[str] = []

    def work(self) -> None:
        """Do the honest work, and one to four hostile things."""
        (self.tree / "honest.txt").write_text("honest\n")
        for _ in range(self.rng.choice((1, 1, 2, 3, 4))):
            way = self.rng.choice(WAYS)
            self.what.append(way.__name__)
            # The files of one function may obstruct another function.
            with suppress(*_OBSTRUCTIONS):
                way(self)

    def place(self) -> Path:
        """Return a directory of the work tree, created if necessary."""
        path = self.rng.choice((self.tree, self.tree / "src", self.tree / "new" / "deep"))
        path.mkdir(parents=True, exist_ok=True)
        return path

    def replace(self, path: Path) -> Path:
        """Remove what is at a path, and return the path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            path.rename(path.with_name(f"was-{self.rng.randrange(10**9)}"))
        else:
            path.unlink(missing_ok=True)
        return path

    def odd(self, path: Path) -> None:
        """Put an object of a wrong kind, or with hostile content, at a path."""
        self.replace(path)
        kind = self.rng.randrange(8)
        if kind == 0:
            os.mkfifo(path)
        elif kind == 1:
            path.mkdir()
        elif kind == 2:
            targets = (path.name, "/dev/zero", "/dev/stdin", "missing", self.world.trap / "secret")
            path.symlink_to(self.rng.choice(targets))
        elif kind == 3:
            path.symlink_to(self.world.trap)
        elif kind == 4:
            with chdir(path.parent), socket.socket(socket.AF_UNIX) as server:
                server.bind(path.name[:90])
        elif kind == 5:
            path.write_bytes(self.rng.randbytes(self.rng.choice((0, 1, 40, 70_000))))
        elif kind == 6:
            path.write_bytes(self.evil)
            path.chmod(0)


def names(worker: HostileWorker) -> None:
    """Use names with a special meaning."""
    for raw in worker.rng.sample(NAMES, 4):
        if len(raw) > 255 or b"/" in raw or raw in (b"", b".", b".."):
            continue
        path = worker.place() / os.fsdecode(raw)
        if path == worker.tree / ".git":
            continue  # a mount point in the container
        if worker.rng.random() < 0.3:
            (path / "inside").mkdir(parents=True)
        else:
            path.write_text("x")


def special(worker: HostileWorker) -> None:
    """Leave an object that is not a regular file."""
    worker.odd(worker.place() / worker.rng.choice(("odd", "a.txt", "app.py")))


def git_files(worker: HostileWorker) -> None:
    """Tamper with files that git reads in a work tree."""
    path = worker.place() / worker.rng.choice((".gitattributes", ".gitignore", ".gitmodules"))
    if worker.rng.random() < 0.4:
        worker.odd(path)
        return
    lines = (
        b"* filter=evil\n", b"* working-tree-encoding=UTF-16LE\n", b"*\n", b"!" * 5000,
        b"* text eol=crlf ident\n", b'[submodule "x"]\n\tpath = src\n\turl = x\n', b"a" * 200_000,
        _STARS, b"honest.txt -diff merge=binary\n",
    )  # fmt: skip
    chosen = worker.rng.choice(lines)
    if chosen == _STARS:
        worker.what.append("stars")
    worker.replace(path).write_bytes(chosen)


def locked(worker: HostileWorker) -> None:
    """Remove the permissions of a directory or a file."""
    place = worker.place() / "locked"
    place.mkdir()
    (place / "file").write_text("x")
    mode = worker.rng.choice((0, 0o111, 0o222, 0o444, 0o7777))
    worker.rng.choice((place, place / "file", worker.tree / "a.txt")).chmod(mode)


def nested(worker: HostileWorker) -> None:
    """Leave a repository in the work tree."""
    place = worker.place() / "nested"
    place.mkdir()
    (place / "file").write_text("x")
    if worker.rng.random() < 0.4:
        worker.odd(place / ".git")
        return
    inside = worker.rng.choice((place / ".git", place))
    for name, text in (("HEAD", b"ref: refs/heads/main\n"), ("config", worker.evil)):
        inside.mkdir(exist_ok=True)
        (inside / name).write_bytes(text)
    for name in ("objects", "refs/heads", "hooks"):
        (inside / name).mkdir(parents=True)
    (inside / "refs" / "heads" / "main").write_text(worker.world.base)


def deep(worker: HostileWorker) -> None:
    """Nest directories until paths are longer than the system allows."""
    name = worker.rng.choice(("d", "d" * 200))
    (worker.tree / "deep").mkdir()
    with chdir(worker.tree / "deep"):
        for _ in range(worker.rng.choice((15, 60, 600))):
            Path(name).mkdir()
            os.chdir(name)
        Path("file").write_text("x")


def many(worker: HostileWorker) -> None:
    """Leave many files, or a large sparse file."""
    place = worker.place()
    for number in range(worker.rng.choice((10, 300))):
        (place / f"many-{number}").write_text(f"{number}")
    if worker.rng.random() < 0.5:
        with (place / "large").open("wb") as file:
            file.truncate(101 << 20)


def links(worker: HostileWorker) -> None:
    """Create symbolic links to paths outside the work tree, and a hard link."""
    place = worker.place()
    (place / "up").symlink_to("../" * 60 + str(worker.world.trap).lstrip("/"))
    (place / "long").symlink_to("x" * 4000)
    os.link(worker.tree / "run.sh", place / "hard")


def swapped(worker: HostileWorker) -> None:
    """Replace a file by a directory, and a directory by a file."""
    worker.replace(worker.tree / "a.txt").mkdir()
    (worker.tree / "a.txt" / "inside").write_text("x")
    worker.replace(worker.tree / "src").write_text("was a directory\n")


def gone(worker: HostileWorker) -> None:
    """Delete a file."""
    path = worker.rng.choice(("a.txt", "src/app.py", ".gitattributes", "run.sh"))
    (worker.tree / path).unlink()


def heads(worker: HostileWorker) -> None:
    """Write hostile content to HEAD, a branch or packed-refs."""
    paths = ("HEAD", f"refs/heads/{BRANCH}", "packed-refs", "refs", "ORIG_HEAD", "refs/heads")
    path = worker.store / worker.rng.choice(paths)
    if worker.rng.random() < 0.5:
        worker.odd(path)
        return
    ids = (*worker.world.private, worker.world.base, "0" * len(worker.world.base))
    lines = (
        "ref: refs/heads/../../../trap/secret", "ref: HEAD", f"ref: refs/heads/{BRANCH}",
        worker.rng.choice(ids), "ref: refs/heads/" + "x" * 5000, "ref: refs/\0", "\udcff",
    )  # fmt: skip
    name = worker.rng.choice(("HEAD", f"refs/heads/{BRANCH}"))
    text = worker.rng.choice(lines)
    if path.name == "packed-refs":
        text = f"{worker.rng.choice(ids)} {name}\n" * worker.rng.choice((1, 50_000))
    worker.replace(path).write_text(text, errors="surrogateescape")


def store_files(worker: HostileWorker) -> None:
    """Tamper with other files that git reads in its directory."""
    paths = (
        "index", "config", "config.worktree", "commondir", "gitdir", "shallow", "hooks",
        "info/grafts", "info/attributes", "info/exclude", "modules", "worktrees", "info",
        "objects/info/alternates", "objects/info/commit-graph", "objects/info",
        "objects/pack/multi-pack-index", "index.lock", "HEAD.lock", "shallow.lock",
    )  # fmt: skip
    path = worker.store / worker.rng.choice(paths)
    if worker.rng.random() < 0.6:
        worker.odd(path)
    else:
        trap = os.fsencode(worker.world.trap)
        text = worker.rng.choice((worker.evil, trap + b"\n", b"DIRC\0\0\0\2\0\0\xff\xff" * 9))
        worker.replace(path).write_bytes(text)


def objects(worker: HostileWorker) -> None:
    """Tamper with the object directory."""
    folder = worker.store / "objects"
    rng = worker.rng
    names = (
        "ab", "pack", "zz", "ab/" + "c" * 38, "pack/pack-1.pack", "pack/pack-1.idx",
        "pack/pack-abc.idx", "pack/pack-abc.pack", "pack/pack-abc.keep", "ab/tmp_obj_x",
    )  # fmt: skip
    for name in rng.sample(names, 3):
        worker.odd(folder / name)
    if rng.random() < 0.15:
        worker.odd(folder)


def shadows(worker: HostileWorker) -> None:
    """Store other content under the id of an object of the base."""
    ids = [found for _, _, found in worker.world.entries] + [worker.world.base]
    _loose(worker, worker.rng.choice(ids), Thing("blob", b"not it").framed)


def broken_objects(worker: HostileWorker) -> None:
    """Let HEAD refer to an object that is truncated, invalid or very large."""
    size = worker.rng.choice((10, 10_000_000))
    framed = worker.rng.choice((b"commit 5\0abc", b"", b"x" * 40, b"commit 9\0" + b"\0" * size))
    name = worker.rng.randbytes(len(worker.world.base) // 2).hex()
    _loose(worker, name, framed)
    (worker.replace(worker.store / "HEAD")).write_text(name)


def history(worker: HostileWorker) -> None:
    """Commit trees and commits that git itself would not create."""
    trees = Trees(worker.world, worker.rng)
    entries = [*worker.world.entries, (LINK, b"made", trees.blob())]
    chance = worker.rng.random()
    tree = trees.hostile_tree(entries) if chance < 0.6 else trees.tree(entries)
    make = trees.commit if chance < 0.5 else trees.hostile_commit
    tip = make(tree, worker.world.base)
    worker.what += trees.what
    for thing in trees.things.values():
        if worker.rng.random() < 0.98:
            _loose(worker, thing.id, thing.framed)
    worker.replace(worker.store / "HEAD").write_text(f"{tip}\n")


def _loose(worker: HostileWorker, name: str, framed: bytes) -> None:
    path = worker.store / "objects" / name[:2] / name[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(zlib.compress(framed))


WAYS: tuple[Callable[[HostileWorker], None], ...] = (
    names, special, git_files, locked, nested, deep, many, links, swapped, gone, heads, heads,
    store_files, store_files, objects, objects, shadows, broken_objects, history, history,
)  # fmt: skip
