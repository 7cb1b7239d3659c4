"""The opencode adapter, against everything the real program was seen to print."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import load_agent
from orchestrator.agents.base import (
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentProgress,
    AgentSettings,
)
from orchestrator.agents.opencode import OpencodeAgent
from orchestrator.config.run import ParallelConfig
from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Reason, Status
from orchestrator.worker_spec import WorkerSpec

RECORDED = Path(__file__).parents[1] / "data" / "agents" / "opencode"
SUCCESS, PARTIAL, FAILED = Status.SUCCESS, Status.PARTIAL, Status.FAILED
DONE = "Done: wrote hello.txt"

# name: exit code, then status, reason, steps, cost, tokens, message.
OUTCOMES: dict[str, tuple[int, Status, Reason | None, int, float | None, int | None, str]] = {
    "ok": (0, SUCCESS, None, 2, 0.006, 2100, DONE),
    "net": (0, SUCCESS, None, 2, 0.006, 2100, DONE),
    "auth": (1, FAILED, Reason.AUTH, 0, None, None, "Incorrect API key provided: sk-xxx"),
    "badmodel": (1, FAILED, Reason.AGENT_ERROR, 0, None, None,
                 "Unexpected server error. Check server logs for details."),
    "badflag": (1, FAILED, Reason.AGENT_ERROR, 0, None, None, "[boolean] [default: false]"),
    # Its own limit of steps did not stop it; cut at 6 kB.
    "steps": (124, FAILED, Reason.AGENT_ERROR, 4, 0.012, 4200, "exited with 124"),
    "sigterm": (137, FAILED, Reason.AGENT_ERROR, 0, None, None, "ended by SIGKILL"),
    "sigterm-init": (143, FAILED, Reason.AGENT_ERROR, 0, None, None, "ended by SIGTERM"),
    "sigterm-early": (143, FAILED, Reason.AGENT_ERROR, 0, None, None, "ended by SIGTERM"),
    # Recorded before its end.
    "worktree": (0, PARTIAL, Reason.NO_REPORT, 0, None, None, "the agent exited with 0, but "
    "printed no report"),
}  # fmt: skip


def outcome_of(stdout: Path, stderr: Path, exit_code: int) -> AgentOutcome:
    output = AgentOutput(stdout=stdout, stderr=stderr)
    return OpencodeAgent().outcome(output, ExitStatus(exit_code=exit_code, oom_killed=False))


def outcome_of_events(
    tmp_path: Path, exit_code: int, *events: dict[str, Any], stderr: str = ""
) -> AgentOutcome:
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_text("".join(json.dumps(event) + "\n" for event in events))
    err.write_text(stderr)
    return outcome_of(out, err, exit_code)


def step(reason: str = "stop", cost: object = 0.01) -> dict[str, Any]:
    part = {"reason": reason, "cost": cost, "tokens": {"total": 10}}
    return {"type": "step_finish", "part": part}


def error(name: str, **data: object) -> dict[str, Any]:
    return {"type": "error", "error": {"name": name, "data": data}}


def command(task: str = "fix it", model: str | None = None, **asked: Any) -> AgentCommand:
    settings = AgentSettings.of(ParallelConfig(tasks=(task,), **asked))
    return OpencodeAgent().command(WorkerSpec(worker_id=1, task=task, model=model), settings)


def config_of(given: AgentCommand) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(given.env["OPENCODE_CONFIG_CONTENT"])
    return config


def test_every_recording_is_expected_to_mean_something() -> None:
    assert {path.stem for path in RECORDED.iterdir()} == OUTCOMES.keys()


@pytest.mark.parametrize("name", OUTCOMES)
def test_recorded_output_is_understood(name: str) -> None:
    exit_code, status, reason, steps, cost, tokens, message = OUTCOMES[name]
    got = outcome_of(RECORDED / f"{name}.out", RECORDED / f"{name}.err", exit_code)
    assert (got.status, got.reason, got.steps, got.tokens) == (status, reason, steps, tokens)
    assert got.cost == (None if cost is None else pytest.approx(cost))
    assert got.message == message


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (error("APIError", statusCode=403, message="m"), Reason.AUTH),
        (error("APIError", statusCode=429, message="m"), Reason.RATE_LIMITED),
        (error("APIError", statusCode=500, message="m"), Reason.AGENT_ERROR),
        (error("ProviderAuthError", message="m"), Reason.AUTH),
        (error("UnknownError", message="Anthropic API key is missing. Pass it"), Reason.AUTH),
        (error("ContextOverflowError", message="m"), Reason.CONTEXT_FULL),
        ({"type": "error", "error": "what?"}, Reason.AGENT_ERROR),
    ],
)
def test_failures_are_told_apart(tmp_path: Path, failure: dict[str, Any], reason: Reason) -> None:
    got = outcome_of_events(tmp_path, 1, step("tool-calls"), failure)
    assert (got.status, got.reason, got.steps) == (FAILED, reason, 1)


@pytest.mark.parametrize(
    ("ended", "exit_code", "status", "reason"),
    [
        ("stop", 0, SUCCESS, None),
        ("stop", 1, FAILED, Reason.AGENT_ERROR),
        ("length", 0, PARTIAL, Reason.AGENT_FAILED),
        ("tool-calls", 0, PARTIAL, Reason.AGENT_FAILED),
    ],
)
def test_the_last_step_says_how_it_ended(
    tmp_path: Path, ended: str, exit_code: int, status: Status, reason: Reason | None
) -> None:
    got = outcome_of_events(tmp_path, exit_code, step("tool-calls"), step(ended))
    assert (got.status, got.reason) == (status, reason)


def test_another_profile_than_was_asked_for_is_a_failure(tmp_path: Path) -> None:
    warning = '! agent "nosuch" not found. Falling back to default agent\n'
    got = outcome_of_events(tmp_path, 0, step(), stderr=warning)
    assert (got.status, got.reason) == (FAILED, Reason.AGENT_ERROR)
    assert got.message == 'agent "nosuch" not found. Falling back to default agent'


def test_what_a_step_cost_is_added_up_while_it_runs() -> None:
    """A step that ended in tools has begun another: a limit stops it before that is paid for."""
    read = OpencodeAgent().progress_reader()
    assert read(json.dumps(step("tool-calls"))) == AgentProgress(steps=2, cost=0.01, tokens=10)
    assert read(json.dumps({"type": "text", "part": {"text": "x"}})) is None
    assert read(json.dumps(step("stop"))) == AgentProgress(steps=2, cost=0.02, tokens=20)


@pytest.mark.parametrize("cost", [0, None, -1, "much", float("1e300")])
def test_a_model_without_a_price_has_no_known_cost(tmp_path: Path, cost: object) -> None:
    got = outcome_of_events(tmp_path, 0, step(cost=cost))
    assert (got.status, got.cost, got.tokens) == (SUCCESS, None, 10)


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (None, "anthropic/claude-sonnet-4-5"),
        ("claude-opus-4-5", "anthropic/claude-opus-4-5"),
        ("gpt-4o", "openai/gpt-4o"),
        ("gemini-2.5-pro", "google/gemini-2.5-pro"),
        ("openrouter/claude-opus-4-5", "openrouter/claude-opus-4-5"),
    ],
)
def test_a_bare_name_gets_its_provider(asked: str | None, given: str) -> None:
    assert command(model=asked).argv[-2:] == ("--model", given)


def test_the_task_comes_on_stdin(tmp_path: Path) -> None:
    given = command('--help "me"', "gpt-4o", agent="plan")
    start = given.argv.index("opencode")
    argv = (*given.argv[:start], "sh", "-c", 'cat; echo ":$ANTHROPIC_BASE_URL"')
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    for base, seen in (("http://gw/", "http://gw/v1"), ("http://gw/v1", "http://gw/v1")):
        done = subprocess.run(
            argv,
            env={**environment, "ANTHROPIC_BASE_URL": base},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f'--help "me":{seen}\n'
    options = given.argv[start:]
    assert options[options.index("--agent") + 1] == "plan"


@pytest.mark.parametrize(
    ("model", "base", "seen"),
    [
        ("gpt-4o", "http://gw/v1", "http://gw/v1"),
        ("claude-x", "http://gw", "http://gw/v1"),
        ("claude-x", "http://gw/v1/", "http://gw/v1"),
        ("mine/llama", "http://gw/v1", "http://gw/v1"),
    ],
)
def test_the_base_url_is_that_of_the_models_provider(model: str, base: str, seen: str) -> None:
    given = command(model=model, api_base=base)
    provider, name = given.argv[-1].split("/")
    entry = config_of(given)["provider"][provider]
    assert entry["options"]["baseURL"] == seen
    assert entry["options"]["apiKey"].startswith("{env:")
    assert entry["models"] == {name: {}}


def test_helpers_whose_cost_is_not_told_are_kept_out_of_a_budget() -> None:
    assert config_of(command(budget_per_worker=1))["permission"] == {"task": "deny"}
    assert "permission" not in config_of(command())


def test_the_key_is_that_of_the_models_provider() -> None:
    agent = load_agent("opencode")
    assert agent.missing_key("gpt-4o", {"ANTHROPIC_API_KEY": "k"}) == "OPENAI_API_KEY"
    assert agent.missing_key(None, {"ANTHROPIC_API_KEY": "k"}) is None
    assert agent.missing_key("google/g", {"GOOGLE_GENERATIVE_AI_API_KEY": "k"}) is None
    assert agent.missing_key("mine/llama", {}) is None
