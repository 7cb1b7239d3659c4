"""The mini adapter, against everything the real program was seen to print and to keep in files."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import in_container as inside
from orchestrator.agents import load_agent
from orchestrator.agents.base import AgentCommand, AgentOutcome, AgentOutput, AgentSettings
from orchestrator.agents.mini import MiniAgent
from orchestrator.config.run import ParallelConfig
from orchestrator.engine.protocol import ExitStatus
from orchestrator.results import Reason, Status
from orchestrator.worker_spec import WorkerSpec

RECORDED = Path(__file__).parents[1] / "data" / "agents" / "mini"
TRAJECTORY = RECORDED / "ok.traj.json"
SUCCESS, PARTIAL, FAILED, TIMEOUT = Status.SUCCESS, Status.PARTIAL, Status.FAILED, Status.TIMEOUT
UNREPORTED = "the agent exited with 0, but printed no report"
Expected = tuple[int, Status, Reason | None, int, float | None, int | None, str]

ASKING = "litellm.{0}: {0}: OpenAIException - {1}"
SPENT = "the agent spent $0.0104 of $0.0050"
# name: exit code, then status, reason, steps, cost, tokens, message.
OUTCOMES: dict[str, Expected] = {
    # Recorded without `inside`: they hold no more than text for people.
    "ok": (0, PARTIAL, Reason.NO_REPORT, 0, None, None, UNREPORTED),
    "steps": (0, PARTIAL, Reason.NO_REPORT, 0, None, None, UNREPORTED),
    "cost": (0, PARTIAL, Reason.NO_REPORT, 0, None, None, UNREPORTED),
    "unk2": (0, PARTIAL, Reason.NO_REPORT, 0, None, None, UNREPORTED),
    "worktree": (0, PARTIAL, Reason.NO_REPORT, 0, None, None, UNREPORTED),
    "noflag": (1, FAILED, Reason.AGENT_ERROR, 0, None, None, "Aborted."),
    # Cut at 6 kB, within a traceback.
    "unk": (1, FAILED, Reason.AGENT_ERROR, 0, None, None, "727 │   │   │   se"),
    "sigterm": (137, FAILED, Reason.AGENT_ERROR, 0, None, None, "ended by SIGKILL"),
    "sigterm-init": (143, FAILED, Reason.AGENT_ERROR, 0, None, None, "ended by SIGTERM"),
    # Recorded from workers.
    "worker-ok": (0, SUCCESS, None, 2, 0.01046, 4046, "all done"),
    "worker-steps": (0, PARTIAL, Reason.MAX_STEPS, 2, 0.0104, 4040, "the agent used all of its "
    "2 steps"),
    "worker-budget": (0, PARTIAL, Reason.BUDGET, 2, 0.0104, 4040, SPENT),
    "worker-auth": (1, FAILED, Reason.AUTH, 0, None, None,
                    ASKING.format("AuthenticationError", "Incorrect API key provided: sk-xxx You "
                                  "can permanently set your API key with `mini-extra config set "
                                  "KEY VALUE`.")),
    "worker-429": (1, FAILED, Reason.RATE_LIMITED, 0, None, None,
                   ASKING.format("RateLimitError", "Rate limit reached")),
    "worker-500": (1, FAILED, Reason.AGENT_ERROR, 0, None, None,
                   ASKING.format("InternalServerError", "The server had an error")),
    "worker-nonet": (1, FAILED, Reason.AGENT_ERROR, 0, None, None,
                     ASKING.format("InternalServerError", "Connection error.")),
}  # fmt: skip


def outcome_of(stdout: Path, stderr: Path, exit_code: int) -> AgentOutcome:
    output = AgentOutput(stdout=stdout, stderr=stderr)
    return MiniAgent().outcome(output, ExitStatus(exit_code=exit_code, oom_killed=False))


def as_expected(got: AgentOutcome) -> list[object]:
    return [got.status, got.reason, got.steps, got.cost, got.tokens, got.message]


def report(**changed: Any) -> dict[str, object]:
    found = inside.summary(str(TRAJECTORY))
    assert found is not None
    return found | changed


def outcome_of_report(tmp_path: Path, exit_code: int, **changed: Any) -> AgentOutcome:
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_text("text for people\n\n" + json.dumps(report(**changed)) + "\n")
    err.write_text("")
    return outcome_of(out, err, exit_code)


def command(task: str = "fix it", model: str | None = None, **asked: Any) -> AgentCommand:
    config = ParallelConfig(tasks=(task,), **asked)
    spec = WorkerSpec(worker_id=1, task=task, model=model)
    return MiniAgent().command(spec, AgentSettings.of(config))


def test_every_recording_is_expected_to_mean_something() -> None:
    assert {path.name.partition(".")[0] for path in RECORDED.iterdir()} == OUTCOMES.keys()


@pytest.mark.parametrize("name", OUTCOMES)
def test_recorded_output_is_understood(name: str) -> None:
    exit_code, *expected = OUTCOMES[name]
    got = outcome_of(RECORDED / f"{name}.out", RECORDED / f"{name}.err", exit_code)
    assert as_expected(got) == expected


def test_a_recorded_trajectory_is_condensed() -> None:
    assert report() == {
        "mini_version": "2.4.6",
        "exit_status": "Submitted",
        "steps": 2,
        "cost": 0.006,
        "tokens": 2100,
        "step_limit": 0,
        "cost_limit": 1.0,
        "said": "",
    }


LIMITS = {"exit_status": "LimitsExceeded", "said": "LimitsExceeded"}
ERROR = "litellm.{0}: {0}: OpenAIException - no"


@pytest.mark.parametrize(
    ("exit_code", "changed", "status", "reason", "message"),
    [
        (0, {}, SUCCESS, None, None),
        (0, {"said": "all\ndone"}, SUCCESS, None, "all done"),
        (1, {}, FAILED, Reason.AGENT_ERROR, "the agent submitted its work, but exited with 1"),
        (143, {}, FAILED, Reason.AGENT_ERROR, "the agent submitted its work, but ended by SIGTERM"),
        (0, {**LIMITS, "step_limit": 2}, PARTIAL, Reason.MAX_STEPS, "the agent used all of its "
        "2 steps"),
        (0, {**LIMITS, "step_limit": 2, "cost_limit": 0.0}, PARTIAL, Reason.MAX_STEPS,
         "the agent used all of its 2 steps"),
        (0, {**LIMITS, "cost_limit": 0.005}, PARTIAL, Reason.BUDGET,
         "the agent spent $0.0060 of $0.0050"),
        (0, {**LIMITS, "cost_limit": 0.006}, PARTIAL, Reason.BUDGET,
         "the agent spent $0.0060 of $0.0060"),
        (0, {"exit_status": "TimeExceeded"}, TIMEOUT, Reason.TIMEOUT,
         "the agent stopped just before its deadline"),
        (0, {"exit_status": "RepeatedFormatError"}, FAILED, Reason.AGENT_FAILED,
         "the model repeatedly gave no command"),
        (1, {"exit_status": "AuthenticationError", "said": ERROR.format("AuthenticationError")},
         FAILED, Reason.AUTH, ERROR.format("AuthenticationError")),
        (1, {"exit_status": "RateLimitError"}, FAILED, Reason.RATE_LIMITED, "RateLimitError"),
        (1, {"exit_status": "ContextWindowExceededError"}, FAILED, Reason.CONTEXT_FULL,
         "ContextWindowExceededError"),
        (1, {"exit_status": "InternalServerError"}, FAILED, Reason.AGENT_ERROR,
         "InternalServerError"),
        (0, {"exit_status": "Something new"}, FAILED, Reason.AGENT_ERROR, "Something new"),
        # Its last words were written between two steps.
        (143, {"exit_status": ""}, FAILED, Reason.AGENT_ERROR, "ended by SIGTERM"),
        (0, {"exit_status": ["Submitted"]}, PARTIAL, Reason.NO_REPORT, UNREPORTED),
    ],
)  # fmt: skip
def test_how_it_ended_decides(
    tmp_path: Path,
    exit_code: int,
    changed: dict[str, Any],
    status: Status,
    reason: Reason | None,
    message: str | None,
) -> None:
    got = outcome_of_report(tmp_path, exit_code, **changed)
    assert as_expected(got) == [status, reason, 2, 0.006, 2100, message]


@pytest.mark.parametrize("cost", [0, 0.0, -1, "0.1", None, True])
def test_a_cost_of_nothing_is_unknown(tmp_path: Path, cost: object) -> None:
    """It counts what it has no price for as nothing."""
    got = outcome_of_report(tmp_path, 0, cost=cost, tokens=0)
    assert (got.cost, got.tokens) == (None, None)


def test_the_command_names_every_setting() -> None:
    asked = command(
        "--help me", "claude-x", max_steps=7, budget_per_worker=0.5, timeout_per_worker=100
    )
    program = asked.argv[asked.argv.index("mini") :]
    assert asked.argv[:3] == ("python3", "-I", "-c")
    assert program == (
        *("mini", "-y", "--exit-immediately", "-c", "mini.yaml", "-c", "agent.step_limit=7"),
        *("-l", "0.5", "-c", "agent.wall_time_limit_seconds=90"),
        *("-m", "anthropic/claude-x", "-t", "--help me"),
    )
    # A budget cannot be kept for a model without a price: the program is to fail then.
    assert "MSWEA_COST_TRACKING" not in asked.env


def test_what_was_not_asked_for_is_no_limit() -> None:
    asked = command(timeout_per_worker=0)
    assert asked.argv[-4:] == ("-l", "0", "-t", "fix it")
    assert asked.env["MSWEA_COST_TRACKING"] == "ignore_errors"
    assert asked.env["MSWEA_CONFIGURED"] == "true"
    assert asked.default_env == {"MSWEA_MODEL_NAME": "gpt-4o"}


def test_api_base_reaches_every_provider() -> None:
    env = command(api_base="http://gateway:4000").env
    wanted = ("OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_API_BASE", "COHERE_API_BASE")
    assert {env.get(name) for name in wanted} == {"http://gateway:4000"}
    assert "OPENAI_API_BASE" not in command().env


def test_it_has_no_profiles() -> None:
    config = ParallelConfig(tasks=("t",), agent="review", budget_per_worker=1, max_steps=2)
    said = MiniAgent().unsupported(AgentSettings.of(config))
    assert said == "`--agent review` (it has no profiles)"


def test_the_key_that_is_missing_is_that_of_the_model() -> None:
    agent = MiniAgent()
    assert agent.missing_key(None, {}) == "OPENAI_API_KEY"
    assert agent.missing_key(None, {"MSWEA_MODEL_NAME": "claude-x"}) == "ANTHROPIC_API_KEY"
    assert agent.missing_key("gemini/x", {"GEMINI_API_KEY": "k"}) is None


def test_it_is_found_by_its_name() -> None:
    agent = load_agent("mini")
    assert isinstance(agent, MiniAgent)
    assert (agent.name, agent.image) == ("mini", "orchestrator/worker:mini")
