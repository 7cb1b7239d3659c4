"""A container costs the daemon few requests, and these share their connections."""

import re
from urllib.parse import urlsplit

import pytest

from orchestrator.engine.docker import DockerEngine
from tests.support.containers import Starter, finish

pytestmark = pytest.mark.docker


def test_requests_of_one_container(
    docker_engine: DockerEngine, docker_start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_engine.check(images=(), runtime=None)
    client, sent = docker_engine._client, []
    send = client.send

    def counting(request, **options):
        path = re.sub(r"^/v[\d.]+|[0-9a-f]{64}|images/.*/", "", urlsplit(request.url).path)
        sent.append(f"{request.method} {path}")
        return send(request, **options)

    monkeypatch.setattr(client, "send", counting)
    container = docker_start("true")
    finish(container)
    container.remove()
    assert sent == [
        "GET /json",  # the image
        "POST /containers/create",
        "POST /containers//attach",
        "POST /containers//start",
        "POST /containers//wait",
        "DELETE /containers/",
    ]


def test_a_second_start_has_no_effect(docker_engine: DockerEngine, docker_start: Starter) -> None:
    container = docker_start("cat", "/proc/uptime", kept_output=2**20)
    first = finish(container)[1]
    container.start()
    again = docker_engine.adopt(container.id)
    assert again is not None
    again.start()
    assert finish(again)[1] == first


def test_all_requests_share_one_pool_of_connections(
    docker_engine: DockerEngine, docker_start: Starter
) -> None:
    for _ in range(2):
        finish(docker_start("true"))
    adapter = docker_engine._client.get_adapter(docker_engine._client.base_url)
    (pool,) = (adapter.pools[name] for name in adapter.pools.keys())  # noqa: SIM118
    # One connection each for the output, the end, and everything else.
    assert pool.num_connections <= 2 * 2 + 1
