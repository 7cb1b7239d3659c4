"""Random trees and commits that git should not accept."""

import random
from collections.abc import Callable

from tests.assurance.fuzz.objects import Entry, Thing, in_order, tree_body
from tests.assurance.fuzz.world import World

FILE, DIRECTORY, LINK, GITLINK = b"100644", b"40000", b"120000", b"160000"
NAMES = (
    b".git", b".GIT", b".Git", b"git~1", b"GIT~1", b".git ", b".git.", b".git . ", b".git::$INDEX",
    b".g\xe2\x80\x8cit", b".\xef\xbb\xbfgit", b"..", b".", b"", b"a/b", b"../escaped", b"/absolute",
    b"a\\b", b"..\\up", b"new\nline", b"\x1b[2Jclear", b"\xff\xfe\x80", b"-rf", b"--upload-pack=x",
    b":(top)x", b"*", b" ", b"x" * 255, b"x" * 256, b"y" * 4096, b".architect-parallel-1",
    b".architect-parallel-x", b"HEAD", b"objects", b"commondir", b"aux", b"con.txt", b"a.txt",
    b"A.TXT", b"\xe2\x80\xae.txt", b".gitmodules", b".gitattributes", b".gitignore", b"gitmod~1",
)  # fmt: skip
MODES = (
    GITLINK, LINK, DIRECTORY, FILE, b"100755", b"100777", b"100664", b"104755", b"040777",
    b"040000", b"0", b"0100644", b"140000", b"010000", b"060000", b"1000000", b"", b"x", b"-1",
)  # fmt: skip
TARGETS = (
    b"/etc/passwd", b"../../trap/secret", b".git/config", b"link", b"", b"a\0b", b"/" * 5000,
    b"/dev/zero", b"../" * 40 + b"etc/shadow", b".",
)  # fmt: skip
MODULES = (
    b'[submodule "x"]\n\tpath = x\n\turl = ./x\n\tupdate = !touch MARK\n',
    b'[submodule "../../x"]\n\tpath = x\n\turl = -u./x\n',
    b'[submodule "x"]\n\tpath = --upload-pack\n\turl = ext::sh -c touch%20MARK\n',
    b"[submodule", b"\0" * 100,
)  # fmt: skip


