"""Attempts to misuse a credential broker, and a control run without the broker."""

import subprocess
from collections.abc import Iterator

import pytest

from tests.assurance.attacks.attack import SCRIPTS
from tests.assurance.attacks.caller import Caller
from tests.assurance.attacks.conftest import CALLERS
from tests.network.broker.upstream import Answer, Api, api
from tests.support.bridge import bridge_gateway
from tests.support.cli import Completed, printed
from tests.support.repository import git, make_repository

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600), pytest.mark.usefixtures("broker_image")]
CANARY = "sk-canary-30b1d7f2a9c5"
LISTEN = "python3 -m http.server 9999 --bind 0.0.0.0 --directory /usr/share/doc & "
ATTACK = "python3 attack.py {} {}"


@pytest.fixture
def model() -> Iterator[Api]:
    with api(bridge_gateway()) as server:
        server.answer = Answer(b'{"model": "gpt-4o", "text": "from the API"}')
        yield server


def attacked(caller: Caller, name: str, model: Api, *options: str) -> Completed:
    """Run the attempts in one worker of a caller, beside another with an open port."""
    repo = make_repository(caller.home / f"broker-{name}")
    (repo / "attack.py").write_text((SCRIPTS / "broker.py").read_text())
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "attack")
    caller.own(repo)
    host, port = model.server_address[:2]
    both = ("--task", f"{LISTEN} sleep 25", "--task", f"sleep 3; {ATTACK.format(host, port)}")
    env = {"OPENAI_API_KEY": CANARY, "OPENAI_BASE_URL": f"{model.url}/v1"}
    names = [word for variable in env for word in ("--env", variable)]
    command = (
        *caller.prefix, caller.python, "-m", "orchestrator", "parallel", "--agent-cli", "shell",
        "--json", "--workers", "2", *options, *names, *both,
    )  # fmt: skip
    done = subprocess.run(
        command, cwd=repo, env={**caller.environment, **env}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    return Completed(done.returncode, done.stdout, done.stderr, seconds=0, peak_memory=0)


def outcomes(done: Completed) -> dict[str, str]:
    assert done.returncode == 0, done.stderr
    lines = printed(done.results[2]).splitlines()
    return {name: outcome for name, _, outcome in (line.rpartition(": ") for line in lines)}


@pytest.mark.parametrize("name", CALLERS)
@pytest.mark.parametrize("network", ["none", "open"])
def test_no_attempt_gets_more_than_the_listed_calls(
    everyone: dict[str, Caller], model: Api, name: str, network: str
) -> None:
    done = attacked(everyone[name], network, model, "--keys", "broker", "--network", network)
    found = outcomes(done)
    assert len(found) > 50
    wrong = {attempt: outcome for attempt, outcome in found.items()
             if outcome != ("reached" if attempt.startswith("control") else "held")}  # fmt: skip
    assert wrong == {}
    assert {line for line, _, _ in model.seen} == {"POST /v1/chat/completions"}
    assert CANARY not in done.stdout + done.stderr


def test_controls_see_the_api_without_the_broker(everyone: dict[str, Caller], model: Api) -> None:
    host, port = model.server_address[:2]
    done = attacked(everyone[CALLERS[0]], "controls", model, "--keys", "env", "--network", "open",
                    "--allow", f"{host}:{port}")  # fmt: skip
    found = outcomes(done)
    assert found["the API itself"] == "reached"
    assert found["call /openai/v1/files"] == "reached"
    assert found["method DELETE"] == "reached"
    assert found["token: none"] == "reached"
    assert "DELETE /openai/v1/files" in {line for line, _, _ in model.seen}
