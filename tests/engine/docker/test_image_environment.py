"""Tests of variables of an image that would mislead git, or programs that write temporary files."""

from collections.abc import Iterator

import docker
import pytest

from orchestrator.engine.docker.image_defaults import withheld
from orchestrator.engine.images.names import BASE_IMAGE
from tests.support.containers import Starter, finish

TAG = "orchestrator-test/environment:1"


@pytest.mark.parametrize(
    ("entry", "is_withheld"),
    [
        ("GIT_DIR=/x", True), ("GIT_WORK_TREE=/x", True), ("GIT_INDEX_FILE=/x", True),
        ("GIT_CONFIG_COUNT=1", True), ("GIT_OBJECT_DIRECTORY=", True), ("GIT_TRACE=1", True),
        ("GIT_AUTHOR_NAME=Ann", False), ("GIT_SSH_COMMAND=ssh", False), ("GIT_SSL_CAINFO=x", False),
        ("TMPDIR=/x", True), ("TEMP=/x", True), ("TMP=/x", True),
        ("PATH=/x", False), ("LD_PRELOAD=/x", False), ("GITHUB_TOKEN=x", False), ("HOME=/x", False),
    ],
)  # fmt: skip
def test_variables_that_are_withheld(entry: str, is_withheld: bool) -> None:
    name = entry.partition("=")[0]
    assert withheld({"Env": [entry]}) == ({name: None} if is_withheld else {})


def test_image_without_variables() -> None:
    assert withheld({}) == withheld({"Env": None}) == {}


@pytest.fixture
def image() -> Iterator[str]:
    client = docker.from_env()
    made = client.api.create_container(BASE_IMAGE, ["true"])
    changes = ["ENV GIT_DIR=/nowhere TMPDIR=/nowhere KEPT=yes"]
    client.api.commit(made["Id"], *TAG.split(":"), changes=changes)
    client.api.remove_container(made["Id"])
    yield TAG
    client.images.remove(TAG)
    client.close()


@pytest.mark.docker
def test_git_and_temporary_files_are_those_of_the_worker(image: str, docker_start: Starter) -> None:
    script = "echo [$GIT_DIR] [$TMPDIR] $KEPT"
    assert finish(docker_start("sh", "-c", script, image=image))[1] == b"[] [] yes\n"
    given = {"GIT_DIR": "/mine", "TMPDIR": "/tmp"}
    ended = finish(docker_start("sh", "-c", script, image=image, env=given))
    assert ended[1] == b"[/mine] [/tmp] yes\n"
