"""Tests of the checks before a run: errors and notices."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agents.base import AgentSettings, unsupported_settings
from orchestrator.agents.programs.architect import ArchitectAgent
from orchestrator.agents.programs.shell import ShellAgent
from orchestrator.agents.settings_check import choose_agent, missing_keys
from orchestrator.base.errors import (
    AuthenticationError,
    ConfigError,
    EngineUnavailableError,
    OrchestratorError,
    UnsupportedError,
)
from orchestrator.base.events import Notice
from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.config.settings.project import Project, Service
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.sizing import room
from orchestrator.config.workflow.model import Task, WorkerSettings, Workflow
from orchestrator.engine.images.names import BASE_IMAGE, DEFAULT_IMAGE
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.runs.planning.machine_check import crowding, machine_problems
from orchestrator.runs.planning.preflight import RunRequest, check_run
from orchestrator.runs.planning.problems import Problems
from orchestrator.runs.runner import ParallelRunner
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import fingerprint
from tests.support.runs import configured

GIB = 1024**3


def machine(cpus: int = 8, memory: int = 32 * GIB) -> EngineFeatures:
    return EngineFeatures(overlay=True, runtimes=(), cpus=cpus, memory=memory, version="1")


def config(**rest) -> ParallelConfig:
    return ParallelConfig(**{"tasks": ("t",), "workers": 1, **rest})


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in ArchitectAgent.inherited_env:
        monkeypatch.delenv(name, raising=False)


class TestKeys:
    @pytest.mark.parametrize(
        ("model", "key"),
        [
            (None, "OPENAI_API_KEY"),
            ("gpt-4o", "OPENAI_API_KEY"),
            ("openai/o3", "OPENAI_API_KEY"),
            ("claude-sonnet-4-6", "ANTHROPIC_API_KEY"),
            ("deepseek-chat", "DEEPSEEK_API_KEY"),
            ("gemini/gemini-2.0-flash", "GEMINI_API_KEY"),
            ("ollama/llama3", None),
            ("hosted_vllm/mine", None),
            ("something-new", None),
        ],
    )
    def test_key_variable_of_each_provider(self, model, key):
        agent = ArchitectAgent()
        assert agent.missing_key(model, {"OPENAI_API_KEY": "", "OTHER_API_KEY": "x"}) == key
        assert agent.missing_key(model, {key or "": "x"}) is None

    @pytest.mark.parametrize("name", ["OPENAI_API_BASE", "OPENAI_BASE_URL", "ARCHITECT_API_BASE"])
    def test_custom_server_needs_no_key(self, name):
        assert ArchitectAgent().missing_key("gpt-4o", {name: "http://localhost:1"}) is None

    def test_default_model_comes_from_the_callers_variable(self):
        found = ArchitectAgent().missing_key(None, {"ARCHITECT_MODEL": "claude-sonnet-4-6"})
        assert found == "ANTHROPIC_API_KEY"

    def test_missing_keys_are_listed_once(self):
        models = ("gpt-4o", "claude-sonnet-4-6", "gpt-4o", "deepseek-chat")
        error = missing_keys(
            config(models=models, workers=5), ArchitectAgent(), {"DEEPSEEK_API_KEY": "x"}
        )
        assert error is not None
        assert error.exit_code == 4
        assert error.message == (
            "no API key: `gpt-4o` needs `OPENAI_API_KEY`, `claude-sonnet-4-6` needs "
            "`ANTHROPIC_API_KEY`, the default model needs `OPENAI_API_KEY`"
        )
        assert error.hint is not None
        assert error.hint.startswith("`export OPENAI_API_KEY=...`")

    @pytest.mark.parametrize(
        "given",
        [
            {"api_base": "http://localhost:1"},
            {"image": "mine"},
            {"agent_cli": "shell"},
            {"isolation": Isolation(env={"OPENAI_API_KEY": "x"})},
            {"isolation": Isolation(secrets=("OPENAI_API_KEY",))},
        ],
    )
    def test_some_configurations_need_no_key(self, given):
        chosen = config(**given)
        assert missing_keys(chosen, choose_agent(chosen, None)[0], {}) is None

    def test_run_without_key_creates_nothing(self, repo: Path, tmp_path: Path):
        engine = LocalEngine(tmp_path / "engine", images=(BASE_IMAGE, DEFAULT_IMAGE))
        before = fingerprint(repo)
        with pytest.raises(AuthenticationError, match=r"hint: `export OPENAI_API_KEY"):
            ParallelRunner(config(), repo, engine=engine).run()
        assert fingerprint(repo) == before
        assert not (repo / ".git" / "orchestrator").exists()


class Plain(ShellAgent):
    """A program without profiles that reports nothing."""

    def unsupported(self, settings: AgentSettings) -> str | None:  # type: ignore[override]
        return unsupported_settings(settings, profiles=False, cost=False, steps=False)


class TestRefusal:
    @pytest.mark.parametrize(
        ("asked", "said"),
        [
            ({"agent": "review"}, "`--agent review` (it has no profiles)"),
            ({"budget_per_worker": 1}, "`--budget-per-worker` (it does not report its cost)"),
            ({"max_steps": 9}, "`--max-steps` (it does not report its steps)"),
            (
                {"agent": "plan", "max_steps": 9},
                "`--agent plan` (it has no profiles) and "
                "`--max-steps` (it does not report its steps)",
            ),
        ],
    )
    def test_unsupported_setting_stops_the_run(
        self, asked, said, repo: Path, local_engine: LocalEngine
    ):
        before = fingerprint(repo)
        wishes = configured("true", **asked)
        runner = ParallelRunner(wishes, repo, engine=local_engine, agent=Plain())
        with raises("agent.option-unsupported", "`shell`", said) as caught:
            runner.run()
        assert caught.value.exit_code == 3
        assert caught.value.hint is not None
        assert fingerprint(repo) == before

    def test_defaults_are_supported_by_any_program(self):
        assert Plain().unsupported(AgentSettings.of(config())) is None


class TestMachine:
    @pytest.mark.parametrize(
        ("limits", "what", "hint"),
        [
            (Limits(cpus=9), "`cpus` is 9, which is more than the engine has", "use at most 8"),
            (Limits(memory=33 * GIB), "`memory` is 33 GiB, which is more than the engine has",
             "use at most 32768m"),
        ],
    )  # fmt: skip
    def test_worker_larger_than_the_machine_is_refused(self, limits, what, hint):
        (error,) = machine_problems(config(limits=limits), machine())
        assert (error.message, error.hint) == (what, hint)

    def test_default_and_preset_limits_fit_any_machine(self):
        assert not [*machine_problems(config(), machine(cpus=1, memory=2 * GIB))]
        assert not [*machine_problems(config(preset="trusted"), machine(memory=8 * GIB))]

    def test_default_memory_of_a_detached_or_resumed_run_fits_any_machine(self):
        read = ParallelConfig.model_validate_json(config().model_dump_json())
        assert not [*machine_problems(read, machine(memory=2 * GIB))]

    @pytest.mark.parametrize(
        ("cpus", "memory", "limits", "workers"),
        [(1, GIB, {}, 1), (2, 8 * GIB, {}, 2), (8, 9 * GIB, {}, 4), (8, 64 * GIB, {}, 8),
         (64, 999 * GIB, {}, 10),
         (2, 8 * GIB, {"cpus": 0.5, "memory": GIB}, 4)],
    )  # fmt: skip
    def test_room_of_a_machine(self, cpus, memory, limits, workers):
        assert room(config(limits=Limits(**limits)), cpus=cpus, memory=memory) == workers

    def test_more_workers_than_fit_cause_a_notice(self):
        assert crowding(config(workers=8), machine()) is None
        assert crowding(config(workers=9), machine()) == (
            "9 workers need about 9 CPUs and 18 GiB, the machine has 8 CPUs and 32 GiB RAM: "
            "room for `--workers 8`"
        )
        assert crowding(config(workers=3, limits=Limits(memory=16 * GIB)), machine()) is not None

    def test_services_count_towards_the_room(self):
        project = Project(services={"db": Service(image="a", cpus=2, memory=4 * GIB)})
        assert room(config(project=project), cpus=machine().cpus, memory=machine().memory) == 2
        assert crowding(config(workers=3, project=project), machine()) == (
            "3 workers with their services need about 9 CPUs and 18 GiB, the machine has 8 CPUs "
            "and 32 GiB RAM: room for `--workers 2`"
        )

    @pytest.mark.parametrize("wish", [{"cpus": 9}, {"memory": 33 * GIB}])
    def test_service_larger_than_the_machine_is_refused(self, wish):
        project = Project(services={"db": Service(image="a", **wish)})
        (error,) = machine_problems(config(project=project), machine())
        assert error.message == "the limits of service `db` are more than the engine has"

    def test_single_large_worker_causes_a_notice(self):
        # A default or a preset's value causes only a notice, not an error.
        assert crowding(config(), machine(memory=2 * GIB)) == (
            "a worker may use 4 GiB, but the machine has 2 GiB RAM: reduce it with `--memory`"
        )
        assert crowding(config(limits=Limits(memory=2 * GIB)), machine(memory=2 * GIB)) is None

    def test_run_emits_the_notice_once(self, repo: Path, local_engine: LocalEngine):
        cpus = local_engine.check(images=(), runtime=None).cpus
        told: list[str] = []
        tasks = ("true", "true")
        limits = Limits(cpus=cpus, memory="16m", grace=1)
        ParallelRunner(
            configured(*tasks, limits=limits), repo, engine=local_engine,
            emit=lambda event: told.append(event.message) if isinstance(event, Notice) else None,
        ).run()  # fmt: skip
        assert [line for line in told if "room for `--workers 1`" in line] == told
        assert len(told) == 1


class TestSeveralProblems:
    def test_each_problem_has_a_line_with_its_hint(
        self, repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("TOKEN", raising=False)
        before = fingerprint(repo)
        cpus = local_engine.check(images=(), runtime=None).cpus
        wrong = configured(
            "true",
            base="nowhere",
            agent="review",
            image="missing",
            limits=Limits(cpus=cpus + 1, memory=10**15),
            isolation=Isolation(network="none", allow=("10.9.8.7",), secrets=("TOKEN",)),
        )
        with pytest.raises(ConfigError) as caught:
            ParallelRunner(wrong, repo, engine=local_engine, agent=Plain()).run()
        first, *lines = caught.value.message.split("\n")
        assert first == "7 problems prevent the run:"
        expected = (
            "`--allow` names a host, but no worker has a network", "`nowhere`",
            "`shell` does not support `--agent review`", "`missing`",
            f"`cpus` is {cpus + 1}, which is more than the engine has", "`memory` is ", "`TOKEN`",
        )  # fmt: skip
        for line, part in zip(lines, expected, strict=True):
            assert part in line
            assert line.startswith("  ")
            assert "(hint: " in line or part == "`missing`"
        assert caught.value.exit_code == 3
        assert fingerprint(repo) == before

    def test_dry_run_lists_problems_found_without_engine(self, repo: Path) -> None:
        wrong = configured("true", base="nowhere", agent="review")
        with pytest.raises(ConfigError, match=r"2 problems prevent the run:\n  .*nowhere"):
            ParallelRunner(wrong, repo, agent=Plain()).plan()

    def test_problem_of_several_tasks_is_listed_once(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        settings = (WorkerSettings(), WorkerSettings(timeout=5), WorkerSettings(agent="review"))
        tasks = tuple(
            Task(id=f"t{number}", task="true", settings=own)
            for number, own in enumerate(settings, start=1)
        )
        runner = ParallelRunner(
            configured("-", base="nowhere"), repo, engine=local_engine, agent=Plain(),
            workflow=Workflow(name="flow", tasks=tasks),
        )  # fmt: skip
        with pytest.raises(ConfigError) as caught:
            runner.run()
        first, base, agent = caught.value.message.split("\n")
        assert first == "2 problems prevent the run:"
        assert base.startswith("  task `t1`: ")
        assert "`nowhere`" in base
        assert agent.startswith("  task `t3`: `shell` does not support `--agent review`")

    def test_missing_runtime_causes_no_further_problems(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        wrong = configured(
            "true", agent="review", isolation=Isolation(runtime="nosuch", network="open")
        )
        with pytest.raises(ConfigError) as caught:
            check_run(RunRequest(config=wrong, root=repo, agent=Plain()), local_engine)
        assert "2 problems prevent the run" in caught.value.message
        assert "the local engine has no runtime `nosuch`" in caught.value.message
        assert "is not supported with a network" not in caught.value.message

    @pytest.mark.parametrize(
        ("errors", "code"),
        [
            (
                (
                    ConfigError("a", key="option.invalid"),
                    UnsupportedError("b", key="runtime.unknown"),
                ),
                3,
            ),
            (
                (
                    ConfigError("a", key="option.invalid"),
                    AuthenticationError("b", key="api-key.missing"),
                ),
                4,
            ),
            (
                (
                    EngineUnavailableError("a", key="engine.unreachable"),
                    AuthenticationError("b", key="api-key.missing"),
                    ConfigError("c", key="option.invalid"),
                ),
                7,
            ),
        ],
    )
    def test_exit_code_is_that_of_the_most_severe_problem(self, errors, code):
        problems = Problems()
        for error in errors:
            problems.add(error)
        with pytest.raises(OrchestratorError) as caught:
            problems.raise_all()
        assert caught.value.exit_code == code

    def test_single_problem_is_raised_unchanged(self):
        problems, error = Problems(), UnsupportedError("a", key="runtime.unknown", hint="b")
        problems.add(error)
        problems.add(UnsupportedError("a", key="runtime.unknown", hint="b"))
        with pytest.raises(UnsupportedError) as caught:
            problems.raise_all()
        assert caught.value is error

    def test_list_of_problems_is_bounded(self):
        problems = Problems()
        for number in range(60):
            problems.add(ConfigError(f"problem {number}", key="option.invalid"))
        with pytest.raises(ConfigError, match=r"(?s)60 problems .*\n  problem 49\n  and 10 more$"):
            problems.raise_all()


def test_missing_runtime_is_reported(repo: Path, local_engine: LocalEngine) -> None:
    config = configured("true", isolation=Isolation(runtime="nosuch", network="open"))
    with pytest.raises(UnsupportedError, match="the local engine has no runtime `nosuch`"):
        check_run(RunRequest(config=config, root=repo), local_engine)


@pytest.mark.parametrize(
    "isolation",
    [
        Isolation(network="allowlist", allow=("a.example",)),
        Isolation(network="none", ports={"PORT": 3000}),
    ],
    ids=["allow-list", "ports"],
)
def test_engine_without_gateways_is_refused(
    repo: Path, local_engine: LocalEngine, isolation: Isolation
) -> None:
    request = RunRequest(config=config(agent_cli="shell", isolation=isolation), root=repo)
    with raises("gateway.unsupported"):
        check_run(request, local_engine)


@pytest.mark.parametrize(
    "isolation",
    [Isolation(network="open"), Isolation(network="none", check_network="open")],
    ids=["task", "checks"],
)
def test_open_network_of_a_rootless_engine_is_refused(
    repo: Path, local_engine: LocalEngine, isolation: Isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = replace(local_engine.check(images=(), runtime=None), open_network=False)
    monkeypatch.setattr(local_engine, "check", lambda **_: features)
    project = Project(checks=("true",))
    wishes = config(agent_cli="shell", isolation=isolation, project=project)
    with raises("network.rootless"):
        check_run(RunRequest(config=wishes, root=repo), local_engine)


@pytest.mark.parametrize(
    ("isolation", "services", "key"),
    [
        (Isolation(network="open"), {}, "runtime.no-filter"),
        (Isolation(network="none", check_network="open"), {}, "runtime.no-filter"),
        (
            Isolation(network="none"),
            {"web": Service(image=BASE_IMAGE, command=("true",))},
            "runtime.services",
        ),
        (Isolation(network="none"), {}, None),
    ],
    ids=["task", "checks", "services", "none"],
)
def test_default_runtime_with_its_own_kernel_is_refused_where_a_named_one_is(
    repo: Path, local_engine: LocalEngine, isolation: Isolation, services: dict[str, Service],
    key: str | None, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    features = replace(local_engine.check(images=(), runtime=None), default_runtime="runsc")
    monkeypatch.setattr(local_engine, "check", lambda **_: features)
    project = Project(checks=("true",), services=services)
    wishes = config(agent_cli="shell", isolation=isolation, project=project)
    with raises(key) if key else nullcontext():
        check_run(RunRequest(config=wishes, root=repo), local_engine)
