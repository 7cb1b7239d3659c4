"""Tests that errors of adapters in other packages become one-line messages."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents import (
    Claims,
    Cost,
    Count,
    Flag,
    SessionAgent,
    SessionFiles,
    load_agent,
    plugin,
)
from orchestrator.agents.base import (
    Agent,
    AgentCommand,
    AgentOutcome,
    AgentOutput,
    AgentProgress,
    AgentSettings,
)
from orchestrator.agents.plugin import ForeignAgent, ForeignSessionAgent
from orchestrator.agents.programs.shell import ShellAgent
from orchestrator.base.errors import ConfigError
from orchestrator.base.results import Reason, Status
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.interface.protocol import ExitStatus
from orchestrator.runs.runner import ParallelRunner
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.plugin import install

PROJECT = """
[project]
name = "orchestrator-acme"
version = "1.0.0"

[project.entry-points."orchestrator.agents"]
acme = "orchestrator_acme:AcmeAgent"
"""
MODULE = """
from orchestrator.agents.programs.shell import ShellAgent

class AcmeAgent(ShellAgent):
    name = "acme"
"""
SETTINGS = AgentSettings.of(ParallelConfig(tasks=("t",)))
SPEC = WorkerSpec(worker_id=1, task="t", model=None)
NOWHERE = AgentOutput(stdout=Path("/dev/null"), stderr=Path("/dev/null"))


class Acme(ShellAgent):
    name = "acme"


def foreign(**changed: Any) -> ForeignAgent:
    """Return a valid adapter with some parts changed; `...` removes a part."""
    made = type("Changed", (Acme,), {k: v for k, v in changed.items() if v is not ...})
    missing = [name for name, value in changed.items() if value is ...]
    if missing:
        left = [name for name in (*vars(ShellAgent), "name") if name not in missing]
        made = type("Left", (), {name: getattr(Acme, name) for name in left if name[0] != "_"})
    return ForeignAgent("acme", "orchestrator-acme", lambda: made)


def told(broken: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        broken()
    assert caught.value.exit_code == 3
    assert "orchestrator-acme" in (caught.value.hint or "")
    assert caught.value.message.isprintable()
    return caught.value.message.removeprefix("the adapter for `acme` is broken: ")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that installs a package with an adapter."""

    def put(module: str = MODULE, project: str = PROJECT, folder: str = "site") -> None:
        install(tmp_path / folder, project, {"orchestrator_acme.py": module})
        monkeypatch.syspath_prepend(tmp_path / folder)
        monkeypatch.delitem(__import__("sys").modules, "orchestrator_acme", raising=False)

    return put


def test_adapter_is_found_by_its_entry_point(installed: Callable[..., None]) -> None:
    installed()
    agent = load_agent("acme")
    assert (agent.name, agent.image) == ("acme", ShellAgent.image)
    assert agent.command(SPEC, SETTINGS).argv == ("sh", "-c", "--", "t")


def test_unknown_name_lists_the_installed_adapters(installed: Callable[..., None]) -> None:
    installed()
    with raises("agent.unknown", "`nosuch`", "acme, aider, architect"):
        load_agent("nosuch")


def test_two_adapters_of_one_name_are_refused(installed: Callable[..., None]) -> None:
    installed()
    other = PROJECT.replace("orchestrator-acme", "other").replace("orchestrator_acme:", "other:")
    installed("", other, folder="second")
    with pytest.raises(ConfigError) as caught:
        load_agent("acme")
    said = "more than one package has an adapter for `acme`: orchestrator-acme, other"
    assert caught.value.message == said


def test_built_in_adapter_cannot_be_replaced(installed: Callable[..., None]) -> None:
    installed(project=PROJECT.replace("acme = ", "claude = "))
    with raises("adapter.ambiguous", "`claude`"):
        load_agent("claude")


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("import nosuch", "loading: ModuleNotFoundError: No module named 'nosuch'"),
        ("x = 1",
         "loading: AttributeError: module 'orchestrator_acme' has no attribute 'AcmeAgent'"),
        ("AcmeAgent = 5", "loading: TypeError: 'int' object is not callable"),
        ("def AcmeAgent(): raise OSError('a\\nb\\x1b[2J')", "loading: OSError: a b"),
        ("class AcmeAgent: pass", "loading.name: Field required"),
    ],
)  # fmt: skip
def test_adapter_that_cannot_be_loaded_is_reported(
    installed: Callable[..., None], module: str, said: str
) -> None:
    installed(module)
    assert told(lambda: load_agent("acme")) == said


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "other"}, "its `name` is `other`, which differs from the entry point's"),
        ({"name": 5}, "loading.name: Input should be a valid string"),
        ({"image": ""}, "loading.image: String should have at least 1 character"),
        ({"inherited_env": "PATH"}, "loading.inherited_env: Input should be a valid tuple"),
        ({"ignored_files": (1,)}, "loading.ignored_files.0: Input should be a valid string"),
        ({"unsupported": ...}, "the method is missing: `unsupported`"),
        ({"outcome": 5}, "the method is missing: `outcome`"),
    ],
)
def test_invalid_adapter_is_reported(changed: dict[str, object], said: str) -> None:
    assert told(lambda: foreign(**changed)) == said


