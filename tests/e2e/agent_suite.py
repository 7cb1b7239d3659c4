"""What every agent program must do, told once: the same tasks, and each way to fail.

A program's own module says how its model gets a command run, and names its suite:

    SCENARIO = scenario(lambda command: ToolCall(name="Bash", arguments={"command": command}))

    class TestClaude(AgentSuite):
        name, model, tells_cost = "claude", "claude-sonnet-4-5", True

Which status, reason and exit code each failure has is what `docs/reference/agents.md` says.
"""

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, ClassVar

from orchestrator.results import WorkerResult, exit_code
from tests.docs.markdown import read_page
from tests.e2e.conftest import Orchestrator, run_git
from tests.support.bridge import bridge_gateway
from tests.support.model_script import Rule, Scenario, ToolCall, Turn
from tests.support.model_server import ModelServer

LONG = "All of it at once. " * 4000


@dataclass(frozen=True)
class Task:
    """Work that is done with one command."""

    asked: str
    command: str
    files: tuple[str, ...]
    subject: str | None = None
    """Of the commit that the agent makes by itself."""


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
# What is asked for, by the failure that it leads to.
FAILURES = {
    "wrong key": "Show your key",
    "rate limit": "Ask too often",
    "server error": "Break the model",
    "max steps": "Never come to an end",
    "out of memory": "Eat all memory",
}
SILENT, COSTLY = "Wait for an answer", "Spend all money"


def scenario(run: Callable[[str], ToolCall]) -> Scenario:
    """Script a model that gets its commands run with the tool call that `run` makes."""
    again = Turn(text="Once more.", calls=(run("echo again >> log.txt"),), delay=0.5)
    hungry = Turn(text="All of it.", calls=(run("tail /dev/zero"),))
    errors = {"wrong key": 401, "rate limit": 429, "server error": 500}
    done = Turn(text="Done.")
    return Scenario(
        (
            *(
                Rule(task=task.asked, turns=(Turn(calls=(run(task.command),)), done))
                for task in TASKS
            ),
            *(
                Rule(task=FAILURES[name], turns=(Turn(status=status, text=f"a {name}"),))
                for name, status in errors.items()
            ),
            Rule(task=FAILURES["max steps"], turns=(again,)),
            Rule(task=FAILURES["out of memory"], turns=(hungry, done)),
            Rule(task=SILENT, turns=(Turn(text="Too late.", delay=3600),)),
            Rule(task=COSTLY, turns=(Turn(text=LONG, calls=(run("echo 1 >> log.txt"),)),)),
        )
    )


def _is_row(line: str) -> bool:
    return line.startswith("|")


def published(agent: str) -> dict[str, str]:
    """Give the agent's row of the published table, by the names of its columns."""
    lines = iter(read_page("docs/reference/agents.md").splitlines())
    table = takewhile(_is_row, dropwhile(lambda line: not _is_row(line), lines))
    names, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    (row,) = (row for row in rows if row[0] == f"`{agent}`")
    return dict(zip(names, row, strict=True))


def seen(result: Mapping[str, Any]) -> str:
    """Put an end as the table does: status, reason, and the exit code of a run of this alone."""
    code = exit_code([WorkerResult.model_validate(result)])
    return f"{result['status']} `{result['reason']}` {code}"


