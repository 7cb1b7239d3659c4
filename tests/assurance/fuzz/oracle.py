"""Conditions that must be true after an import, whatever was imported."""

import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.text.redact import Redactor
from orchestrator.repository.commits.changes import changes
from orchestrator.repository.incoming.packed_work import Harvested
from orchestrator.repository.incoming.quarantine import import_harvest
from orchestrator.repository.incoming.secret_scan import leaks
from tests.assurance.fuzz.world import BRANCH, World

Snapshot = dict[str, tuple[int, str]]
_MODES = {"040000", "100644", "100755", "120000"}
_IGNORED_BY_FILE_SYSTEMS = "\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d\u202e\ufeff"
_NULL = "/dev/null"
_REDACTOR = Redactor({"KEY": b"the value of a key"})


def snapshot(root: Path, *, without: Iterable[Path] = ()) -> Snapshot:
    """Return data on every file, directory and link of a tree, without following links.

    Args:
        root: Directory to start at.
        without: Directories to leave out, which may be too deep to walk.
    """
    found = {}
    skipped = {str(path) for path in without}
    for folder, directories, files in os.walk(root):
        directories[:] = [name for name in directories if str(Path(folder, name)) not in skipped]
        for name in (*directories, *files):
            path = Path(folder, name)
            mode = path.lstat().st_mode
            found[str(path.relative_to(root))] = mode, _content(path, mode)
    return found


def _look(world: World) -> Snapshot:
    return snapshot(world.root, without=(world.store.copy, world.store.git))


def _content(path: Path, mode: int) -> str:
    if stat.S_ISLNK(mode):
        return os.fsencode(path.readlink()).hex()
    if stat.S_ISREG(mode) and os.access(path, os.R_OK):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def check_import(world: World) -> str:
    """Import the harvest in a world's output directory, and check all conditions.

    Returns:
        `accepted`, `unchanged` or `refused`.
    """
    before = _look(world)
    try:
        harvested = import_harvest(world.handed_over)
    except OrchestratorError as error:
        _check_message(error.message)
        _check_changed(before, _look(world), world, tip=world.base, objects=False)
        return "refused"
    accepted = harvested.tip != world.base
    if accepted:
        world.repository.move_branch(BRANCH, new=harvested.tip, old=world.base)
    _check_changed(before, _look(world), world, tip=harvested.tip, objects=accepted)
    _check_notes(harvested)
    if not accepted:
        return "unchanged"
    _check_accepted(world, harvested.tip)
    return "accepted"


def _check_message(message: str) -> None:
    assert "took longer" not in message, message
    assert message.isprintable(), repr(message)


def _check_changed(
    before: Snapshot, after: Snapshot, world: World, *, tip: str, objects: bool
) -> None:
    """Check that nothing changed but the worker's branch, new objects and the lock."""
    allowed = {"repo/.git/orchestrator", "repo/.git/orchestrator/lock"}
    if objects:
        branch = f"repo/.git/refs/heads/{BRANCH}"
        log = f"repo/.git/logs/refs/heads/{BRANCH}"
        allowed |= {branch, log}
        new = after.keys() - before.keys()
        allowed |= {path for path in new if path.startswith("repo/.git/objects/")}
    differ = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert differ <= allowed, sorted(differ - allowed)
    reference = world.repository.common_dir / "refs" / "heads" / BRANCH
    assert reference.read_text().strip() == tip


def _check_notes(harvested: Harvested) -> None:
    assert len(harvested.notes) <= 20
    for note in harvested.notes:
        assert isinstance(note, str)
        assert len(note) <= 200
        assert note.isprintable(), repr(note)


def _check_accepted(world: World, tip: str) -> None:
    # The user's git may run hooks from here on; the orchestrator's git must have run none.
    shutil.rmtree(world.repository.common_dir / "hooks")
    new = plain(world, "rev-list", tip, f"^{world.base}").split()
    plain(world, "merge-base", "--is-ancestor", world.base, tip)
    plain(world, "fsck", "--strict", "--no-dangling", "--no-progress")
    _check_nothing_private(world, tip)
    for commit in new:
        _check_tree(world, commit)
    _check_out(world, tip)
    changes(world.repository, base=world.base, tip=tip)
    leaks(world.repository, _REDACTOR, base=world.base, tips=[tip])
    assert not world.mark.exists(), "code of the worker ran on the host"


def _check_nothing_private(world: World, tip: str) -> None:
    reached = plain(world, "rev-list", "--objects", "--no-object-names", tip, f"^{world.base}")
    assert set(world.private).isdisjoint(reached.split()), "objects that the worker was not given"


def _check_tree(world: World, commit: str) -> None:
    """Check the entries of a tree, independently of the code under test."""
    given = {(os.fsdecode(name), found) for mode, name, found in world.entries if mode == b"160000"}
    rows = plain(world, "ls-tree", "-r", "-t", "-z", commit).split("\0")
    folders: dict[str, set[str]] = {}
    for head, _, path in (row.partition("\t") for row in rows if row):
        mode, _, found = head.split(" ")
        folder, _, name = path.rpartition("/")
        assert mode in _MODES or (mode == "160000" and (name, found) in given), head + path
        for part in path.split("/"):
            assert not _is_gits_own(part), repr(path)
        folders.setdefault(folder, set()).add(name.lower())
        assert not path.startswith(".architect-parallel-"), repr(path)
    for names in folders.values():
        assert not ("head" in names and names & {"objects", "commondir"}), names


def _is_gits_own(name: str) -> bool:
    """Return whether a file system could take a name for `.git`."""
    seen = "".join(c for c in name if c not in _IGNORED_BY_FILE_SYSTEMS).lower()
    stem = seen.partition(":")[0].rstrip(". ")
    return name in ("", ".", "..") or stem in (".git", "git~1")


def _check_out(world: World, tip: str) -> None:
    """Check the branch out with plain git, and check everything around it."""
    scratch = world.root / "scratch"
    scratch.mkdir()
    around = _look(world)
    index = world.root / "scratch-index"
    plain(world, "read-tree", "-u", "--reset", tip, work_tree=scratch, index=index)
    rows = plain(world, "ls-tree", "-r", "-z", tip).split("\0")
    listed = {row.partition("\t")[2] for row in rows if row and not row.startswith("160000")}
    after = _look(world)
    written = {path for path in after if after[path] != around.get(path)}
    outside = {path for path in written if not path.startswith("scratch")}
    assert not outside, sorted(outside)
    there = {str(path.relative_to(scratch)) for path in _files(scratch)}
    assert there == listed
    index.unlink()


def _files(root: Path) -> list[Path]:
    found = []
    for folder, directories, files in os.walk(root):
        paths = [Path(folder, name) for name in (*directories, *files)]
        found += [path for path in paths if path.is_symlink() or not path.is_dir()]
    return found


def plain(
    world: World, *arguments: str, work_tree: Path | None = None, index: Path | None = None
) -> str:
    """Run git as the user would, without the settings of the orchestrator."""
    env = {"PATH": os.environ["PATH"], "HOME": str(world.root), "GIT_CONFIG_GLOBAL": _NULL}
    env |= {"GIT_DIR": str(world.root / "repo" / ".git"), "GIT_CONFIG_NOSYSTEM": "1"}
    if work_tree is not None:
        env |= {"GIT_WORK_TREE": str(work_tree), "GIT_INDEX_FILE": str(index)}
    done = subprocess.run(["git", *arguments], env=env, capture_output=True, timeout=60)
    assert done.returncode == 0, f"git {arguments[0]}: {done.stderr.decode(errors='replace')}"
    return os.fsdecode(done.stdout)