class Trees:
    """Creates objects of a world's worker, and stores all of them."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.things: dict[str, Thing] = {}
        self.what: list[str] = []
        """Names of the hostile functions that were called."""

    def add(self, kind: str, body: bytes) -> str:
        """Create an object, and return its id."""
        thing = Thing(kind, body, self.world.algorithm)
        self.things[thing.id] = thing
        return thing.id

    def blob(self) -> str:
        """Create a blob with random content."""
        size = self.rng.choice((0, 1, 20, 300, 5000))
        return self.add("blob", self.rng.choice((b"x", b"\0", b"text\r\n", b"\xff")) * size)

    def tree(self, entries: list[Entry]) -> str:
        """Create a tree with entries in the right order."""
        return self.add("tree", tree_body(in_order(entries)))

    def commit(self, tree: str, *parents: str, message: bytes = b"work\n") -> str:
        """Create a valid commit."""
        return self.add("commit", commit_body(tree, parents, message))

    def hostile_tree(self, entries: list[Entry]) -> str:
        """Create a tree that is invalid or hostile."""
        way = self.rng.choice(TREE_WAYS)
        self.what.append(way.__name__)
        return way(self, list(entries))

    def hostile_commit(self, tree: str, parent: str) -> str:
        """Create a commit that is invalid or hostile."""
        way = self.rng.choice(COMMIT_WAYS)
        self.what.append(way.__name__)
        return way(self, tree, parent)

    def missing(self) -> str:
        """Return the id of an object that does not exist."""
        return self.rng.randbytes(len(self.world.base) // 2).hex()

    def some_id(self) -> str:
        """Return the id of an object of any kind, of the worker or private."""
        return self.rng.choice((*self.world.private, self.world.base, self.missing(), *self.things))


def commit_body(tree: str, parents: tuple[str, ...], message: bytes) -> bytes:
    """Return the body of a valid commit."""
    lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
    lines += [f"{who} W <w@example.org> 1700000000 +0000" for who in ("author", "committer")]
    return "\n".join(lines).encode() + b"\n\n" + message


def _below(trees: Trees, entries: list[Entry], added: list[Entry]) -> str:
    """Add entries to the top of a tree, or to a subdirectory."""
    for _ in range(trees.rng.choice((0, 0, 1, 2))):
        added = [(DIRECTORY, trees.rng.choice((b"dir", b"src2", b"zz")), trees.tree(added))]
    names = {name for _, name, _ in added}
    return trees.tree([entry for entry in entries if entry[1] not in names] + added)


def odd_name(trees: Trees, entries: list[Entry]) -> str:
    """Give an entry a name with a special meaning."""
    mode = trees.rng.choice((FILE, FILE, DIRECTORY, LINK))
    inside = [(FILE, b"config", trees.add("blob", b"[core]\n\tfsmonitor = touch MARK\n"))]
    found = trees.tree(inside) if mode == DIRECTORY else trees.blob()
    return _below(trees, entries, [(mode, trees.rng.choice(NAMES), found)])


def odd_mode(trees: Trees, entries: list[Entry]) -> str:
    """Give a file an invalid mode."""
    mode = trees.rng.choice(MODES)
    return _below(trees, entries, [(mode, b"odd", trees.blob())])


def gitlink(trees: Trees, entries: list[Entry]) -> str:
    """Add or move a submodule."""
    name = trees.rng.choice((b"sub", b"vendored", b"a.txt"))
    return _below(trees, entries, [(GITLINK, name, trees.some_id())])


def link(trees: Trees, entries: list[Entry]) -> str:
    """Add a symbolic link with a hostile target, in some cases under a special name."""
    name = trees.rng.choice((b"l", b".gitmodules", b".gitattributes", b".gitignore", b"src"))
    return _below(trees, entries, [(LINK, name, trees.add("blob", trees.rng.choice(TARGETS)))])


def modules(trees: Trees, entries: list[Entry]) -> str:
    """Add a `.gitmodules` that could run commands."""
    body = trees.rng.choice(MODULES)
    return _below(trees, entries, [(FILE, b".gitmodules", trees.add("blob", body))])


def attributes(trees: Trees, entries: list[Entry]) -> str:
    """Add attributes that name drivers and encodings, or that are very large."""
    lines = (
        b"* filter=evil diff=evil merge=evil\n", b"* working-tree-encoding=UTF-16\n",
        b"x" * 3000 + b" y\n", b"* text eol=crlf ident\n" * 500, b"[attr]" + b"a" * 9000,
    )  # fmt: skip
    body = trees.rng.choice(lines)
    return _below(trees, entries, [(FILE, b".gitattributes", trees.add("blob", body))])


def deep(trees: Trees, entries: list[Entry]) -> str:
    """Nest directories: few objects, and a long path."""
    found, name = trees.blob(), trees.rng.choice((b"d", b"d" * 200))
    mode = FILE
    for _ in range(trees.rng.choice((10, 40, 300, 2500))):
        found, mode = trees.tree([(mode, name, found)]), DIRECTORY
    return _below(trees, entries, [(DIRECTORY, b"deep", found)])


def bomb(trees: Trees, entries: list[Entry]) -> str:
    """Nest trees that each contain the next one several times."""
    found = trees.rng.choice((trees.tree([]), trees.tree([(FILE, b"f", trees.blob())])))
    for _ in range(trees.rng.choice((2, 3, 12))):
        found = trees.tree([(DIRECTORY, b"%d" % i, found) for i in range(9)])
    return _below(trees, entries, [(DIRECTORY, b"bomb", found)])


def disguised(trees: Trees, entries: list[Entry]) -> str:
    """Add a git directory as ordinary files."""
    config = trees.add("blob", b"[core]\n\tfsmonitor = touch MARK\n\tbare = true\n")
    empty = trees.tree([(FILE, b"x", trees.blob())])
    head = trees.rng.choice((b"HEAD", b"HEAD", b"head", b"Head"))
    inside = [
        (FILE, head, trees.add("blob", b"ref: refs/heads/x\n")),
        (FILE, b"config", config),
        (DIRECTORY, trees.rng.choice((b"objects", b"Objects")), empty),
        (DIRECTORY, b"refs", empty),
    ]
    if trees.rng.random() < 0.3:
        inside = [*inside[:2], (FILE, b"commondir", trees.add("blob", b"../x"))]
    if trees.rng.random() < 0.3:
        return trees.tree([*entries, *inside])
    return _below(trees, entries, [(DIRECTORY, b"disguised", trees.tree(inside))])


def twice(trees: Trees, entries: list[Entry]) -> str:
    """Use one name twice, for a file, a link or a directory."""
    target = trees.add("blob", b"../../trap")
    first = (LINK, b"same", target)
    second = trees.rng.choice(
        [(DIRECTORY, b"same", trees.tree([(FILE, b"f", trees.blob())])), (FILE, b"same", target)]
    )
    return trees.tree([*entries, first, second])


def unsorted(trees: Trees, entries: list[Entry]) -> str:
    """Put the entries in a wrong order."""
    shuffled = [*entries, (FILE, b"z", trees.blob()), (FILE, b"b", trees.blob())]
    trees.rng.shuffle(shuffled)
    return trees.add("tree", tree_body(shuffled))


def wrong_object(trees: Trees, entries: list[Entry]) -> str:
    """Refer to an object of another kind, a missing one or a private one."""
    mode = trees.rng.choice((FILE, DIRECTORY, LINK, b"100755"))
    return _below(trees, entries, [(mode, b"wrong", trees.some_id())])


def zero_id(trees: Trees, entries: list[Entry]) -> str:
    """Refer to the object with the id of all zeros."""
    return _below(trees, entries, [(FILE, b"null", "0" * len(trees.world.base))])


def broken_bytes(trees: Trees, entries: list[Entry]) -> str:
    """Truncate a tree, or replace it by other bytes."""
    body = tree_body(in_order(entries))
    rng = trees.rng
    cut = body[: rng.randrange(len(body))]
    return trees.add("tree", rng.choice((cut, rng.randbytes(60), b"100644 no-end", body + b"x")))


def empty(trees: Trees, _: list[Entry]) -> str:
    """Return an empty tree, or one with an empty directory."""
    nothing = trees.tree([])
    return trees.rng.choice((nothing, trees.tree([(DIRECTORY, b"empty", nothing)])))


def parents(trees: Trees, tree: str, parent: str) -> str:
    """Use parents that are of another kind, missing, private or too many."""
    other = trees.some_id()
    before = (trees.world.before,) if trees.world.before else ()
    root = trees.commit(tree)
    chosen = trees.rng.choice(
        [(), (other,), before, (parent, parent), (parent, other), (parent, root), (root, parent),
         (parent,) * 40, (trees.missing(), parent), (parent, *before)]
    )  # fmt: skip
    return trees.commit(tree, *chosen)


def people(trees: Trees, tree: str, parent: str) -> str:
    """Use invalid names and times of author and committer."""
    line = trees.rng.choice(
        (b"author <> 0 +0000", b"author W <w> -1 +0000", b"author W <w> 99999999999999999999 +0000",
         b"author W w 1 +0000", b"author", b"author W <w> 1 +99999999", b"author \xff\xfe <w> 1 x",
         b"author \x1b[31m <w> 1 +0000", b"", b"author W <w\nx> 1 +0000", b"author W <w> 1 +0000\0",
         b"author W <w@x> 1 +0000\nauthor W <w@x> 1 +0000")
    )  # fmt: skip
    body = commit_body(tree, (parent,), b"m\n").split(b"\n")
    body[2] = line
    return trees.add("commit", b"\n".join(body))


def messages(trees: Trees, tree: str, parent: str) -> str:
    """Use a message that is misleading, very long or has control characters."""
    message = trees.rng.choice(
        (b"", b"a\0b\n", b"x" * 3_000_000, b"\x1b]0;t\x07\n", b"\xff\xfe\n", b"\r\n" * 9999,
         b":100644 000000 " + b"0" * 40 + b" " + b"0" * 40 + b" A\0x\0", b"\n" * 100_000)
    )  # fmt: skip
    return trees.commit(tree, parent, message=message)


def headers(trees: Trees, tree: str, parent: str) -> str:
    """Add invalid headers."""
    extra = trees.rng.choice(
        (b"encoding UTF-16", b"encoding " + b"x" * 5000, b"gpgsig -----BEGIN\n  x", b"mergetag x",
         b"tree " + tree.encode(), b"parent", b"parent zz", b"x\0y", b"HG:rename a:b", b" folded")
    )  # fmt: skip
    head, _, rest = commit_body(tree, (parent,), b"\xfc\n").partition(b"\n\n")
    return trees.add("commit", head + b"\n" + extra + b"\n\n" + rest)


def wrong_tree(trees: Trees, _: str, parent: str) -> str:
    """Refer to a tree that is another object, missing or private."""
    return trees.commit(trees.rng.choice((trees.blob(), trees.some_id(), parent)), parent)


def no_commit(trees: Trees, tree: str, parent: str) -> str:
    """Store bytes that are not a commit."""
    body = commit_body(tree, (parent,), b"m\n")
    rng = trees.rng
    return trees.add("commit", rng.choice((b"", rng.randbytes(90), body[: rng.randrange(150)])))


TREE_WAYS: tuple[Callable[[Trees, list[Entry]], str], ...] = (
    odd_name, odd_name, odd_name, odd_mode, odd_mode, gitlink, link, modules, attributes, deep,
    bomb, disguised, disguised, twice, unsorted, wrong_object, wrong_object, zero_id, broken_bytes,
    empty,
)  # fmt: skip
COMMIT_WAYS: tuple[Callable[[Trees, str, str], str], ...] = (
    parents, parents, people, messages, headers, wrong_tree, no_commit,
)  # fmt: skip
