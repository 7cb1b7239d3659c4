"""Workers in pods with `--keys broker`; the model's API is in the hub of the lab."""

import json
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from orchestrator.engine.interface.labels import ROLE
from tests.cluster.lab import HUB, NAMESPACE, Lab
from tests.cluster.policy import enforced
from tests.cluster.runs import UNENFORCED, begin, present
from tests.support.git_host import git_host
from tests.support.live import eventually
from tests.support.model_script import ToolCall
from tests.support.model_server import ModelServer
from tests.support.repository import git, make_repository
from tests.system.agents.agent_suite import BEGIN, BEGUN, GO_ON, TASKS, scenario
from tests.system.test_broker import ASK, COST, SCENARIO

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
KEY = "sk-canary-2c61d0f7a95b"
TOKEN = "ghp-canary-5de2108fa771"
PROGRAMS = {
    "claude": (
        "claude-sonnet-4-5",
        scenario(lambda command: ToolCall(name="Bash", arguments={"command": command})),
    ),
    "codex": (
        "gpt-5-codex",
        scenario(lambda command: ToolCall(name="exec_command", arguments={"cmd": command})),
    ),
}
"""A model of each program, and how the model answers."""
OTHERS = UNENFORCED.removeprefix("network,")
PROGRAM = (sys.executable, "-m", "orchestrator")
RUN = ("parallel", "--engine", "kubernetes", "--network", "none", "--keys", "broker", "--json")
SHELL = (*RUN, "--agent-cli", "shell", "--env", "OPENAI_API_KEY", "--env", "OPENAI_BASE_URL")
ONE = (*SHELL, "--workers", "1", "--allow-unenforced", UNENFORCED)
WAIT = "until [ -e /tmp/go ]; do sleep 0.1; done"
_CONNECT = """
import socket, sys
for place in sys.argv[1:]:
    host, port = place.split(":")
    try:
        socket.create_connection((host, int(port)), 3).close()
        print(place, "reached")
    except OSError:
        print(place, "closed")
"""

Orchestrator = Callable[..., Popen[str]]


@pytest.fixture(scope="module", autouse=True)
def images(lab: Lab, broker_image: str, agent_image: Callable[[str], str]) -> None:
    """Let the nodes have the images of the broker and of a program."""
    lab.load(broker_image, *map(agent_image, PROGRAMS))


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Iterator[ModelServer]:
    with ModelServer(getattr(request, "param", SCENARIO), host=HUB) as server:
        yield server


@pytest.fixture
def orchestrator(lab: Lab, repo: Path, model: ModelServer) -> Iterator[Orchestrator]:
    """Return a function that starts a command of a user who has the keys and the role."""
    made: list[Popen[str]] = []
    env = {
        "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{model.url}/v1", "HOST_TOKEN": TOKEN,
        "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": model.url,
    }  # fmt: skip

    def start(*words: str, program: tuple[str, ...] = PROGRAM) -> Popen[str]:
        made.append(begin(repo, lab.directory / "kubeconfig-runner", *program, *words, **env))
        return made[-1]

    yield start
    for process in made:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=60)
    for job in present(lab, repo, "jobs"):
        lab.kubectl("delete", "job", "-n", NAMESPACE, "--wait=false", job["metadata"]["name"])


def finish(process: Popen[str], code: int = 0) -> list[dict[str, Any]]:
    """Return the results of a run."""
    out, err = process.communicate(timeout=280)
    assert "Traceback" not in err
    assert process.returncode == code, out + err
    found: list[dict[str, Any]] = json.loads(out)["results"]
    return found


def printed(result: dict[str, Any]) -> list[str]:
    return (Path(result["log"]) / "stdout.log").read_text().splitlines()


def pods(lab: Lab, repo: Path, role: str) -> list[dict[str, Any]]:
    found = [pod for pod in present(lab, repo, "pods") if pod["status"]["phase"] == "Running"]
    return [pod for pod in found if pod["metadata"]["labels"][ROLE] == role]


def inside(lab: Lab, pod: dict[str, Any], container: str, *command: str) -> str:
    """Run a command in a container of a pod."""
    name = pod["metadata"]["name"]
    return lab.kubectl("exec", "-n", NAMESPACE, name, "-c", container, "--", *command)


def has_said(repo: Path, text: str, worker: int = 1) -> Callable[[], bool]:
    """Return a function that tells whether a worker has printed a line."""
    logs = f".git/orchestrator/runs/*/worker-{worker}/stdout.log"
    return lambda: any(text in log.read_text().splitlines() for log in repo.glob(logs))


def go_on(lab: Lab, repo: Path) -> None:
    for pod in pods(lab, repo, "worker"):
        inside(lab, pod, "agent-1", "touch", "/tmp/go")


