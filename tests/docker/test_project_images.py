"""Agents on top of a project's own image, on a real daemon."""

from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from typer.testing import CliRunner

from orchestrator.cli.app import app
from orchestrator.config import BASE_IMAGE
from orchestrator.engine.base import MANAGED, Engine
from orchestrator.engine.docker import DockerEngine
from orchestrator.errors import ImageBuildError
from orchestrator.images import ImageBuilder, image_statuses
from orchestrator.project_image import ProjectImage, read_project

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


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def shop(tmp_path: Path, client: docker.DockerClient) -> Iterator[Path]:
    """Give a project, and remove its images afterwards."""
    top = tmp_path / "shop"
    (top / ".devcontainer").mkdir(parents=True)
    (top / "Dockerfile").write_text(DOCKERFILE)
    (top / "requirements.txt").write_text(f"# {tmp_path}\n")
    (top / ".devcontainer" / "devcontainer.json").write_text(DEVCONTAINER)
    yield top
    built = client.images.list(filters={"label": "orchestrator.project"})
    ours = [image for image in built if image.labels["orchestrator.project"].startswith(f"{top}/")]
    # The engine refuses to remove what another image stands on. What a failed build left has no
    # tag and nothing on it; of the others the tags go, which ends each when its last one went.
    for image in sorted(ours, key=lambda image: bool(image.tags)):
        for name in image.tags or [image.id]:
            client.images.remove(name, force=True)


def builder(engine: Engine, lines: list[str]) -> ImageBuilder:
    return ImageBuilder(engine=engine, environ={}, progress=lines.append)


def at(top: Path, dockerfile: str) -> ProjectImage:
    (top / "Dockerfile").write_text(dockerfile)
    return read_project(top / "Dockerfile")


def test_an_agent_runs_in_the_image_of_a_devcontainer(
    docker_engine: DockerEngine, client: docker.DockerClient, shop: Path
) -> None:
    project = read_project(shop)
    lines: list[str] = []
    tag = builder(docker_engine, lines).build_worker("opencode", project=project)
    output: bytes = client.containers.run(
        tag,
        ["-ec", "opencode --version; cat /opt/shop/variant /opt/shop/requirements.txt; echo $PATH"],
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
    version, variant, requirement, path = output.decode().splitlines()
    assert (version, variant) == ("1.18.33", "blue")
    assert requirement == f"# {shop.parent}"
    assert path == "/opt/agent/commands:/opt/shop/bin:/usr/bin:/bin"
    lines.clear()
    assert builder(docker_engine, lines).build_worker("opencode", project=project) == tag
    assert lines == [f"{tag.replace('opencode-', '')} is up to date", f"{tag} is up to date"]
    statuses = {status.tag: status for status in image_statuses(docker_engine)}
    assert statuses[tag].stale is False
    assert statuses[tag].project == str(project.source)
    (shop / "requirements.txt").write_text("changed\n")
    statuses = {status.tag: status for status in image_statuses(docker_engine)}
    assert statuses[tag].stale is True


def test_an_image_without_git_is_told(docker_engine: DockerEngine, shop: Path) -> None:
    project = at(shop, f"FROM {BASE_IMAGE}\nRUN rm /usr/bin/git\n")
    with pytest.raises(ImageBuildError) as caught:
        builder(docker_engine, []).build_worker("opencode", project=project)
    assert "  there is no git in this image" in caught.value.message
    assert caught.value.hint == "agents work with git: let the image's Dockerfile install it"


def test_an_image_without_python_is_told_to_those_who_need_it(
    docker_engine: DockerEngine, shop: Path
) -> None:
    project = at(shop, f"FROM {BASE_IMAGE}\nRUN rm /usr/bin/python3\n")
    with pytest.raises(ImageBuildError) as caught:
        builder(docker_engine, []).build_worker("mini", project=project)
    assert "  there is no python3 in this image" in caught.value.message
    assert "`python3`" in (caught.value.hint or "")


def test_an_image_that_the_program_cannot_start_in_is_told(
    docker_engine: DockerEngine, shop: Path
) -> None:
    project = at(shop, f"FROM {BASE_IMAGE}\nRUN rm /usr/lib/*/libpthread.so.0\n")
    with pytest.raises(ImageBuildError) as caught:
        builder(docker_engine, []).build_worker("opencode", project=project)
    assert "  opencode does not start in this image" in caught.value.message
    assert "glibc" in (caught.value.hint or "")


def test_a_stage_that_fails_is_one_line_and_a_file_nobody_may_read_too(
    docker_engine: DockerEngine, shop: Path
) -> None:
    with pytest.raises(ImageBuildError, match="returned a non-zero code: 9"):
        builder(docker_engine, []).build_project(read_project(shop / "Dockerfile"))
    (shop / "gone").mkdir()
    project = at(shop, f"FROM {BASE_IMAGE}\n")
    (shop / "Dockerfile").unlink()
    with pytest.raises(ImageBuildError, match="cannot build"):
        builder(docker_engine, []).build_project(project)


def test_the_command_line_makes_a_project_s_image_for_shell_tasks(shop: Path) -> None:
    done = CliRunner().invoke(app, ["image", "build", "--agent", "shell", "--from", str(shop)])
    assert (done.exit_code, done.stderr.count("Successfully built")) == (0, 1)
    tag = done.stdout.strip()
    assert tag.startswith("orchestrator/project:")
    listed = CliRunner().invoke(app, ["image", "ls"])
    (line,) = (line for line in listed.stdout.splitlines() if line.startswith(tag))
    assert line.split()[-1] == "ready"
