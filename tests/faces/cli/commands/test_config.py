"""Tests of `config show`, `config validate` and `config schema`."""

import json
from pathlib import Path

import pytest

from orchestrator.config.loading.loading import json_schema
from orchestrator.faces.cli.app import run
from tests.support.errors import reports

TEXT = """\
parallel_runs: {agent_cli: shell, timeout_per_worker: 90}
container: {env: {TOKEN: s3cret}, memory: 1g}
agents: {shell: {env: {OTHER: s3cret}, max_steps: 8}}
"""


@pytest.fixture
def file(repository) -> Path:
    path = repository / "orchestrator.yaml"
    path.write_text(TEXT)
    return path


def shown(capsys, *arguments: str) -> dict[str, tuple[str, str]]:
    assert run(["config", "show", *arguments]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    columns = [heading.index(name) for name in ("SETTING", "VALUE", "FROM")]
    return {
        row[: columns[1]].strip(): (row[columns[1] : columns[2]].strip(), row[columns[2] :])
        for row in rows
    }


class TestShow:
    @pytest.mark.usefixtures("file")
    def test_every_value_is_shown_with_its_source(self, capsys, monkeypatch):
        monkeypatch.setenv("ORCHESTRATOR_WORKERS", "5")
        rows = shown(capsys, "--config", "orchestrator.yaml", "--preset", "ci")
        assert rows["parallel_runs.workers"] == ("5", "environment ORCHESTRATOR_WORKERS")
        assert rows["parallel_runs.timeout_per_worker"] == ("90", "orchestrator.yaml:1")
        assert rows["parallel_runs.preset"] == ("ci", "option --preset")
        assert rows["parallel_runs.max_steps"] == ("8", "orchestrator.yaml:3")
        assert rows["container.memory"] == ("1g", "orchestrator.yaml:2")
        assert rows["container.pids"] == ("2048", "preset ci")
        assert rows["container.grace"] == ("10", "default")
        assert rows["container.env"] == ("TOKEN, OTHER", "orchestrator.yaml:2, orchestrator.yaml:3")
        assert rows["parallel_runs.tasks"] == ("-", "default")

    def test_settings_for_another_agent_program_are_not_shown(self, file, capsys):
        rows = shown(capsys, "--config", str(file), "--agent-cli", "architect")
        assert rows["parallel_runs.max_steps"] == ("50", "default")
        assert rows["container.env"] == ("TOKEN", "orchestrator.yaml:2")

    @pytest.mark.parametrize("as_json", [[], ["--json"]])
    def test_secret_values_are_not_shown(self, file, capsys, monkeypatch, as_json):
        monkeypatch.setenv("ORCHESTRATOR_API_BASE", "http://me:s3cret@host")
        monkeypatch.setenv("ORCHESTRATOR_NOTIFY", "notify s3cret")
        assert run(["config", "show", "--config", str(file), *as_json]) == 0
        out = capsys.readouterr().out
        assert "TOKEN" in out
        assert "[not shown]" in out
        assert "s3cret" not in out

    @pytest.mark.usefixtures("file")
    def test_show_prints_json(self, capsys):
        assert run(["config", "show", "--json", "--config", "orchestrator.yaml"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["file"] == {"path": "orchestrator.yaml", "named": True}
        settings = {setting.pop("key"): setting for setting in found["settings"]}
        assert settings["container.memory"] == {
            "value": 1024**3, "in_bytes": True, "source": "file", "places": ["orchestrator.yaml:2"],
        }  # fmt: skip
        assert settings["container.env"]["value"] == {
            "TOKEN": "[not shown]", "OTHER": "[not shown]",
        }  # fmt: skip

    def test_tasks_of_the_file_are_shown(self, repository, capsys):
        (repository / "orchestrator.yaml").write_text("parallel_runs: {tasks: [a, b]}")
        row = shown(capsys, "--config", "orchestrator.yaml")["parallel_runs.tasks"]
        assert row == ("a, b", "orchestrator.yaml:1")

    @pytest.mark.usefixtures("file")
    def test_show_refuses_a_file_that_a_run_would_refuse(self, capsys):
        assert run(["config", "show"]) == 3
        assert "pass `--config " in capsys.readouterr().err


class TestValidate:
    def test_valid_file_is_ok(self, repository, capsys):
        (repository / "orchestrator.yaml").write_text("parallel_runs: {workers: 2}")
        assert run(["config", "validate"]) == 0
        assert capsys.readouterr() == ("ok\n", "")

    def test_all_mistakes_of_a_file_are_listed(self, repository, capsys, monkeypatch):
        # `config validate` ignores variables of the environment.
        monkeypatch.setenv("ORCHESTRATOR_WORKERS", "x")
        (repository / "orchestrator.yaml").write_text("parallel_runs: {workers: 0, agnt: x}")
        assert run(["config", "validate"]) == 3
        out, err = capsys.readouterr()
        assert out == ""
        assert err == (
            "error: 2 mistakes in the configuration:\n"
            f"  {repository}/orchestrator.yaml:1: `parallel_runs.agnt` is unknown, did you mean "
            "`parallel_runs.agent`?\n"
            f"  {repository}/orchestrator.yaml:1: `parallel_runs.workers` is `0`: must be a whole "
            "number from 1 to 10 or `auto`\n"
            "\nhint: run `orchestrator config schema` for the keys and their values\n"
        )

    def test_discovered_file_is_checked_as_untrusted(self, file, capsys):
        assert run(["config", "validate"]) == 3
        assert capsys.readouterr().err == (
            "error: 3 mistakes in the configuration:\n"
            f"  {file}:1: `parallel_runs.agent_cli` is not accepted from a file that was found "
            f"in the repository\n"
            f"  {file}:2: `container.env` is not accepted from a file that was found in the "
            f"repository\n"
            f"  {file}:3: `agents.shell.env` is not accepted from a file that was found in the "
            f"repository\n"
            f"\nhint: pass `--config {file}` if you trust the author of that file\n"
        )

    @pytest.mark.usefixtures("file")
    def test_named_file_lists_the_settings_that_require_naming(self, capsys):
        assert run(["config", "validate", "orchestrator.yaml"]) == 0
        out, err = capsys.readouterr()
        assert out == "ok\n"
        assert "  orchestrator.yaml:2: `container.env` is not accepted from a file" in err

    @pytest.mark.usefixtures("repository")
    def test_missing_file_is_an_error_with_a_hint(self):
        with reports("configuration.missing"):
            assert run(["config", "validate"]) == 3

    @pytest.mark.process
    def test_file_is_validated_outside_of_a_repository(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "x.yaml").write_text("{}")
        assert run(["config", "validate", "x.yaml"]) == 0


def test_schema_is_printed(capsys):
    assert run(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
