"""Tests of `--after`, which continues from the results of an earlier run."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.results import RunResult
from orchestrator.config.settings.project import Check
from orchestrator.config.workflow.contents import digests, matches, with_digests
from orchestrator.config.workflow.model import Workflow
from orchestrator.config.workflow.parsing.foreach import Source
from orchestrator.config.workflow.parsing.reader import Reading, read_workflow
from orchestrator.faces.cli.previous_run import earlier_run, with_earlier_base, without_done
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import RunDirectory
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import configured, show

EACH = """
tasks:
  - {id: each, task: "echo {{item}} > {{item}}.txt", foreach: %s}
  - {id: sum, task: "cat *.txt > sum", depends_on: [each]}
"""
FLOW = """
tasks:
  - {id: one, task: "echo %s > one.txt"}
  - {id: two, task: "%s"}
  - {id: leaf, task: "true", depends_on: [one]}
  - {id: both, task: "cat one.txt > both.txt; %s", depends_on: [one, two]}
"""


class World:
    def __init__(self, repo: Path, engine: LocalEngine) -> None:
        self.repo = repo
        self.engine = engine

    def read(self, text: str) -> Reading:
        path = self.repo.parent / "flow.yaml"
        path.write_text(text)
        reading = read_workflow(path, expand=self.items)
        return Reading(workflow=with_digests(reading.workflow))

    def items(self, source: Source) -> None:
        raise AssertionError(source)

    def after(self, result: RunResult, text: str, *again: str, **given: Any) -> Reading:
        config = configured("-", workers=2, **given)
        return without_done(self.read(text), earlier_run(result.run_id), again, config)

    def run(self, workflow: Workflow) -> RunResult:
        config = configured("-", workers=2)
        return ParallelRunner(config, self.repo, engine=self.engine, workflow=workflow).execute()

    def go_on(self, result: RunResult, text: str) -> dict[str, str]:
        return self.done(self.run(self.after(result, text).workflow))

    def done(self, result: RunResult) -> dict[str, str]:
        return {str(one.name): one.status.value for one in result.results}


@pytest.fixture
def world(repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(repo)
    return World(repo, local_engine)


def names(reading: Reading) -> list[str]:
    return [task.id for task in reading.workflow.tasks]


def test_only_new_items_and_their_dependents_run(world: World) -> None:
    first = world.run(world.read(EACH % "[a, b, c]").workflow)
    reading = world.after(first, EACH % "[a, x, b, c]")
    assert names(reading) == ["each-2", "sum"]
    assert reading.notices == (
        "tasks that run again, because they or their dependencies changed since run "
        f"{first.run_id}: `sum`",
    )
    second = world.run(reading.workflow)
    assert show(world.repo, f"{second.results[1].branch}:sum") == "a\nb\nc\nx"
    # With one item less, only the task that depends on the items runs again.
    assert names(world.after(first, EACH % "[c, a]")) == ["sum"]
    with raises("workflow.done") as caught:
        world.after(first, EACH % "[a, b, c]")
    assert git(world.repo, "rev-parse", "HEAD")[:12] in (caught.value.hint or "")


def test_changed_tasks_run_again_with_a_notice(world: World) -> None:
    first = world.run(world.read(FLOW % ("1", "exit 1", "true")).workflow)
    mended = world.after(first, FLOW % ("1", "true", "true"))
    assert (names(mended), mended.notices) == (["two", "both"], ())
    changed = world.after(first, FLOW % ("2", "true", "true"))
    assert names(changed) == ["one", "two", "leaf", "both"]
    assert changed.notices == (
        "tasks that run again, because they or their dependencies changed since run "
        f"{first.run_id}: `one`, `leaf`",
    )


@pytest.mark.parametrize(
    "given", [{"model": "other"}, {"checks": (Check(run="make test"),)}, {"setup": ("make",)}]
)
def test_tasks_that_inherit_another_setting_run_again_with_a_notice(
    world: World, given: dict[str, Any]
) -> None:
    first = world.run(world.read(FLOW % ("1", "exit 1", "true")).workflow)
    changed = world.after(first, FLOW % ("1", "true", "true"), **given)
    assert names(changed) == ["one", "two", "leaf", "both"]
    (notice,) = changed.notices
    assert notice.endswith("`one`, `leaf`")


def test_limits_are_no_other_work(world: World) -> None:
    first = world.run(world.read(FLOW % ("1", "exit 1", "true")).workflow)
    longer = world.after(first, FLOW % ("1", "true", "true"), timeout_per_worker=9000)
    assert (names(longer), longer.notices) == (["two", "both"], ())


def test_results_are_reused_across_several_runs(world: World) -> None:
    first = world.run(world.read(FLOW % ("1", "exit 1", "exit 1")).workflow)
    reading = world.after(first, FLOW % ("1", "true", "exit 1"))
    second = world.run(reading.workflow)
    assert world.done(second) == {"two": "success", "both": "failed"}
    third = world.after(second, FLOW % ("1", "true", "true"))
    assert names(third) == ["both"]
    # The state of the first run was removed.
    shutil.rmtree(world.repo / ".git" / "orchestrator" / "runs" / first.run_id)
    with raises("result.missing", "`one`") as caught:
        world.after(second, FLOW % ("1", "true", "true"))
    assert caught.value.hint == "use `--from one` to run the task again"
    assert names(world.after(second, FLOW % ("1", "true", "true"), "one")) == [
        "one", "leaf", "both",
    ]  # fmt: skip


def test_purged_run_is_refused(world: World) -> None:
    first = world.run(world.read(FLOW % ("1", "exit 1", "true")).workflow)
    cleanup(world.repo, engine=world.engine, run_id=first.run_id, purge=True)
    git(world.repo, "reflog", "expire", "--expire=now", "--all")
    git(world.repo, "gc", "-q", "--prune=now")
    with raises("result.missing", "`one`"):
        world.after(first, FLOW % ("1", "true", "true"))


def test_live_run_is_refused(world: World) -> None:
    result = world.run(world.read(FLOW % ("1", "exit 1", "true")).workflow)
    directory = RunDirectory(world.repo / ".git" / "orchestrator" / "runs" / result.run_id)
    assert directory.take_over()
    try:
        with raises("run.live"):
            earlier_run(result.run_id)
    finally:
        directory.release()
    assert earlier_run(result.run_id).run_id == result.run_id


def test_unneeded_task_is_not_treated_as_completed(world: World) -> None:
    text = """
