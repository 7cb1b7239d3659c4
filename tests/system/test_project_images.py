"""Tests of agents installed on a project's own image, on a real daemon."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from typer.testing import CliRunner

from orchestrator.base.errors import ImageBuildError
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.images.builder import PROJECT, ImageBuilder, ImageStatus, image_statuses
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.images.project import ProjectImage, read_project
from orchestrator.engine.interface.labels import MANAGED
from orchestrator.engine.interface.protocol import Engine
from orchestrator.faces.cli.app import app
from tests.support.repository import git, make_repository

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

DOCKERFILE = f"""FROM {BASE_IMAGE} AS dev
COPY requirements.txt /opt/shop/
ARG VARIANT=none
RUN echo "$VARIANT" >/opt/shop/variant && useradd --create-home --uid 1234 ann
ENV PATH=/opt/shop/bin:/usr/bin:/bin
USER ann
ENTRYPOINT ["false"]

FROM {BASE_IMAGE}
RUN exit 9
"""
DEVCONTAINER = """{
  // Beside the Dockerfile's folder.
  "build": {
    "dockerfile": "../Dockerfile",
    "context": "..",
    "args": {"VARIANT": "blue"},
    "target": "dev",
  },
}
"""


@pytest.fixture
def shop(tmp_path: Path, docker_client: docker.DockerClient) -> Iterator[Path]:
    """Return a project whose images are removed after the test."""
    top = tmp_path / "shop"
    (top / ".devcontainer").mkdir(parents=True)
    (top / "Dockerfile").write_text(DOCKERFILE)
    (top / "requirements.txt").write_text(f"# {tmp_path}\n")
    (top / ".devcontainer" / "devcontainer.json").write_text(DEVCONTAINER)
    yield top
    built = listed_images(docker_client, label=PROJECT)
    ours = [image for image in built if image["Labels"][PROJECT].startswith(f"{top}/")]
    # The engine refuses to remove an image that others are based on: remove images without a
    # tag, left by failed builds, and then all tags. An image disappears with its last tag.
    for image in sorted(ours, key=lambda image: bool(image["RepoTags"])):
        for name in image["RepoTags"] or [image["Id"]]:
            docker_client.images.remove(name, force=True)


def listed_images(docker_client: docker.DockerClient, **filters: object) -> list[dict[str, Any]]:
    """Return a list that does not inspect each image: other tests remove theirs at any time."""
    found: list[dict[str, Any]] = docker_client.api.images(filters=filters)
    for image in found:
        tags = image["RepoTags"] or ()
        image["RepoTags"] = [name for name in tags if name != "<none>:<none>"]
    return found


def builder(engine: Engine, lines: list[str]) -> ImageBuilder:
    return ImageBuilder(engine=engine, environ={}, progress=lines.append)


def at(top: Path, dockerfile: str) -> ProjectImage:
    (top / "Dockerfile").write_text(dockerfile)
    return read_project(top / "Dockerfile")


def statuses(engine: DockerEngine) -> dict[str, ImageStatus]:
    return {status.tag: status for status in image_statuses(engine)}


def run(docker_client: docker.DockerClient, image: str, command: str) -> list[str]:
    """Return the lines that a command prints in a container like that of a worker."""
    output: bytes = docker_client.containers.run(
        image,
        ["-ec", command],
        entrypoint="sh",
        user="20001:20001",
        read_only=True,
        tmpfs={"/tmp": ""},
        cap_drop=["ALL"],
        environment={"HOME": "/tmp/home"},
        network_mode="none",
        labels={MANAGED: "true"},
        remove=True,
    )
    return output.decode().splitlines()


def test_image_of_a_devcontainer_is_built_once_and_again_when_it_changes(
    docker_engine: DockerEngine, docker_client: docker.DockerClient, shop: Path
) -> None:
    project = read_project(shop)
    lines: list[str] = []
    tag = builder(docker_engine, lines).build_project(project)
    assert run(docker_client, tag, "cat /opt/shop/variant /opt/shop/requirements.txt") == [
        "blue",
        f"# {shop.parent}",
    ]
    lines.clear()
    assert builder(docker_engine, lines).build_project(project) == tag
    assert lines == [f"{tag} is up to date"]
    assert statuses(docker_engine)[tag].stale is False
    assert statuses(docker_engine)[tag].project == str(project.source)
    (shop / "requirements.txt").write_text("changed\n")
    assert statuses(docker_engine)[tag].stale is True


@pytest.mark.agents
def test_agent_runs_in_the_image_of_a_devcontainer(
    docker_engine: DockerEngine, docker_client: docker.DockerClient, shop: Path
) -> None:
    project = read_project(shop)
    lines: list[str] = []
    tag = builder(docker_engine, lines).build_worker("opencode", project=project)
    version, variant, path = run(
        docker_client, tag, "opencode --version; cat /opt/shop/variant; echo $PATH"
    )
    assert (version, variant) == ("1.18.33", "blue")
    assert path == "/opt/agent/commands:/opt/shop/bin:/usr/bin:/bin"
    lines.clear()
    assert builder(docker_engine, lines).build_worker("opencode", project=project) == tag
    assert lines == [f"{tag.replace('opencode-', '')} is up to date", f"{tag} is up to date"]
    assert statuses(docker_engine)[tag].stale is False
    (shop / "requirements.txt").write_text("changed\n")
    assert statuses(docker_engine)[tag].stale is True


@pytest.mark.extra
def test_image_without_git_is_reported(docker_engine: DockerEngine, shop: Path) -> None:
    project = at(shop, f"FROM {BASE_IMAGE}\nRUN rm /usr/bin/git\n")
    with pytest.raises(ImageBuildError) as caught:
        builder(docker_engine, []).build_worker("opencode", project=project)
    assert "  there is no git in this image" in caught.value.message
    assert caught.value.hint == "agents need git: install it in the image's Dockerfile"


@pytest.mark.extra
def test_image_without_python_is_reported_for_python_agents(
    docker_engine: DockerEngine, shop: Path
) -> None:
    project = at(shop, f"FROM {BASE_IMAGE}\nRUN rm /usr/bin/python3\n")
    with pytest.raises(ImageBuildError) as caught:
        builder(docker_engine, []).build_worker("mini", project=project)
    assert "  there is no python3 in this image" in caught.value.message
    assert "`python3`" in (caught.value.hint or "")


@pytest.mark.agents
def test_image_in_which_the_program_cannot_start_is_reported(
    docker_engine: DockerEngine, shop: Path
) -> None:
    project = at(shop, f"FROM {BASE_IMAGE}\nRUN rm /usr/lib/*/libpthread.so.0\n")
    with pytest.raises(ImageBuildError) as caught:
        builder(docker_engine, []).build_worker("opencode", project=project)
    assert "  opencode does not start in this image" in caught.value.message
    assert "glibc" in (caught.value.hint or "")


def test_failed_stage_and_unreadable_file_are_one_line_errors(
    docker_engine: DockerEngine, shop: Path
) -> None:
    with pytest.raises(ImageBuildError, match="returned a non-zero code: 9"):
        builder(docker_engine, []).build_project(read_project(shop / "Dockerfile"))
    (shop / "gone").mkdir()
    project = at(shop, f"FROM {BASE_IMAGE}\n")
    (shop / "Dockerfile").unlink()
    with pytest.raises(ImageBuildError, match="cannot build"):
        builder(docker_engine, []).build_project(project)


@pytest.mark.extra
def test_command_line_builds_an_image_for_shell_tasks(shop: Path) -> None:
    done = CliRunner().invoke(app, ["image", "build", "--agent", "shell", "--from", str(shop)])
    assert (done.exit_code, done.stderr.count("Successfully built")) == (0, 1)
    tag = done.stdout.strip()
    assert tag.startswith("orchestrator/project:")
    listed = CliRunner().invoke(app, ["image", "ls"])
    (line,) = (line for line in listed.stdout.splitlines() if line.startswith(tag))
    assert line.split()[-1] == "ready"


def test_image_contains_no_private_files_of_the_checkout(
    docker_client: docker.DockerClient, tmp_path: Path, shop: Path
) -> None:
    make_repository(shop)
    (shop / "Dockerfile").write_text(
        f"FROM {BASE_IMAGE} AS first\nRUN echo {tmp_path} > /first\n"
        f"FROM {BASE_IMAGE}\nCOPY --from=first /first /\nCOPY . /all\n"
    )
    (shop / ".dockerignore").write_text("# all but this\nignored\n!.env\n")
    (shop / ".npmrc").write_text("registry=http://localhost\n")
    git(shop, "add", ".npmrc", "Dockerfile")
    for name in ("ignored", "kept.txt", ".env", "run.log", "sub/.env.local", "sub/id_rsa"):
        (shop / name).parent.mkdir(exist_ok=True)
        (shop / name).write_text("private")
    (shop / ".architect-parallel-1").mkdir()
    (shop / ".architect-parallel-1" / "a").write_text("a worker's")
    done = CliRunner().invoke(
        app, ["image", "build", "--agent", "shell", "--from", str(shop / "Dockerfile")]
    )
    assert done.exit_code == 0, done.stderr
    assert (
        "files that git does not track are left out of the image: .architect-parallel-1, .env,"
        in done.stderr
    )
    listed = docker_client.containers.run(
        done.stdout.strip(), ["find", "/all", "-type", "f"], network_mode="none", remove=True
    )
    names = {line.removeprefix("/all/") for line in listed.decode().split()}
    # Ordinary and private files, also in a folder.
    assert {"Dockerfile", ".npmrc", "kept.txt"} <= names
    private = {".env", "run.log", "sub/.env.local", "sub/id_rsa", "ignored"}
    assert not private & names
    assert not [name for name in names if name.startswith((".git/", ".architect-"))]
    # Builds leave no unnamed image: neither the first stage nor an image that was replaced.
    assert unnamed(docker_client, tmp_path) == []
    old = docker_client.images.get(done.stdout.strip()).id
    again = ["image", "build", "--agent", "shell", "--no-cache", "--from"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orchestrator.engine.images.builder.ImageBuilder.build_base", lambda *_: None)
        done = CliRunner().invoke(app, [*again, str(shop / "Dockerfile")])
    assert done.exit_code == 0, done.stderr
    assert docker_client.images.get(done.stdout.strip()).id != old
    assert unnamed(docker_client, tmp_path) == []


def unnamed(docker_client: docker.DockerClient, top: Path) -> list[str]:
    """Return the unnamed images that come from a project, regardless of concurrent builds."""
    found = listed_images(docker_client, dangling=True)
    told = {one["Id"]: _told(docker_client, one) for one in found}
    return [image for image, texts in told.items() if any(str(top) in text for text in texts)]


def _told(docker_client: docker.DockerClient, image: dict[str, Any]) -> list[str]:
    try:
        layers = docker_client.api.history(image["Id"])
    except docker.errors.NotFound:
        return []
    return [*(image["Labels"] or {}).values(), *(layer["CreatedBy"] or "" for layer in layers)]
