"""Tests of a CI job that is itself a container and uses the engine of its host by its socket.

Only the job's container gets the socket. No worker ever does.
"""

import json
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from orchestrator.engine.images.names import BASE_IMAGE
from tests.support.repository import git

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
SECRET = "of-the-user-4711"


class Job:
    """Runs commands of this project in a container with the files of the host's programs."""

    def __init__(self, repo: Path) -> None:
        self._client = docker.from_env()
        self._repo = repo

    def close(self) -> None:
        self._client.close()

    def run(self, *arguments: str, at: Path, memory: bool) -> tuple[int, str, str]:
        """Run `orchestrator` with the repository at a path; return code, stdout and stderr."""
        site = sysconfig.get_path("purelib")
        shown = {
            ROOT,
            Path(site),
            Path("/usr"),
            Path(os.path.realpath(sysconfig.get_path("stdlib"))),
        }
        volumes = [f"{path}:{path}:ro" for path in sorted(shown)]
        volumes += [f"{self._repo}:{at}", "/var/run/docker.sock:/var/run/docker.sock"]
        volumes += ["/dev/shm:/dev/shm"] if memory else []
        interpreter = os.path.realpath(sys.executable)
        if not interpreter.startswith("/usr/"):
            volumes.append(f"{Path(interpreter).parents[1]}:{Path(interpreter).parents[1]}:ro")
        container = self._client.containers.create(
            BASE_IMAGE,
            [interpreter, "-m", "orchestrator", *arguments],
            volumes=volumes, working_dir=str(at), network_mode="none",
            environment={
                "HOME": "/root", "PYTHONPATH": f"{ROOT}:{site}", "PYTHONDONTWRITEBYTECODE": "1",
                "TOKEN": SECRET, "OPENAI_API_KEY": SECRET,
                "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
            },
        )  # fmt: skip
        try:
            container.start()
            code = container.wait(timeout=200)["StatusCode"]
            logs = [container.logs(stdout=out, stderr=not out).decode() for out in (True, False)]
        finally:
            container.remove(force=True)
        return code, *logs


@pytest.fixture
def job(repo: Path) -> Iterator[Job]:
    one = Job(repo)
    yield one
    one.close()


def parallel(*words: str) -> tuple[str, ...]:
    common = ("--agent-cli", "shell", "--network", "none", "--workers", "1", "--quiet", "--json")
    return ("parallel", *common, *words)


def result(stdout: str) -> dict[str, Any]:
    (one,) = json.loads(stdout)["results"]
    return one


KEYS = parallel("--keys", "broker", "--env", "OPENAI_API_KEY", "echo $OPENAI_API_KEY")


def test_files_are_mounted_from_the_paths_of_the_host(repo: Path, job: Job) -> None:
    code, stdout, stderr = job.run(*parallel("echo made > made.txt"), at=repo, memory=False)
    assert code == 0, stderr
    assert git(repo, "show", f"{result(stdout)['branch']}:made.txt") == "made"
    # The same repository at another path, after the engine was found to see it: copies are sent.
    copied = parallel("echo copied > made.txt")
    code, stdout, stderr = job.run(*copied, at=Path("/builds/shop"), memory=False)
    assert code == 0, stderr
    assert git(repo, "show", f"{result(stdout)['branch']}:made.txt") == "copied"
    before = git(repo, "for-each-ref")
    mounted = parallel("--transfer", "mounts", "true")
    code, stdout, stderr = job.run(*mounted, at=Path("/builds/shop"), memory=False)
    assert code == 3, stderr
    assert json.loads(stdout)["error"]["key"] == "engine.other-files"
    assert git(repo, "for-each-ref") == before


@pytest.mark.extra
@pytest.mark.usefixtures("broker_image")
def test_secrets_need_the_memory_of_the_host(repo: Path, job: Job) -> None:
    before = git(repo, "for-each-ref")
    secret = parallel(
        "--secret", "TOKEN", "cmp /run/secrets/TOKEN - < /dev/null; wc -c /run/secrets/*"
    )
    for words in (secret, KEYS):
        code, stdout, stderr = job.run(*words, at=repo, memory=False)
        assert (code, json.loads(stdout)["error"]["exit_code"]) == (3, 3)
        assert "--volume /dev/shm:/dev/shm" in stderr
    assert git(repo, "for-each-ref") == before
    code, stdout, stderr = job.run(*secret, at=repo, memory=True)
    assert code == 0, stderr
    assert (Path(result(stdout)["log"]) / "stdout.log").read_text().startswith(str(len(SECRET)))
    runs = [path.name for path in (repo / ".git/orchestrator/runs").iterdir()]
    assert runs
    assert [name for name in runs if Path(f"/dev/shm/orchestrator-{name}").exists()] == []


@pytest.mark.extra
@pytest.mark.usefixtures("broker_image")
def test_broker_gets_the_keys_in_the_memory_of_the_host(repo: Path, job: Job) -> None:
    code, stdout, stderr = job.run(*KEYS, at=repo, memory=True)
    assert code == 0, stderr
    printed = (Path(result(stdout)["log"]) / "stdout.log").read_text()
    assert printed.strip()
    assert SECRET not in printed
