"""Tests of all supported dialects, with example files of other tools."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.config.loading.loading import load_config
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Task, Workflow
from orchestrator.config.workflow.parsing.reader import read_workflow
from orchestrator.config.workflow.planning import config_of

EXAMPLES = Path(__file__).parents[3] / "data" / "workflows"
Edges = Mapping[str, tuple[str, ...]]


def read(tmp_path: Path, text: str, name: str = "flow.yaml", **given: object) -> Workflow:
    path = tmp_path / name
    path.write_text(text)
    return read_workflow(path, **given).workflow  # type: ignore[arg-type]


def edges(workflow: Workflow) -> Edges:
    return {task.id: task.depends_on for task in workflow.tasks}


def example(name: str) -> Workflow:
    return read_workflow(EXAMPLES / name).workflow


class TestExamples:
    def test_the_task_manifest(self) -> None:
        workflow = example("task-manifest.yaml")

        assert workflow.name == "task-manifest"
        assert edges(workflow) == {
            "setup-db": (),
            "backend": ("setup-db",),
            "frontend": ("setup-db",),
            "integration-tests": ("backend", "frontend"),
        }
        alone = [task.id for task in workflow.tasks if not task.parallel]
        assert alone == ["setup-db", "integration-tests"]
        assert workflow["backend"].task == "backend", "a task without text gets its id as prompt"

    def test_a_workflow_with_names_and_dependencies(self) -> None:
        workflow = example("workflow.ax.yaml")

        assert workflow.name == "Feature Development Workflow"
        assert edges(workflow) == {
            "design": (),
            "backend": ("design",),
            "frontend": ("design",),
            "tests": ("backend", "frontend"),
        }
        assert [task.settings.agent for task in workflow.tasks] == [
            "product", "backend", "frontend", "quality",
        ]  # fmt: skip

    def test_a_chain_with_a_policy(self) -> None:
        workflow = example("auth-workflow.ax.yaml")

        assert edges(workflow) == {
            "design": (),
            "backend-api": ("design",),
            "frontend-ui": ("design",),
            "database-schema": ("design",),
            "security-audit": ("backend-api", "frontend-ui", "database-schema"),
            "integration-tests": ("security-audit",),
            "deploy": ("integration-tests",),
        }
        assert (workflow.max_latency, workflow.network) == (5.0, "none")
        assert workflow["design"].task == "Design authentication system with JWT"

    def test_a_release_of_several_features(self) -> None:
        workflow = example("feature-release.ax.yaml")

        assert edges(workflow) == {
            "user-management": (),
            "post-system": (),
            "comment-system": ("post-system",),
            "user-ui": ("user-management",),
            "post-ui": ("post-system",),
            "comment-ui": ("comment-system",),
            "database-migrations": ("user-management", "post-system", "comment-system"),
            "api-documentation": ("user-management", "post-system", "comment-system"),
            "e2e-tests": ("user-ui", "post-ui", "comment-ui", "database-migrations"),
            "performance-tests": ("e2e-tests",),
            "staging-deploy": ("performance-tests", "api-documentation"),
            "production-deploy": ("staging-deploy",),
        }
        assert list(edges(workflow)) == [task.id for task in workflow.tasks]
        assert max(len(wave) for wave in workflow.waves()) == 3

    def test_a_squad(self) -> None:
        workflow = example("SQUAD.md")
        researchers = ("researcher-1", "researcher-2", "researcher-3")

        assert edges(workflow) == {**dict.fromkeys(researchers, ()), "orchestration": researchers}
        assert workflow["researcher-2"].task == "Investigates competitor B"
        last = workflow["orchestration"]
        assert last.inputs == researchers
        assert last.task == (
            "Run all researchers in parallel, then synthesize results.\n\n{{results}}"
        )

    def test_titles_of_a_squad_without_ascii_letters(self, tmp_path: Path) -> None:
        titles = ("\u7814\u7a76\u8005", "\u00c9t\u00e9", "\u8bbe\u8ba1", "x" * 300)
        sections = "".join(f"### {title}\nDo it\n" for title in titles)
        text = f"## Parallel Agents\n{sections}## Orchestration\nSum up\n"
        workflow = read(tmp_path, text, "SQUAD.md")
        agents = ("agent-2", "ete", "agent-6", "x" * 100)
        assert edges(workflow) == {**dict.fromkeys(agents, ()), "orchestration": agents}

    def test_stages(self) -> None:
        workflow = example("staged.yaml")

        assert edges(workflow) == {
            "product": (),
            "architecture": (),
            "backend": ("product", "architecture"),
            "frontend": ("product", "architecture"),
            "database": ("product", "architecture"),
            "security": ("backend", "frontend", "database"),
            "quality": ("backend", "frontend", "database"),
            "devops": ("security", "quality"),
        }
        assert workflow["backend"].task == "Implement auth API"
        assert workflow["security"].task == "Security audit"

    def test_a_list_of_shorthands(self) -> None:
        workflow = example("list.yaml")

        assert [(task.id, task.settings.agent) for task in workflow.tasks] == [
            ("backend", "backend"), ("backend-2", "backend"), ("backend-3", "backend"),
            ("frontend", "frontend"), ("frontend-2", "frontend"), ("frontend-3", "frontend"),
        ]  # fmt: skip
        assert workflow["backend-3"].task == "Implement comment service"

    def test_automatosx_configuration_beside_a_workflow(self) -> None:
        file = EXAMPLES / "automatosx.config.json"
        config = load_config(options={"tasks": ("t",)}, environ={}, top=None, file=file)
        assert config.workers == 4


PAGES = Path(__file__).parents[4] / "examples" / "workflows"


@pytest.mark.parametrize("path", sorted(PAGES.iterdir()), ids=lambda path: path.stem)
def test_examples_of_the_documentation_are_valid(path: Path) -> None:
    reading = read_workflow(path, expand=lambda _: [f"src/{number}.py" for number in range(30)])

    assert reading.warnings == ()
    assert max(len(wave) for wave in reading.workflow.waves()) >= 3


class TestShorthand:
    @pytest.mark.parametrize(
        "text",
        [
            "note: the tests fail",
            "https://example.org/issue is right",
            "localhost:8080 does not answer",
            "std::move is missing",
            "src/shop.py:12 is wrong",
            "fix it: now",
            "a:",
        ],
    )
    def test_task_with_a_colon_is_not_a_shorthand(self, tmp_path: Path, text: str) -> None:
        (task,) = read(tmp_path, f"tasks: ['{text}']").tasks
        assert (task.task, task.settings.agent, task.id) == (text, None, "task")

    def test_quoted_text_of_a_shorthand(self, tmp_path: Path) -> None:
        (task,) = read(tmp_path, "- 'backend:\"Implement it\"'").tasks
        assert (task.settings.agent, task.task) == ("backend", '"Implement it"')

    def test_unquoted_shorthand_is_a_mapping_in_yaml(self, tmp_path: Path) -> None:
        (task,) = read(tmp_path, "- backend: Implement it").tasks
        assert (task.settings.agent, task.task, task.id) == ("backend", "Implement it", "backend")

    def test_generated_ids_are_unique(self, tmp_path: Path) -> None:
        text = "tasks: [{agent: web}, {id: web}, plain, {agent: 'no id'}, plain]"
        assert list(edges(read(tmp_path, text))) == ["web-2", "web", "task", "task-2", "task-3"]


class TestStages:
    def test_lists_of_lists_are_stages(self, tmp_path: Path) -> None:
        workflow = read(tmp_path, "- [a:One, b:Two]\n- [c:Three]\n")
        assert edges(workflow) == {"a": (), "b": (), "c": ("a", "b")}

    def test_stages_by_number(self, tmp_path: Path) -> None:
        text = "tasks: [{id: x, stage: 10}, {id: y, stage: 2}, {id: z, stage: 10}, {id: w}]"
        assert edges(read(tmp_path, text)) == {"y": (), "x": ("y",), "z": ("y",), "w": ()}

    def test_stages_in_order_of_first_use(self, tmp_path: Path) -> None:
        text = "tasks: [{id: x, stage: test}, {id: y, stage: build}, {id: z, stage: test}]"
        assert edges(read(tmp_path, text)) == {"x": (), "z": (), "y": ("x", "z")}

    def test_stages_in_listed_order(self, tmp_path: Path) -> None:
        text = "stages: [build, empty, test]\ntasks: [{id: x, stage: test}, {id: y, stage: build}]"
        assert edges(read(tmp_path, text)) == {"y": (), "x": ("y",)}

    def test_task_joins_a_stage_by_name(self, tmp_path: Path) -> None:
        text = "stages:\n- one: [a:It]\n- two: [b:It]\ntasks: [{id: c, stage: two}]\n"
        assert edges(read(tmp_path, text)) == {"a": (), "b": ("a",), "c": ("a",)}

    def test_continue_on_error_starts_the_next_stage(self, tmp_path: Path) -> None:
        text = (
            "continue_on_error: true\n"
            "stages:\n- [{id: a}]\n- [{id: b}, {id: c, when: on_success}, {id: d, depends_on: b}]"
        )
        workflow = read(tmp_path, text)
        assert {task.id: task.when for task in workflow.tasks} == {
            "a": "on_success", "b": "always", "c": "on_success", "d": "always",
        }  # fmt: skip

    def test_failed_stage_stops_by_default(self, tmp_path: Path) -> None:
        workflow = read(tmp_path, "- [{id: a}]\n- [{id: b}]\n")
        assert workflow["b"].when == "on_success"


class TestSettings:
    def test_every_key_is_parsed(self, tmp_path: Path) -> None:
        text = """\
