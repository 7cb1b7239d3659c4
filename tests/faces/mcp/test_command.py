"""Tests of the options of `orchestrator mcp`, which are checked before anything is served."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from tests.support.errors import reports
from tests.support.mcp_clients import EVERYTHING, Session, in_process


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--allow", "run,push"], "option `--allow` is `push`: must be of run, stop, pick, merge"),
        (["--budget-total", "0"], "option `--budget-total` is `0.0`: must be above 0"),
        (["--budget-total", "nan"], "option `--budget-total` is `nan`: must be above 0"),
        (["--max-workers", "0"], "--max-workers"),
        (["--preset", "nope"], "option `--preset` is `nope`"),
        (["--agent-cli", "nope"], "`nope`"),
        (["--config", "gone.yaml"], "gone.yaml"),
        (["--root", "/"], "not a git repository"),
    ],
)
def test_wrong_option_is_refused(
    repo: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(repo)
    assert run(["mcp", *words]) == 3
    shown = capsys.readouterr()
    assert (said in shown.err, shown.out) == (True, ""), shown.err


def test_missing_extra_is_named(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "mcp.server", raising=False)
    monkeypatch.delitem(sys.modules, "orchestrator.faces.mcp.server", raising=False)
    with reports("extra.missing", "`mcp`"):
        assert run(["mcp"]) == 3


@pytest.mark.variants("terminal-2", "pipe-15")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("kind", ["terminal", "pipe"])
def test_server_that_waits_for_a_request_ends_with_a_signal(
    repo: Path, kind: str, number: signal.Signals
) -> None:
    ours, theirs = os.openpty() if kind == "terminal" else os.pipe()[::-1]
    server = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "mcp", "--root", str(repo)],
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stderr is not None
        assert server.stdout is not None
        assert "serving" in server.stderr.readline()
        # The answer shows that the server reads.
        request = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        os.write(ours, json.dumps(request).encode() + b"\n")
        assert '"id":1' in server.stdout.readline()
        server.send_signal(number)
        assert server.wait(timeout=30) == (0 if number == signal.SIGINT else -number)
        assert "Traceback" not in server.stderr.read()
    finally:
        server.kill()
        server.communicate()
        os.close(ours)
        os.close(theirs)


def test_requests_are_read_from_a_file(repo: Path, tmp_path: Path) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    file = tmp_path / "requests"
    file.write_text(json.dumps(request))
    with file.open() as given:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "mcp", "--root", str(repo)],
            stdin=given, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert (done.returncode, '"id":1' in done.stdout) == (0, True), done.stderr


def test_every_optional_argument_may_be_null(repo: Path) -> None:
    good = {"worker": 1, "token": "0" * 32, "tasks": ["true"], "spec": "tasks: []"}

    async def story(call: Session) -> None:
        for tool in (await call.client.list_tools()).tools:
            needed = {name: good[name] for name in tool.input_schema.get("required", ())}
            names = tool.input_schema.get("properties", {}).keys() - needed.keys()
            plain = await call.client.call_tool(tool.name, needed)
            nulls = await call.client.call_tool(tool.name, {**dict.fromkeys(names), **needed})
            assert nulls.content == plain.content
            for name in (*needed, "unknown"):
                answer = await call.client.call_tool(tool.name, {**needed, name: None})
                assert f"argument `{name}`" in answer.content[0].text

    in_process(repo, story, allowed=EVERYTHING)
