"""Tests that every agent program must pass: the same tasks, and each kind of failure.

A program's own module says how its model gets a command run, and names its suite:

    SCENARIO = scenario(lambda command: ToolCall(name="Bash", arguments={"command": command}))

    class TestClaude(AgentSuite):
        name, model, tells_cost = "claude", "claude-sonnet-4-5", True

Which status, reason and exit code each failure has is what `docs/reference/agents.md` says.
`make test` runs the tasks with the commonest programs, `make agents` all of them, and the failures:
some programs try for a minute before they give up.
"""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, ClassVar

import pytest

from orchestrator.base.results import WorkerResult, exit_code
from tests.docs.markdown import read_page
from tests.support.bridge import bridge_gateway
from tests.support.model_script import Rule, Scenario, ToolCall, Turn
from tests.support.model_server import ModelServer
from tests.system.agents.conftest import Orchestrator, run_git

LONG = "All of it at once. " * 4000
DONE = Turn(text="Done.")


@dataclass(frozen=True)
class Task:
    """A task that is done with one command."""

    asked: str
    command: str
    files: tuple[str, ...]
    subject: str | None = None
    """Message of the commit that the agent creates."""


TASKS = (
    Task("Write the greeting", "echo hello > hello.txt", ("hello.txt",)),
    Task(
        "Change the readme and commit it",
        "echo more >> README.md && git commit -qam 'Say more'",
        ("README.md",),
        "Say more",
    ),
    Task("Make two files", "mkdir d && echo 1 > d/one && echo 2 > two", ("d/one", "two")),
)
# Two turns of one worker. What the model said in the first is in the requests of the second.
BEGIN = Task("Begin with one", "echo 1 > one.txt", ("one.txt",))
GO_ON = Task("Go on with two", "cp one.txt two.txt", ("one.txt", "two.txt"))
BEGUN = "I wrote the first file."
# Task that causes each failure.
FAILURES = {
    "wrong key": "Show your key",
    "rate limit": "Ask too often",
    "server error": "Break the model",
    "max steps": "Never come to an end",
    "out of memory": "Eat all memory",
}
SILENT, COSTLY = "Wait for an answer", "Spend all money"


def scenario(run: Callable[[str], ToolCall | Turn], done: Turn | None = DONE) -> Scenario:
    """Create the script of a model.

    Args:
        run: Returns the tool call or the answer that makes the agent run a command.
        done: The model's answer when the task is done. Default: the same answer again.
    """

    def turn(command: str, text: str = "", delay: float = 0.0) -> Turn:
        made = run(command)
        if isinstance(made, ToolCall):
            return Turn(text=text, calls=(made,), delay=delay)
        return replace(made, text=f"{text}\n\n{made.text}".strip(), delay=delay)

    def with_end(work: Turn) -> tuple[Turn, ...]:
        return (work,) if done is None else (work, done)

    again = turn("echo again >> log.txt", "Once more.", delay=0.5)
    hungry = turn("tail /dev/zero", "All of it.")
    # The messages of OpenAI, because some programs interpret them.
    errors = {
        "wrong key": Turn(status=401, text="Incorrect API key provided: sk-wrong"),
        "rate limit": Turn(status=429, text="Rate limit reached"),
        "server error": Turn(status=500, text="The server had an error"),
    }
    return Scenario(
        (
            *(Rule(task=task.asked, turns=with_end(turn(task.command))) for task in TASKS),
            # A request of a continued session has the first turn's task. One of a new session has
            # the message, perhaps with the earlier task.
            Rule(task=GO_ON.asked, turns=with_end(turn(GO_ON.command))),
            Rule(
                task=BEGIN.asked,
                turns=(*with_end(turn(BEGIN.command, BEGUN)), *with_end(turn(GO_ON.command))),
            ),
            *(Rule(task=FAILURES[name], turns=(error,)) for name, error in errors.items()),
            Rule(task=FAILURES["max steps"], turns=(again,)),
            Rule(task=FAILURES["out of memory"], turns=with_end(hungry)),
            Rule(task=SILENT, turns=(Turn(text="Too late.", delay=3600),)),
            Rule(task=COSTLY, turns=(turn("echo 1 >> log.txt", LONG),)),
        )
    )


def _is_row(line: str) -> bool:
    return line.startswith("|")


