"""Tests of workflows from plan to results, with real git and processes as containers."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.agents.base import AgentCommand, AgentSettings
from orchestrator.agents.programs.shell import ShellAgent
from orchestrator.base.errors import ConfigError
from orchestrator.base.events import Event, Notice, WorkerDone, WorkerWaiting
from orchestrator.base.results import Reason, Status, WorkerResult, exit_code
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.config.settings.project import Project, Service
from orchestrator.config.settings.run import Triggers
from orchestrator.config.workflow.model import Workflow
from orchestrator.config.workflow.planning import run_config
from orchestrator.repository.commits import changes as listing
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import read_record
from tests.support.local_engine import LocalEngine
from tests.support.runs import branches, configured, shell_run, show
from tests.support.workflow_runs import by_name, result_of, run_workflow, task


def test_private_workflow_has_no_network() -> None:
    opened = Isolation(network="open", setup_network="open", check_network="open")
    config = configured("any", setup=("true",), checks=("true",), isolation=opened)
    tasks = (task("a", "true"),)
    assert run_config(config, Workflow(name="w", tasks=tasks)).networks == {"open"}
    private = run_config(config, Workflow(name="w", tasks=tasks, network="none"))
    assert private.networks == {"none"}
    assert private.setup_network == private.teardown_network == "none"


def span(one: WorkerResult) -> tuple[datetime, datetime]:
    assert one.started_at is not None
    return one.started_at, one.started_at + timedelta(seconds=one.duration)


def meets(place: Path, name: str, *others: str) -> str:
    """Return a command that ends when the other commands with this place run or have run."""
    there = " && ".join(f"[ -e {place}-{other} ]" for other in others)
    return f"touch {place}-{name}; until {there}; do sleep 0.02; done"


def test_task_starts_after_all_its_dependencies(
    repo: Path, local_engine: LocalEngine, tmp_path: Path
) -> None:
    place = tmp_path / "ran"
    done = run_workflow(
        repo, local_engine,
        task("design", "true"),
        task("backend", meets(place, "backend", "frontend"), "design"),
        task("frontend", meets(place, "frontend", "backend"), "design"),
        task("tests", "true", "backend", "frontend"),
    )  # fmt: skip
    assert {one.status for one in done.values()} == {Status.SUCCESS}
    assert [one.worker_id for one in done.values()] == [1, 2, 3, 4]
    (backend, backend_end), (frontend, frontend_end) = span(done["backend"]), span(done["frontend"])
    assert span(done["design"])[1] < min(backend, frontend)
    assert max(backend_end, frontend_end) < span(done["tests"])[0]


def test_free_slot_is_used_at_once(repo: Path, local_engine: LocalEngine, tmp_path: Path) -> None:
    place = tmp_path / "ended"
    place.mkdir()
    # The long task waits for five others, which must use the other slots one after another.
    wait = f"until [ $(ls {place} | wc -l) = 5 ]; do sleep 0.05; done"
    others = (task(f"t{number}", f"touch {place}/{number}") for number in range(5))
    done = run_workflow(repo, local_engine, task("long", wait), *others)
    assert {one.status for one in done.values()} == {Status.SUCCESS}


def test_exclusive_tasks_and_tasks_with_a_common_lock_do_not_overlap(
    repo: Path, local_engine: LocalEngine, tmp_path: Path
) -> None:
    place = tmp_path / "ran"
    done = run_workflow(
        repo, local_engine,
        task("alone", "sleep 0.2", parallel=False),
        task("a", meets(place, "a", "c"), resources=["db"]),
        task("b", "true", resources=["db"]),
        task("c", meets(place, "c", "a")),
    )  # fmt: skip
    assert {one.status for one in done.values()} == {Status.SUCCESS}
    spans = {name: span(one) for name, one in done.items()}
    assert all(spans["alone"][1] < spans[name][0] for name in "abc")
    assert spans["a"][1] < spans["b"][0]


def test_failure_skips_only_dependents(repo: Path, local_engine: LocalEngine) -> None:
    result = result_of(
        repo, local_engine,
        task("bad", "exit 3"),
        task("after", "true", "bad"),
        task("later", "true", "after"),
        task("tidy", "true", "bad", when="always"),
        task("mend", "true", "bad", when="on_failure"),
        task("other", "true"),
    )  # fmt: skip
    done = by_name(result)
    assert (done["bad"].status, done["bad"].reason) == (Status.FAILED, Reason.AGENT_FAILED)
    assert (done["after"].reason, done["after"].message) == (
        Reason.DEPENDENCY, "task `bad` failed",
    )  # fmt: skip
    assert done["later"].message == "task `after` skipped"
    assert all(done[name].status is Status.SUCCESS for name in ("tidy", "mend", "other"))
    assert exit_code(result.results) == 1
    assert "architect/parallel-2" not in branches(repo)


def test_critical_failure_stops_further_starts(
    repo: Path, local_engine: LocalEngine, tmp_path: Path
) -> None:
    failed = tmp_path / "failed"

    def note(event: Event) -> None:
        if isinstance(event, WorkerDone) and event.result.name == "bad":
            failed.touch()

    done = run_workflow(
        repo, local_engine,
        task("bad", "exit 1", critical=True),
        task("long", f"until [ -e {failed} ]; do sleep 0.05; done; sleep 0.5"),
        task("next", "true"),
        workers=2, emit=note,
    )  # fmt: skip
    assert done["long"].status is Status.SUCCESS
    assert done["next"].message == "critical task `bad` failed"


def test_failure_of_an_optional_task_does_not_fail_the_run(
    repo: Path, local_engine: LocalEngine
) -> None:
    result = result_of(
        repo, local_engine, task("lint", "exit 1", critical=False), task("a", "true")
    )
    assert (result.status, exit_code(result.results)) == (Status.SUCCESS, 0)
    assert [one.status.value for one in result.results] == ["failed", "success"]


def test_skipped_required_task_fails_the_run(repo: Path, local_engine: LocalEngine) -> None:
    result = result_of(
        repo, local_engine,
        task("lint", "exit 1", critical=False),
        task("deploy", "true", "lint"),
        task("other", "true"),
    )  # fmt: skip
    assert [one.status.value for one in result.results] == ["failed", "failed", "success"]
    assert (result.status, exit_code(result.results)) == (Status.FAILED, 1)


def test_each_task_has_its_own_settings(repo: Path, local_engine: LocalEngine) -> None:
    done = run_workflow(
        repo, local_engine,
        task("late", "sleep 30", settings={"timeout": 0.3}),
        task("again", "exit 1", settings={"retries": 2, "retry_delay": 0}),
        task("model", "true", settings={"model": "big"}),
        model="small",
    )  # fmt: skip
    assert done["late"].status is Status.TIMEOUT
    assert done["again"].attempts == 3
    assert (done["model"].model, done["late"].model) == ("big", "small")


def test_auto_starts_workers_within_the_machines_capacity(
    repo: Path, local_engine: LocalEngine, tmp_path: Path
) -> None:
    cpus, place = local_engine.check(images=(), runtime=None).cpus, tmp_path / "ran"
    told: list[Event] = []
    config = configured("-", workers=1, auto_workers=True)
    together = (meets(place, "a", "b"), meets(place, "b", "a"))
    for each, commands in ((0.2, together), (cpus, ("sleep 0.3",) * 2)):
        settings = {"limits": {"cpus": each, "memory": "64m"}}
        both = zip("ab", commands, strict=True)
        tasks = tuple(task(name, command, settings=settings) for name, command in both)
        flow = Workflow(name="flow", tasks=tasks)
        runner = ParallelRunner(config, repo, engine=local_engine, workflow=flow, emit=told.append)
        results = runner.run()
        assert [one.status for one in results] == [Status.SUCCESS] * 2
    first, second = map(span, results)
    assert first[1] <= second[0]
    said = [event.message for event in told if isinstance(event, Notice)]
    assert any(line.startswith("`--workers auto`: a worker needs about 0.2 CPUs") for line in said)
    assert [(one.worker_id, one.cause, one.reason) for one in told
            if isinstance(one, WorkerWaiting)] == [
        (results[1].worker_id, "machine", "the running workers and this worker need about "
         f"{2 * cpus} CPUs, but the machine has {cpus}")
    ]  # fmt: skip


def test_capacity_is_respected_without_a_workflow(repo: Path, local_engine: LocalEngine) -> None:
    cpus = local_engine.check(images=(), runtime=None).cpus
    config = configured(
        "sleep 0.3", "sleep 0.3", auto_workers=True, limits=Limits(cpus=cpus, memory=64 * 1024**2)
    )
    first, second = (span(one) for one in ParallelRunner(config, repo, engine=local_engine).run())
    assert first[1] <= second[0]


class Repeats(ShellAgent):
    """An agent that prints its prompt."""

    name = "repeats"

    def command(self, spec: WorkerSpec, settings: AgentSettings) -> AgentCommand:  # noqa: ARG002
        return AgentCommand(argv=("echo", spec.prompt))


def test_prompt_contains_results_and_the_record_the_original_task(
    repo: Path, local_engine: LocalEngine
) -> None:
    reduce = task("reduce", "All of: {{results}}", "one", inputs=["one"], results_at=(0,))
    flow = Workflow(name="flow", tasks=(task("one", "first words"), reduce))
    runner = ParallelRunner(
        configured("-", workers=1, agent_cli="claude"),
        repo,
        engine=local_engine,
        workflow=flow,
        agent=Repeats(),
    )
    done = by_name(runner.execute())
    assert "first words" in str(done["reduce"].summary)
    assert "{{results}}" not in str(done["reduce"].summary)
    assert done["reduce"].task == "All of: {{results}}"
    record = read_record(RunDirectory(next((repo / ".git/orchestrator/runs").glob("*/"))))
    assert record is not None
    assert [spec.prompt for spec in record.workers] == [spec.task for spec in record.workers]


def test_contradictions_are_refused_before_anything_is_created(
    repo: Path, local_engine: LocalEngine
) -> None:
    own = task("own", "true", settings={"ports": {"PORT": 3000}})
    services = {"db": Service(image="i", port=3000)}
    config = configured("-", project=Project(services=services))
    runner = ParallelRunner(
        config, repo, engine=local_engine, workflow=Workflow(name="w", tasks=(own,))
    )
    with pytest.raises(ConfigError, match=r"task `own`: port 3000 is already used by service"):
        runner.execute()
    assert branches(repo) == []


def test_changes_outside_of_the_paths_make_a_task_partial(
    repo: Path, local_engine: LocalEngine
) -> None:
    done = run_workflow(
        repo, local_engine,
        task("inside", "echo >> src/app.py", settings={"paths": ["src"]}),
        task("strays", "echo >> src/app.py; echo >> a.txt", settings={"paths": ["src/"]}),
        task("after", "true", "strays"),
    )  # fmt: skip
    assert done["inside"].status is Status.SUCCESS
    strays = done["strays"]
    assert (strays.status, strays.reason) == (Status.PARTIAL, Reason.OUT_OF_SCOPE)
    assert strays.message == "the worker changed `a.txt`, which is not in `src/`"
    assert done["after"].reason is Reason.DEPENDENCY


def test_allowed_paths_work_with_and_without_a_workflow(
    repo: Path, local_engine: LocalEngine
) -> None:
    change = "mkdir -p 'app/[id]'; echo > 'app/[id]/x'; echo > src/new.py"
    places = ["./src", "app/[id]"]
    (inside,) = run_workflow(
        repo, local_engine, task("inside", change, settings={"paths": places})
    ).values()
    assert inside.status is Status.SUCCESS
    strayed = shell_run(repo, local_engine, change, triggers=Triggers(paths=("src/**/*.py",)))
    (result,) = strayed.results
    assert (result.status, result.reason) == (Status.PARTIAL, Reason.OUT_OF_SCOPE)
    assert result.message == "the worker changed `app/[id]/x`, which is not in `src/**/*.py`"


def test_allowed_paths_apply_to_unlisted_changes(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MOST_FILES", 1)
    done = run_workflow(
        repo, local_engine,
        task("strays", "echo > src/a; echo > z.txt", settings={"paths": ["src"]}),
    )  # fmt: skip
    result = done["strays"]
    assert (result.files_modified, result.files_total) == (["src/a"], 2)
    assert (result.status, result.reason) == (Status.PARTIAL, Reason.OUT_OF_SCOPE)
    assert result.message == (
        "the worker changed `z.txt`, which is not in `src`; 2 files changed, of which 1 are listed"
    )


@pytest.mark.parametrize(("max_latency", "notices"), [(0.1, 1), (1000, 0)])
def test_task_longer_than_max_latency_causes_a_notice(
    repo: Path, local_engine: LocalEngine, max_latency: float, notices: int
) -> None:
    told: list[Event] = []
    flow = Workflow(name="w", tasks=(task("slow", "sleep 0.2"),), max_latency=max_latency)
    ParallelRunner(
        configured("-"), repo, engine=local_engine, workflow=flow, emit=told.append
    ).execute()
    said = [event.message for event in told if isinstance(event, Notice)]
    lines = [line for line in said if line.startswith("task `slow` took")]
    assert len(lines) == notices
    assert all(line.endswith("`maxLatency` is 0.1 s") for line in lines)


def test_task_with_another_agent_program_gets_its_settings(
    repo: Path, local_engine: LocalEngine
) -> None:
    tasks = (
        task("ours", "echo $WHO > who"),
        task("theirs", "echo $WHO > who", settings={"agent_cli": "shell"}),
    )
    config = configured("-", agent_cli="shell", model="one")
    for_theirs = config.model_copy(
        update={
            "model": "two",
            "timeout_per_worker": 0.0,
            "isolation": config.isolation.model_copy(update={"env": {"WHO": "theirs"}}),
            "base": "no-such-branch",
        }
    )
    flow = Workflow(name="w", tasks=tasks)
    result = ParallelRunner(
        config, repo, engine=local_engine, workflow=flow, programs={"shell": for_theirs}
    ).execute()
    done = by_name(result)
    assert [done[name].model for name in ("ours", "theirs")] == ["one", "two"]
    assert [show(repo, f"{done[name].branch}:who") for name in done] == ["", "theirs"]
