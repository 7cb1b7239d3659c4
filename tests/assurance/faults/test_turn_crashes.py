"""Tests that a turn whose process is killed at any step is neither lost nor repeated."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.assurance.faults.counter import Tally, tally
from tests.assurance.faults.points import TURN_POINTS
from tests.assurance.faults.world import World
from tests.support.bridge import bridge_gateway
from tests.support.model_script import Rule, Scenario, ToolCall, Turn
from tests.support.model_server import ModelServer
from tests.support.repository import git

pytestmark = [pytest.mark.docker, pytest.mark.e2e, pytest.mark.timeout(900)]

MODEL, TASK = "claude-sonnet-4-5", "Write the list"
WORDS = ("one", "two", "three")
UNDELIVERED = ("after-turn-private", "before-turn-queue")
"""Points at which the message was not accepted."""


def _writes(word: str) -> Iterator[Turn]:
    command = f"echo {word} >> list.txt; sleep 0.3"
    yield Turn(calls=(ToolCall(name="Bash", arguments={"command": command}),))
    yield Turn(text=f"I wrote {word}.")


# A request of the second turn has the first turn's two answers, if the session is continued.
SCENARIO = Scenario((Rule(task=TASK, turns=tuple(t for word in WORDS for t in _writes(word))),))


@pytest.fixture(scope="module")
def counts() -> Iterator[Tally]:
    with tally() as found:
        yield found


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(SCENARIO, host=bridge_gateway()) as server:
        yield server


@pytest.mark.parametrize("point", TURN_POINTS)
def test_killed_turn_is_neither_lost_nor_repeated(
    point: str, tmp_path: Path, counts: Tally, model: ModelServer,
    agent_image: Callable[[str], str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    agent_image("claude")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a key")
    monkeypatch.setenv("ORCHESTRATOR_API_BASE", f"{model.url}/v1")
    world = World(tmp_path, counts)
    program = ("--agent-cli", "claude", "--models", MODEL)
    begun = world.orchestrator("parallel", *program, "--workers", "1", "--quiet", TASK)
    assert begun.returncode == 0, begun.stderr

    world.crash(point, ["continue", "1", "-m", "Go on", "--quiet"])

    # Nobody who looks at the branch misses the work of the turn before.
    assert git(world.repo, "show", "architect/parallel-1:list.txt").split()[0] == "one"
    world.check_readable()
    again = ("continue", "1", "-m", "And again", "--json", "--quiet")
    done = world.orchestrator(*again)
    if done.returncode:
        # The turn is completed by a caller who does not have the key.
        assert json.loads(done.stdout)["error"]["key"] == "run.unfinished"
        with monkeypatch.context() as patch:
            patch.delenv("ANTHROPIC_API_KEY")
            patch.delenv("ORCHESTRATOR_API_BASE")
            resumed = world.orchestrator("resume", "--json", "--quiet")
        assert resumed.returncode == 0, resumed.stderr
        done = world.orchestrator(*again)
    assert done.returncode == 0, done.stderr
    messages = ["And again"] if point in UNDELIVERED else ["Go on", "And again"]
    _check_turns(world, done.results[1], messages, model)
    removed = world.orchestrator("parallel-cleanup", "--purge")
    assert removed.returncode == 0, removed.stderr
    world.check_nothing_left()
    world.check_removed()


def _check_turns(
    world: World, result: dict[str, Any], messages: list[str], model: ModelServer
) -> None:
    """Check that each turn ran once, in the session of the turn before."""
    turns = result["turns"]
    assert [turn["message"] for turn in turns] == [None, *messages]
    assert [turn["continued"] for turn in turns] == [None, *["session"] * len(messages)]
    assert {turn["status"] for turn in turns} == {"success"}
    assert [one.number for one in model.exchanges] == list(range(2 * len(turns)))
    ref = "architect/parallel-1"
    log = git(world.repo, "log", "--reverse", "--format=%H", f"main..{ref}").split()
    assert log == [turn["commit"] for turn in turns]
    written = git(world.repo, "show", f"{ref}:list.txt").split()
    assert written == list(WORDS[: len(turns)])
