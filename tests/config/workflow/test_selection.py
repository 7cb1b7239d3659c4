"""Tests of selected parts of a workflow, and of warnings."""

from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.config.workflow.model import Earlier, Workflow
from orchestrator.config.workflow.parsing.reader import read_workflow
from orchestrator.config.workflow.selection import missing, only, starting_at
from tests.support.errors import raises

TEXT = """\
name: Release
policy: {constraints: {maxLatency: 9000, privacy: private}}
tasks:
  - {id: design}
  - {id: map, task: "{{item}}", foreach: [x, y], depends_on: design}
  - {id: sum, task: "{{results}}", reduce: map, depends_on: design}
  - {id: tidy, depends_on: sum, when: on_failure}
  - {id: docs, depends_on: design}
"""


@pytest.fixture
def workflow(tmp_path: Path) -> Workflow:
    path = tmp_path / "flow.yaml"
    path.write_text(TEXT)
    return read_workflow(path).workflow


class TestOnly:
    def test_only_selects_the_named_tasks(self, workflow: Workflow) -> None:
        part, notices = only(workflow, ["sum", "map-2"])

        assert [task.id for task in part.tasks] == ["map-2", "sum"]
        assert part["sum"].depends_on == part["sum"].inputs == ("map-2",)
        assert (part.name, part.max_latency, part.network) == ("Release", 9, "none")
        assert notices == (
            "`map-2` starts without its dependencies: `design`",
            "`sum` starts without its dependencies: `design`, `map-1`",
        )

    def test_reducing_task_needs_a_selected_input(self, workflow: Workflow) -> None:
        with raises("task.unselected", "`sum`", "`map-1`, `map-2`"):
            only(workflow, ["sum", "design"])
        earlier = {
            name: Earlier(task=name, run_id="r", worker_id=1)
            for name in ("design", "map-1", "map-2")
        }
        part = only(missing(workflow, earlier), ["sum"]).workflow
        assert part["sum"].inputs == ("map-1", "map-2")
        assert part["sum"].results_at == (0,)

    def test_foreach_selects_all_its_batches(self, workflow: Workflow) -> None:
        assert [task.id for task in only(workflow, ["map"]).workflow.tasks] == ["map-1", "map-2"]

    def test_selected_failure_handler_runs_unconditionally(self, workflow: Workflow) -> None:
        (tidy,) = only(workflow, ["tidy"]).workflow.tasks
        assert (tidy.when, tidy.depends_on) == ("on_success", ())
        assert only(workflow, ["tidy", "sum", "map"]).workflow["tidy"].when == "on_failure"

    def test_unknown_names_are_refused(self, workflow: Workflow) -> None:
        with pytest.raises(ConfigError) as caught:
            only(workflow, ["mpa", "docs", "q"])
        assert caught.value.message == (
            "there is no task `mpa`, did you mean `map`?; there is no task `q`"
        )
        assert caught.value.hint == (
            "the workflow's tasks are `design`, `map-1`, `map-2`, `sum`, `tidy`, `docs`, `map`"
        )


class TestStartingAt:
    def test_from_selects_tasks_and_their_dependents(self, workflow: Workflow) -> None:
        part, notices = starting_at(workflow, ["map-2"])
        assert [task.id for task in part.tasks] == ["map-2", "sum", "tidy"]
        assert part["tidy"].when == "on_failure"
        assert len(notices) == 2

    def test_from_the_first_task_selects_all(self, workflow: Workflow) -> None:
        assert starting_at(workflow, ["design"]) == (workflow, ())


def warnings(tmp_path: Path, text: str) -> tuple[str, ...]:
    path = tmp_path / "flow.yaml"
    path.write_text(text)
    return read_workflow(path).warnings


