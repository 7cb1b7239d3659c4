"""Tests that each hostile harvest is either refused completely or imported intact."""

import shutil
from pathlib import Path

import pytest

from tests.assurance.fuzz.harvests import HostileHarvest
from tests.assurance.fuzz.oracle import check_import
from tests.assurance.fuzz.seeds import Seeds
from tests.assurance.fuzz.world import World, make_world


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, ...]:
    """A repository with all its history, a shallow one, and one with SHA-256."""
    root = tmp_path_factory.mktemp("worlds")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
        return (
            make_world(root / "full", history="full", algorithm="sha1", submodule=False),
            make_world(root / "shallow", history="shallow", algorithm="sha1", submodule=True),
            make_world(root / "sha256", history="full", algorithm="sha256", submodule=False),
        )


def test_hostile_harvests_are_refused_or_imported_intact(
    seeds: Seeds, worlds: tuple[World, ...], tmp_path: Path
) -> None:
    def case(seed: int) -> str:
        world = worlds[seed % len(worlds)].copy(tmp_path / f"{seed}")
        harvest = HostileHarvest(world, seed)
        harvest.write()
        try:
            outcome = check_import(world)
        except BaseException as error:
            error.add_note(f"hostile by: {', '.join(harvest.what)}")
            raise
        shutil.rmtree(world.root)
        return outcome

    seeds.run(case, ordinary=80)
    if seeds.chosen is None:
        assert min(seeds.outcomes["accepted"], seeds.outcomes["refused"]) > 20, seeds.outcomes
