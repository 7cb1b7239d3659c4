"""Which names the settings of pods accept: what a cluster would refuse later is refused now."""

from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.config.settings.cluster import PodSettings, check_registry

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    "registry", ["registry.example/team", "registry.example", "localhost:5000", "127.0.0.1:5000/a"]
)
def test_registry_has_a_host_and_may_have_a_path(registry: str) -> None:
    assert check_registry(registry) == registry


@pytest.mark.parametrize(
    "registry",
    # Docker takes the first for a user of its public registry.
    [
        "team",
        "team/a",
        "https://a.example",
        "A.example",
        "a.example/",
        "a.example/b:1",
        "",
        "-a b.c",
    ],
)
def test_registry_without_a_host_is_refused(registry: str) -> None:
    with pytest.raises(ValueError, match="a registry must be written as"):
        check_registry(registry)


@pytest.mark.parametrize(
    "settings",
    [
        {"images": {"a": "base"}},
        {"images": {"a": "reg.example/base@sha256:1"}},
        {"images": {"a": "reg.example/base:1 --privileged"}},
        {"image_pull_secrets": ["Team"]},
        {"node_selector": {"a b": "c"}},
        {"node_selector": {"a": "b c"}},
        {"tolerations": [{"key": "a", "effect": "Never"}]},
        {"tolerations": [{"value": "a"}]},
        {"priority_class": ""},
        {"start_within": 1},
    ],
    ids=str,
)
def test_names_that_no_cluster_has_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PodSettings.model_validate(settings)


def test_names_of_a_cluster_are_accepted() -> None:
    named = {"orchestrator/base:latest": f"reg.example:5000/team/base@{DIGEST}", "b": "r.ex/b:1"}
    settings = PodSettings(images=named, node_selector={"example.com/pool": ""})
    assert settings.images == named
