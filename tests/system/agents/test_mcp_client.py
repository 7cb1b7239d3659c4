"""Claude Code with the plugin as it is: the skill, and the MCP server of this machine.

The program runs in its container. `orchestrator` there is a relay to the real command, which the
test starts in the repository. The model is scripted, but for the token of the preview.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.bridge import bridge_gateway
from tests.support.model_script import Scenario, ToolCall, Turn
from tests.support.model_server import ModelServer
from tests.support.repository import git

ROOT = Path(__file__).parents[3]
IMAGE = "orchestrator/worker:claude"
PLUGIN = ("mcp__plugin_orchestrator_orchestrator__orchestrator_", "skills", ".claude-plugin")
RELAY = """#!/usr/bin/python3
import json, os, socket, sys, threading
HOST, PORT = {address!r}
there = socket.create_connection((HOST, PORT))
there.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
def send():
    while data := os.read(0, 65536):
        there.sendall(data)
    there.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
while data := there.recv(65536):
    os.write(1, data)
"""
TASKS = ["echo 1 > one", "echo 2 > two", "echo other > one"]


class Relay:
    """Starts `orchestrator` in a repository for each connection, and passes its output on."""

    def __init__(self, repo: Path) -> None:
        self._repo = repo
        self._listener = socket.create_server((bridge_gateway(), 0))
        self.address = self._listener.getsockname()
        self.said = ""
        """What the server has answered so far."""
        self.started: list[list[str]] = []

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Accept connections during the block."""
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        yield
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        thread.join(10)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb", 0) as asked:
            words = json.loads(asked.readline())
            self.started.append(words)
            command = [sys.executable, "-m", "orchestrator", *words, "--agent-cli", "shell"]
            with subprocess.Popen(
                command, cwd=self._repo, stdin=connection, stdout=subprocess.PIPE
            ) as process:
                assert process.stdout is not None
                while data := process.stdout.read1():
                    self.said += data.decode()
                    connection.sendall(data)


class Script(Scenario):
    """The answers of the model, with the token of the latest preview."""

    def __init__(self, relay: Relay) -> None:
        super().__init__(())
        object.__setattr__(self, "relay", relay)

    def turn(self, model: str, task: str, number: int) -> Turn:
        """Return the answer to a request."""
        del model, task
        tokens = re.findall(r'"token":"([0-9a-f]{32})"', self.relay.said)  # type: ignore[attr-defined]
        calls: list[tuple[str, dict[str, Any]]] = [
            ("run_tasks", {"tasks": TASKS, "workers": 50}),
            ("run_tasks", {"tasks": ["true"]}),
            ("wait", {}),
            ("conflicts", {}),
            ("diff", {"worker": 1, "form": "patch"}),
            ("merge", {"token": "0" * 32}),
            ("conflicts", {"workers": [1]}),
            ("merge", {"token": tokens[-1] if tokens else ""}),
            ("stop", {"kill": True}),
        ]
        if number >= len(calls):
            return Turn(text="Merged worker 1.")
        name, arguments = calls[number]
        return Turn(calls=(ToolCall(name=PLUGIN[0] + name, arguments=arguments),))


@pytest.mark.docker
@pytest.mark.e2e
@pytest.mark.agents
def test_agent_starts_workers_and_merges_within_its_limits(repo: Path, tmp_path: Path) -> None:
    (repo / "orchestrator.yaml").write_text("container: {network: none}\n")
    before = git(repo, "rev-parse", "main")
    relay = Relay(repo)
    plugin = tmp_path / "plugin"
    for part in PLUGIN[1:]:
        shutil.copytree(ROOT / part, plugin / part)
    shutil.copy(ROOT / ".mcp.json", plugin)
    (plugin / "bin").mkdir()
    (plugin / "bin" / "orchestrator").write_text(RELAY.format(address=relay.address))
    (plugin / "bin" / "orchestrator").chmod(0o755)
    with relay.listening(), ModelServer(Script(relay), host=bridge_gateway()) as server:
        done = _claude(plugin, server.url)
    (words,) = {tuple(one) for one in relay.started}
    assert words == ("mcp", "--allow", "run,merge")
    assert f"No such tool available: {PLUGIN[0]}stop" in done.stdout, "it was not allowed"
    assert "orchestrator:orchestrator" in done.stdout, "the skill is listed"
    assert '"result":"Merged worker 1."' in done.stdout, done.stdout + done.stderr
    assert '"at_once":3' in relay.said.replace(" ", "")
    assert "all 3 workers of this server are in use" in relay.said
    assert "there is no such preview" in relay.said
    assert git(repo, "show", "main:one") == "1"
    assert git(repo, "rev-list", "--count", "--first-parent", f"{before}..main") == "1"
    assert git(repo, "ls-tree", "--name-only", "main", "two") == ""


def _claude(plugin: Path, url: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "key",
        "ORCHESTRATOR_MCP_ALLOW": "run,merge",
        "IS_SANDBOX": "1",
        "PATH": "/plugin/bin:/opt/agent/commands:/usr/bin:/bin",
    }
    given = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
    command = (
        *("claude", "--print", "--output-format=stream-json", "--verbose"),
        *("--dangerously-skip-permissions", "--plugin-dir", "/plugin", "--max-turns", "20"),
        *("--model", "claude-sonnet-4-5", "--", "Split the work, and merge what is good."),
    )
    return subprocess.run(
        ["docker", "run", "--rm", *given, "-v", f"{plugin}:/plugin:ro", "-w", "/tmp", IMAGE,
         *command],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.docker
@pytest.mark.e2e
@pytest.mark.agents
def test_plugin_is_valid_and_can_be_installed_from_a_checkout(tmp_path: Path) -> None:
    for part in PLUGIN[1:]:
        shutil.copytree(ROOT / part, tmp_path / part)
    shutil.copy(ROOT / ".mcp.json", tmp_path)
    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "-v", f"{tmp_path}:/plugin:ro",
         "-w", "/plugin", "-e", "HOME=/tmp", "-e", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
         IMAGE, "sh", "-ec",
         "claude plugin validate --strict . && claude plugin marketplace add ./ && "
         "claude plugin install orchestrator@orchestrator && claude plugin list"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skills: orchestrator:orchestrator" in done.stdout
    assert "mcpServers: orchestrator" in done.stdout
    assert "enabled" in done.stdout.rpartition("Installed plugins:")[2]
