"""Tests of the recipes for CI systems: by the schemas of the systems, a linter, and real runs."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema.validators import validator_for

from tests.docs.markdown import blocks
from tests.support.ci_parsers import GitHubRunner
from tests.support.junit_readers import gitlab_cases
from tests.support.repository import git

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SCHEMAS = {
    "action.yml": "github-actions",
    "examples/ci/github.yml": "github-workflows",
    ".github/workflows/release.yml": "github-workflows",
    "examples/ci/gitlab-ci.yml": "gitlab-ci",
    "examples/ci/buildkite.yml": "buildkite",
    "examples/ci/gitlab-component.yml": "gitlab-ci",
}
ODD = """echo 'a "b" $(touch pwned) ${HOME}' > odd.txt; cat odd.txt"""
"""A task with characters that a shell interprets."""
FAILS = (
    """echo '<testsuite><testcase name="adds"/></testsuite>' > $ORCHESTRATOR_ARTIFACTS/tests.xml"""
    "; echo 'a.txt:1:1: bad'; exit 3"
)
"""A task that leaves test results and fails."""
MADE_IS_GOOD = """import unittest

from made import MADE


class TestMade(unittest.TestCase):
    def test_made(self):
        self.assertEqual(MADE, "good")
"""


def documents(name: str) -> Iterator[Any]:
    yield from yaml.load_all((ROOT / name).read_text(), Loader=yaml.BaseLoader)


@pytest.mark.parametrize("name", SCHEMAS)
def test_recipe_fits_the_schema_of_its_system(name: str) -> None:
    vendored = files("check_jsonschema") / "builtin_schemas" / "vendor" / f"{SCHEMAS[name]}.json"
    schema = json.loads(vendored.read_text())
    for document in yaml.safe_load_all((ROOT / name).read_text()):
        # YAML 1.1 reads `on` as true.
        plain = {"on" if key is True else key: value for key, value in document.items()}
        errors = validator_for(schema)(schema).iter_errors(plain)
        assert [error.message for error in errors] == []


def test_no_recipe_is_tested_by_nothing() -> None:
    tested = {*SCHEMAS, "examples/ci/Jenkinsfile"}
    found = {str(path.relative_to(ROOT)) for path in (ROOT / "examples/ci").iterdir()}
    assert found <= tested


def test_linter_finds_nothing_dangerous() -> None:
    done = subprocess.run(
        [BIN / "zizmor", "--offline", "--no-progress", "action.yml", "examples/ci/github.yml",
         ".github/workflows/release.yml"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_no_recipe_puts_inputs_into_scripts_or_runs_on_foreign_code() -> None:
    (action,) = documents("action.yml")
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"]
        assert step["shell"] == "bash"
    (_, component) = documents("examples/ci/gitlab-component.yml")
    (job,) = component.values()
    for name in ("before_script", "script", "after_script"):
        assert "$[[" not in "\n".join(job[name])
    for path in (ROOT / "examples" / "ci").iterdir():
        assert "pull_request_target" not in path.read_text()


@pytest.fixture
def job(repo: Path, tmp_path: Path) -> dict[str, str]:
    """Return the variables of a CI job, with this project installed where the recipes do so."""
    temporary = tmp_path / "runner"
    for place in (temporary / "orchestrator" / "bin", Path(f"{repo}.orchestrator") / "bin"):
        place.mkdir(parents=True)
        (place / "orchestrator").symlink_to(BIN / "orchestrator")
    return {
        **os.environ,
        "RUNNER_TEMP": str(temporary),
        "CI_PROJECT_DIR": str(repo),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }


def run_action(
    repo: Path, job: dict[str, str], inputs: dict[str, str]
) -> tuple[dict[str, int], str]:
    """Run the steps of the action after the installation; return their codes and output."""
    (action,) = documents("action.yml")
    inputs = {**{name: one.get("default", "") for name, one in action["inputs"].items()}, **inputs}
    codes, printed = {}, ""
    for step in action["runs"]["steps"][2:]:
        given = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: inputs[match[1]], value)
            for name, value in step.get("env", {}).items()
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=repo, env={**job, "GITHUB_ACTIONS": "true", **given}, capture_output=True,
            text=True, check=False, timeout=300,
        )  # fmt: skip
        codes[step["name"]] = done.returncode
        printed += done.stdout + done.stderr
    return codes, printed


def outputs(path: Path) -> dict[str, str]:
    """Read the outputs of a step."""
    found = re.findall(r"^(\S+)<<(\S+)\n(.*)\n\2$", path.read_text(), re.M)
    return {name: value for name, _, value in found}


@pytest.mark.docker
def test_action_runs_tasks_and_reports(repo: Path, tmp_path: Path, job: dict[str, str]) -> None:
    inputs = {"tasks": f"{ODD}\n{FAILS}\n", "agent": "shell", "junit": "*.xml",
              "options": "--network\nnone\n--cpus\n1\n--memory\n256m\n"}  # fmt: skip
    codes, printed = run_action(repo, job, inputs)
    assert codes == {"Run": 1, "Clean up": 0}, printed
    runner = GitHubRunner()
    runner.read(printed)
    assert ("error", "bad") in runner.commands
    assert not (repo / "pwned").exists()
    values = outputs(tmp_path / "output")
    (action,) = documents("action.yml")
    assert (values["status"], values["passed"], values["failed"]) == ("failed", "1", "1")
    assert values.keys() | {"junit", "html", "artifacts"} == action["outputs"].keys()
    report = Path(job["RUNNER_TEMP"]) / "orchestrator" / "report.xml"
    found = [(case.name, case.status) for case in gitlab_cases(report.read_text())]
    assert found == [("worker-1", "success"), ("worker-2", "failed"), ("adds", "success")]
    # Cleanup removed the run, and these files are for the next step.
    assert (report.parent / "artifacts/worker-2/tests.xml").exists()
    assert report.with_suffix(".html").exists()
    assert "1 of 2 workers succeeded" in (tmp_path / "summary").read_text()
    assert git(repo, "branch", "--list", "architect/*") == ""


@pytest.mark.docker
@pytest.mark.extra
@pytest.mark.parametrize(
    "checks",
    [
        ("--must-fix", "python3 -m unittest", "--check", "grep MADE made.py"),
        ("--must-fix", "grep good made.py"),
    ],
    ids=["tests", "no tests"],
)
def test_action_chooses_the_best_candidate(
    repo: Path, tmp_path: Path, job: dict[str, str], checks: tuple[str, ...]
) -> None:
    (repo / "made.py").write_text("MADE = 'nothing'\n")
    (repo / "test_made.py").write_text(MADE_IS_GOOD)
    git(repo, "add", "--all")
    git(repo, "commit", "-q", "-m", "Add a module, and a test that fails")
    task = """echo "MADE = '$ORCHESTRATOR_MODEL'" > made.py\ntest -s made.py\n"""
    words = ["--models", "good,bad", *checks, "--network", "none",
             "--cpus", "1", "--memory", "256m"]  # fmt: skip
    inputs = {"tasks": task, "candidates": "2", "options": "\n".join(words)}
    codes, printed = run_action(repo, job, inputs)
    values, summary = outputs(tmp_path / "output"), (tmp_path / "summary").read_text()
    assert git(repo, "branch", "--list", "architect/*") == ""
    if "python3 -m unittest" not in checks:
        assert codes == {"Run": 2, "Clean up": 0}, printed
        assert values.get("winner", "") == values.get("winner-commit", "") == ""
        assert "unproved" in summary
        return
    assert codes == {"Run": 0, "Clean up": 0}, printed
    assert values["winner"] == "1"
    assert git(repo, "show", f"{values['winner-commit']}:made.py") == "MADE = 'good'"
    assert "worker 1 is the best" in summary


@pytest.mark.extra
def test_units_fit_systemd(tmp_path: Path) -> None:
    for unit in ("orchestrator.service", "orchestrator.timer"):
        text = (ROOT / "examples" / "scheduled" / unit).read_text()
        # The program that a unit names must exist.
        (tmp_path / unit).write_text(text.replace("/usr/local/bin/orchestrator", "/bin/true"))
    (tmp_path / "docker.service").write_text("[Service]\nExecStart=/bin/true\n")
    # The current directory comes first; the rest are the units of the system.
    environ = {**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}

    def problems() -> str:
        done = subprocess.run(
            ["systemd-analyze", "verify", "./orchestrator.service", "./orchestrator.timer"],
            cwd=tmp_path, env=environ, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return "\n".join(line for line in done.stderr.splitlines() if "orchestrator" in line)

    assert problems() == ""
    service = tmp_path / "orchestrator.service"
    service.write_text(service.read_text().replace("KillMode", "KillMood"))
    assert "Unknown key 'KillMood'" in problems()


def test_crontab_has_valid_lines() -> None:
    for line in (ROOT / "examples" / "scheduled" / "crontab").read_text().splitlines():
        if line.startswith("#") or re.fullmatch(r"[A-Z]+=\S+", line):
            continue
        *times, command = line.split(None, 5)
        assert len(times) == 5
        assert all(re.fullmatch(r"\*|[0-9]+", time) for time in times)
        assert "%" not in command, "cron ends a command at `%`"


LONGEST = 15
"""Number of lines of a recipe to copy and paste."""


@pytest.mark.parametrize(
    ("title", "schema"), [("on:", "github-workflows"), ("include:", "gitlab-ci")]
)
def test_recipes_of_the_guide_are_short_and_valid(tmp_path: Path, title: str, schema: str) -> None:
    (block,) = (b for b in blocks("docs/guides/ci.md") if b.text.startswith(title))
    assert len(block.text.splitlines()) <= LONGEST
    document = yaml.safe_load(block.text)
    plain = {"on" if key is True else key: value for key, value in document.items()}
    vendored = files("check_jsonschema") / "builtin_schemas" / "vendor" / f"{schema}.json"
    rules = json.loads(vendored.read_text())
    assert [error.message for error in validator_for(rules)(rules).iter_errors(plain)] == []
    if title == "on:":
        workflow = tmp_path / ".github" / "workflows" / "checks.yml"
        workflow.parent.mkdir(parents=True)
        workflow.write_text(block.text.replace("SHA", "0" * 40))
        done = subprocess.run(
            [BIN / "zizmor", "--offline", "--no-progress", workflow],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return
    (_, component) = documents("examples/ci/gitlab-component.yml")
    (head, _) = documents("examples/ci/gitlab-component.yml")
    (used,) = document["include"]
    assert used["inputs"].keys() <= head["spec"]["inputs"].keys()
    (job,) = component.values()
    assert {"junit", "codequality"} <= job["artifacts"]["reports"].keys()


@pytest.mark.docker
@pytest.mark.extra
def test_component_runs_tasks_and_reports(repo: Path, job: dict[str, str]) -> None:
    (_, component) = documents("examples/ci/gitlab-component.yml")
    (recipe,) = component.values()
    task = f"{ODD}; touch $ORCHESTRATOR_ARTIFACTS/kept"
    given = {"TASKS": f"{task}\n", "AGENT": "shell", "GITLAB_CI": "true", "JUNIT": "",
             "OPTIONS": "--network\nnone\n--cpus\n1\n--memory\n256m\n"}  # fmt: skip
    assert recipe["variables"].keys() == {"TASKS", "OPTIONS", "AGENT", "PACKAGE", "JUNIT"}
    script = "\n".join(["set -e", *recipe["script"], *recipe["after_script"]])
    done = subprocess.run(
        ["sh", "-c", script], cwd=repo, env={**job, **given}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "section_start:" in done.stderr
    assert not (repo / "pwned").exists()
    reports = recipe["artifacts"]["reports"]
    (case,) = gitlab_cases((repo / reports["junit"]).read_text())
    assert case.status == "success"
    assert "ORCHESTRATOR_STATUS=success" in (repo / reports["dotenv"]).read_text()
    assert json.loads((repo / reports["codequality"]).read_text()) == []
    html, artifacts = recipe["artifacts"]["paths"]
    assert (repo / html).exists()
    assert (repo / artifacts / "worker-1" / "kept").exists()


@pytest.mark.parametrize("name", ["buildkite.yml", "Jenkinsfile"])
def test_other_recipes_call_commands_that_exist(tmp_path: Path, name: str) -> None:
    text = (ROOT / "examples" / "ci" / name).read_text()
    if name == "Jenkinsfile":
        blocks = re.findall(r"sh '''(.*?)'''|sh '(.*?)'", text, re.DOTALL)
        script = "\n".join(one or other for one, other in blocks)
    else:
        # Buildkite replaces `$$` by `$` when it reads the file.
        script = yaml.safe_load(text)["steps"][0]["command"].replace("$$", "$")
    called = tmp_path / "called"
    stub = (
        f'#!/bin/sh\nprintf "%s\\n" "$*" >> {shlex.quote(str(called))}\n'
        '[ "$1" != parallel ] || : > orchestrator.md\n'
    )
    for program in ("orchestrator", "buildkite-agent"):
        (tmp_path / program).write_text(stub)
        (tmp_path / program).chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environ, check=True, timeout=60)
    lines = called.read_text().splitlines()
    known = subprocess.run(
        [BIN / "orchestrator", "parallel", "--help"], capture_output=True, text=True, check=True,
        timeout=60,
    ).stdout  # fmt: skip
    options = re.findall(r"(?<= )--[a-z-]+", next(line for line in lines if "parallel " in line))
    assert "--report" in options
    assert [option for option in options if f" {option} " not in known] == []
    assert "parallel-cleanup --purge" in lines


def scripts(name: str) -> tuple[str, list[str]]:
    """Return the shell text of a recipe until its run, and the files that it publishes."""
    text = (ROOT / name).read_text()
    if name.endswith("Jenkinsfile"):
        published = ["orchestrator.xml", "orchestrator.html"]
        return "\n".join(re.findall(r"sh '''(.*?)'''", text, re.DOTALL)), published
    if name.endswith("buildkite.yml"):
        command = yaml.safe_load(text)["steps"][0]["command"].replace("$$", "$")
        return command, ["orchestrator.xml", "orchestrator.md"]
    if name.endswith("gitlab-component.yml"):
        (_, component) = documents(name)
        (recipe,) = component.values()
        script = "\n".join(["set -e", *recipe["before_script"], *recipe["script"]])
        return script, ["orchestrator.html", *recipe["artifacts"]["reports"].values()]
    return text, ["run.json" if "ci-runner" in name else "results.json"]


@pytest.mark.parametrize(
    "name",
    [
        "examples/ci/Jenkinsfile",
        "examples/ci/buildkite.yml",
        # It creates a virtual environment with pip in it.
        pytest.param("examples/ci/gitlab-component.yml", marks=pytest.mark.extra),
        "examples/ci-runner/run.sh",
        "examples/untrusted-tasks/run.sh",
    ],
)
def test_files_and_modules_of_a_commit_are_no_reports_and_no_programs(
    tmp_path: Path, name: str
) -> None:
    """The run ends before it has written anything."""
    script, published = scripts(name)
    secret, repo, bin = tmp_path / "secret", tmp_path / "repo", tmp_path / "bin"
    for place in (repo, bin):
        place.mkdir()
    secret.write_text("TOKEN")
    for report in published:
        (repo / report).symlink_to(secret)
    (repo / "venv.py").write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')")
    (repo / "tasks").write_text("true\n")
    told = tmp_path / "told"
    for program, stub in {
        "orchestrator": "exit 3", "buildkite-agent": f"cat >> {told}",
    }.items():  # fmt: skip
        (bin / program).write_text(f"#!/bin/sh\n{stub}\n")
        (bin / program).chmod(0o755)
    given = {"CI_PROJECT_DIR": str(tmp_path / "project"), "AGENT": "shell", "TASKS": "true",
             "OPTIONS": "", "JUNIT": "", "PACKAGE": "x", "PIP_NO_INDEX": "1"}  # fmt: skip
    environ = {**os.environ, **given, "PATH": f"{bin}:{os.environ['PATH']}"}
    subprocess.run(
        ["bash", "-c", script, "recipe", "tasks"], cwd=repo, env=environ, capture_output=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert secret.read_text() == "TOKEN"
    assert not (tmp_path / "pwned").exists()
    assert not told.exists()
    assert [report for report in published if (repo / report).is_symlink()] == []
