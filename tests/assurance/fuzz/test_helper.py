"""Tests of the harvest's helper on hostile work trees: it ends, and changes nothing else."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.files.bundle import bundle
from orchestrator.state.worker.worker_directory import Store
from orchestrator.worker.in_container.host_git import last_line
from tests.assurance.fuzz.oracle import Snapshot, check_import, plain, snapshot
from tests.assurance.fuzz.seeds import Seeds
from tests.assurance.fuzz.workers import HostileWorker
from tests.assurance.fuzz.world import BRANCH, World, add_store, make_world

_PROGRAM = "orchestrator.worker.in_container.pack_work"
_USER = 20_001
"""User id of the worker if the tests run as root, who could read locked files."""
_LONGEST = 25
_MEMORY = 1024**3
"""Memory limit in bytes, as in the container: some histories make git use all memory."""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A directory that another user can read; pytest's own directories are private."""
    path = Path(tempfile.mkdtemp(prefix="orchestrator-fuzz-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def worlds(place: Path) -> tuple[World, ...]:
    """A repository with all its history, and a shallow one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
        worlds = (
            make_world(place / "full", history="full", algorithm="sha1", submodule=False),
            make_world(place / "shallow", history="shallow", algorithm="sha256", submodule=True),
        )
        for world in worlds:
            add_store(world)
    return worlds


def test_hostile_work_trees_are_harvested_or_refused(
    seeds: Seeds, worlds: tuple[World, ...], place: Path
) -> None:
    def case(seed: int) -> str:
        world = worlds[seed % len(worlds)].copy(place / f"{seed}")
        worker = HostileWorker(world, seed)
        try:
            worker.work()
            outcome = _harvest(world)
            # Git never finishes with a tree of billions of files, nor with some patterns on deep
            # paths: the timeout ends both.
            endless = "bomb" in worker.what or {"stars", "deep"} <= set(worker.what)
            assert outcome != "late" or endless
        except BaseException as error:
            error.add_note(f"hostile by: {', '.join(worker.what)}")
            raise
        finally:
            subprocess.run(["chmod", "-R", "u+rwx", str(world.root)], check=False)
            subprocess.run(["rm", "-rf", str(world.root)], check=True)
        return outcome

    seeds.run(case, ordinary=20)
    if seeds.chosen is None:
        assert seeds.outcomes["accepted"] > 15, seeds.outcomes


def test_files_without_permissions_are_harvested(worlds: tuple[World, ...], place: Path) -> None:
    world = worlds[0].copy(place / "locked")
    locked = world.store.copy / "locked"
    locked.mkdir()
    (locked / "file").write_text("kept\n")
    (locked / "file").chmod(0)
    locked.chmod(0)
    world.store.git.chmod(0)
    assert _harvest(world, honest="locked") == "accepted"
    assert plain(world, "show", f"{BRANCH}:locked/file") == "kept\n"


def _harvest(world: World, *, honest: str = "honest.txt") -> str:
    before = _around(world)
    said = _run_helper(world)
    _hold_unchanged(world, before)
    if said == "late":
        return said
    if said is not None:
        sys.stdout.write(f"packing the worker's work failed: {said}\n")
        return "failed"
    outcome = check_import(world)
    if outcome == "accepted":
        assert plain(world, "ls-tree", "--name-only", BRANCH, honest), "honest work is lost"
    return outcome


def _around(world: World) -> Snapshot:
    store = world.store
    return snapshot(world.root, without=(store.copy, store.git, store.harvest, store.out))


def _hold_unchanged(world: World, before: Snapshot) -> None:
    after = _around(world)
    differ = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    assert not differ, f"changed outside: {differ}"
    assert not world.mark.exists(), "code of the worker ran on the host"


def _run_helper(world: World) -> str | None:
    """Run the helper as a container would; return the last line of its error if it failed."""
    store, script = world.store, bundle(_PROGRAM)
    places = (store.copy, store.git, store.harvest, world.origin.objects, store.out, store.copy)
    python, who = _unprivileged(store)
    command = [python, "-I", "-c", script, *map(str, places), world.base, BRANCH, "message"]
    try:
        done = subprocess.run(
            command, cwd="/", **who, env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=_LONGEST, preexec_fn=_bound,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "late"
    said = last_line(done.stderr.decode(errors="replace"))
    return said if done.returncode else None


def _bound() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _unprivileged(store: Store) -> tuple[str, dict[str, Any]]:
    """Return the Python of the container, and options for a process without privileges."""
    theirs = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    if os.getuid() != 0 or theirs is None:
        return sys.executable, {}
    for path in (store.copy, store.git, store.harvest, store.out):
        subprocess.run(["chown", "-hR", f"{_USER}:{_USER}", str(path)], check=True)
    return theirs, {"user": _USER, "group": _USER, "extra_groups": []}
