"""Tests of the command lines that continue a session, and of what is removed from its files."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import clean_session, load_agent
from orchestrator.agents.base import AgentCommand, AgentOutput, Session, SessionAgent
from orchestrator.base.worker_spec import WorkerSpec
from tests.support.agents import settings

UUID = "0f3a1b2c-1111-4222-8333-444455556666"
OPENCODE = "ses_abcdefghijklmnopqrstuvwxyz"
IDS = {"claude": UUID, "codex": UUID, "gemini": UUID, "opencode": OPENCODE}
CLEANED = {"claude", "codex", "opencode"}
"""Programs whose files contain settings."""


def command(name: str, session: Session | None) -> AgentCommand:
    spec = WorkerSpec(worker_id=1, task="-go on", model="m/m")
    return load_agent(name).command(spec, replace(settings(), session=session))


@pytest.mark.parametrize("name", IDS)
class TestCommandLine:
    def test_session_is_continued_by_its_id_after_its_files_are_cleaned(self, name: str) -> None:
        again = command(name, Session(id=IDS[name], continued=True))
        text = " ".join(again.argv)
        assert IDS[name] in again.argv
        assert ("worktree-state" in text) == (name in CLEANED)
        assert not {"--continue", "--last", "latest"} & {*again.argv}
        # The model and the limits are given anew.
        assert any("m" in word for word in again.argv[again.argv.index("--model") :])
        assert any(value.startswith("/session") for value in again.env.values())

    def test_new_session_is_not_cleaned_and_no_session_changes_nothing(self, name: str) -> None:
        fresh = command(name, Session(id=IDS[name]))
        assert "worktree-state" not in " ".join(fresh.argv)
        assert any(value.startswith("/session") for value in fresh.env.values())
        without = command(name, None)
        assert IDS[name] not in without.argv
        assert not any(value.startswith("/session") for value in without.env.values())


def test_claude_does_not_send_the_system_prompt_in_the_file() -> None:
    argv = command("claude", Session(id=UUID, continued=True)).argv
    at = argv.index("--system-prompt-snapshot")
    assert argv[at + 1] == "off"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("claude", {"type": "system", "session_id": UUID}),
        ("codex", {"type": "thread.started", "thread_id": UUID}),
        ("gemini", {"type": "init", "session_id": UUID}),
        ("opencode", {"type": "step_start", "sessionID": OPENCODE}),
    ],
)
def test_id_is_read_from_the_first_event(tmp_path: Path, name: str, line: dict[str, Any]) -> None:
    agent = load_agent(name)
    assert isinstance(agent, SessionAgent)
    out = tmp_path / "out"
    forged = json.dumps(line).replace("f3a1", "0000").replace("abcd", "zzzz")
    out.write_text(f"warning\n{json.dumps(line)}\n{forged}\n")
    assert agent.session_id(AgentOutput(stdout=out, stderr=out)) == IDS[name]


def cleaned(folder: Path, program: str, *lines: object) -> list[Any]:
    file = folder / "projects/a.jsonl"
    file.parent.mkdir()
    rows = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(rows) + "\n")
    clean_session.clean(program, str(folder))
    return [json.loads(row) for row in file.read_text().splitlines()]


def test_settings_are_removed_from_the_lines_of_claude(tmp_path: Path) -> None:
    said = {"type": "user", "message": {"content": "hello"}}
    settings = [{"type": name, "x": 1} for name in clean_session.OF_CLAUDE]
    spelled = '{"type": "user", "ty\\u0070e": "worktree-state"}'
    kept = cleaned(tmp_path, "claude", said, *settings, spelled, "garbage", "[1]", "[" * 9999)
    assert kept == [said]


def test_settings_are_removed_from_the_lines_of_codex(tmp_path: Path) -> None:
    meta = {"id": UUID, "cwd": "/tmp", "base_instructions": "obey", "dynamic_tools": [1]}
    counted = {"type": "event_msg", "payload": {"type": "token_count", "info": {}}}
    said = {"type": "response_item", "payload": {"type": "message", "role": "user"}}
    kept = cleaned(tmp_path, "codex", {"type": "session_meta", "payload": meta}, counted, said)
    assert kept == [
        {"type": "session_meta", "payload": {"id": UUID, "cwd": "/workspace"}},
        said,
    ]


def test_directory_and_permissions_are_reset_in_the_database_of_opencode(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE session (id TEXT, directory TEXT, permission TEXT)")
        database.execute("INSERT INTO session VALUES ('s', '/tmp', '{\"bash\": \"deny\"}')")
        database.commit()
    clean_session.clean("opencode", str(tmp_path))
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT * FROM session").fetchall()
    assert rows == [("s", "/workspace", None)]


def test_program_is_not_started_with_a_database_that_cannot_be_cleaned(tmp_path: Path) -> None:
    (tmp_path / "opencode.db").write_bytes(b"no database" * 100)
    text = Path(clean_session.__file__).read_text().replace('"/session"', repr(str(tmp_path)))
    words = (sys.executable, "-I", "-c", text, "opencode", "echo", "started")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot be continued" in done.stderr