def test_key_is_nowhere_but_in_the_broker(
    lab: Lab, repo: Path, model: ModelServer, orchestrator: Orchestrator
) -> None:
    """The pod proves that it has no network, and reaches one port of the broker's pod."""
    listen = "import socket, time; s = socket.create_server(('', 9999)); time.sleep(300)"
    look = "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; ls /run/broker"
    ports = "broker.internal:8080 broker.internal:9999"
    tries = f"python3 -c {shlex.quote(_CONNECT)} {ports} $(cat /tmp/go)"
    with enforced(lab):
        process = orchestrator(
            *SHELL, "--workers", "1", "--allow-unenforced", OTHERS,
            f"{ASK}; {look}; env > environment; echo seen; {WAIT}; {tries}",
        )  # fmt: skip
        eventually(has_said(repo, "seen"), "the call")
        (worker,), (broker,) = pods(lab, repo, "worker"), pods(lab, repo, "broker")
        asking = lab.inside(
            lab.programs / "bin/kubectl", f"--kubeconfig={lab.directory}/kubeconfig", "exec", "-n",
            NAMESPACE, broker["metadata"]["name"], "-c", "porter", "--", "python3", "-c", listen,
        )  # fmt: skip
        with Popen(asking) as listener:
            own = f"{broker['status']['podIP']}:9999"
            check = ("python3", "-c", _CONNECT, own)
            eventually(lambda: "reached" in inside(lab, broker, "porter", *check), "the listener")
            canary = next(
                pod["status"]["podIP"]
                for pod in json.loads(lab.kubectl("get", "pods", "-A", "-o", "json"))["items"]
                if pod["metadata"]["labels"].get(ROLE) == "canary"
                and pod["status"]["phase"] == "Running"
            )
            others = f"{canary}:8417 {HUB}:6443 {model.url.partition('//')[2]}"
            write = f"echo {others} > /tmp/new; mv /tmp/new /tmp/go"
            inside(lab, worker, "agent-1", "sh", "-c", write)
            everything = lab.kubectl("get", "all,secrets,configmaps,events", "-A", "-o", "json")
            (result,) = finish(process)
            listener.kill()
    assert "network" not in result["limits_unenforced"]
    said = printed(result)
    assert said[0] == "200"
    assert [line.split()[1] for line in said[-5:]] == ["reached", *["closed"] * 4], said[-5:]
    assert [exchange.key for exchange in model.exchanges] == [KEY]
    assert (result["cost"], result["tokens"]) == (pytest.approx(COST), 1811)
    branch = git(repo, "show", f"{result['branch']}:environment")
    assert "OPENAI_API_KEY=sk-ant-gateway-" in branch
    files = [*repo.rglob("*"), *(lab.directory / "etcd").rglob("*")]
    kept = [path.read_bytes() for path in files if path.is_file()]
    for text in (everything, "\n".join(said), branch, *kept):
        assert KEY.encode() not in (text.encode() if isinstance(text, str) else text)
    eventually(lambda: not present(lab, repo, "jobs"), "the Jobs' end")


def test_token_of_another_worker_is_refused(
    lab: Lab, repo: Path, model: ModelServer, orchestrator: Orchestrator
) -> None:
    wait = f"echo $OPENAI_API_KEY; echo ready; {WAIT}; . /tmp/go; {ASK}"
    process = orchestrator(
        *SHELL, "--workers", "2", "--task", wait, "--task", wait, "--allow-unenforced", UNENFORCED
    )
    for number in (1, 2):
        eventually(has_said(repo, "ready", number), "both workers")
    first = next(repo.glob(".git/orchestrator/runs/*/worker-1/stdout.log")).read_text().split()[0]
    assert first.startswith("sk-ant-gateway-")
    for pod in pods(lab, repo, "worker"):
        write = f"echo token={first} > /tmp/new && mv /tmp/new /tmp/go"
        inside(lab, pod, "agent-1", "sh", "-c", write)
    results = finish(process)
    assert [printed(one)[-1] for one in results] == ["200", "401"]
    assert len(model.exchanges) == 1


def test_budgets_are_enforced(model: ModelServer, orchestrator: Orchestrator) -> None:
    often = f"for n in 1 2 3 4 5; do {ASK}; done; grep -q 200 /dev/null"
    (result,) = finish(orchestrator(*ONE, "--budget-per-worker", str(2.2 * COST), often), 6)
    assert (result["status"], result["reason"]) == ("partial", "budget")
    assert printed(result) == ["200", "200", "402", "402", "402"]
    assert result["cost"] == pytest.approx(2 * COST)
    assert len(model.exchanges) == 2


@pytest.mark.parametrize(
    ("program", "model"),
    [(name, answers) for name, (_, answers) in PROGRAMS.items()],
    indirect=["model"],
    ids=PROGRAMS,
)
def test_program_of_a_model_works_and_goes_on(
    lab: Lab, repo: Path, model: ModelServer, orchestrator: Orchestrator, program: str
) -> None:
    name = PROGRAMS[program][0]
    given = ("--agent-cli", program, "--models", f"{name},{name}", "--workers", "1")
    (repo / "README.md").write_text("read me\n")
    git(repo, "add", "README.md")
    git(repo, "commit", "-qm", "Add a readme")
    with enforced(lab):
        command = (*RUN, *given, "--allow-unenforced", OTHERS)
        committed, begun = finish(
            orchestrator(*command, "--task", TASKS[1].asked, "--task", BEGIN.asked)
        )
        first = len(model.exchanges)
        (continued,) = finish(orchestrator("continue", "2", "-m", GO_ON.asked, "--json"))
    assert committed["status"] == begun["status"] == "success"
    assert git(repo, "log", "-1", "--format=%s", committed["branch"]) == TASKS[1].subject
    assert continued["files_modified"] == list(GO_ON.files)
    assert [turn["continued"] for turn in continued["turns"]] == [None, "session"]
    assert {one.key for one in model.exchanges} == {KEY}
    assert all(BEGUN in one.said for one in model.exchanges[first:] if one.plain_model == name)
    assert committed["cost"] > 0
    assert continued["cost"] > begun["cost"]
    eventually(lambda: not present(lab, repo, "jobs"), "the Jobs' end")


