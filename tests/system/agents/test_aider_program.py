"""Tests of aider, the real program: its model edits files and runs no commands."""

from collections.abc import Mapping

import pytest

from tests.support.model_script import Rule, Scenario, Turn
from tests.system.agents.agent_suite import AgentSuite, scenario
from tests.system.agents.broker_suite import BrokerSuite

pytestmark = [pytest.mark.agents, pytest.mark.docker, pytest.mark.e2e]


def _edit(path: str, new: str, old: str = "") -> str:
    return f"{path}\n```\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```\n"


HUGE = "x" * 120_000_000
# Edits with the effect of the commands that the models of other programs run.
EDITS: Mapping[str, str] = {
    "echo hello > hello.txt": _edit("hello.txt", "hello\n"),
    "echo more >> README.md && git commit -qam 'Say more'": _edit("README.md", "more\n"),
    "echo 1 > one.txt": _edit("one.txt", "1\n"),
    "cp one.txt two.txt": _edit("two.txt", "1\n"),
    "mkdir d && echo 1 > d/one && echo 2 > two": _edit("d/one", "1\n") + _edit("two", "2\n"),
    # The second edit fails, so aider asks the model again.
    "echo again >> log.txt": _edit("log.txt", "again\n") + _edit("log.txt", "new\n", "not there\n"),
    "tail /dev/zero": HUGE,
    "echo 1 >> log.txt": _edit("log.txt", "1\n"),
}
# aider requests the commit message from a smaller model.
MESSAGE = Rule(model="gpt-4o-mini", turns=(Turn(text="docs: say it"),))
# If the task names an existing file, aider repeats the request with its content.
SCENARIO = Scenario((MESSAGE, *scenario(lambda command: Turn(text=EDITS[command]), None).rules))


class TestAider(AgentSuite):
    name, model, tells_cost = "aider", "gpt-4o", True
    continues = "prompt"
    most_memory = "450m"
    patience, deadline, outage = 90, 300, 300
    commits = "docs: say it"


class TestAiderThroughTheBroker(BrokerSuite):
    name, model = "aider", "gpt-4o"
    continues = "prompt"
    models = ("gpt-4o", "claude-sonnet-4-5", "deepseek-chat")
    commits = "docs: say it"