def published(agent: str) -> dict[str, str]:
    """Return the agent's row of the table in `docs/reference/agents.md`, by column name."""
    lines = iter(read_page("docs/reference/agents.md").splitlines())
    table = takewhile(_is_row, dropwhile(lambda line: not _is_row(line), lines))
    names, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    (row,) = (row for row in rows if row[0] == f"`{agent}`")
    return dict(zip(names, row, strict=True))


def seen(result: Mapping[str, Any]) -> str:
    """Return status, reason, and the exit code of a run with this result, as in the table."""
    code = exit_code([WorkerResult.model_validate(result)])
    return f"{result['status']} `{result['reason']}` {code}"


@pytest.mark.timeout(900)  # the tests take seconds on an idle machine
class TaskSuite:
    """Tests of the tasks that every program does; a subclass names the program."""

    name: ClassVar[str]
    model: ClassVar[str]
    tells_cost: ClassVar[bool]
    counts_all: ClassVar[bool] = False
    """Whether the requests of the program's other models count too."""
    commits: ClassVar[str | None] = None
    """Commit message of a program that commits all changes by itself."""
    continues: ClassVar[str] = "session"
    """How the program continues with a message: `continued` of the result."""

    def asked(self, task: Task) -> str:
        """Return the text of a task for the program."""
        return task.asked

    @pytest.fixture(autouse=True)
    def image(self, agent_image: Callable[[str], str]) -> str:
        """The program's image; the first test may have to wait for its build."""
        return agent_image(self.name)

    def run(
        self, orchestrator: Orchestrator, base: str, *tasks: str, **options: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one worker for each task."""
        asked = [word for task in tasks for word in ("--task", task)]
        given = [
            w for name, value in options.items() for w in (f"--{name.replace('_', '-')}", value)
        ]
        models = ("--models", ",".join([self.model] * len(tasks)), "--workers", "3")
        program = ("--agent-cli", self.name, "--api-base", f"{base}/v1")
        return orchestrator("parallel", *program, *asked, *models, *given, "--json")

    def ends(self, done: subprocess.CompletedProcess[str]) -> list[str]:
        """Return how each worker ended."""
        assert done.stdout, done.stderr
        return [seen(result) for result in json.loads(done.stdout)["results"]]

    def test_completes_the_common_tasks(
        self, orchestrator: Orchestrator, model_server: ModelServer, shop: Path
    ) -> None:
        done = self.run(orchestrator, model_server.url, *map(self.asked, TASKS))

        assert done.returncode == 0, done.stdout + done.stderr
        run = json.loads(done.stdout)
        for result, task in zip(run["results"], TASKS, strict=True):
            assert (result["status"], result["reason"]) == ("success", None)
            assert result.keys() == WorkerResult.model_fields.keys()
            assert (result["task"], result["model"]) == (self.asked(task), self.model)
            assert result["files_modified"] == list(task.files)
            assert result["message"] is None
            assert (result["steps"] > 0, result["tokens"] > 0) == (True, True)
            assert (result["cost_known"], result["cost"] > 0) == (self.tells_cost, self.tells_cost)
            subject = self.commits or task.subject or "architect: uncommitted work"
            log = run_git(shop, "log", "--format=%s", f"{run['base']}..{result['branch']}")
            assert log.startswith(subject)
            assert log.count("\n") == 1
        assert run_git(shop, "status", "--porcelain") == ""

    @pytest.mark.agents
    def test_second_turn_continues_the_first(
        self, orchestrator: Orchestrator, model_server: ModelServer, shop: Path
    ) -> None:
        begun = self.run(orchestrator, model_server.url, self.asked(BEGIN), workers="1")
        assert self.ends(begun) == ["success `None` 0"], begun.stdout
        first = len(model_server.exchanges)

        again = ("continue", "1", "-m", self.asked(GO_ON), "--json")
        # A run does not record the address.
        done = orchestrator(*again, ORCHESTRATOR_API_BASE=f"{model_server.url}/v1")

        assert self.ends(done) == ["success `None` 0"], done.stdout + done.stderr
        (result,) = json.loads(done.stdout)["results"]
        turns = result["turns"]
        assert [turn["continued"] for turn in turns] == [None, self.continues]
        assert result["files_modified"] == list(GO_ON.files)
        log = run_git(shop, "log", "--format=%H", f"{result['base']}..{result['branch']}").split()
        assert log == [turn["commit"] for turn in reversed(turns)]
        assert len(log) == 2
        assert result["cost"] == pytest.approx(sum(turn["cost"] for turn in turns))
        assert [turn["cost"] > 0 for turn in turns] == [self.tells_cost] * 2
        self.check_requests(model_server, first, turns)

    def check_requests(
        self, model_server: ModelServer, first: int, turns: Sequence[Mapping[str, Any]]
    ) -> None:
        """Check what the model was asked in two turns, and that the tokens of each are counted.

        Args:
            model_server: The model.
            first: Number of requests in the first turn.
            turns: The turns of the result.
        """
        parts = (model_server.exchanges[:first], model_server.exchanges[first:])
        # aider requests its commit messages from another model. It does not count them; a broker
        # does.
        found = [[one for one in part if one.plain_model == self.model] for part in parts]
        for turn, part in zip(turns, parts if self.counts_all else found, strict=True):
            assert turn["tokens"] == sum(one.input_tokens + one.output_tokens for one in part)
        for one in found[1]:
            assert BEGIN.asked in one.said
            assert GO_ON.asked in one.said
            assert (GO_ON.asked in one.task) == (self.continues == "prompt")
            if self.continues == "session":
                assert one.number >= 2
                assert BEGUN in one.said


class AgentSuite(TaskSuite):
    """Tests of a program with a model, including its failures."""

    most_memory: ClassVar[str] = "700m"
    """Memory limit with which the program works."""
    patience: ClassVar[int] = 15
    """Maximum time, in seconds, until the first request to the model."""
    deadline: ClassVar[int] = 100
    """Maximum duration, in seconds, of each task that ends without a timeout."""
    outage: ClassVar[int] = 60
    """Maximum time, in seconds, until the program gives up an unreachable model."""

    @pytest.mark.agents
    def test_outcomes_are_as_documented(
        self, orchestrator: Orchestrator, model_server: ModelServer
    ) -> None:
        limits = {"max_steps": "2", "memory": self.most_memory}
        limits |= {"timeout_per_worker": str(self.deadline), "rate_limit_wait": "0"}
        done = self.run(orchestrator, model_server.url, *FAILURES.values(), **limits)

        expected = published(self.name)
        found = dict(zip(FAILURES, self.ends(done), strict=True))
        assert found == {name: expected[name] for name in FAILURES}
        worked = json.loads(done.stdout)["results"][list(FAILURES).index("max steps")]
        assert worked["files_modified"] == ["log.txt"]

    @pytest.mark.agents
    def test_unreachable_model_has_its_outcome(
        self, orchestrator: Orchestrator, closed_port: int
    ) -> None:
        url = f"http://{bridge_gateway()}:{closed_port}"
        options = {"workers": "1", "timeout_per_worker": str(self.outage)}
        done = self.run(orchestrator, url, TASKS[0].asked, **options)

        assert self.ends(done) == [published(self.name)["model down"]]

    @pytest.mark.agents
    def test_missing_network_has_its_outcome(
        self, orchestrator: Orchestrator, model_server: ModelServer
    ) -> None:
        options = {"network": "none", "workers": "1", "timeout_per_worker": str(self.outage)}
        done = self.run(orchestrator, model_server.url, TASKS[0].asked, **options)

        assert self.ends(done) == [published(self.name)["no network"]]
        assert model_server.exchanges == []

    @pytest.mark.agents
    def test_model_without_answer_has_its_outcome(
        self, orchestrator: Orchestrator, model_server: ModelServer
    ) -> None:
        # On a busy machine, a program may need longer than its patience to ask the model at all.
        for patience in (self.patience, 5 * self.patience):
            options = {"grace": "0", "workers": "1", "timeout_per_worker": str(patience)}
            done = self.run(orchestrator, model_server.url, SILENT, **options)
            if model_server.exchanges:
                break

        assert self.ends(done) == [published(self.name)["no answer"]]
        assert model_server.exchanges != []

    @pytest.mark.agents
    def test_budget_is_enforced_or_refused(
        self, orchestrator: Orchestrator, model_server: ModelServer
    ) -> None:
        options = {"budget_per_worker": "0.01", "workers": "1"}
        options["timeout_per_worker"] = str(self.deadline)
        done = self.run(orchestrator, model_server.url, COSTLY, **options)

        expected = published(self.name)["budget"]
        if expected == "refused 3":
            assert done.returncode == 3
            assert json.loads(done.stdout)["error"]["key"] == "agent.option-unsupported"
            assert "--budget-per-worker" in done.stderr
            assert model_server.exchanges == []
        else:
            assert self.ends(done) == [expected]
