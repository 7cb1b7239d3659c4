"""Tests of the harvest without a container on random files: all or nothing, and nothing else."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.repository.commits.plain_commit import (
    PlainCommit,
    PlainFiles,
    commit_plainly,
    takes_as_they_are,
)
from orchestrator.repository.git.command import Git
from orchestrator.worker.workspace.plain_files import read_plain_files
from tests.assurance.fuzz import workers
from tests.assurance.fuzz.oracle import check_import, plain
from tests.assurance.fuzz.seeds import Seeds
from tests.assurance.fuzz.workers import HostileWorker
from tests.assurance.fuzz.world import BRANCH, World, add_store, make_world

_HOSTILE = (
    workers.names, workers.special, workers.git_files, workers.locked, workers.nested,
    workers.deep, workers.many, workers.links,
)  # fmt: skip
_NAMES = ("a.txt", "src/app.py", "run.sh", "new", "new/deep/er", "x.bin", "A.TXT", "a-1+@=_.b")
_CONTENTS = (b"", b"x\n", b"a\n", b"\0" * 1000, b"x\r\ny\r\n", b"\ndata 3\nM 100644 inline x\n")


@pytest.fixture(scope="module")
def worlds() -> Iterator[tuple[World, ...]]:
    """A repository with all its history, and a shallow one with a submodule."""
    place = Path(tempfile.mkdtemp(prefix="orchestrator-fuzz-"))
    made = (
        make_world(place / "full", history="full", algorithm="sha1", submodule=False),
        make_world(place / "shallow", history="shallow", algorithm="sha256", submodule=True),
    )
    for world in made:
        add_store(world)
    yield made
    shutil.rmtree(place)


def test_random_files_are_committed_as_they_are_or_left_to_the_container(
    seeds: Seeds, worlds: tuple[World, ...]
) -> None:
    def case(seed: int) -> str:
        original = worlds[seed % len(worlds)]
        world = original.copy(original.root.parent / f"{seed}")
        try:
            worker = HostileWorker(world, seed)
            worker.tree = world.root / "upper"
            worker.tree.mkdir()
            _work(worker)
            outcome = _harvest(world, worker.tree)
            assert not world.mark.exists(), "code of the worker ran on the host"
        finally:
            subprocess.run(["chmod", "-R", "u+rwx", str(world.root)], check=False)
            subprocess.run(["rm", "-rf", str(world.root)], check=True)
        return outcome

    seeds.run(case, ordinary=30)
    if seeds.chosen is None:
        assert {"accepted", "left"} <= seeds.outcomes.keys()


def _work(worker: HostileWorker) -> None:
    """Write one to five files, and sometimes do something hostile."""
    rng = worker.rng
    for name in rng.sample(_NAMES, rng.randrange(1, 5)):
        path = worker.tree / name
        if not any(one.is_file() for one in (*path.parents, path)) and not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(rng.choice(_CONTENTS))
            path.chmod(rng.choice((0o644, 0o755, 0o600)))
    if rng.random() < 0.4:
        way = rng.choice(_HOSTILE)
        worker.what.append(way.__name__)
        try:
            way(worker)
        except (FileExistsError, FileNotFoundError, NotADirectoryError):
            worker.what.append("obstructed")


def _harvest(world: World, upper: Path) -> str:
    found = read_plain_files(upper, world.store.copy)
    if found is None:
        return "left"
    _hold_complete(upper, found)
    repository = world.repository
    rules = Git(repository.git_dir, work_tree=world.root / "repo")
    if not takes_as_they_are(repository, rules, [file.path for file in found.files]):
        return "left"
    commit = PlainCommit(
        start=world.base, objects=world.origin.objects, message="work", plain=found
    )
    tip = commit_plainly(repository, commit, world.store.plain, world.store.out / "pack")
    assert not world.store.plain.exists()
    if tip is None:
        return "left"
    if tip == world.base:
        return "unchanged"
    (world.store.out / "tip").write_text(tip)
    (world.store.out / "notes").write_text("[]")
    outcome = check_import(world)
    if outcome == "accepted":
        _hold_committed(world, found)
    return outcome


def _hold_complete(upper: Path, found: PlainFiles) -> None:
    """Check that all that was written is among the files to commit."""
    walked = ((folder, names) for folder, _, names in os.walk(upper))
    there = {os.path.relpath(Path(folder, n), upper) for folder, names in walked for n in names}
    assert there == {file.path for file in found.files}
    for file in found.files:
        assert (upper / file.path).read_bytes() == file.content


def _hold_committed(world: World, found: PlainFiles) -> None:
    """Check that the commit has these files, and otherwise those of the base."""
    changed = plain(world, "diff-tree", "-r", "--name-only", world.base, BRANCH).splitlines()
    assert set(changed) <= {file.path for file in found.files}
    rows = plain(world, "ls-tree", "-r", BRANCH).splitlines()
    modes = {path: head.split()[0] for head, _, path in (row.partition("\t") for row in rows)}
    for file in found.files:
        assert modes[file.path] == ("100755" if file.executable else "100644")
        shown = plain(world, "cat-file", "-s", f"{BRANCH}:{file.path}")
        assert int(shown) == len(file.content)
