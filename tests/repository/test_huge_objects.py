"""Tests that a few kilobytes of objects that unpack to gigabytes are refused with few resources."""

import hashlib
import json
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.quarantine import Handover
from tests.support.repository import git

OURS = 60
"""Maximum memory of the importing process in MiB; it needs 23 MiB to start."""
OTHERS = 300
"""Maximum memory of each git process that it starts, in MiB."""
SECONDS = 60.0
READ = """
import json, resource, sys
from pathlib import Path
from orchestrator.repository.commits.changes import changes
from orchestrator.base.errors import OrchestratorError
from orchestrator.repository.incoming.quarantine import HandedOver, Origin, import_harvest
from orchestrator.repository.incoming.secret_scan import leaks
from orchestrator.base.text.redact import Redactor
from orchestrator.repository.repository import Repository
top, base, tip, objects, out, quarantine = sys.argv[1:]
repository, said = Repository(Path(top)), None
try:
    if tip:
        found = changes(repository, base=base, tip=tip)
        searched = leaks(repository, Redactor({"X": b"a secret value"}), base=base, tips=[tip])
        said = [len(found.files), found.total, len(searched.found)]
    else:
        origin = Origin(base=base, objects=Path(objects), shallow=frozenset())
        handed = HandedOver(repository=repository, out=Path(out), quarantine=Path(quarantine),
                            origin=origin)
        import_harvest(handed)
except OrchestratorError as error:
    said = str(error)
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
# Of ourselves `getrusage` says what the process had that started us.
ours = int(status["VmHWM"].split()[0]) // 1024
others = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
print(json.dumps([said, ours, others]))
"""


class Giant(Handover):
    """Writes objects directly, since git would take as long to create as to read them."""

    def write(self, kind: str, content: bytes) -> str:
        whole = b"%s %d\0" % (kind.encode(), len(content)) + content
        name = hashlib.sha1(whole).hexdigest()
        path = self.clone / ".git" / "objects" / name[:2] / name[2:]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(zlib.compress(whole, 1))
        return name

    def tree(self, *entries: tuple[bytes, bytes, str]) -> str:
        rows = (b"%s %s\0" % entry[:2] + bytes.fromhex(entry[2]) for entry in entries)
        return self.write("tree", b"".join(rows))

    def read(self, tip: str = "") -> object:
        """Import the harvest in a separate process, check its resource usage, return its error."""
        places = (self.origin.objects, self.out, self.quarantine)
        words = (self.repo, self.base, tip, *places)
        before = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", READ, *map(str, words)], capture_output=True, check=True
        )
        took = time.monotonic() - before
        said, ours, others = json.loads(done.stdout)
        assert ours < OURS, f"{ours} MiB"
        assert others < OTHERS, f"{others} MiB"
        assert took < SECONDS, f"{took:.0f} s"
        return said


@pytest.fixture
def giant(repo: Path, tmp_path: Path) -> Giant:
    return Giant(repo, tmp_path)


def _below(giant: Giant, trees: list[str]) -> str:
    """Commit the trees, and another commit on top without them."""
    root = giant.tree(*((b"40000", b"d%03d" % n, tree) for n, tree in enumerate(trees)))
    middle = giant.commit_tree(root, giant.base)
    return giant.commit_tree(git(giant.clone, "rev-parse", f"{giant.base}^{{tree}}"), middle)


def _large_trees(giant: Giant) -> str:
    blob = giant.write("blob", b"x")
    rows = [b"100644 %05x\0" % number + bytes.fromhex(blob) for number in range(190_008)]
    contents = (b"".join(rows[start : start + 190_000]) for start in range(8))
    return _below(giant, [giant.write("tree", content) for content in contents])


def _one_large_tree(giant: Giant) -> str:
    blob = giant.write("blob", b"x")
    return _below(giant, [giant.tree(*((b"100644", b"%06d" % n, blob) for n in range(250_000)))])


def _nested_trees(giant: Giant) -> str:
    """Ten directories of ten directories, twelve levels deep."""
    found = giant.tree((b"100644", b"x", giant.write("blob", b"x")))
    for _ in range(30):
        found = giant.tree(*((b"40000", b"%d" % n, found) for n in range(10)))
    return _below(giant, [found])


def _long_paths(giant: Giant) -> str:
    blob = giant.write("blob", b"x")
    found = giant.tree(*((b"100644", b"%06d" % n, blob) for n in range(50_000)))
    for _ in range(14):
        found = giant.tree((b"40000", b"d" * 250, found))
    return _below(giant, [found])


def _long_messages(giant: Giant) -> str:
    tree = git(giant.clone, "rev-parse", f"{giant.base}^{{tree}}")
    who = "w <w@example.org> 1 +0000"
    text = f"tree {tree}\nparent {giant.base}\nauthor {who}\ncommitter {who}\n\n"
    return giant.write("commit", text.encode() + b"x" * 100 * 1024**2)


REFUSED: dict[Callable[[Giant], str], str] = {
    _large_trees: "a commit has more than 200000 files",
    _one_large_tree: "a commit has more than 200000 files",
    _nested_trees: "a commit has more than 200000 files",
    _long_paths: "the paths of a commit have more than",
    _long_messages: "a commit or tag object has 1048[0-9]+ bytes",
}


@pytest.mark.variants("one_large_tree", "nested_trees")
@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__.strip("_"))
def test_huge_objects_are_refused_with_little_memory(
    giant: Giant, make: Callable[[Giant], str]
) -> None:
    giant.hand_over(make(giant))
    said = giant.read()
    assert isinstance(said, str)
    assert REFUSED[make].partition("[")[0] in said
    assert git(giant.repo, "for-each-ref") == giant.refs


@pytest.mark.extra
def test_large_changes_are_compared_and_searched_with_little_memory(
    giant: Giant,
) -> None:
    """A large file of empty lines, and many files with long paths."""
    blob = giant.feed(b"\n" * 60 * 1024**2, "hash-object", "-w", "--stdin")
    leaves = giant.tree(*((b"100644", b"%05d" % n, blob) for n in range(15_000)))
    for _ in range(14):
        leaves = giant.tree((b"40000", b"d" * 250, leaves))
    tip = giant.commit_tree(leaves, giant.base)
    git(giant.repo, "fetch", "-q", str(giant.clone), tip)
    listed, total, found = giant.read(tip)  # type: ignore[misc]
    assert listed < 200
    assert total == 15_000 + len(git(giant.repo, "ls-tree", "-r", giant.base).splitlines())
    assert found == 0