tasks:
  - id: all
    task: Do it
    agent: web
    agent_cli: shell
    model: small
    image: own
    max_steps: 3
    budget: 0.5
    timeout: 30
    retries: 2
    retry_delay: 1
    limits: {memory: 1g, cpus: 0.5}
    network: open
    ports: [3000]
    services: {db: {image: postgres, port: 5432}}
    setup: make
    checks: [make test, {run: make lint, name: lint}]
    paths: src
    critical: true
    resources: db
    complexity: high
    mode: ro
    when: always
    parallel: false
"""
        (task,) = read(tmp_path, text).tasks
        config = config_of(ParallelConfig(tasks=("x",), retries=1), task)

        assert (task.critical, task.resources, task.complexity, task.mode) == (
            True, ("db",), "high", "ro",
        )  # fmt: skip
        assert (task.when, task.parallel) == ("always", False)
        assert (config.agent, config.agent_cli, config.model, config.image) == (
            "web", "shell", "small", "own",
        )  # fmt: skip
        assert (config.max_steps, config.budget_per_worker, config.timeout) == (3, 0.5, 30)
        assert (config.retries, config.retry_delay) == (2, 1)
        assert (config.limits.memory, config.limits.cpus, config.limits.pids) == (1024**3, 0.5, 512)
        assert (config.isolation.network, config.isolation.ports) == ("open", {"PORT": 3000})
        assert config.project.services["db"].port == 5432
        assert config.project.setup == ("make",)
        assert [check.title for check in config.project.checks] == ["make test", "lint"]
        assert config.triggers.paths == ("src",)

    def test_task_overrides_defaults_key_by_key(self, tmp_path: Path) -> None:
        text = """\
