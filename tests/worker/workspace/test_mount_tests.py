"""Tests that what was found out about the mounts of one engine is not believed of another."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import EngineUnavailableError
from orchestrator.config.settings.container import Isolation, Transfer
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.spec import BindMount, ContainerSpec
from orchestrator.engine.places.place import Part, PlaceSpec, Start
from orchestrator.repository.repository import Repository
from orchestrator.worker.workspace import overlay_probe
from orchestrator.worker.workspace.layout import WORKSPACE
from orchestrator.worker.workspace.overlay_probe import choose_transfer
from tests.support.errors import raises
from tests.support.local_engine import LocalContainer, LocalEngine


class FarEngine(LocalEngine):
    """An engine at an address, which has the files of this machine, or others at their paths."""

    files: Path | None = None
    address = "unix:///run/docker.sock"
    fingerprint = "here"
    created = 0
    problem: EngineUnavailableError | None = None

    def check(self, *, images: tuple[str, ...], runtime: str | None) -> EngineFeatures:
        known: dict[str, Any] = {"address": self.address, "fingerprint": self.fingerprint}
        return replace(super().check(images=images, runtime=runtime), **known)

    def create(self, spec: ContainerSpec) -> LocalContainer:
        if self.problem is not None:
            raise self.problem
        self.created += 1
        if self.files is not None:
            mounts = (
                BindMount(source=self.files, target=mount.target, read_only=False)
                for mount in spec.mounts
            )
            spec = replace(spec, mounts=tuple(mounts))
        return super().create(spec)


class FarPlaces(FarEngine):
    """Such an engine, which has volumes to which files can be sent."""

    writable = True
    opened = 0

    def open_place(self, spec: PlaceSpec) -> Any:
        self.opened += 1
        return CopiedPlace(self, spec)


class CopiedPlace:
    """A place with copies of the files, which its steps may change if the engine lets them."""

    def __init__(self, engine: FarPlaces, spec: PlaceSpec) -> None:
        self.engine, self.spec = engine, spec
        self.root = Path(tempfile.mkdtemp())
        self.root.chmod(0o755)

    def put(self, parts: Sequence[Part]) -> None:
        for part in parts:
            assert isinstance(part.mount, BindMount)
            shutil.copytree(part.mount.source, self.root / part.name)
            (self.root / part.name).chmod(0o777)

    def order(self, step: str, start: Start) -> LocalContainer:
        *shell, words = start.command
        for part in ("given", "kept"):
            words = words.replace(f"/{part}/", f"{self.root}/{part}/")
        mount = BindMount(source=self.root / "made", target=WORKSPACE, read_only=False)
        command = (*shell, words) if self.engine.writable else ("false",)
        spec = replace(self.spec.step(step).spec, mounts=(mount,), command=command)
        return LocalEngine.create(self.engine, spec)

    def take(self, part: str, to: Path, *, limit: int) -> int:
        shutil.copytree(self.root / part, to, dirs_exist_ok=True)
        return limit

    def remove(self) -> None:
        for leftover in self.engine.leftovers({}):
            self.engine.remove(leftover)
        shutil.rmtree(self.root)


def chosen(engine: FarEngine, repo: Path, asked: Transfer = "auto") -> str:
    features = engine.check(images=(), runtime=None)
    found = choose_transfer(engine, features, Repository(repo), Isolation(transfer=asked))
    assert found == replace(features, transfer=found.transfer)
    return found.transfer


def hide(engine: FarEngine, there: Path) -> None:
    """Let the engine have other files at the paths of this machine's."""
    engine.files = there
    there.mkdir()
    there.chmod(0o777)


def test_each_engine_is_tested_once(repo: Path, tmp_path: Path) -> None:
    engine = FarEngine(tmp_path / "engine")
    assert [chosen(engine, repo), chosen(engine, repo)] == ["mounts", "mounts"]
    assert engine.created == 1


def test_copies_are_sent_to_an_engine_that_sees_other_files(repo: Path, tmp_path: Path) -> None:
    engine = FarPlaces(tmp_path / "engine")
    hide(engine, tmp_path / "there")
    assert [chosen(engine, repo), chosen(engine, repo)] == ["streams", "streams"]
    assert engine.created == 1
    with raises("engine.other-files"):
        chosen(engine, repo, "mounts")
    # Somebody has mounted the files.
    engine.files = None
    assert [chosen(engine, repo), chosen(engine, repo, "mounts")] == ["streams", "mounts"]
    assert chosen(engine, repo) == "mounts"
    assert engine.leftovers({}) == []


@pytest.mark.parametrize("asked", ["auto", "streams"])
def test_engine_without_copies_is_refused_before_a_worker_starts(
    repo: Path, tmp_path: Path, asked: Transfer
) -> None:
    engine = FarPlaces(tmp_path / "engine")
    hide(engine, tmp_path / "there")
    engine.writable = False
    for tries in (1, 2):
        with raises("engine.no-copies") as caught:
            chosen(engine, repo, asked)
        assert caught.value.exit_code == 3
        assert engine.opened == tries
    isolation, features = Isolation(transfer=asked), engine.check(images=(), runtime=None)
    assert overlay_probe.tested_way(engine, features, Repository(repo), isolation) is None
    # The administrator mends it: what works is tested once.
    engine.writable = True
    assert [chosen(engine, repo, asked) for _ in range(3)] == ["streams"] * 3
    assert engine.opened == 4
    engine.fingerprint = "another"
    chosen(engine, repo, asked)
    assert engine.opened == 5
    assert engine.leftovers({}) == []


def test_an_engine_that_does_not_answer_is_no_reason_to_send_copies(
    repo: Path, tmp_path: Path
) -> None:
    engine = FarPlaces(tmp_path / "engine")
    engine.problem = EngineUnavailableError("gone", key="engine.unreachable")
    with pytest.raises(EngineUnavailableError):
        chosen(engine, repo)


def test_forwarded_socket_at_the_same_path_is_recognised(repo: Path, tmp_path: Path) -> None:
    engine = FarEngine(tmp_path / "engine")
    chosen(engine, repo)
    engine.fingerprint = "there"
    hide(engine, tmp_path / "there")
    with raises("engine.other-files") as caught:
        chosen(engine, repo)
    assert caught.value.exit_code == 3
    assert engine.leftovers({}) == []


def test_engine_of_this_process_needs_no_test(repo: Path, tmp_path: Path) -> None:
    engine = FarEngine(tmp_path / "engine")
    engine.address = ""
    assert chosen(engine, repo) == "mounts"
    assert engine.created == 0


def test_mounts_are_tested_with_the_runtime_of_the_run(repo: Path, tmp_path: Path) -> None:
    engine = FarEngine(tmp_path / "engine")
    features = engine.check(images=(), runtime=None)
    for isolation, default, tests in (
        (Isolation(), "", 1), (Isolation(runtime="process"), "", 2),
        (Isolation(runtime="process"), "", 2), (Isolation(), "process", 2), (Isolation(), "", 3),
    ):  # fmt: skip
        known = replace(features, default_runtime=default)
        choose_transfer(engine, known, Repository(repo), isolation)
        assert engine.created == tests
