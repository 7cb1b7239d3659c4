"""Workers with `--keys broker` and real containers; the model's API is on this machine."""

import json
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import REPOSITORY, ROLE
from tests.network.broker.upstream import Answer, api
from tests.support.bridge import bridge_gateway
from tests.support.cli import orchestrator, printed, start
from tests.support.daemon import ours
from tests.support.live import eventually
from tests.support.model_script import Rule, Scenario, Turn
from tests.support.model_server import ModelServer
from tests.support.repository import git

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("broker_image")]
CANARY = "sk-canary-7d0f2b9e41c8"
SCENARIO = Scenario((Rule(turns=(Turn(text="Hello."),)),))
COST = 1800 * 2.5e-6 + 11 * 10e-6
"""Cost of one answer, in USD."""
SHELL = ("parallel", "--agent-cli", "shell", "--json", "--keys", "broker")
ENV = ("--env", "OPENAI_API_KEY", "--env", "OPENAI_BASE_URL")
ONE = (*SHELL, "--workers", "1", *ENV)
BODY = {
    "model": "gpt-4o",
    "max_tokens": 100,
    # The scripted model bills 1800 tokens for any request.
    "messages": [{"role": "user", "content": f"Say hello{' ' * 1800}"}],
}
ASK = (
    "curl -sS -m 90 -o /tmp/answer -w '%{http_code}\\n' \"$OPENAI_BASE_URL/chat/completions\" "
    f"-H \"Authorization: Bearer ${{token:-$OPENAI_API_KEY}}\" -d '{json.dumps(BODY)}'"
)
"""Command that calls the model once and prints the status."""


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(SCENARIO, host=bridge_gateway()) as server:
        yield server


