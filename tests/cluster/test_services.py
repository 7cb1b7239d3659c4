"""Services and ports of workers in pods."""

import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.kubernetes.manifest import ENFORCE
from tests.cluster.cut_api import CutApi
from tests.cluster.lab import NAMESPACE, Lab
from tests.cluster.runs import Start, begin, ended, present
from tests.cluster.test_features import run
from tests.support.images import built_image
from tests.support.live import eventually
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500)]
ORCHESTRATOR = (sys.executable, "-m", "orchestrator")
DATABASE = "orchestrator/test-services:postgres"
POSTGRES = {
    "image": DATABASE,
    "env": {"POSTGRES_PASSWORD": "local-$(only)"},
    "port": 5432,
    "health": "pg_isready -h 127.0.0.1",
    "health_timeout": 240,
    "variables": {"DATABASE_URL": "postgres://postgres:local-%24(only)@{host}:{port}/postgres"},
    "tmpfs": ["/var/lib/postgresql/data"],
}
ALONE = """\
psql -tA "$DATABASE_URL" -c 'select it from kept' > answer
psql -tA "$DATABASE_URL" -c 'select 40 + 2' >> answer
env | grep ^DB_ | sort
id -u
"""


@pytest.fixture(scope="module")
def database(docker_engine: DockerEngine, lab: Lab) -> Iterator[str]:
    """Build the image of tests for Docker, and give it to the nodes."""
    folder = Path(__file__).parents[1] / "system/postgres"
    with built_image(docker_engine, folder, DATABASE):
        lab.load(DATABASE)
        yield DATABASE


@pytest.fixture
def baseline(lab: Lab) -> Iterator[None]:
    """Let services of the namespace start as root."""
    label(lab, "baseline")
    yield
    label(lab, "restricted")


def label(lab: Lab, standard: str) -> None:
    lab.kubectl("label", "namespace", NAMESPACE, f"{ENFORCE}={standard}", "--overwrite")


def settings(repo: Path, **given: Any) -> tuple[str, str]:
    file = repo.parent / "services.yaml"
    file.write_text(json.dumps(given))
    return "--config", str(file)


def log_of(result: dict[str, Any], name: str) -> str:
    return (Path(result["log"]) / name).read_text()


@pytest.mark.usefixtures("baseline")
def test_worker_uses_a_database(lab: Lab, repo: Path, database: str) -> None:
    words = settings(
        repo, services={"db": POSTGRES},
        # The setup for checks has no services.
        setup=['[ -z "$DATABASE_URL" ] || psql -q "$DATABASE_URL" '
               "-c 'create table kept as select 7 as it'"],
        checks=["grep -q 42 answer"], teardown=["psql -q \"$DATABASE_URL\" -c 'select 1'"],
    )  # fmt: skip
    (result,) = run(lab, repo, *words, "--image", database, "--memory", "512m", ALONE)
    assert result["status"] == "success", json.dumps(result)
    assert [check["passed"] for check in result["checks"]] == [True]
    assert git(repo, "show", f"{result['branch']}:answer") == "7\n42"
    said = log_of(result, "stdout.log").splitlines()
    assert said[:2] == ["DB_HOST=db", "DB_PORT=5432"]
    assert said[2] != "0"
    assert "ready to accept connections" in log_of(result, "service-db.log")
    eventually(lambda: not present(lab, repo, "jobs"), "the Job's end")


def entered(lab: Lab, repo: Path, *command: str) -> int:
    """Run a command in the worker; return its exit code."""
    kubeconfig = lab.directory / "kubeconfig-runner"
    process = begin(repo, kubeconfig, *ORCHESTRATOR, "exec", "1", "--", *command)
    process.communicate(timeout=60)
    return process.returncode


def page(url: str) -> str:
    """Fetch a page; return nothing unless it is complete."""
    with suppress(OSError, HTTPException), urllib.request.urlopen(url, timeout=20) as answer:
        return str(answer.read().decode().strip())
    return ""


def fetched(url: str) -> str:
    """Fetch a page as soon as its server answers."""
    return str(eventually(lambda: page(url), f"an answer of {url}"))


def url_of(process: Popen[str]) -> str:
    said = []
    assert process.stderr is not None
    while line := process.stderr.readline():
        said.append(line)
        if match := re.search(r"http://127\.0\.0\.1:\d+", line):
            return match[0]
    raise AssertionError("".join(said))


def test_ports_are_reached_also_after_cuts(lab: Lab, repo: Path, start: Start, cut: CutApi) -> None:
    task = (
        "seq 1000000 > big; echo hello > page; env | grep PORT | sort; "
        'timeout 200 python3 -m http.server "$PORT" & '
        "until [ -e go ]; do sleep 0.2; done; kill $!"
    )
    process = start("--ports", "3000", task, kubeconfig=cut.kubeconfig)
    url = url_of(process)
    assert fetched(f"{url}/page") == "hello"
    whole = "\n".join(map(str, range(1, 1_000_001)))
    assert fetched(f"{url}/big") == whole
    cut.cut_down, before = 40_000, cut.cuts
    assert fetched(f"{url}/page") == "hello"
    assert page(f"{url}/big") == ""
    assert cut.cuts > before
    cut.cut_down = None
    assert fetched(f"{url}/page") == "hello"
    lab.stop_api_server()
    lab.start_api_server()
    assert fetched(f"{url}/page") == "hello"
    assert entered(lab, repo, "touch", "go") == 0
    result = ended(process)
    assert result["status"] == "success", json.dumps(result)
    here = int(url.rpartition(":")[2])
    assert result["ports"] == {"3000": here}
    assert f"HOST_PORT={here}" in log_of(result, "stdout.log")
