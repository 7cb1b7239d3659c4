"""Services and ports of workers in pods."""

import json
import re
import signal
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
from tests.cluster.lab import BASE_IMAGE, NAMESPACE, Lab
from tests.cluster.runs import Start, begin, ended, present, running
from tests.cluster.test_features import run
from tests.support.images import built_image
from tests.support.live import eventually
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(500)]
ORCHESTRATOR = (sys.executable, "-m", "orchestrator")
DATABASE = "orchestrator/test-services:postgres"
PLAIN = "orchestrator/test-services:plain"
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


def shell(script: str, **rest: Any) -> dict[str, Any]:
    """Return a service that runs a script."""
    return {"image": BASE_IMAGE, "command": ["sh", "-c", script], "health": "true", **rest}


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


@pytest.mark.usefixtures("baseline")
def test_resumed_run_takes_over_its_database_and_ports(
    lab: Lab, repo: Path, database: str, start: Start
) -> None:
    task = (
        "psql -q \"$DATABASE_URL\" -c 'create table kept as select 7 as it'; echo made; "
        'echo hello > page; timeout 200 python3 -m http.server "$PORT" & '
        "until [ -e go ]; do sleep 0.2; done; kill $!; "
        "psql -tA \"$DATABASE_URL\" -c 'select it from kept' > answer"
    )
    words = settings(repo, services={"db": POSTGRES})
    ports = ("--ports", "3000")
    process = start(*words, *ports, "--image", database, "--memory", "512m", task)
    running(lab, repo)
    (note,) = repo.glob(".git/orchestrator/runs/*/ports-1")
    url = f"http://127.0.0.1:{note.read_text()}/page"
    assert fetched(url) == "hello"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert page(url) == ""
    kubeconfig = lab.directory / "kubeconfig-runner"
    again = begin(repo, kubeconfig, *ORCHESTRATOR, "resume", "--json")
    assert fetched(url) == "hello"
    assert entered(lab, repo, "touch", "go") == 0
    result = ended(again)
    assert result["status"] == "success", json.dumps(result)
    assert result["ports"] == {"3000": int(note.read_text())}
    assert git(repo, "show", f"{result['branch']}:answer") == "7"
    assert "ready to accept connections" in log_of(result, "service-db.log")


def test_service_that_needs_root_is_refused_in_a_restricted_namespace(
    lab: Lab, repo: Path, database: str
) -> None:
    words = settings(repo, services={"db": POSTGRES})
    (result,) = run(lab, repo, *words, "--image", database, "true")
    assert (result["status"], result["reason"]) == ("failed", "setup_failed")
    assert "container has runAsNonRoot and image will run as root" in result["message"]
    assert "--pod-security baseline" in result["message"]


@pytest.mark.usefixtures("baseline")
def test_services_that_end_or_are_never_ready(lab: Lab, repo: Path) -> None:
    """A service that is not `required` does not decide about its worker."""
    late = shell("echo my last words; sleep 300", health="false", health_timeout=8)
    (result,) = run(lab, repo, *settings(repo, services={"web": late}), "true")
    assert (result["status"], result["reason"]) == ("failed", "setup_failed"), result
    assert "was not ready within 8 s: my last words" in result["message"]
    assert log_of(result, "service-web.log") == "my last words\n"

    dies = shell("echo here; sleep 12; echo gone >&2; exit 4")
    task = "sleep 25; echo done > done"
    (result,) = run(lab, repo, *settings(repo, services={"web": dies}), task)
    assert (result["status"], result["reason"]) == ("failed", "service_died"), result
    assert "ended (exit code 4): gone" in result["message"]
    assert git(repo, "show", f"{result['branch']}:done") == "done"

    optional = {"web": {**dies, "required": False}}
    (result,) = run(lab, repo, *settings(repo, services=optional), task)
    assert result["status"] == "success", json.dumps(result)

    absent = {"web": {**dies, "command": ["/no/such/program"]}}
    (result,) = run(lab, repo, *settings(repo, services=absent), "true")
    assert (result["status"], result["reason"]) == ("failed", "engine_error"), result
    assert "/no/such/program" in result["message"]

    greedy = shell("sleep 6; head -c 200m /dev/zero | tail", memory="64m")
    (result,) = run(lab, repo, *settings(repo, services={"web": greedy}), "sleep 20")
    assert result["reason"] == "service_died", result
    assert "needed more memory than its limit" in result["message"]
    eventually(lambda: not present(lab, repo, "jobs"), "the Jobs' end")


LIMITS = """\
grep -e CapEff -e NoNewPrivs -e Seccomp: /proc/1/status | tr -d '\\n\\t'
touch /x 2>&1; touch /tmp/x /run/x && echo "own $OWN"
cat /run/secrets/TOKEN /var/run/secrets/kubernetes.io/serviceaccount/token 2>&1
ls /workspace 2>&1 | head -1
sleep 300
"""


@pytest.fixture(scope="module")
def plain(
    docker_engine: DockerEngine, lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Build an image that does not start as root."""
    folder = tmp_path_factory.mktemp("plain")
    (folder / "Dockerfile").write_text(f"FROM {BASE_IMAGE}\nUSER 1234:1234\n")
    with built_image(docker_engine, folder, PLAIN):
        lab.load(PLAIN)
        yield PLAIN


@pytest.mark.parametrize("standard", ["baseline", "restricted"])
@pytest.mark.usefixtures("baseline")
def test_service_is_confined(lab: Lab, repo: Path, plain: str, standard: str) -> None:
    label(lab, standard)
    image, capabilities = {
        "baseline": (BASE_IMAGE, "00000000000000cb"), "restricted": (plain, "0" * 16),
    }[standard]  # fmt: skip
    services = {"web": shell(LIMITS, image=image, env={"OWN": "$(HOME) $OWN"})}
    words = settings(repo, services=services)
    (result,) = run(lab, repo, *words, "--secret", "TOKEN", "sleep 3", TOKEN="hush-1234-hush")
    assert result["status"] == "success", json.dumps(result)
    said = log_of(result, "service-web.log")
    assert f"CapEff:{capabilities}" in said
    assert "NoNewPrivs:1" in said
    assert "Seccomp:2" in said
    assert "/x': Read-only file system" in said
    assert "own $(HOME) $OWN" in said
    assert "hush" not in said
    assert said.count("No such file or directory") == 3


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
    cut.cut_down, before = 40_000, cut.cuts.total()
    assert fetched(f"{url}/page") == "hello"
    assert page(f"{url}/big") == ""
    assert cut.cuts.total() > before
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
