"""Tests that what was found out about the mounts of one engine is not believed of another."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.features import EngineFeatures
from orchestrator.engine.spec import BindMount, ContainerSpec
from orchestrator.errors import UnsupportedError
from orchestrator.git.repository import Repository
from orchestrator.workspace.overlay_probe import choose_mode
from tests.support.local_engine import LocalContainer, LocalEngine


class FarEngine(LocalEngine):
    """An engine at an address, which has the files of this machine, or others at their paths."""

    files: Path | None = None
    address = "unix:///run/docker.sock"
    fingerprint = "here"
    created = 0

    def check(self, *, images: tuple[str, ...], runtime: str | None) -> EngineFeatures:
        known: dict[str, Any] = {"address": self.address, "fingerprint": self.fingerprint}
        return replace(super().check(images=images, runtime=runtime), **known)

    def create(self, spec: ContainerSpec) -> LocalContainer:
        self.created += 1
        if self.files is not None:
            mounts = (
                BindMount(source=self.files, target=mount.target, read_only=False)
                for mount in spec.mounts
            )
            spec = replace(spec, mounts=tuple(mounts))
        return super().create(spec)


def chosen(engine: FarEngine, repo: Path) -> str:
    run = repo / ".git/orchestrator/runs/20260101-000000-abcdef"
    run.mkdir(parents=True, exist_ok=True)
    features = engine.check(images=(), runtime=None)
    return choose_mode(engine, features, Repository(repo), run)


def test_each_engine_is_tested_once(repo: Path, tmp_path: Path) -> None:
    engine = FarEngine(tmp_path / "engine")
    assert [chosen(engine, repo), chosen(engine, repo)] == ["bind", "bind"]
    assert engine.created == 1


def test_forwarded_socket_at_the_same_path_is_recognised(repo: Path, tmp_path: Path) -> None:
    engine = FarEngine(tmp_path / "engine")
    chosen(engine, repo)
    engine.files, engine.fingerprint = tmp_path / "there", "there"
    engine.files.mkdir()
    engine.files.chmod(0o777)
    with pytest.raises(UnsupportedError, match="does not see the files of this machine") as caught:
        chosen(engine, repo)
    assert caught.value.exit_code == 3
    assert engine.leftovers({}) == []


def test_engine_of_this_process_needs_no_test(repo: Path, tmp_path: Path) -> None:
    engine = FarEngine(tmp_path / "engine")
    engine.address = ""
    assert chosen(engine, repo) == "bind"
    assert engine.created == 0
