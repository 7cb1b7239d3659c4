"""Tests of builds with BuildKit, for Dockerfiles that need it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import docker
import pytest

from orchestrator.base.errors import ImageBuildError
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.docker.buildkit import feature
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.image_protocol import ImageBuild

TAG = "orchestrator-test/buildkit:1"


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ("RUN --mount=type=cache,target=/c true", "RUN --mount"),
        ("run --mount=type=bind,target=/c true", "RUN --mount"),
        ("COPY --chmod=700 a b", "COPY --chmod"),
        ("COPY --from=one --link a b", "COPY --link"),
        ("COPY --parents a b", "COPY --parents"),
        ("ADD --checksum=sha256:1 https://x y", "ADD --checksum"),
        ("RUN <<EOF\necho\nEOF", "RUN <<"),
        ("COPY <<-'EOF' /a\nx\nEOF", "COPY <<"),
        ("RUN --network=none true", "RUN --network"),
        ("RUN git --link x", None),
        ("COPY --from=one --chown=1 a b", None),
        ("RUN echo a \\\n  --mount b", None),
        ("# RUN --mount=type=cache,target=/c true", None),
        ("RUN test 1 -lt 2 && echo $((1 << 2))", None),
        ("ENV A=<<EOF", None),
    ],
)
def test_features_that_only_buildkit_has(line: str, needed: str | None) -> None:
    assert feature(f"FROM debian\n{line}\n") == needed


def test_frontend_that_is_named_needs_buildkit() -> None:
    assert feature("# syntax=docker/dockerfile:1\nFROM a\n") == "# syntax="


@pytest.fixture
def docker_client() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def context(tmp_path: Path, docker_client: docker.DockerClient) -> Iterator[Path]:
    (tmp_path / "a.txt").write_text("content of a\n")
    (tmp_path / "left").write_text("secret\n")
    yield tmp_path
    for image in docker_client.images.list(TAG):
        docker_client.images.remove(image.id, force=True)


def build(context: Path, text: str, lines: list[str]) -> None:
    (context / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\n{text}\n")
    image = ImageBuild(
        context=context, tag=TAG, args={"WHO": "Ann"}, labels={"of": "a test"},
        left_out=frozenset({"left"}), use_cache=False,
    )  # fmt: skip
    with closing(DockerEngine()) as engine:
        engine.build(image, progress=lines.append)


@pytest.mark.docker
class TestBuild:
    def test_features_of_buildkit_are_built(
        self, context: Path, docker_client: docker.DockerClient
    ) -> None:
        lines: list[str] = []
        build(
            context,
            "ARG WHO\nCOPY --chmod=700 . /in\n"
            "RUN --mount=type=bind,target=/m cat /m/a.txt; echo for $WHO; test ! -e /in/left",
            lines,
        )
        assert {"content of a", "for Ann"} <= {*lines}
        assert docker_client.images.get(TAG).labels["of"] == "a test"

    @pytest.mark.parametrize(
        ("text", "said", "hint"),
        [
            ("RUN --mount=type=tmpfs,target=/t exit 3", "exit code: 3", None),
            ("RUN --mount=type=secret,id=a,required=true true", "session", "no secrets"),
            ("COPY --unknown --link=x a.txt /a", "nknown flag", "Docker 23"),
        ],
    )
    def test_failures_are_told(self, context: Path, text: str, said: str, hint: str | None) -> None:
        with pytest.raises(ImageBuildError) as caught:
            build(context, text, [])
        assert said in caught.value.message
        assert (hint or "") in (caught.value.hint or "")