def boom(*_: object) -> object:
    raise ZeroDivisionError("a\nb")


def giving(value: object) -> Callable[..., object]:
    return lambda *_: value


BOOM = "ZeroDivisionError: a b"
EMPTY_COMMAND = AgentCommand(argv=())
NUMBERS = AgentCommand(argv=("a", 1))  # type: ignore[arg-type]
NUL = AgentCommand(argv=("a",), env={"A": "a\0b"})
CALLS: dict[str, Callable[[Agent], object]] = {
    "missing_key": lambda agent: agent.missing_key(None, {}),
    "unsupported": lambda agent: agent.unsupported(SETTINGS),
    "command": lambda agent: agent.command(SPEC, SETTINGS),
    "progress_reader": lambda agent: agent.progress_reader()("line"),
}


@pytest.mark.parametrize(
    ("method", "instead", "said"),
    [
        *((method, boom, f"{method}: {BOOM}") for method in CALLS),
        ("missing_key", giving(5), "missing_key: Input should be a valid string"),
        ("unsupported", giving(True), "unsupported: Input should be a valid string"),
        ("command", giving(None),
         "command: Input should be a valid dictionary or object to extract fields from"),
        ("command", giving(EMPTY_COMMAND),
         "command.argv: Tuple should have at least 1 item after validation, not 0"),
        ("command", giving(NUMBERS), "command.argv.1: Input should be a valid string"),
        ("command", giving(NUL), "command.env.A: Value error, must not contain NUL"),
        ("progress_reader", giving(5), "progress_reader: TypeError: 'int' object is not callable"),
        ("progress_reader", giving(boom), f"progress_reader: {BOOM}"),
        ("progress_reader", giving(giving({"cost": -1.0, "steps": 1})),
         "progress_reader.cost: Input should be greater than or equal to 0"),
        ("progress_reader", giving(giving(AgentProgress(cost=math.nan))),
         "progress_reader.cost: Input should be a finite number"),
    ],
)  # fmt: skip
def test_failing_method_is_reported(method: str, instead: Callable[..., object], said: str) -> None:
    agent = foreign(**{method: instead})
    assert told(lambda: CALLS[method](agent)) == said


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        (boom, BOOM),
        (giving(None), "Input should be a valid dictionary or object to extract fields from"),
        (giving(AgentOutcome(status="success")),  # type: ignore[arg-type]
         "status: Input should be an instance of Status"),
        (giving(AgentOutcome(status=Status.SUCCESS, cost=math.inf)),
         "cost: Input should be a finite number"),
        (giving(AgentOutcome(status=Status.SUCCESS, steps=-1)),
         "steps: Input should be greater than or equal to 0"),
    ],
)  # fmt: skip
def test_failing_outcome_method_is_a_failure(instead: Callable[..., object], said: str) -> None:
    got = foreign(outcome=instead).outcome(NOWHERE, ExitStatus(exit_code=0, oom_killed=False))
    assert (got.status, got.reason) == (Status.FAILED, Reason.AGENT_ERROR)
    assert (got.message or "").endswith(said)


def test_valid_values_are_passed_through() -> None:
    outcome = AgentOutcome(status=Status.PARTIAL, reason=Reason.BUDGET, message="a\nb", cost=1.0)
    agent = foreign(
        outcome=giving(outcome),
        progress_reader=giving(giving(AgentProgress(cost=1.0, steps=2))),
        missing_key=giving("ACME_API_KEY"),
        unsupported=giving("`--max-steps` (no)"),
    )
    got = agent.outcome(NOWHERE, ExitStatus(exit_code=0, oom_killed=False))
    assert got == AgentOutcome(status=Status.PARTIAL, reason=Reason.BUDGET, message="a b", cost=1.0)
    assert agent.progress_reader()("x") == AgentProgress(cost=1.0, steps=2)
    assert foreign(progress_reader=giving(giving(None))).progress_reader()("x") is None
    assert agent.missing_key(None, {}) == "ACME_API_KEY"
    assert agent.unsupported(SETTINGS) == "`--max-steps` (no)"


