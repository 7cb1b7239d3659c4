"""Tests of places whose files are mounted from this machine."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.base.errors import EngineError
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.spec import (
    BindMount,
    ContainerSpec,
    Egress,
    OverlayMount,
    TmpfsMount,
)
from orchestrator.engine.places.host_place import HostPlace
from orchestrator.engine.places.place import Part, Place, PlaceSpec, Start, Step
from tests.support.containers import bind, finish
from tests.support.recording_engine import RecordingEngine

EGRESS = Egress(image=BASE_IMAGE)
STEPS = ("setup", "agent", "harvest")
DISK = {"most_files": 100}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RecordingEngine]:
    engine = RecordingEngine(tmp_path / "engine")
    yield engine
    for leftover in engine.leftovers({}):
        engine.remove(leftover)


def part(name: str, mount: BindMount | OverlayMount, *seen_by: str) -> Part:
    return Part(name=name, mount=mount, seen_by=frozenset(seen_by or STEPS))


def spec_of(*parts: Part) -> PlaceSpec:
    steps = tuple(
        Step(
            name=name,
            spec=ContainerSpec(
                name=f"p-{name}", image=BASE_IMAGE, command=(), user="", workdir="",
                labels={"step": name}, egress=EGRESS,
                mounts=(TmpfsMount(target="/scratch", size=1),),
            ),
        )
        for name in STEPS
    )  # fmt: skip
    return PlaceSpec(name="p", labels={}, parts=parts, steps=steps)


def test_a_step_sees_its_parts_in_order_and_no_others(
    engine: RecordingEngine, tmp_path: Path
) -> None:
    mounts = [bind(tmp_path, f"/{name}") for name in "abcd"]
    parts = [
        part("tree", mounts[0], "agent"),
        part("tree", mounts[1], "setup", "harvest"),
        part("git", mounts[2]),
        part("out", mounts[3], "harvest"),
    ]
    place: Place = HostPlace(engine, spec_of(*parts))
    for step in STEPS:
        place.order(step, Start(command=("true",)))
    seen = [["b", "c"], ["a", "c"], ["b", "c", "d"]]
    targets = [[mount.target for mount in spec.mounts] for spec in engine.specs]
    assert targets == [[*(f"/{name}" for name in names), "/scratch"] for names in seen]


def test_a_step_gets_what_comes_with_its_order(engine: RecordingEngine) -> None:
    place = HostPlace(engine, spec_of())
    start = Start(command=("env",), env={"A": "b"}, labels={"deadline": "x"}, network="n")
    container = place.order("agent", start)
    container.start()
    status, stdout, _ = finish(container)
    assert (status.exit_code, b"A=b" in stdout.split(b"\n")) == (0, True)
    (spec,) = engine.specs
    assert spec.labels == {"step": "agent", "deadline": "x"}
    assert (spec.network, spec.egress) == ("n", EGRESS)


def test_a_step_without_a_network_has_no_rules_for_one(engine: RecordingEngine) -> None:
    HostPlace(engine, spec_of()).order("agent", Start(command=("true",)))
    assert [(spec.network, spec.egress) for spec in engine.specs] == [("none", None)]


def test_a_step_is_not_ordered_twice_at_the_same_time(engine: RecordingEngine) -> None:
    place, other = (HostPlace(engine, spec_of()) for _ in range(2))
    container = place.order("agent", Start(command=("true",)))
    with pytest.raises(EngineError):
        other.order("agent", Start(command=("true",)))
    container.remove()
    other.order("agent", Start(command=("true",)))


def test_another_process_finds_a_step_but_not_one_of_an_earlier_place(
    engine: RecordingEngine,
) -> None:
    container = HostPlace(engine, spec_of()).order("agent", Start(command=("true",)))
    found = HostPlace(engine, spec_of()).step("agent")
    assert found is not None
    assert found.id == container.id
    assert HostPlace(engine, spec_of()).step("setup") is None
    assert HostPlace(engine, spec_of(), earlier={container.id}).step("agent") is None


def test_nothing_of_a_removed_place_is_left(engine: RecordingEngine) -> None:
    place = HostPlace(engine, spec_of())
    for step in STEPS:
        place.order(step, Start(command=("true",)))
    place.remove()
    place.remove()
    assert engine.leftovers({}) == []


def test_only_what_steps_can_write_is_measured_and_only_once(
    engine: RecordingEngine, tmp_path: Path
) -> None:
    lower, upper, store = (tmp_path / name for name in ("lower", "upper", "store"))
    for path in (lower, upper, store):
        path.mkdir()
        (path / "file").touch()
    layer = OverlayMount(lower=lower, upper=upper, work=tmp_path / "work", target="/tree")
    parts = [
        part("tree", layer, "setup"),
        part("tree", layer, "harvest"),
        part("git", bind(store, "/git", read_only=True), "agent"),
        part("objects", bind(lower, "/objects", read_only=True)),
    ]
    place = HostPlace(engine, spec_of(*parts))
    found = [place.usage(names, **DISK).files for names in (("tree",), ("git",), ("objects",))]
    assert found == [1, 0, 0]
    place.put([*parts, part("git", bind(store, "/git"), "harvest")])
    assert place.usage(("tree", "git"), **DISK).files == 2


def test_changed_files_are_those_of_a_layer_or_those_after_a_moment(
    engine: RecordingEngine, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    for name in (".git", "old", "src/old"):
        (tree / name).touch()
    spec = spec_of(part("tree", bind(tree, "/tree")))

    def changed(since: int | None) -> list[str]:
        place = HostPlace(engine, spec, since=since)
        return sorted(place.changed("tree", most=100, seconds=60))

    assert changed(None) == ["old", "src/old"]
    since = (tree / "src/old").stat().st_ctime_ns
    assert changed(since) == []
    # A worker can set the modification time of its files to any value.
    while (tree / "old").stat().st_ctime_ns <= since:
        os.utime(tree / "old", (1, 1))
    assert changed(since) == ["old"]
