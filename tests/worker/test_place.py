"""Tests of what a run with `transfer: streams` refuses. The runs: tests/system/test_transfer.py."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config.container import Isolation
from orchestrator.config.run import ParallelConfig, Triggers
from orchestrator.engine.features import EngineFeatures
from orchestrator.engine.place import Place, PlaceSpec
from orchestrator.errors import UnsupportedError
from orchestrator.runs.runner import ParallelRunner
from orchestrator.worker.place import check_transfer
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import fingerprint
from tests.support.runs import configured


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
    config = streaming(caches=("pip",), isolation={"transfer": "auto"})
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