def test_private_repositories_are_read(tmp_path: Path, orchestrator: Orchestrator) -> None:
    bare = tmp_path / "host/acme/lib.git"
    source = make_repository(tmp_path / "lib")
    git(source, "clone", "-q", "--bare", str(source), str(bare))
    with git_host(tmp_path / "host", HUB, f"x-access-token:{TOKEN}") as host:
        url = f"http://{host.place}/acme/lib"
        read = f"git clone -q {url}.git lib && cat lib/a.txt; rm -rf lib"
        (result,) = finish(
            orchestrator(
                *ONE, "--env", "HOST_TOKEN", "--git-read", f"{url}=HOST_TOKEN", "--setup", read,
                f"{read}; ! env | grep canary",
            )
        )  # fmt: skip
    assert printed(result) == ["a"], result
    assert (Path(result["log"]) / "setup.log").read_text().splitlines()[1] == "a"


_BROKER = "orchestrator.sandbox.sidecars.broker:RunBroker"
POINTS = {
    "before-order": (f"{_BROKER}._order", "before"),
    "after-order": (f"{_BROKER}._order", "after"),
    "before-grant": (f"{_BROKER}._refresh", "before"),
    "output": ("orchestrator.sandbox.supervision.output:WorkerLog.write", "after"),
    "before-dismissal": (f"{_BROKER}.dismiss", "before"),
}


@pytest.mark.variants("after-order", "output")
@pytest.mark.parametrize("point", POINTS)
def test_killed_run_is_resumed_with_its_broker(
    lab: Lab, repo: Path, model: ModelServer, orchestrator: Orchestrator, point: str
) -> None:
    target, when = POINTS[point]
    dying = (sys.executable, "-m", "tests.cluster.dying_run", target, when, "1")
    process = orchestrator(*ONE, f"{ASK}; echo x >> ran; sleep 4; {ASK}", program=dying)
    process.communicate(timeout=200)
    assert process.returncode == -signal.SIGKILL
    time.sleep(1)
    (result,) = finish(orchestrator("resume", "--json"))
    assert (result["status"], result["attempts"]) == ("success", 1)
    assert printed(result) == ["200", "200"]
    assert git(repo, "show", f"{result['branch']}:ran") == "x"
    assert result["cost"] == pytest.approx(2 * COST)
    assert len(model.exchanges) == 2
    eventually(lambda: not present(lab, repo, "jobs"), "the Jobs' end")


def test_lost_broker_is_replaced_for_workers_that_start_later(
    lab: Lab, repo: Path, model: ModelServer, orchestrator: Orchestrator
) -> None:
    """A worker that ran cannot reach the new one, and its result says so."""
    first = f"{ASK}; echo asked; {WAIT}; {ASK} || exit 7"
    process = orchestrator(
        *SHELL, "--workers", "1", "--allow-unenforced", UNENFORCED, "--task", first, "--task", ASK
    )
    eventually(has_said(repo, "asked"), "the first call")
    time.sleep(5)
    (broker,) = pods(lab, repo, "broker")
    lab.kubectl("delete", "pod", "-n", NAMESPACE, broker["metadata"]["name"])
    eventually(
        lambda: (
            [pod["metadata"]["name"] for pod in pods(lab, repo, "broker")]
            not in ([], [broker["metadata"]["name"]])
        ),
        "another broker",
    )
    time.sleep(10)
    go_on(lab, repo)
    lost, later = finish(process, 7)
    assert (lost["status"], lost["reason"]) == ("failed", "engine_error"), lost
    assert "the credential broker was lost with its place" in lost["message"]
    assert lost["cost"] == pytest.approx(COST)
    assert (later["status"], printed(later)) == ("success", ["200"])
    assert len(model.exchanges) == 2
    eventually(lambda: not present(lab, repo, "jobs"), "the Jobs' end")


def test_broker_of_a_run_that_is_never_resumed_ends(
    lab: Lab, repo: Path, orchestrator: Orchestrator
) -> None:
    hasty = (sys.executable, "-m", "tests.cluster.hasty_run", "8", "10")
    process = orchestrator(*ONE, f"{ASK}; echo asked; sleep 20", program=hasty)
    eventually(has_said(repo, "asked"), "the call")
    process.kill()
    process.communicate()
    eventually(lambda: not present(lab, repo, "jobs"), "the Jobs' end")