def run(repo: Path, engine: LocalEngine, **changed: object) -> list[Any]:
    config = ParallelConfig(tasks=("echo '{\"a\": 1}'; echo x > x",), workers=1)
    return ParallelRunner(config, repo, engine=engine, agent=foreign(**changed)).run()


def test_failing_command_method_stops_the_run_before_its_start(
    repo: Path, local_engine: LocalEngine
) -> None:
    assert told(lambda: run(repo, local_engine, command=boom)) == f"command: {BOOM}"
    assert not (repo / ".git" / "orchestrator").exists()


@pytest.mark.parametrize("method", ["outcome", "progress_reader"])
def test_adapter_that_fails_later_loses_no_work(
    repo: Path, local_engine: LocalEngine, method: str
) -> None:
    instead = giving(boom) if method == "progress_reader" else boom
    (result,) = run(repo, local_engine, **{method: instead})
    assert result.status is Status.FAILED
    assert result.message == f"the adapter for `acme` is broken: {method}: {BOOM}"
    assert result.files_modified == ["x"]


class Keeping(Acme):
    session_files = SessionFiles(kept=("{id}.json",), id=r"s-\d+")

    def session_id(self, output: AgentOutput) -> str | None:  # noqa: ARG002
        return "s-1"


KEEPING = """
from orchestrator.agents import SessionFiles
from orchestrator.agents.programs.shell import ShellAgent

class AcmeAgent(ShellAgent):
    name = "acme"
    session_files = SessionFiles(kept=("a",), id="s", chosen=True)

    def session_id(self, output):
        return "s"
"""


def test_sessions_of_an_adapter_are_used(installed: Callable[..., None]) -> None:
    installed(KEEPING)
    agent = load_agent("acme")
    assert isinstance(agent, SessionAgent)
    assert agent.session_files == SessionFiles(kept=("a",), id="s", chosen=True)
    assert agent.session_id(NOWHERE) == "s"


def test_adapter_without_sessions_has_none(installed: Callable[..., None]) -> None:
    installed()
    assert not isinstance(load_agent("acme"), SessionAgent)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"session_id": 3}, "the method is missing: `session_id`"),
        ({"session_files": None}, "session_files"),
        ({"session_files": SessionFiles(kept="a", id="s")}, "session_files.kept"),  # type: ignore[arg-type]
        ({"session_files": SessionFiles(kept=("",), id="s")}, "session_files.kept.0"),
        ({"session_files": SessionFiles(kept=(), id="(")}, "must be a regular expression"),
        ({"session_files": SessionFiles(kept=(), id="")}, "session_files.id"),
    ],
)
def test_invalid_sessions_are_reported(changed: dict[str, Any], said: str) -> None:
    def load() -> Callable[[], Agent]:
        return type("Changed", (Keeping,), changed)

    assert said in told(lambda: ForeignSessionAgent("acme", "orchestrator-acme", load))


@pytest.mark.parametrize("instead", [boom, giving(3), giving("")])
def test_failing_session_id_means_that_no_session_is_kept(instead: Callable[..., object]) -> None:
    made = type("Changed", (Keeping,), {"session_id": instead})
    agent = ForeignSessionAgent("acme", "orchestrator-acme", lambda: made)
    assert agent.session_id(NOWHERE) is None


@pytest.mark.parametrize(
    ("checked", "real"),
    [
        (plugin._Progress, AgentProgress), (plugin._Outcome, AgentOutcome),
        (plugin._Command, AgentCommand), (plugin._Session, SessionFiles),
    ],
)  # fmt: skip
def test_no_field_of_an_adapters_value_is_lost(checked: type[Any], real: type[Any]) -> None:
    assert {*checked.model_fields} == {field.name for field in dataclasses.fields(real)}


class Usage(Claims):
    spent: Count
    costs: Cost = None


class Report(Claims):
    ok: Flag
    usage: Usage
    more: Usage = Usage(spent=None)


@pytest.mark.parametrize("value", [None, 3, "x", [], [1], {}, True, {"spent": "x"}, {"costs": -1}])
def test_impossible_part_of_a_report_counts_as_missing(value: object) -> None:
    report = Report.model_validate({"ok": True, "usage": value, "more": value})
    assert (report.ok, report.usage.spent, report.more.spent, report.usage.costs) == (
        True, None, None, None,
    )  # fmt: skip
    assert Report.model_validate({"usage": {"spent": 3}}).usage.spent == 3
