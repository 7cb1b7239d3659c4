"""Tests of when a project's images are built, and when they are stale."""

from pathlib import Path

import pytest

from orchestrator.base.errors import ImageBuildError
from orchestrator.engine.images.builder import (
    AGENT,
    PROJECT,
    RECIPE,
    ImageBuilder,
    image_statuses,
    project_tag,
)
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.images.project import read_project
from tests.engine.images.test_recipes import ShelfEngine


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    top = tmp_path / "shop"
    top.mkdir()
    (top / "Dockerfile").write_text("FROM debian AS dev\n")
    return top


@pytest.fixture
def engine() -> ShelfEngine:
    engine = ShelfEngine()
    engine.put(BASE_IMAGE, {})
    return engine


def build(engine: ShelfEngine, shop: Path, agent: str = "claude", *, use_cache: bool = True) -> str:
    builder = ImageBuilder(engine=engine, environ={}, progress=lambda _: None, use_cache=use_cache)
    return builder.build_worker(agent, project=read_project(shop))


def states(engine: ShelfEngine) -> dict[str, bool]:
    return {one.tag: one.stale for one in image_statuses(engine) if one.project is not None}


def test_agent_is_installed_on_the_projects_image(engine: ShelfEngine, shop: Path) -> None:
    tag = build(engine, shop)
    base, worker = engine.builds
    assert base.tag == worker.args["BASE"] == project_tag(read_project(shop))
    assert base.dockerfile == str(shop / "Dockerfile")
    assert base.files == {"Dockerfile": "FROM debian AS dev\n"}
    assert worker.tag == tag == base.tag.replace(":", ":claude-")
    # npm comes from the builder image; Python must be in the project's own image.
    assert worker.args["BUILDER"] == BASE_IMAGE
    build(engine, shop, "mini")
    assert "BUILDER" not in engine.builds[-1].args
    labels = engine.shelf[tag].labels
    assert (labels[PROJECT], labels[AGENT]) == (str(shop / "Dockerfile"), "claude")


def test_image_is_built_once_for_equal_content(engine: ShelfEngine, shop: Path) -> None:
    first = build(engine, shop)
    (shop / "main.py").write_text("print()")
    assert build(engine, shop) == first
    assert len(engine.builds) == 2
    build(engine, shop, use_cache=False)
    assert len(engine.builds) == 4
    build(engine, shop, "codex")
    assert len(engine.builds) == 5


def test_changed_content_makes_the_old_image_stale(engine: ShelfEngine, shop: Path) -> None:
    old = build(engine, shop)
    (shop / "uv.lock").write_text("new")
    new = build(engine, shop)
    assert new != old
    stale = [tag for tag, is_stale in states(engine).items() if is_stale]
    assert stale == sorted([old, old.replace("claude-", "")])
    assert len(states(engine)) == 4


@pytest.mark.parametrize("what", ["gone", "another agent", "nonsense"])
def test_image_of_a_removed_project_is_stale(engine: ShelfEngine, shop: Path, what: str) -> None:
    source = shop / "Dockerfile"
    labels = {RECIPE: read_project(shop).digest, PROJECT: str(source)}
    engine.put("fresh:1", labels)
    assert states(engine) == {"fresh:1": False}
    if what == "gone":
        source.unlink()
    wrong = {"another agent": {AGENT: "none"}, "nonsense": {PROJECT: "\0"}}.get(what, {})
    engine.put("fresh:1", labels | wrong)
    assert states(engine) == {"fresh:1": True}


def test_ready_made_image_is_pulled_once(engine: ShelfEngine, shop: Path) -> None:
    (shop / ".devcontainer.json").write_text('{"image": "debian:13"}')
    with pytest.raises(ImageBuildError, match="debian:13"):
        build(engine, shop)
    engine.registry.add("debian:13")
    build(engine, shop)
    engine.registry.clear()
    build(engine, shop, "codex")
    assert [one.args["BASE"] for one in engine.builds] == ["debian:13", "debian:13"]


def test_devcontainer_sets_stage_and_arguments(engine: ShelfEngine, shop: Path) -> None:
    (shop / ".devcontainer.json").write_text(
        '{"build": {"dockerfile": "Dockerfile", "args": {"A": "1"}, "target": "dev"}}'
    )
    build(engine, shop)
    assert (engine.builds[0].args, engine.builds[0].target) == ({"A": "1"}, "dev")
