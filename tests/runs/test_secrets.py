"""Tests that no secret is recorded or reported by a run."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents.base import (
    AgentOutcome,
    AgentOutput,
    AgentSettings,
    unsupported_settings,
)
from orchestrator.agents.programs.shell import ShellAgent
from orchestrator.base.events import Event
from orchestrator.base.results import Reason
from orchestrator.config.settings.container import Isolation
from orchestrator.engine.interface.protocol import ExitStatus
from orchestrator.runs.planning.preflight import RunRequest, check_run
from orchestrator.runs.planning.reservation import reserve
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import fingerprint, git
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


class Configured(ShellAgent):
    """A program that is started with a configuration file: the task reads it."""

    def unsupported(self, settings: AgentSettings) -> str | None:
        return unsupported_settings(replace(settings, config_file=None))


class TestAgentConfig:
    """The agent program's own configuration file, `--agent-config`."""

    CONTENT = f"""\
llm: {{api_key_env: NAME_OF_THE_VARIABLE, model: model-of-the-file}}
servers:
  - url: "https://user:pass-of-url@host"
    token: '{VALUE}'
  - {{name: second, "api_key": second-battery}}  # another
password = pass-of-toml
"""
    READ = (
        'cat "$ORCHESTRATOR_SECRETS/agent-config"; sha256sum < "$ORCHESTRATOR_SECRETS/agent-config"'
    )

    def config(self, file: Path | str, **rest: Any) -> Any:
        return configured(self.READ, agent_config=str(file), **rest)

    def test_file_is_given_to_the_program(
        self, repo: Path, tmp_path: Path, local_engine: LocalEngine
    ) -> None:
        file = tmp_path / "agent.yaml"
        file.write_text(self.CONTENT)
        runner = ParallelRunner(self.config(file), repo, engine=local_engine, agent=Configured())
        assert runner.plan().secrets == ("agent-config",)
        (result,) = runner.execute().results
        said = (Path(result.log) / "stdout.log").read_text()
        assert hashlib.sha256(self.CONTENT.encode()).hexdigest() in said
        # Only what may be a key is redacted.
        assert "api_key_env: NAME_OF_THE_VARIABLE, model: model-of-the-file" in said
        assert "token: '[redacted:token]'" in said
        for secret in (VALUE, "pass-of-url", "second-battery", "pass-of-toml"):
            assert secret not in kept(repo)

    def test_path_in_a_configuration_file_is_relative_to_the_top(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        (repo / "below").mkdir()
        (repo / "agent.yaml").write_text("a: 1\n")
        config = self.config("agent.yaml")
        (result,) = (
            ParallelRunner(config, repo / "below", engine=local_engine, agent=Configured())
            .execute()
            .results
        )
        assert (Path(result.log) / "stdout.log").read_text().startswith("a: 1\n")

    @pytest.mark.parametrize("content", [None, "a directory", "a FIFO", "x" * (64 * 1024 + 1)])
    def test_unusable_file_starts_nothing(
        self, repo: Path, tmp_path: Path, local_engine: LocalEngine, content: str | None
    ) -> None:
        file = tmp_path / "agent.yaml"
        if content == "a directory":
            file.mkdir()
        elif content == "a FIFO":
            os.mkfifo(file)
        elif content is not None:
            file.write_text(content)
        before = fingerprint(repo)
        runner = ParallelRunner(self.config(file), repo, engine=local_engine, agent=Configured())
        with raises("agent-config.unreadable", f"`{file}` cannot be read: ") as caught:
            runner.execute()
        assert caught.value.exit_code == 3
        assert "\n" not in caught.value.message
        assert fingerprint(repo) == before

    def test_a_program_without_such_a_file_starts_nothing(
        self, repo: Path, tmp_path: Path, local_engine: LocalEngine
    ) -> None:
        file = tmp_path / "agent.yaml"
        file.write_text(self.CONTENT)
        before = fingerprint(repo)
        with raises("agent.option-unsupported", "`shell`", "`--agent-config`") as caught:
            ParallelRunner(self.config(file), repo, engine=local_engine).execute()
        assert caught.value.exit_code == 3
        assert fingerprint(repo) == before

    def test_resumed_run_still_has_the_content(
        self, repo: Path, tmp_path: Path, local_engine: LocalEngine
    ) -> None:
        file = tmp_path / "agent.yaml"
        file.write_text(self.CONTENT)
        request = RunRequest(config=self.config(file), root=repo, agent=Configured())
        directory = reserve(check_run(request, local_engine)).directory
        directory.release()
        file.unlink()
        resumed = ResumedRun(directory, engine=local_engine, agent=Configured())
        (result,) = resumed.execute().results
        said = (Path(result.log) / "stdout.log").read_text()
        assert hashlib.sha256(self.CONTENT.encode()).hexdigest() in said
        assert VALUE not in kept(repo)
