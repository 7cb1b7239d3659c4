"""Fixtures with both engines, and a directory of their own for sandboxes."""

from pathlib import Path

import pytest

from orchestrator.engine.interface.protocol import ContainerEngine


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of this test's sandboxes, which are gone at its end."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "orchestrator" / "sandboxes"


@pytest.fixture(
    params=[
        pytest.param("local", marks=pytest.mark.process),
        pytest.param("docker", marks=pytest.mark.docker),
    ]
)
def engine(request: pytest.FixtureRequest) -> ContainerEngine:
    """Return each engine in turn."""
    engine: ContainerEngine = request.getfixturevalue(f"{request.param}_engine")
    return engine