class TestWarnings:
    @pytest.mark.parametrize(
        ("one", "other", "shared"),
        [
            ("src", "src/", "src"),
            ("src", "src/api/*.py", "src/api/*.py"),
            ("src/*.py", "src/a.py", "src/a.py"),
            ("src/api", "src/app", None),
            ("src", "srcs/x", None),
            (".", "x", "x"),
            ("./src", "src", "src"),
            ("/src/", "src/app", "src/app"),
            ("src/*.py", "src/a*", "src/*.py"),
            ("src/**/*.py", "docs/*", None),
        ],
    )
    def test_common_files_cause_a_warning(
        self, tmp_path: Path, one: str, other: str, shared: str | None
    ) -> None:
        for first, second in ((one, other), (other, one)):
            both = f"{{id: a, paths: '{first}'}}, {{id: b, paths: [x, '{second}']}}"
            text = f"tasks: [{both}, {{id: c}}]"
            expected = (
                f"`a` and `b` may run at the same time and both change `{shared}`: let one "
                f"depend on "
                "the other, or give both a common lock (`resources`)",
            )
            assert warnings(tmp_path, text) == (expected if shared else ())

    def test_touches_count_for_warnings(self, tmp_path: Path) -> None:
        text = "tasks: [{id: a, touches: ./src}, {id: b, paths: src/app}, {id: c, touches: docs}]"
        assert [line.partition(":")[0] for line in warnings(tmp_path, text)] == [
            "`a` and `b` may run at the same time and both change `src/app`"
        ]

    def test_pattern_that_matches_nothing_causes_a_warning(self, tmp_path: Path) -> None:
        text = "tasks: [{id: a, paths: ../src}, {id: b, touches: ['!src', 'app/[id]']}]"
        assert warnings(tmp_path, text) == (
            "`../src` in `paths` of `a` matches nothing: `..` leads out of the repository",
            "`!src` in `touches` of `b` matches nothing: `!` is not supported: list the paths "
            "to include",
        )
        (only,) = warnings(tmp_path, "tasks: [{id: a, paths: ../src}, {id: b, paths: .}]")
        assert "matches nothing" in only

    @pytest.mark.parametrize(
        "apart",
        [
            "depends_on: m",
            "parallel: false",
            "resources: lock",
            "complexity: high",
        ],
    )
    def test_exclusive_tasks_cause_no_warning(self, tmp_path: Path, apart: str) -> None:
        text = (
            "tasks: [{id: a, paths: src, resources: lock, complexity: low}, "
            f"{{id: m, depends_on: a, resources: lock}}, {{id: b, paths: src, {apart}}}]"
        )
        assert warnings(tmp_path, text) == ()

    def test_batches_cause_no_warning_about_each_other(self, tmp_path: Path) -> None:
        text = (
            "tasks: [{id: m, task: '{{item}}', paths: src, foreach: [a, b]}, {id: x, paths: src}]"
        )
        assert [line.partition(":")[0] for line in warnings(tmp_path, text)] == [
            "`m` and `x` may run at the same time and both change `src`"
        ]

    def test_unshared_lock_causes_a_warning(self, tmp_path: Path) -> None:
        text = "tasks: [{id: a, resources: [db, web]}, {id: b, resources: [bd, web]}]"
        assert warnings(tmp_path, text) == (
            "the lock `db` is used only by `a`, so it has no effect",
            "the lock `bd` is used only by `b`, so it has no effect",
        )

    def test_timeout_over_max_latency_causes_a_warning(self, tmp_path: Path) -> None:
        text = (
            "policy: {constraints: {maxLatency: 5000}}\n"
            "tasks: [{id: a, timeout: 5}, {id: b, timeout: 5.5}, {id: c, timeout: 0}, {id: d}]"
        )
        assert warnings(tmp_path, text) == tuple(
            f"`{name}` may take longer (`timeout`) than the 5 seconds of "
            "`policy.constraints.maxLatency`"
            for name in "bc"
        )

    def test_number_of_warnings_is_bounded(self, tmp_path: Path) -> None:
        tasks = ", ".join(f"{{id: t{number}, paths: src}}" for number in range(9))
        found = warnings(tmp_path, f"tasks: [{tasks}]")
        assert len(found) == 21
        assert found[-1] == "and 16 more warnings"
