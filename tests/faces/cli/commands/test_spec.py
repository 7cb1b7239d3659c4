"""Tests of `spec validate`, `spec schema` and the selection of a part of a workflow."""

import json
from pathlib import Path

import pytest

from orchestrator.config.workflow.parsing.dialects import json_schema
from orchestrator.config.workflow.parsing.reader import read_workflow
from orchestrator.config.workflow.planning import config_of
from orchestrator.faces.cli import workflow_run
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.workflow_file import select_part
from tests.support.errors import raises, reports

DOCS = Path(__file__).parents[4] / "docs" / "reference"
RELEASE = """\
name: "Release \\e[31m"
tasks:
  - {id: design, task: "{{what}}"}
  - {id: each, task: "{{item}}", foreach: {command: ls}, depends_on: design}
  - {id: tests, depends_on: [each], resources: db}
"""


@pytest.fixture
def file(tmp_path) -> str:
    path = tmp_path / "release.yaml"
    path.write_text(RELEASE)
    return str(path)


class TestValidate:
    def test_validate_prints_a_summary_and_warnings(self, file, capsys):
        assert run(["spec", "validate", file, "--var", "what=a=b"]) == 0
        shown = capsys.readouterr()
        assert shown.out == "Release \ufffd[31m: 3 tasks in 3 waves, at most 1 at the same time\n"
        assert shown.err == (
            "the number of tasks of `each` is not known before the run\n"
            "warning: the lock `db` is used only by `tests`, so it has no effect\n"
        )

    def test_validate_needs_no_repository_and_creates_nothing(
        self, file, tmp_path, monkeypatch, capsys
    ):
        monkeypatch.chdir(tmp_path)
        assert run(["spec", "validate", file, "--var", "what=x"]) == 0
        assert [path.name for path in tmp_path.iterdir()] == ["release.yaml"]
        assert capsys.readouterr().out

    def test_validate_prints_mistakes(self, file, capsys):
        assert run(["spec", "validate", file]) == 3
        assert capsys.readouterr().err == (
            f"error: {file}:3: `tasks[1].task` contains `{{{{what}}}}`, which has no value\n"
            "\n"
            "hint: run `orchestrator spec schema` for the keys and their values\n"
        )

    @pytest.mark.parametrize("entry", ["what", "=x", ""])
    def test_malformed_variable_is_refused(self, file, entry):
        with reports("option.invalid", f"option `--var` is `{entry}`"):
            assert run(["spec", "validate", file, "--var", entry]) == 3