defaults: {model: big, timeout: 60, limits: {cpus: 1, pids: 9}, resources: db, critical: false}
tasks:
  - {id: a, timeout: 5, limits: {pids: 99}, resources: [web, db]}
  - {id: b, model: null}
"""
        a, b = read(tmp_path, text).tasks
        assert (a.settings.model, a.settings.timeout) == ("big", 5)
        assert (a.settings.limits.cpus, a.settings.limits.pids) == (1, 99)
        assert (a.resources, b.resources) == (("web", "db"), ("db",))
        assert (b.settings.model, b.settings.timeout, b.critical) == ("big", 60, False)

    def test_unset_keys_of_a_task_come_from_the_run(self, tmp_path: Path) -> None:
        (task,) = read(tmp_path, "tasks: [{id: a}]").tasks
        run = ParallelConfig(tasks=("a",), model="big", budget_per_worker=2, agent="x")
        assert config_of(run, task) == run

    def test_json_is_supported(self, tmp_path: Path) -> None:
        workflow = read(
            tmp_path, '{"tasks": [{"id": "a"}, {"id": "b", "depends_on": ["a"]}]}', "f.json"
        )
        assert edges(workflow) == {"a": (), "b": ("a",)}


class TestSquads:
    def test_text_before_the_first_agent_is_added_to_all(self, tmp_path: Path) -> None:
        text = (
            "## Parallel Agents\nWrite tests.\n### A Dev\nDo one\n```\n### no heading\n```\n### b\n"
        )
        one, two = read(tmp_path, text, "SQUAD.md").tasks
        assert (one.id, one.task) == ("a-dev", "Write tests.\n\nDo one\n```\n### no heading\n```")
        assert (two.id, two.task) == ("b", "Write tests.")

    def test_order_of_sections_is_free(self, tmp_path: Path) -> None:
        text = (
            "## Orchestration\nJoin {{results}}\n### How\nWell\n# Team\n## Parallel Agents\n### a\n"
        )
        workflow = read(tmp_path, text, "team.md")
        assert workflow.name == "Team"
        assert workflow["orchestration"] == Task(
            id="orchestration",
            task="Join {{results}}\n\n### How\nWell",
            depends_on=("a",),
            inputs=("a",),
            results_at=(0,),
        )


class TestSpelling:
    """Numbers in place of texts keep their spelling."""

    TEXT = """\
