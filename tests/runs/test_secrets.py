"""Tests that no secret is recorded or reported by a run."""

from pathlib import Path

import pytest

from orchestrator.agents.base import AgentOutcome, AgentOutput
from orchestrator.agents.shell import ShellAgent
from orchestrator.config.container import Isolation
from orchestrator.engine.protocol import ExitStatus
from orchestrator.events import Event
from orchestrator.results import Reason
from orchestrator.runs.runner import ParallelRunner
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import configured, shell_run

VALUE = "correct-horse-battery"


class BrokenAgent(ShellAgent):
    """Raises an error that quotes the agent's output."""

    def outcome(self, output: AgentOutput, exit_status: ExitStatus) -> AgentOutcome:  # noqa: ARG002
        raise ZeroDivisionError(f"https://user:{VALUE}@host.example/")


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", VALUE)


def kept(repo: Path) -> str:
    """Return everything that the repository's runs record, without the workers' own files."""
    files = [path for path in (repo / ".git" / "orchestrator").rglob("*") if path.is_file()]
    ours = [path for path in files if not {"copy", "upper"} & set(path.parts)]
    return "\n".join(path.read_text(errors="replace") for path in ours)


def test_internal_error_that_quotes_a_secret_is_redacted(
    repo: Path, local_engine: LocalEngine
) -> None:
    events: list[Event] = []
    isolation = Isolation(network="none", secrets=("DEPLOY_TOKEN",))
    config = configured("true", isolation=isolation)
    runner = ParallelRunner(
        config, repo, emit=events.append, engine=local_engine, agent=BrokenAgent()
    )
    (result,) = runner.execute().results
    assert result.reason is Reason.INTERNAL_ERROR
    assert result.message is not None
    assert "https://user:[redacted:DEPLOY_TOKEN]@host" in result.message
    assert "ZeroDivisionError: https://user:[redacted:DEPLOY_TOKEN]@host" in kept(repo)
    assert VALUE not in kept(repo)
    assert VALUE not in "".join(event.model_dump_json() for event in events)


def test_file_name_with_a_secret_is_redacted_in_the_result(
    repo: Path, local_engine: LocalEngine
) -> None:
    task = 'cp "$ORCHESTRATOR_SECRETS"/DEPLOY_TOKEN "$(cat "$ORCHESTRATOR_SECRETS"/DEPLOY_TOKEN)"'
    isolation = Isolation(network="none", secrets=("DEPLOY_TOKEN",))
    (result,) = shell_run(repo, local_engine, task, isolation=isolation).results
    assert result.files_modified == ["[redacted:DEPLOY_TOKEN]"]
    assert result.message == (
        "`architect/parallel-1` contains the value of `DEPLOY_TOKEN` in the name of a file in the "
        "top directory, [redacted:DEPLOY_TOKEN]"
    )
    assert VALUE not in kept(repo)


def test_without_secrets_no_directory_is_mounted(repo: Path, local_engine: LocalEngine) -> None:
    task = 'test -z "${ORCHESTRATOR_SECRETS+set}" && echo "$DEPLOY_TOKEN" > seen'
    (result,) = shell_run(repo, local_engine, task).results
    assert result.files_modified == ["seen"]
    assert result.message is None


def test_secrets_in_tasks_and_urls_are_redacted(repo: Path, local_engine: LocalEngine) -> None:
    events: list[Event] = []
    isolation = Isolation(network="none", env={"API_KEY": VALUE, "NAME": "an ordinary value"})
    config = configured(f": {VALUE}", api_base="https://user:short@host", isolation=isolation)
    runner = ParallelRunner(config, repo, emit=events.append, engine=local_engine)
    assert runner.plan().workers[0].task == ": [redacted:API_KEY]"
    runner.execute()
    told = kept(repo) + "".join(event.model_dump_json() for event in events)
    assert ": [redacted:API_KEY]" in told
    for secret in (VALUE, "short", "an ordinary value"):
        assert secret not in told


def test_commit_message_redacts_secrets_of_the_task(repo: Path, local_engine: LocalEngine) -> None:
    isolation = Isolation(network="none", env={"API_KEY": VALUE})
    shell_run(repo, local_engine, f"echo x > x; : {VALUE}", isolation=isolation)
    message = git(repo, "log", "-1", "--format=%B", "architect/parallel-1")
    assert "Task: echo x > x; : [redacted:API_KEY]" in message
