"""Tests of builds that fail: the daemon hangs up, or a file cannot be read."""

import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from orchestrator.base.errors import EngineUnavailableError
from orchestrator.engine.docker.images import DockerImages
from orchestrator.engine.interface.image_protocol import ImageBuild
from tests.support.errors import raises

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'16\r\n{"stream":"Step 1/2"}\n\r\n'
)


class HangUp(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        length = 0
        while line := self.rfile.readline().strip():
            if line.lower() == b"transfer-encoding: chunked":
                length = -1
            elif line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        if length >= 0:
            self.rfile.read(length)
        else:
            self._read_chunks()
        self.wfile.write(HEAD)

    def _read_chunks(self) -> None:
        while size := int(self.rfile.readline(), 16):
            self.rfile.read(size + 2)
        self.rfile.readline()


@pytest.fixture
def images(tmp_path: Path) -> Iterator[DockerImages]:
    path = tmp_path / "engine.sock"
    with socketserver.ThreadingUnixStreamServer(str(path), HangUp) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        client = docker.APIClient(base_url=f"unix://{path}", version="1.41")
        yield DockerImages(client)
        client.close()
        server.shutdown()
        thread.join()


def test_daemon_that_hangs_up_during_a_build_is_unavailable(
    images: DockerImages, tmp_path: Path
) -> None:
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM scratch\n")
    told: list[str] = []
    with pytest.raises(EngineUnavailableError, match="cannot build `a:b`"):
        images.build(ImageBuild(context=context, tag="a:b"), progress=told.append)
    assert told == ["Step 1/2"]


def test_file_that_cannot_be_read_is_no_fault_of_the_engine(
    images: DockerImages, tmp_path: Path
) -> None:
    gone = tmp_path / "Dockerfile"
    context = tmp_path / "context"
    context.mkdir()
    with raises("build.context", "`a:b`", gone):
        images.build(
            ImageBuild(context=context, dockerfile=str(gone), tag="a:b"), progress=lambda _: None
        )