tasks:
  - {id: build, task: "echo 1 > built.txt"}
  - {id: fix, task: "true", depends_on: [build], when: on_failure}
  - {id: deploy, task: "%s", depends_on: [fix]}
"""
    first = world.run(world.read(text % "exit 1").workflow)
    assert world.done(first) == {"build": "success", "fix": "success", "deploy": "failed"}
    reading = world.after(first, text % "cat built.txt")
    assert world.done(world.run(reading.workflow)) == {"fix": "success", "deploy": "success"}


def test_equal_tasks_are_matched_by_id_and_count() -> None:
    tasks = [{"id": name, "task": "same"} for name in ("a", "b", "c")]
    flow = Workflow.model_validate({"name": "w", "tasks": tasks})
    (digest,) = {*digests(flow).values()}
    assert matches(flow, {"b": digest, "z": digest}) == {"b": "b", "a": "z"}


def test_base_is_that_of_the_earlier_run_unless_given(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    result = world.run(world.read(EACH % "[a]").workflow)
    earlier, config = earlier_run(result.run_id), configured("-")

    assert with_earlier_base(config, earlier, base_given=False).base == earlier.base
    assert capsys.readouterr().err == ""

    git(world.repo, "commit", "-q", "--allow-empty", "-m", "later")
    head = git(world.repo, "rev-parse", "HEAD")
    assert with_earlier_base(config, earlier, base_given=False).base == earlier.base
    said = capsys.readouterr().err
    assert head[:12] in said
    assert "--base HEAD" in said
    assert with_earlier_base(config, earlier, base_given=True) == config
    assert capsys.readouterr().err == ""