@pytest.fixture
def env(model: ModelServer) -> dict[str, str]:
    """The variables of the caller."""
    return {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": f"{model.url}/v1"}


def containers(client: docker.APIClient, repo: Path, role: str) -> list[str]:
    labels = [f"{REPOSITORY}={repo / '.git'}", f"{ROLE}={role}"]
    return [found["Id"] for found in client.containers(filters={"label": labels})]


def lines_of(done: Any, worker: int = 1) -> list[str]:
    assert worker in done.results, done.stderr
    return printed(done.results[worker]).splitlines()


def inspected(client: docker.APIClient, repo: Path) -> str:
    """Return what the engine tells about all containers and networks of a repository's runs."""
    filters = {"label": f"{REPOSITORY}={repo / '.git'}"}
    found = [client.inspect_container(one["Id"]) for one in client.containers(filters=filters)]
    return json.dumps([*found, client.networks(filters=filters)])


@pytest.mark.variants("mounts")
@pytest.mark.usefixtures("transfer")
def test_key_is_nowhere_but_in_the_broker(
    model: ModelServer, env: dict[str, str], repo: Path, client: docker.APIClient
) -> None:
    look = "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; ls /run/broker"
    wait = "until [ -e /tmp/go ]; do sleep 0.1; done"
    task = f"{ASK}; {look}; env > environment; cat /tmp/answer >> environment; echo seen; {wait}"
    process = start(
        *ONE, "--network", "none", task, cwd=repo, env=env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    log = eventually(lambda: list(repo.glob(".git/orchestrator/runs/*/worker-1/stdout.log")))[0]
    eventually(lambda: "seen\n" in log.read_text(), "the call")
    (worker,), (broker,) = (containers(client, repo, role) for role in ("worker", "broker"))
    engine = inspected(client, repo)
    logs = b"".join(client.logs(one) for one in (worker, broker))
    running = subprocess.run(
        ["ps", "-e", "-ww", "-o", "args"], capture_output=True, text=True, check=True
    ).stdout
    client.exec_start(client.exec_create(worker, ["touch", "/tmp/go"])["Id"])
    out, err = process.communicate()
    result = json.loads(out)["results"][0]
    assert result["status"] == "success", err
    assert printed(result).startswith("200\n")
    assert [exchange.key for exchange in model.exchanges] == [CANARY]
    branch = git(repo, "show", f"{result['branch']}:environment")
    assert "OPENAI_API_KEY=sk-ant-gateway-" in branch
    files = (path.read_bytes() for path in repo.rglob("*") if path.is_file())
    seen = (engine, running, logs, printed(result), branch, out, err, *files)
    for text in seen:
        assert CANARY.encode() not in (text.encode() if isinstance(text, str) else text)
    assert (result["cost"], result["tokens"]) == (pytest.approx(COST), 1811)
    assert ours(client, repo) == []
    memory = f"/dev/shm/orchestrator-{json.loads(out)['run_id']}"
    assert not Path(memory).exists()


@pytest.mark.variants("untrusted")
@pytest.mark.parametrize(
    "chosen",
    [
        # Its limits are the lowest, and its network is the broker's alone.
        ("--preset", "untrusted"),
        ("--keys", "broker", "--network", "allowlist", "--allow", "a.example.net:8080"),
        ("--keys", "broker", "--network", "open"),
    ],
    ids=["untrusted", "allowlist", "open"],
)
def test_worker_reaches_the_model_through_the_broker_alone(
    model: ModelServer, env: dict[str, str], repo: Path, chosen: tuple[str, ...]
) -> None:
    port = model.server_address[1]
    direct = f"curl -s -m 4 http://{bridge_gateway()}:{port}/v1/models || echo closed"
    shell = ("parallel", "--agent-cli", "shell", "--json", "--workers", "1", *ENV)
    done = orchestrator(*shell, *chosen, f"{ASK}; {direct}", cwd=repo, env=env)
    assert lines_of(done) == ["200", "closed"]


def test_token_of_another_worker_is_refused(
    model: ModelServer, env: dict[str, str], repo: Path, client: docker.APIClient
) -> None:
    wait = "echo ready; until [ -e /tmp/go ]; do sleep 0.1; done; . /tmp/go"
    process = start(
        *SHELL, *ENV, "--network", "none", "--workers", "2", "--task", f"{wait}; {ASK}",
        "--task", f"{wait}; {ASK}", cwd=repo, env=env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    both = eventually(
        lambda: len(found := containers(client, repo, "worker")) == 2 and found, "both workers"
    )
    tokens = {one: token_of(client, one) for one in both}
    assert len(set(tokens.values())) == 2
    first, second = both
    for one, token in ((first, tokens[first]), (second, tokens[first])):
        command = ["sh", "-c", f"echo token={token} > /tmp/new && mv /tmp/new /tmp/go"]
        client.exec_start(client.exec_create(one, command)["Id"])
    out, err = process.communicate()
    results = json.loads(out)["results"]
    assert sorted(printed(one).split()[-1] for one in results) == ["200", "401"], err
    assert len(model.exchanges) == 1


def token_of(client: docker.APIClient, container: str) -> str:
    """Return the token of a worker."""
    variables = client.inspect_container(container)["Config"]["Env"]
    return next(one for one in variables if one.startswith("OPENAI_API_KEY=")).partition("=")[2]


@pytest.mark.extra
def test_budgets_of_worker_and_run_are_enforced(
    model: ModelServer, env: dict[str, str], repo: Path
) -> None:
    often = f"for n in 1 2 3 4 5 6 7 8; do {ASK}; done; grep -q 200 /dev/null"
    budget = ("--budget-total", str(5.2 * COST), "--budget-per-worker", str(2.2 * COST))
    done = orchestrator(
        *SHELL, *ENV, "--network", "none", "--workers", "1", "--task", often, "--task", often,
        "--task", often, *budget, cwd=repo, env=env,
    )  # fmt: skip
    asked = [lines_of(done, number) for number in (1, 2, 3)]
    assert all(lines[-1] == "402" for lines in asked)
    assert sum(lines.count("200") for lines in asked) == len(model.exchanges)
    assert len(model.exchanges) == 5
    for result in done.results.values():
        assert (result["status"], result["reason"]) == ("partial", "budget")
        assert 0 < result["cost"] <= 2.2 * COST
    assert done.json["cost"] <= 5.2 * COST


@pytest.mark.extra
def test_models_and_calls_a_minute_are_limited(
    model: ModelServer, env: dict[str, str], repo: Path
) -> None:
    other = ASK.replace("gpt-4o", "o3")
    done = orchestrator(
        *ONE, "--network", "none", "--key-models", "gpt-4*", "--calls-per-minute", "3",
        f"{ASK}; {other}; {ASK}; {ASK}; cat /tmp/answer", cwd=repo, env=env,
    )  # fmt: skip
    *statuses, answer = lines_of(done)
    assert statuses == ["200", "403", "200", "429"]
    assert "gateway_rate_limit" in answer
    assert len(model.exchanges) == 2


UNKNOWN = "gpt-6.2-of-tomorrow"
BUDGET = ("--network", "none", "--budget-total", "1")


def test_budget_needs_a_price(model: ModelServer, env: dict[str, str], repo: Path) -> None:
    # A model that is known is refused before anything starts, and by no model's name otherwise.
    for named in (("--model", UNKNOWN), ("--models", f"gpt-4o,{UNKNOWN}")):
        refused = orchestrator(*SHELL, *ENV, *BUDGET, *named, ASK, cwd=repo, env=env)
        assert (refused.returncode, refused.error["key"]) == (3, "price.unknown")
        assert f"`{UNKNOWN}`" in refused.error["message"]
        assert f"--price {UNKNOWN}=IN/OUT" in refused.error["hint"]
        assert not list(repo.glob(".git/orchestrator/runs/*/worker-*"))
    assert model.exchanges == []


@pytest.mark.extra
def test_call_of_a_model_without_a_price_is_refused(
    model: ModelServer, env: dict[str, str], repo: Path
) -> None:
    """The result says why; with a price, the call is made."""
    ask = f"{ASK.replace('gpt-4o', UNKNOWN)}; cat /tmp/answer; exit 1"
    done = orchestrator(*ONE, *BUDGET, "--model", "tomorrow", ask, cwd=repo, env=env)
    assert "--price MODEL=IN/OUT" in lines_of(done)[1]
    assert f"it knows no price of the model `{UNKNOWN}`" in done.results[1]["message"]
    assert model.exchanges == []
    priced = ("--model", UNKNOWN, "--price", f"{UNKNOWN}=2.5/10")
    done = orchestrator(*ONE, *BUDGET, *priced, ask.replace("; exit 1", ""), cwd=repo, env=env)
    assert lines_of(done, 2)[0] == "200"
    assert done.results[2]["cost"] == pytest.approx(COST)


@pytest.mark.extra
def test_tasks_of_a_workflow_have_keys_of_their_own(
    model: ModelServer, env: dict[str, str], repo: Path
) -> None:
    look = 'case "$OPENAI_API_KEY" in sk-ant-gateway-*) echo token;; *) echo key;; esac'
    (repo / "flow.yaml").write_text(
        json.dumps({"tasks": [
            {"id": "outside", "task": f"{look}; {ASK}", "keys": "broker", "network": "none"},
            {"id": "inside", "task": f"{look}; {ASK}", "keys": "env", "network": "none"},
        ]})
    )  # fmt: skip
    done = orchestrator(
        "spec", "run", "flow.yaml", "--agent-cli", "shell", "--json", *ENV, cwd=repo, env=env
    )
    assert lines_of(done, 1) == ["token", "200"]
    assert lines_of(done, 2) == ["key", "000"]
    assert len(model.exchanges) == 1


def test_setup_reaches_services_and_neither_key_nor_token(env: dict[str, str], repo: Path) -> None:
    (repo / "mine.yaml").write_text(
        json.dumps({
            "services": {"web": {
                "image": BASE_IMAGE, "port": 8000,
                "command": ["python3", "-m", "http.server", "8000", "--directory", "/usr/share"],
            }},
            "setup": ["curl -fsS http://web:8000/ >/dev/null", "env > /workspace/of-setup"],
            "container": {"keys": "broker", "network": "none"},
        })
    )  # fmt: skip
    done = orchestrator(
        *ONE, "--config", "mine.yaml", f"grep -c -i -E 'openai|{CANARY}' of-setup; {ASK}; "
        "curl -fsS http://web:8000/ >/dev/null && echo web", cwd=repo, env=env,
    )  # fmt: skip
    assert lines_of(done) == ["0", "200", "web"]


def test_token_ends_with_its_worker(
    env: dict[str, str], repo: Path, client: docker.APIClient
) -> None:
    wait = "echo second; until [ -e /tmp/go ]; do sleep 0.1; done"
    process = start(
        *SHELL, *ENV, "--network", "none", "--workers", "1", "--task", "true", "--task", wait,
        cwd=repo, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    log = eventually(lambda: list(repo.glob(".git/orchestrator/runs/*/worker-2/stdout.log")))[0]
    eventually(lambda: "second\n" in log.read_text(), "the second worker")
    memory = Path(f"/dev/shm/orchestrator-{log.parent.parent.name}/broker")
    grants = [json.loads(path.read_text()) for path in memory.glob("*.json")]
    assert [grant["ledger"] for grant in grants] == ["2-1"]
    assert [path.stat().st_mode & 0o777 for path in memory.glob("*.json")] == [0o400]
    (worker,) = containers(client, repo, "worker")
    client.exec_start(client.exec_create(worker, ["touch", "/tmp/go"])["Id"])
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert not memory.exists()


FOLLOW = """
import http.client, json, os, sys
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit
base = urlsplit(os.environ["OPENAI_BASE_URL"])
def ask(user, **body):
    connection = http.client.HTTPConnection(base.hostname, base.port, timeout=60)
    text = json.dumps({"model": "gpt-4o", "user": user, **body})
    connection.request("POST", base.path + "/chat/completions", text,
                       {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    return connection.getresponse()
def follow(user):
    count = 0
    for line in ask(user, stream=True):
        if line.startswith(b"data: "):
            count += 1
            ask(user).read()
    return count
with ThreadPoolExecutor(7) as pool:
    print(sum(pool.map(follow, map(str, range(7)))))
"""


@pytest.mark.extra
def test_events_are_held_back_neither_by_the_gateway_nor_by_the_broker(repo: Path) -> None:
    arrived = {str(number): threading.Semaphore(1) for number in range(7)}

    def answer(body: bytes) -> Answer:
        asked = json.loads(body)
        if not asked.get("stream"):
            arrived[asked["user"]].release()
            return Answer(b"{}")
        # The API sends an event only after the worker's call that confirms the event before it.
        return Answer(*([next_event] * 15), kind="text/event-stream")

    def next_event(body: bytes) -> bytes:
        assert arrived[json.loads(body)["user"]].acquire(timeout=60)
        return b'data: {"choices": []}\n\n'

    with api(bridge_gateway()) as server:
        server.answer = answer
        env = {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": f"{server.url}/v1"}
        task = f"python3 -c {shlex.quote(FOLLOW)}"
        done = orchestrator(*ONE, "--network", "none", task, cwd=repo, env=env)
    assert lines_of(done) == ["105"]


@pytest.mark.extra
def test_token_is_refused_from_other_containers_of_its_worker(
    model: ModelServer, env: dict[str, str], repo: Path
) -> None:
    (repo / "mine.yaml").write_text(
        json.dumps({
            "services": {"web": {
                "image": BASE_IMAGE, "port": 8000,
                "command": ["python3", "-m", "http.server", "8000", "--directory", "/usr/share"],
            }},
            # Also runs before the checks, without the services.
            "setup": ["true"],
            "teardown": [f". ./given; curl -fsS http://web:8000/ >/dev/null && {ASK}"],
            "checks": [{"name": "later", "run": f". ./given; {ASK}"}],
            "container": {"keys": "broker", "network": "none"},
        })
    )  # fmt: skip
    given = "env | grep ^OPENAI | sed 's/^/export /' > given"
    done = orchestrator(*ONE, "--config", "mine.yaml", f"{given}; {ASK}", cwd=repo, env=env)
    assert lines_of(done) == ["200"]
    log = Path(done.results[1]["log"])
    # The teardown shares the worker's place in the broker's network; the check has no network.
    assert (log / "teardown.log").read_text().endswith("\n401\n")
    assert "Could not resolve host" in (log / "check-1.log").read_text()
    assert len(model.exchanges) == 1


@pytest.mark.extra
def test_broker_that_is_killed_comes_back_with_its_ledgers(
    model: ModelServer, env: dict[str, str], repo: Path, client: docker.APIClient
) -> None:
    wait = "echo first; until [ -e /tmp/go ]; do sleep 0.1; done"
    ask = ASK.replace("-m 90", "-m 90 --retry 20 --retry-delay 1 --retry-all-errors")
    budget = ("--budget-per-worker", str(2.5 * COST))
    process = start(
        *ONE, "--network", "none", *budget, f"{ASK}; {wait}; {ask}; {ASK}; {ASK}",
        cwd=repo, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    log = eventually(lambda: list(repo.glob(".git/orchestrator/runs/*/worker-1/stdout.log")))[0]
    eventually(lambda: "first\n" in log.read_text(), "the worker")
    (broker,), (worker,) = (containers(client, repo, role) for role in ("broker", "worker"))
    client.kill(broker)
    client.exec_start(client.exec_create(worker, ["touch", "/tmp/go"])["Id"])
    out, err = process.communicate()
    result = json.loads(out)["results"][0]
    assert result["attempts"] == 1
    # While the broker starts, calls wait or get an answer that programs repeat.
    said = [line for line in printed(result).split() if line not in ("000", "503")]
    assert said == ["200", "first", "200", "402", "402"], err
    assert result["cost"] == pytest.approx(2 * COST)
    assert len(model.exchanges) == 2
    assert ours(client, repo) == []


@pytest.mark.extra
def test_resumed_run_forgets_nothing_that_was_spent(
    model: ModelServer, env: dict[str, str], repo: Path, client: docker.APIClient
) -> None:
    wait = "echo first; until [ -e /tmp/go ]; do sleep 0.1; done"
    budget = ("--budget-per-worker", str(2.5 * COST))
    process = start(
        *ONE, "--network", "none", *budget, f"{ASK}; {wait}; {ASK}; {ASK}; {ASK}",
        cwd=repo, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    log = eventually(lambda: list(repo.glob(".git/orchestrator/runs/*/worker-1/stdout.log")))[0]
    eventually(lambda: "first\n" in log.read_text(), "the worker")
    process.send_signal(signal.SIGKILL)
    process.wait()
    (broker,), (worker,) = (containers(client, repo, role) for role in ("broker", "worker"))
    # The broker dies too: the resumed run starts another with the same ledgers.
    client.kill(broker)
    resumed = start("resume", "--json", cwd=repo, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    eventually(
        lambda: (found := containers(client, repo, "broker")) and found != [broker], "the broker"
    )
    state = next(repo.glob(".git/orchestrator/runs/*/broker"))
    eventually(lambda: (state / "ready").exists(), "the broker")
    client.exec_start(client.exec_create(worker, ["touch", "/tmp/go"])["Id"])
    out, err = resumed.communicate()
    result = json.loads(out)["results"][0]
    assert printed(result).split() == ["200", "first", "200", "402", "402"], err
    assert result["cost"] == pytest.approx(2 * COST)
    assert len(model.exchanges) == 2
    assert ours(client, repo) == []


@pytest.mark.extra
def test_cleanup_of_a_killed_run_removes_the_broker(
    env: dict[str, str], repo: Path, client: docker.APIClient
) -> None:
    process = start(
        *ONE, "--network", "open", "sleep 600", cwd=repo, env=env,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: containers(client, repo, "worker"), "the worker")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(containers(client, repo, "broker")) == 1
    run = f"orchestrator-{next(repo.glob('.git/orchestrator/runs/*')).name}"
    assert Path(f"/dev/shm/{run}/broker").is_dir()
    assert orchestrator("parallel-cleanup", cwd=repo).returncode == 0
    assert ours(client, repo) == []
    assert not any(Path("/dev/shm").glob(f"{run}*"))


def test_key_that_the_broker_cannot_hold_is_refused(repo: Path) -> None:
    for given, key in (
        ({}, "broker.key-missing"),
        ({"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": "http://a:b@host/v1"}, "broker.base-url"),
    ):
        names = [word for name in given for word in ("--env", name)]
        done = orchestrator(*SHELL, *names, "true", cwd=repo, env=given)
        assert (done.returncode, done.error["key"]) == (3, key)
        assert "hint: " in done.stderr
