"""Push images with a real daemon to a registry of this machine."""

import base64
import json
import subprocess
from pathlib import Path

import pytest
import yaml

from orchestrator.config.settings.cluster import PodSettings
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.faces.cli.app import run
from tests.support.image_registry import image_registry

pytestmark = pytest.mark.docker


@pytest.fixture
def pushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which the references are recorded."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    return tmp_path / "state/orchestrator/pushed-images.json"


def repositories() -> str:
    command = ["docker", "images", "--format", "{{.Repository}}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_images_are_pushed_and_their_digests_are_recorded(
    pushed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with image_registry() as (address, manifests):
        registry = f"{address}/team"
        assert run(["image", "push", registry, "--agent", "shell", "--json", "--quiet"]) == 0
        shown = json.loads(capsys.readouterr().out)
        reference = shown["images"][BASE_IMAGE]
        assert shown == {"registry": registry, "images": {BASE_IMAGE: reference}}
        name, _, digest = reference.partition("@")
        assert name == f"{registry}/base"
        assert manifests[digest] == manifests["/v2/team/base/manifests/latest"]
        assert json.loads(pushed.read_text()) == {registry: {BASE_IMAGE: reference}}
        assert run(["image", "push", registry, "--agent", "shell", "--quiet"]) == 0
        settings = yaml.safe_load(capsys.readouterr().out)
        assert PodSettings.model_validate(settings["cluster"]).images == {BASE_IMAGE: reference}
        assert BASE_IMAGE in json.loads(pushed.read_text())[registry]
        assert address not in repositories()


@pytest.mark.extra
def test_registry_that_refuses_is_an_error_with_a_hint(
    pushed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with image_registry(login="ann:sesame") as (address, manifests):
        push = ["image", "push", address, "--agent", "shell", "--quiet"]
        assert run(push) == 3
        refused = capsys.readouterr().err
        assert refused.startswith(f"error: cannot push `{BASE_IMAGE}` to `{address}/base:latest`: ")
        assert f"`docker login {address}`" in refused
        assert not manifests
        assert not pushed.exists()
        assert address not in repositories()
        # What `docker login` writes.
        login = {"auths": {address: {"auth": base64.b64encode(b"ann:sesame").decode()}}}
        (tmp_path / "docker").mkdir()
        (tmp_path / "docker/config.json").write_text(json.dumps(login))
        assert run(push) == 0
        assert len(manifests) == 2


def test_unknown_registry_is_an_error_with_a_hint(
    pushed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["image", "push", "127.0.0.1:1/team", "--agent", "shell", "--quiet"]) == 3
    assert "check that `127.0.0.1:1` is a registry" in capsys.readouterr().err
    assert not pushed.exists()


def test_registry_needs_a_host(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("team", "https://registry.example", "registry.example/", "Registry.example/a"):
        assert run(["image", "push", wrong]) == 3
        assert f"`{wrong}`: a registry must be written as" in capsys.readouterr().err
