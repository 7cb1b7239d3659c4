"""Tests of `init --vscode`: the tasks, the rule for errors, and files that exist already."""

import json
import re

import pytest

from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.command_table import read_commands

BROKEN = {
    "orchestrator.yaml": ("parallel_runs:\n  worker: 3\n  timeout_per_worker: -1\n", (2, 3)),
    "one.yaml": ("a: [\n", (2,)),
    "work flow.yaml": ("tasks:\n  - id: a\n    comand: x\n", (3,)),
}
"""Files with mistakes, and the lines that are reported."""


def render(repository):
    return json.loads((repository / ".vscode" / "tasks.json").read_text())


def test_tasks_run_commands_that_exist(repository, capsys):
    assert run(["init", "--vscode"]) == 0
    assert capsys.readouterr().out == f"{repository}/.vscode/tasks.json\n"
    found = render(repository)
    assert found["version"] == "2.0.0"
    paths = {row.path for row in read_commands()}
    for task in found["tasks"]:
        assert (task["type"], task["command"]) == ("process", "orchestrator")
        words = [word for word in task["args"] if word != "--" and not word.startswith("$")]
        assert " ".join(words) in paths
    asked = {*re.findall(r"\$\{input:(\w+)\}", json.dumps(found["tasks"]))}
    assert asked == {one["id"] for one in found["inputs"]}
    assert not (repository / "orchestrator.yaml").exists()


@pytest.mark.parametrize("name", BROKEN)
def test_problem_matcher_finds_every_mistake(repository, capsys, name):
    text, lines = BROKEN[name]
    (repository / name).write_text(text)
    kind = ["spec"] if name == "work flow.yaml" else ["config"]
    assert run([*kind, "validate", name]) == 3
    printed = capsys.readouterr().err.splitlines()
    assert run(["init", "--vscode"]) == 0
    for task in render(repository)["tasks"]:
        pattern = task["problemMatcher"]["pattern"]
        matches = [found for line in printed if (found := re.search(pattern["regexp"], line))]
        assert [int(one[pattern["line"]]) for one in matches] == [*lines]
        assert {one[pattern["file"]].removeprefix(f"{repository}/") for one in matches} == {name}
        assert all(one[pattern["message"]] in "\n".join(printed) for one in matches)


def test_file_with_comments_is_left_alone_and_the_tasks_are_printed(repository, capsys):
    file = repository / ".vscode" / "tasks.json"
    file.parent.mkdir()
    mine = '{\n  // mine\n  "version": "2.0.0", "tasks": [],\n}\n'
    file.write_text(mine)
    assert run(["init", "--vscode"]) == 3
    out, err = capsys.readouterr()
    assert file.read_text() == mine
    assert json.loads(out)["tasks"]
    assert err.startswith(f"error: {file} exists already\n\nhint: ")


def test_directory_that_is_a_link_is_not_followed(repository, tmp_path, capsys):
    outside = tmp_path / "outside"
    outside.mkdir()
    (repository / ".vscode").symlink_to(outside)
    assert run(["init", "--vscode"]) == 3
    assert list(outside.iterdir()) == []
    assert "is a link in a repository" in capsys.readouterr().err


def test_options_of_the_configuration_file_are_refused(repository):
    assert run(["init", "--vscode", "--force"]) == 3
    assert not (repository / ".vscode").exists()