class TestSchema:
    def test_schema_equals_the_published_schema(self, capsys):
        assert run(["spec", "schema"]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert printed == json_schema()
        assert printed == json.loads((DOCS / "manifest.schema.json").read_text())

    def test_schema_covers_every_key_and_every_short_form(self):
        schema = json_schema()
        whole, *lists = schema["anyOf"]
        assert len(lists) == 2
        assert {"name", "tasks", "stages", "defaults", "vars", "policy"} <= {*whole["properties"]}
        task, text, short = schema["$defs"]["task"]["anyOf"]
        assert (text, short["maxProperties"]) == ({"type": "string"}, 1)
        assert {"id", "name", "depends_on", "dependencies", "foreach"} <= {*task["properties"]}
        assert task["additionalProperties"] is False
        assert {"type": "string"} in task["properties"]["depends_on"]["anyOf"]
        kinds = [kind.get("type") for kind in task["properties"]["foreach"]["anyOf"]]
        assert kinds == ["object", "null", "array"]
        assert "$ref" not in json.dumps(task), "the schema contains no references"


class TestPart:
    def names(self, file, only=(), from_=()) -> list[str]:
        reading = read_workflow(Path(file), variables={"what": "x"})
        return [task.id for task in select_part(reading, only, from_).workflow.tasks]

    def test_without_selection_all_tasks_run(self, file):
        assert self.names(file) == ["design", "each", "tests"]

    def test_only_and_from_select_tasks(self, file):
        assert self.names(file, only=["tests", "design"]) == ["design", "tests"]
        assert self.names(file, from_=["each"]) == ["each", "tests"]

    def test_only_and_from_together_are_refused(self, file):
        with raises("option.conflict"):
            self.names(file, ["tests"], ["each"])

    @pytest.mark.usefixtures("repository")
    def test_run_executes_the_selected_part(self, file, capsys):
        command = ["spec", "run", file, "--var", "what=x", "--agent-cli", "shell", "--dry-run"]
        assert run([*command, "--from", "tests"]) == 0
        shown = capsys.readouterr()
        assert "design" not in shown.out
        assert "`tests` starts without its dependencies: `each`" in shown.err
        assert run([*command, "--only", "tess"]) == 3
        assert "there is no task `tess`, did you mean `tests`?" in capsys.readouterr().err


class TestPrivate:
    """`privacy: private` is a policy, not a default that a stronger setting overrides."""

    TEXT = "policy: {constraints: {privacy: private}}\ntasks:\n- {id: a, task: 'true'}\n"
    RUN = ("spec", "run", "private.yaml", "--agent-cli", "shell", "--dry-run", "--json")

    @pytest.fixture(autouse=True)
    def workflow(self, repository):
        (repository / "private.yaml").write_text(self.TEXT)

    @pytest.mark.parametrize("name", ["network", "setup_network", "check_network"])
    def test_file_that_opens_the_network_is_refused(self, repository, capsys, name):
        text = f"setup: ['true']\nchecks: ['true']\ncontainer: {{{name}: open}}\n"
        (repository / "mine.yaml").write_text(text)
        assert run([*self.RUN, "--config", "mine.yaml"]) == 3
        assert f"error: mine.yaml:3: `container.{name}` is `open`, but" in capsys.readouterr().err
        if name == "network":
            assert run([*self.RUN, "--config", "mine.yaml", "--network", "none"]) == 0

    def test_network_of_a_preset_is_closed(self, capsys):
        assert run([*self.RUN, "--preset", "ci"]) == 0
        assert json.loads(capsys.readouterr().out)["network"] == "none"

    def test_option_that_opens_the_network_is_refused(self):
        with reports("privacy.violated", "`--network` is `open`"):
            assert run([*self.RUN, "--network", "open"]) == 3
        assert run([*self.RUN, "--network", "none"]) == 0

    @pytest.mark.parametrize("name", ["NETWORK", "SETUP_NETWORK", "CHECK_NETWORK"])
    def test_variable_that_opens_the_network_is_refused(self, name, capsys, monkeypatch):
        monkeypatch.setenv(f"ORCHESTRATOR_{name}", "open")
        assert run([*self.RUN]) == 3
        assert f"environment variable `ORCHESTRATOR_{name}` is `open`" in capsys.readouterr().err


class TestNetworkOfATask:
    """A task's network overrides that of a file, but not what the user typed."""

    RUN = ("spec", "run", "open.yaml", "--agent-cli", "shell", "--dry-run", "--json")

    @pytest.fixture(autouse=True)
    def workflow(self, repository):
        text = "tasks:\n- {id: shut, task: 'true'}\n- {id: wide, task: 'true', network: open}\n"
        (repository / "open.yaml").write_text(text)
        (repository / "mine.yaml").write_text("container: {network: none}\n")

    def test_option_that_closes_the_network_of_a_task_is_refused(self, capsys, monkeypatch):
        assert run([*self.RUN, "--network", "none"]) == 3
        assert capsys.readouterr().err == (
            "error: open.yaml:3: `network` of task `wide` is `open`, but option `--network` is "
            "`none`\n\nhint: remove the setting, or allow it with an option of the command\n"
        )
        assert run([*self.RUN, "--network", "none", "--only", "shut"]) == 0
        monkeypatch.setenv("ORCHESTRATOR_NETWORK", "none")
        assert run([*self.RUN]) == 3

    def test_task_overrides_a_default_network(self, monkeypatch):
        found = {}

        def record(config, *, workflow, **rest):
            for task in workflow.tasks:
                found[task.id] = config_of(config, task).isolation.network
            return original(config, workflow=workflow, **rest)

        original = workflow_run.ParallelRunner
        monkeypatch.setattr(workflow_run, "ParallelRunner", record)
        assert run([*self.RUN, "--config", "mine.yaml"]) == 0
        assert found == {"shut": "none", "wide": "open"}
