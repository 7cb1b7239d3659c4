"""Tests that all content of a worker is reachable after the harvest, in any state of its git."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.base.text.redact import Redactor
from orchestrator.repository.incoming.kept_refs import import_kept, kept_prefix
from orchestrator.repository.incoming.quarantine import import_harvest
from orchestrator.worker.in_container import pack_work
from tests.assurance.fuzz.seeds import Seeds
from tests.assurance.fuzz.states import Worker
from tests.assurance.fuzz.world import BRANCH, World, add_store, make_world
from tests.support.repository import git

PREFIX = kept_prefix("run", 1, attempt=1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
        place = tmp_path_factory.mktemp("states")
        world = make_world(place / "world", history="full", algorithm="sha1", submodule=False)
        add_store(world)
        yield world


def test_all_content_of_a_worker_is_reachable_after_the_harvest(
    seeds: Seeds, world: World, tmp_path: Path
) -> None:
    def case(seed: int) -> str:
        mine = world.copy(tmp_path / f"{seed}")
        worker = Worker(mine, seed)
        try:
            worker.work()
            return _check(mine, worker)
        except BaseException as error:
            error.add_note(f"did: {', '.join(worker.what)}")
            raise
        finally:
            shutil.rmtree(mine.root)

    seeds.run(case, ordinary=12)
    if seeds.chosen is None:
        assert seeds.outcomes["with kept refs"] > 8, seeds.outcomes


def _check(world: World, worker: Worker) -> str:
    content, commits, damaged = worker.content(), worker.commits(), worker.damaged()
    kept, notes = _harvest(world)
    assert bool(notes) == bool(damaged), notes
    repo = world.repository.top
    reached = git(repo, "rev-list", "--objects", BRANCH, *kept)
    there = {line.split(" ")[0] for line in reached.splitlines()}
    assert sorted(commits - damaged - there) == [], "commits are lost"
    lost = {blob: worker.git("cat-file", "-p", blob) for blob in sorted(content - there)}
    assert not any(lost.values()), f"content is lost: {lost}"
    git(repo, "fsck", "--strict", "--no-dangling")
    return "with kept refs" if kept else "without"


def _harvest(world: World) -> tuple[tuple[str, ...], list[str]]:
    """Harvest the work; return the kept refs, and the notes about damaged histories."""
    store = world.store
    places = (store.copy, store.git, store.harvest, world.origin.objects, store.out, store.copy)
    pack_work.main(*map(str, places), world.base, BRANCH, "message")
    kept = import_kept(world.handed_over, prefix=PREFIX, redactor=Redactor())
    assert (kept.notes, kept.refused) == ((), None)
    harvested = import_harvest(world.handed_over)
    world.repository.move_branch(BRANCH, new=harvested.tip, old=world.base)
    told = [
        note for note in harvested.notes if "the branch gets only the worker's files" not in note
    ]
    told = [note for note in told if "nested repository" not in note]
    assert [note for note in told if "damaged history" not in note] == []
    return kept.refs, told
