"""Tests of what a run with `transfer: streams` refuses. The runs: tests/system/test_transfer.py."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import EngineError, UnsupportedError
from orchestrator.base.events import Event, Notice
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.run import ParallelConfig, Triggers
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.places.host_place import HostPlace
from orchestrator.engine.places.place import Entry, Place, PlaceSpec
from orchestrator.repository.repository import Repository
from orchestrator.runs.purposes.cache_warming import Warming, warming_config
from orchestrator.runs.runner import ParallelRunner
from orchestrator.worker.steps import agent_container
from orchestrator.worker.steps.place import check_transfer
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import fingerprint
from tests.support.runs import configured, shell_run


class WithPlaces(LocalEngine):
    """An engine that says that it has places of its own."""

    def open_place(self, spec: PlaceSpec) -> Place:
        raise NotImplementedError


def streaming(**rest: Any) -> ParallelConfig:
    isolation = {"network": "none", "transfer": "streams", **rest.pop("isolation", {})}
    return configured("true", isolation=Isolation(**isolation), **rest)


def sent(engine: LocalEngine) -> EngineFeatures:
    return replace(engine.check(images=(), runtime=None), transfer="streams")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"caches": ("pip",)}, "`caches`"),
        ({"isolation": {"runtime": "runsc"}}, "`runtime`"),
        ({"triggers": Triggers(paths=("src",), enforce="ro")}, "`enforce: ro`"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_needs_mounts_is_refused(tmp_path: Path, settings: Any, named: str) -> None:
    engine, config = WithPlaces(tmp_path), streaming(**settings)
    with pytest.raises(UnsupportedError) as caught:
        check_transfer(engine, sent(engine), config)
    assert caught.value.message.endswith(f"cannot have {named}")
    assert (caught.value.exit_code, caught.value.hint) == (3, "use `--transfer mounts`")


def test_hint_of_a_choice_by_a_test_names_no_mounts(tmp_path: Path) -> None:
    engine = WithPlaces(tmp_path)
    caches = streaming(caches=("pip",), isolation={"transfer": "auto"})
    check_transfer(engine, sent(engine), caches)
    triggers = Triggers(paths=("src",), enforce="ro")
    config = streaming(triggers=triggers, isolation={"transfer": "auto"})
    with pytest.raises(UnsupportedError) as caught:
        check_transfer(engine, sent(engine), config)
    assert "`unset DOCKER_HOST DOCKER_CONTEXT`" in (caught.value.hint or "")
    check_transfer(engine, engine.check(images=(), runtime=None), config)


def test_ports_are_refused_where_they_cannot_be_forwarded(tmp_path: Path) -> None:
    engine, config = WithPlaces(tmp_path), streaming(isolation={"ports": {"PORT": 3000}})
    check_transfer(engine, sent(engine), config)
    with pytest.raises(UnsupportedError, match="none is forwarded with TLS"):
        check_transfer(engine, replace(sent(engine), ports=False), config)


def test_engine_without_places_is_refused_before_anything_is_created(
    repo: Path, local_engine: LocalEngine
) -> None:
    before = fingerprint(repo)
    with raises("transfer.unsupported", f"`{local_engine.name}`"):
        ParallelRunner(streaming(), repo, engine=local_engine).execute()
    assert fingerprint(repo) == before


class Elsewhere(WithPlaces):
    """An engine that cannot use the files of this machine, and has no room for a place."""

    def check(self, *, images: tuple[str, ...], runtime: str | None) -> EngineFeatures:
        return replace(super().check(images=images, runtime=runtime), transfer="streams")

    def open_place(self, spec: PlaceSpec, *, waiter: object = None) -> Place:  # noqa: ARG002
        raise EngineError("no room", key="place.unusable")


def test_caches_start_empty_where_nothing_can_be_mounted(repo: Path, tmp_path: Path) -> None:
    stored = Repository(repo).state_dir / "caches" / "old"
    (stored / "npm").mkdir(parents=True)
    (stored / "npm/package").write_text("x")
    config = configured("true", caches=("npm",), isolation=Isolation(network="none"))
    events: list[Event] = []
    engine = Elsewhere(tmp_path / "engine")
    ParallelRunner(config, repo, engine=engine, emit=events.append).execute()
    said = [event.message for event in events if isinstance(event, Notice)]
    assert "caches start empty: the engine cannot use those of this machine" in said
    assert not [*repo.glob(".git/orchestrator/runs/*/cache")]


def test_caches_are_not_filled_where_nothing_can_be_mounted(repo: Path, tmp_path: Path) -> None:
    wishes = warming_config(configured("any", setup=("true",), caches=("npm",)))
    isolation = wishes.isolation.model_copy(update={"setup_network": "none"})
    wishes = wishes.model_copy(update={"isolation": isolation})
    before = fingerprint(repo)
    with raises("transfer.unsupported"):
        Warming(wishes, repo, engine=Elsewhere(tmp_path / "engine")).execute()
    assert fingerprint(repo) == before


def test_place_of_a_worker_that_waits_for_its_start_is_not_abandoned(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def journal(self: HostPlace, after: int) -> list[Entry]:  # noqa: ARG001
        asked.append(time.monotonic())
        return []

    monkeypatch.setattr(HostPlace, "journal", journal)
    monkeypatch.setattr(agent_container, "_VISIT", 0.2)
    shell_run(repo, local_engine, "true", "true", stagger=1.5)
    assert len([at for at in asked if at < asked[-1]]) >= 4
