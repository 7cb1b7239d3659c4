"""Tests of the summary of an agent's last message, with recordings of the real programs."""

import json
from pathlib import Path

import pytest

from tests.support.agents import RECORDED, judge

DONE = "Done: wrote hello.txt"
EDIT = "Changing.\n\nbase.txt\n```\n<<<<<<< SEARCH\nbase\n=======\nnew base\n>>>>>>> REPLACE\n```"
SUMMARIES = {
    ("architect", "ok"): DONE,
    ("architect", "badflag"): None,
    ("claude", "json"): DONE,
    ("claude", "stream-ok"): "Done.",
    ("claude", "maxturns"): None,
    ("codex", "ok"): DONE,
    ("codex", "401"): None,
    ("gemini", "stream"): DONE,
    ("gemini", "badflag"): None,
    ("opencode", "ok"): DONE,
    ("opencode", "auth"): None,
    ("mini", "worker-ok"): "all done",
    ("aider", "worker-edit"): f"base.txt\n{EDIT}",
    ("aider", "worker-auth"): None,
}


def summary_of(agent: str, stdout: Path, *, exit_code: int = 0) -> str | None:
    stderr = stdout.with_suffix(".err")
    stderr.touch()
    return judge(agent, stdout, stderr, exit_code).summary


def said_by_shell(tmp_path: Path, said: str) -> str | None:
    stdout = tmp_path / "said.out"
    stdout.write_text(said)
    return summary_of("shell", stdout)


@pytest.mark.parametrize(("agent", "name"), SUMMARIES)
def test_summary_of_a_recording(agent: str, name: str) -> None:
    assert summary_of(agent, RECORDED / agent / f"{name}.out") == SUMMARIES[agent, name]


def _claude(text: str) -> str:
    return json.dumps({"is_error": False, "subtype": "success", "num_turns": 1, "result": text})


def _architect(text: str) -> str:
    return json.dumps({"status": "success", "stop_reason": "llm_done", "steps": 1, "output": text})


def _codex(text: str) -> str:
    item = {"type": "item.completed", "item": {"type": "agent_message", "text": text}}
    return json.dumps(item) + "\n" + json.dumps({"type": "turn.completed", "usage": {}})


def _opencode(text: str) -> str:
    end = {"type": "step_finish", "part": {"reason": "stop"}}
    return json.dumps({"type": "text", "part": {"text": text}}) + "\n" + json.dumps(end)


PRINTED = {
    "claude": _claude, "architect": _architect, "codex": _codex, "opencode": _opencode,
    "shell": str,
}  # fmt: skip


@pytest.mark.parametrize("agent", PRINTED)
def test_summary_keeps_lines_and_is_made_harmless(agent: str, tmp_path: Path) -> None:
    stdout = tmp_path / "said.out"
    stdout.write_text(PRINTED[agent]("one\n  two \x1b[31mred\x1b[0m\x1b[2J\u202e\n") + "\n")
    assert summary_of(agent, stdout) == "one\n  two red\ufffd"


@pytest.mark.parametrize("agent", PRINTED)
def test_end_of_a_long_text_is_kept(agent: str, tmp_path: Path) -> None:
    stdout = tmp_path / "said.out"
    stdout.write_text(PRINTED[agent]("é" * 50_000 + "END") + "\n")
    found = summary_of(agent, stdout)
    assert found is not None
    assert (len(found), found[0], found[-4:]) == (4000, "…", "éEND")


def test_summary_of_a_command_has_whole_lines(tmp_path: Path) -> None:
    found = said_by_shell(tmp_path, "".join(f"line {number}\n" for number in range(10_000)))
    assert found is not None
    first, *_, last = found.splitlines()
    assert (first, last) == ("line 9600", "line 9999")
    assert len(found) <= 4000


def test_report_of_a_command_is_not_in_its_summary(tmp_path: Path) -> None:
    assert said_by_shell(tmp_path, 'all good\n{"status": "success", "cost": 0.1}\n') == "all good"
    assert said_by_shell(tmp_path, '{"type": "orchestrator.report", "cost": 0.1}\n') is None
    assert said_by_shell(tmp_path, '{"answer": 42}\n') == '{"answer": 42}'


def test_failed_command_has_a_summary(tmp_path: Path) -> None:
    (tmp_path / "said.out").write_text("half done\n")
    assert summary_of("shell", tmp_path / "said.out", exit_code=3) == "half done"


def test_blank_output_has_no_summary(tmp_path: Path) -> None:
    assert said_by_shell(tmp_path, " \n\n\t\n") is None
