"""Tests against a daemon that sees no file of this machine, as one on another machine."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import orchestrator
from tests.support.own_daemon import Daemon, own_daemon

pytestmark = [
    pytest.mark.docker,
    pytest.mark.extra,
    pytest.mark.skipif(os.getuid() != 0, reason="only root starts a second daemon"),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    hidden = tmp_path_factory.getbasetemp()
    with (
        tempfile.TemporaryDirectory(prefix="orc-", dir="/var/tmp") as short,
        own_daemon(Path(short) / "d", hidden=(hidden,), tls=True) as made,
    ):
        yield made


@pytest.mark.parametrize("way", ["tls", "socket"])
def test_engine_without_the_files_of_this_machine_is_refused(
    daemon: Daemon, repo: Path, way: str
) -> None:
    env = {**os.environ, "DOCKER_HOST": daemon.url}
    if way == "tls":
        env |= {
            "DOCKER_HOST": daemon.tls_url,
            "DOCKER_TLS_VERIFY": "1",
            "DOCKER_CERT_PATH": str(daemon.certificates),
        }
    done = orchestrator(
        *("parallel", "--agent-cli", "shell", "--network", "none", "echo x > f"),
        cwd=repo, env=env,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "files of this machine" in done.stderr
    assert "Traceback" not in done.stderr