class AgentSuite:
    """The tests; a subclass names the program."""

    name: ClassVar[str]
    model: ClassVar[str]
    tells_cost: ClassVar[bool]
    most_memory: ClassVar[str] = "700m"
    """What it can work in."""
    patience: ClassVar[int] = 15
    """Seconds within which it has asked its model."""
    deadline: ClassVar[int] = 100
    """Seconds within which every end has come that comes by itself."""
    outage: ClassVar[int] = 60
    """Seconds within which it gives up a model that it cannot reach."""

    def run(
        self, orchestrator: Orchestrator, base: str, *tasks: str, **options: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a worker for each task."""
        asked = [word for task in tasks for word in ("--task", task)]
        given = [
            w for name, value in options.items() for w in (f"--{name.replace('_', '-')}", value)
        ]
        models = ("--models", ",".join([self.model] * len(tasks)), "--workers", "3")
        program = ("--agent-cli", self.name, "--api-base", f"{base}/v1")
        return orchestrator("parallel", *program, *asked, *models, *given, "--json")

    def ends(self, done: subprocess.CompletedProcess[str]) -> list[str]:
        """Say how each worker ended."""
        assert done.stdout, done.stderr
        return [seen(result) for result in json.loads(done.stdout)["results"]]

    def test_does_the_same_tasks_as_every_other(
        self, orchestrator: Orchestrator, model_server: ModelServer, shop: Path
    ) -> None:
        done = self.run(orchestrator, model_server.url, *(task.asked for task in TASKS))

        assert done.returncode == 0, done.stdout + done.stderr
        run = json.loads(done.stdout)
        for result, task in zip(run["results"], TASKS, strict=True):
            assert (result["status"], result["reason"]) == ("success", None)
            assert (result["task"], result["model"]) == (task.asked, self.model)
            assert result["files_modified"] == list(task.files)
            assert result["message"] is None
            assert (result["steps"] > 0, result["tokens"] > 0) == (True, True)
            assert (result["cost_known"], result["cost"] > 0) == (self.tells_cost, self.tells_cost)
            subject = task.subject or "architect: uncommitted work"
            log = run_git(shop, "log", "--format=%s", f"{run['base']}..{result['branch']}")
            assert log.startswith(subject)
            assert log.count("\n") == 1
        assert run_git(shop, "status", "--porcelain") == ""

    def test_ends_are_told_apart(
        self, orchestrator: Orchestrator, model_server: ModelServer
    ) -> None:
        limits = {"max_steps": "2", "memory": self.most_memory}
        limits["timeout_per_worker"] = str(self.deadline)
        done = self.run(orchestrator, model_server.url, *FAILURES.values(), **limits)

        expected = published(self.name)
        found = dict(zip(FAILURES, self.ends(done), strict=True))
        assert found == {name: expected[name] for name in FAILURES}
        worked = json.loads(done.stdout)["results"][list(FAILURES).index("max steps")]
        assert worked["files_modified"] == ["log.txt"]

    def test_a_model_that_is_down(self, orchestrator: Orchestrator, closed_port: int) -> None:
        url = f"http://{bridge_gateway()}:{closed_port}"
        options = {"workers": "1", "timeout_per_worker": str(self.outage)}
        done = self.run(orchestrator, url, TASKS[0].asked, **options)

        assert self.ends(done) == [published(self.name)["model down"]]

    def test_without_a_network(self, orchestrator: Orchestrator, model_server: ModelServer) -> None:
        options = {"network": "none", "workers": "1", "timeout_per_worker": str(self.outage)}
        done = self.run(orchestrator, model_server.url, TASKS[0].asked, **options)

        assert self.ends(done) == [published(self.name)["no network"]]
        assert model_server.exchanges == []

    def test_a_model_that_never_answers(
        self, orchestrator: Orchestrator, model_server: ModelServer
    ) -> None:
        options = {"grace": "0", "workers": "1", "timeout_per_worker": str(self.patience)}
        done = self.run(orchestrator, model_server.url, SILENT, **options)

        assert self.ends(done) == [published(self.name)["no answer"]]
        assert model_server.exchanges != []

    def test_a_budget(self, orchestrator: Orchestrator, model_server: ModelServer) -> None:
        options = {"budget_per_worker": "0.01", "workers": "1"}
        options["timeout_per_worker"] = str(self.deadline)
        done = self.run(orchestrator, model_server.url, COSTLY, **options)

        expected = published(self.name)["budget"]
        if expected == "refused 3":
            assert (done.returncode, done.stdout) == (3, "")
            assert "--budget-per-worker" in done.stderr
            assert model_server.exchanges == []
        else:
            assert self.ends(done) == [expected]