name: 1.10
vars: {version: 1.10, yes_: yes, oct: 010, exp: 1e3, day: 2026-01-01, bool: True, time: 1:30}
tasks:
  - id: 010
    model: 4.10
    agent: off
    task: "{{version}} {{yes_}} {{oct}} {{exp}} {{day}} {{bool}}"
  - {id: b, depends_on: 010, task: "{{time}}"}
  - {id: c, depends_on: [010, b], task: 1.0}
  - {id: each, task: "{{item}}", foreach: [010, 1e3, 1.10, true, +5]}
"""

    def test_numbers_in_yaml_keep_their_spelling(self, tmp_path: Path) -> None:
        workflow = read(tmp_path, self.TEXT)
        assert workflow.name == "1.10"
        assert [one.task for one in workflow.tasks if one.group == "each"] == [
            "010", "1e3", "1.10", "true", "+5",
        ]  # fmt: skip
        first = workflow["010"]
        assert first.task == "1.10 yes 010 1e3 2026-01-01 True"
        assert (first.settings.model, first.settings.agent) == ("4.10", "off")
        assert workflow["b"].depends_on == ("010",)
        assert workflow["b"].task == "1:30"
        assert workflow["c"].depends_on == ("010", "b")
        assert workflow["c"].task == "1.0"

    def test_numbers_in_json_keep_their_spelling(self, tmp_path: Path) -> None:
        text = '{"vars": {"v": 1.10}, "tasks": [{"task": "{{v}} {{item}}", "foreach": [1e3, 2.0]}]}'
        workflow = read(tmp_path, text, "flow.json")
        assert [one.task for one in workflow.tasks] == ["1.10 1e3", "1.10 2.0"]

    def test_text_before_a_colon_is_a_profile(self, tmp_path: Path) -> None:
        text = "- tester: Run it\n- 'TODO:fix the bug'\n- 'Note:this'\n- 'backend:Implement it'\n"
        tasks = read(tmp_path, text).tasks
        assert [(one.settings.agent, one.task) for one in tasks] == [
            ("tester", "Run it"), (None, "TODO:fix the bug"), (None, "Note:this"),
            ("backend", "Implement it"),
        ]  # fmt: skip

    def test_profile_that_a_file_names_can_be_a_key(self, tmp_path: Path) -> None:
        text = "- checker: Run it\n- {agent: checker, task: Run it again}\n"
        assert {one.settings.agent for one in read(tmp_path, text).tasks} == {"checker"}

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("- echo Result: touch surprise.txt", "1: `tasks[1].echo Result`"),
            ("- Fix the login: users cannot sign in", "1: `tasks[1].Fix the login`"),
            ("- Fix the login:", "1: `tasks[1].Fix the login`"),
            ("- fix: users cannot sign in", "1: `tasks[1].fix`"),
            ("- checker: Run it", "1: `tasks[1].checker`"),
            ("tasks:\n- a\n- 12: 30", "3: `tasks[2].12`"),
            ("stages:\n- Build it: now\n- b: [x]", "2: `stages[1].Build it`"),
            ("stages:\n- b: [Fix it: now]", "2: `stages[1].tasks[1].Fix it`"),
            ("- task: a\n  setup:\n  - echo x: y", "3: `tasks[1].setup[1]`"),
            ("- task: a\n  setup:\n    echo x: y", "2: `tasks[1].setup`"),
            ("- task: a\n  checks:\n  - echo x: y", "3: `tasks[1].checks[1].echo x`"),
            ("- task: a\n  checks:\n  - echo x:", "3: `tasks[1].checks[1].echo x`"),
            ("- task: '{{item}}'\n  foreach:\n  - x: y", "3: `tasks[1].foreach.items[1]`"),
            ("- task: '{{item}}'\n  foreach:\n    command:\n      ls x: y",
             "3: `tasks[1].foreach.command`"),
            ("- task:\n    Fix it: now", "1: `tasks[1].task`"),
            ("- task: a\n  paths:\n  - a: b", "3: `tasks[1].paths[1]`"),
            ("- task: a\n- task: b\n  depends_on:\n  - task: a", "4: `tasks[2].depends_on[1]`"),
            ("vars:\n  v:\n    Fix it: now\ntasks: ['{{v}}']", "2: `vars.v`"),
        ],
    )  # fmt: skip
    def test_text_that_yaml_takes_for_a_mapping_is_refused(
        self, tmp_path: Path, text: str, place: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            read(tmp_path, text)
        assert f"flow.yaml:{place}" in caught.value.message
        advised = "put quotes around it" in caught.value.message
        assert advised or "did you mean" in caught.value.message

    @pytest.mark.parametrize(
        "text", ["- Fix issue #12 in the parser", "- {task: Fix it #1\n}", "- task: see #3a\n"]
    )
    def test_text_that_a_comment_cuts_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(ConfigError, match="begins a comment: put quotes around the text"):
            read(tmp_path, text)

    @pytest.mark.parametrize(
        ("text", "task"),
        [
            ("- 'fix #12'", "fix #12"), ("- fix#12", "fix#12"), ("- fix # later", "fix"),
            ("- |-\n  fix #12", "fix #12"), ("- on", "on"), ("- no", "no"), ("- 1:30", "1:30"),
            ("- 2026-11-25", "2026-11-25"), ("- task: 010", "010"), ("- task: 0x1F", "0x1F"),
            ("- task: null and void", "null and void"), ("- task: 1_000", "1_000"),
            ("- echo a\r- echo b", "echo a"), ("\ufeff- echo a", "echo a"),
        ],
    )  # fmt: skip
    def test_texts_stay_texts(self, tmp_path: Path, text: str, task: str) -> None:
        assert read(tmp_path, text).tasks[0].task == task

    @pytest.mark.parametrize("end", ["\x85", "\u2028", "\u2029"])
    def test_invisible_line_ends_are_refused(self, tmp_path: Path, end: str) -> None:
        with pytest.raises(ConfigError, match=r"flow.yaml:2: the invisible line end U\+"):
            read(tmp_path, f"tasks:\n- echo a{end}- echo b\n")

    def test_line_ends_of_windows_are_those_of_shells(self, tmp_path: Path) -> None:
        text = '[{"task": "echo a\\r\\necho b", "setup": ["x\\r\\ny"], "checks": ["x\\r\\ny"]}]'
        (task,) = read(tmp_path, text, "flow.json").tasks
        assert (task.task, task.settings.setup) == ("echo a\necho b", ("x\ny",))
        assert [one.run for one in task.settings.checks or ()] == ["x\ny"]

    @pytest.mark.parametrize("key", ["taks", "tasks", "tsk", "tassk", "check", "modle", "Task"])
    def test_misspelt_key_is_not_a_profile(self, tmp_path: Path, key: str) -> None:
        with pytest.raises(ConfigError, match=f"`tasks\\[1].{key}` is unknown"):
            read(tmp_path, f"- {key}: Run it\n")
