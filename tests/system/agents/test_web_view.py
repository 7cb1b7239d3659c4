"""Test that the web view continues a real agent in its session; a scripted model answers."""

import json
import re
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.support.live import eventually
from tests.support.model_script import ToolCall
from tests.support.model_server import ModelServer
from tests.support.web import Server
from tests.system.agents.agent_suite import BEGIN, BEGUN, GO_ON, scenario
from tests.system.agents.conftest import Orchestrator

pytestmark = [
    pytest.mark.docker, pytest.mark.e2e, pytest.mark.agents,
    pytest.mark.timeout(900, func_only=True),
]  # fmt: skip

SCENARIO = scenario(lambda command: ToolCall(name="Bash", arguments={"command": command}))


def test_a_message_from_the_web_view_continues_the_session_of_claude(
    orchestrator: Orchestrator, model_server: ModelServer, variables: Mapping[str, str],
    shop: Path, tmp_path: Path, agent_image: Callable[[str], str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    agent_image("claude")
    base = f"{model_server.url}/v1"
    options = ("--agent-cli", "claude", "--models", "claude-sonnet-4-5", "--workers", "1")
    begun = orchestrator("parallel", *options, "--api-base", base, BEGIN.asked, "--json")
    run_id, first = json.loads(begun.stdout)["run_id"], len(model_server.exchanges)

    for name, value in {**variables, "ORCHESTRATOR_API_BASE": base}.items():
        monkeypatch.setenv(name, value)
    server = Server(shop, state=tmp_path / "state")
    headers = {
        "Origin": f"http://127.0.0.1:{server.port}", "Sec-Fetch-Site": "same-origin",
    }  # fmt: skip
    server.ask("POST", "/open", server.key, **headers)
    headers["Cookie"] = server.cookie.partition(";")[0]
    form = f"/shop/{run_id}/1/continue"
    page = server.ask("GET", form, **headers)[1]
    hidden = dict(re.findall(r'type="hidden" name="(token|once)" value="(\w+)"', page))
    sent = urlencode({**hidden, "how": "start", "message": GO_ON.asked})
    assert server.ask("POST", form, sent, **headers)[0] == 303
    run = shop / ".git" / "orchestrator" / "runs" / run_id
    result = run / "worker-1" / "result.json"

    def turns() -> list[Mapping[str, object]]:
        return json.loads(result.read_text())["turns"] if result.exists() else []

    eventually(lambda: len(turns()) == 2, "the second turn")
    assert [turn["continued"] for turn in turns()] == [None, "session"]
    assert [turn["message"] for turn in turns()] == [None, GO_ON.asked]
    said = [one.said for one in model_server.exchanges[first:] if GO_ON.asked in one.said]
    assert said
    assert all(BEGIN.asked in one and BEGUN in one for one in said)
    shown = server.ask("GET", f"/shop/{run_id}/1/turns", **headers)[1]
    assert "in the same session" in shown
    assert server.end(signal.SIGINT) == 0
