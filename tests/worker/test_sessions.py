"""Tests of the sessions with which workers continue, on the engine of plain processes."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents.base import Agent
from orchestrator.base.results import Status, WorkerResult
from orchestrator.config.settings.container import Isolation
from orchestrator.runs.cleanup.inventory import Wanted
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.resuming.continued_worker import ContinuedWorker
from orchestrator.runs.resuming.continuing import Message
from orchestrator.runs.resuming.recorded import restore
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.worker.turns import NextTurn, is_queued
from orchestrator.worker.workspace.session_files import kept_session
from tests.support.attempts import state_of
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.runs import configured, show
from tests.support.talker import SPEAK, Talker

TALK = f'{SPEAK} cat "$SESSION/s1.jsonl" > talk; echo $CONTINUED > id'


def begun(repo: Path, engine: LocalEngine, script: str = SPEAK, **rest: Any) -> WorkerResult:
    config = configured("the task", **rest)
    (result,) = ParallelRunner(config, repo, engine=engine, agent=Talker(script)).execute().results
    return result


def continued(
    repo: Path, engine: LocalEngine, script: str = TALK, message: str = "go on"
) -> WorkerResult:
    turn, agent = Message(1, NextTurn(message=message)), Talker(script)
    checked: Agent = agent
    (result,) = (
        ContinuedWorker(state_of(repo), turn, engine=engine, agent=checked).execute().results
    )
    return result


def how(result: WorkerResult) -> list[str | None]:
    return [turn.continued for turn in result.turns]


def test_each_turn_has_the_files_of_the_turn_before(repo: Path, local_engine: LocalEngine) -> None:
    begun(repo, local_engine)
    second = continued(repo, local_engine)
    assert show(repo, "architect/parallel-1:talk") == "the task\ngo on"
    assert show(repo, "architect/parallel-1:id") == "s1"
    third = continued(repo, local_engine, message="and on")
    assert show(repo, "architect/parallel-1:talk") == "the task\ngo on\nand on"
    assert (how(second), how(third)) == ([None, "session"], [None, "session", "session"])


def test_repeated_attempt_does_not_continue_the_session_of_the_failed_one(
    repo: Path, local_engine: LocalEngine, tally: Path
) -> None:
    begun(repo, local_engine, retries=1, retry_delay=0)
    fails = f"{TALK}; echo x >> {tally}; [ $(wc -l < {tally}) = 2 ]"
    result = continued(repo, local_engine, fails)
    assert (result.status, result.turns[-1].attempts) == (Status.SUCCESS, 2)
    assert show(repo, "architect/parallel-1:talk") == "the task\ngo on"


def test_turn_goes_on_with_a_prompt_if_the_program_cannot_open_its_session(
    repo: Path, local_engine: LocalEngine
) -> None:
    begun(repo, local_engine, "echo 1 > one; " + SPEAK + "echo said")
    script = 'if [ -n "$CONTINUED" ]; then exit 1; fi; echo "$1" > prompt'
    result = continued(repo, local_engine, script)
    assert (result.status, how(result)) == (Status.SUCCESS, [None, "prompt"])
    assert result.turns[-1].attempts == 2
    prompt = show(repo, "architect/parallel-1:prompt")
    for part in ("the task", "said", "+++ b/one", "The new message:\n\ngo on"):
        assert part in prompt


@pytest.mark.parametrize("said", ["../../other", "s1/../s2", "", "S1"])
def test_session_with_an_id_of_another_form_is_not_kept(
    repo: Path, local_engine: LocalEngine, said: str
) -> None:
    write = 'cd "$SESSION"; echo x > s1.jsonl; echo x > S1.jsonl'
    begun(repo, local_engine, f"""echo '{{"session": "{said}"}}'; {write}""")
    assert kept_session(state_of(repo).worker(1)) is None
    assert how(continued(repo, local_engine)) == [None, "prompt"]


def test_another_session_than_the_continued_one_is_told_and_not_kept(
    repo: Path, local_engine: LocalEngine
) -> None:
    begun(repo, local_engine)
    other = """echo '{"session": "s2"}'; echo x > "$SESSION/s2.jsonl" """
    assert how(continued(repo, local_engine, other)) == [None, "new_session"]
    assert kept_session(state_of(repo).worker(1)) is None
    assert how(continued(repo, local_engine))[-1] == "prompt"


def test_checks_and_setup_do_not_see_the_session(repo: Path, local_engine: LocalEngine) -> None:
    # The local engine replaces a variable that is the path of a mount.
    isolation = Isolation(network="none", env={"PLACE": "/session"})
    absent = '[ "$PLACE" = /session ]'
    checks = ({"name": "absent", "run": absent},)
    script = f'{SPEAK} [ "$PLACE" != /session ] && echo 1 > one'
    result = begun(repo, local_engine, script, isolation=isolation, checks=checks, setup=(absent,))
    assert (result.status, result.message) == (Status.SUCCESS, None)


def test_cleanup_removes_all_sessions_and_a_restored_worker_continues_without(
    repo: Path, local_engine: LocalEngine
) -> None:
    begun(repo, local_engine, f"echo 1 > one; {SPEAK}")
    continued(repo, local_engine)
    state = state_of(repo).path
    assert len(list(state.glob("worker-1*/session.kept"))) == 2
    cleanup(repo, engine=local_engine, wanted=Wanted())
    assert list(state.glob("worker-1*/session*")) == []
    restore(repo)
    assert how(continued(repo, local_engine))[-1] == "prompt"


def test_message_with_a_secret_is_refused(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "swordfish-1234")
    begun(repo, local_engine, isolation=Isolation(network="none", secrets=("TOKEN",)))
    with raises("message.secret"):
        continued(repo, local_engine, message="use swordfish-1234")
    assert not is_queued(state_of(repo), 1)
    assert how(continued(repo, local_engine, message="use $TOKEN")) == [None, "session"]
