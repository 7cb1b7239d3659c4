"""Tests of `--land`: a run whose branches are merged at its end."""

import json
from pathlib import Path

import pytest

from orchestrator.cli.app import run
from tests.support.repository import git

SHELL = ("--agent-cli", "shell", "--network", "none")
FLOW = """
name: flow
tasks:
  - {id: one, task: echo one > one}
  - {id: two, task: test -e one; echo two > two, depends_on: [one]}
  - {id: three, task: echo three > three}
"""


@pytest.fixture(autouse=True)
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)


@pytest.mark.docker
def test_workflow_lands_what_passes_together(
    repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """The work of each task passes, but not that of `two` and `three` together."""
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW)
    check = "! test -e two || ! test -e three"
    command = ["spec", "run", str(flow), *SHELL, "--quiet", "--json", "--check", check]

    assert run([*command, "--land", "queue"]) == 1

    done = json.loads(capsys.readouterr().out)
    assert done["status"] == "success"
    landing = done["landing"]
    assert (landing["landed"], landing["target"]) == ([1, 2], "main")
    assert [(one["worker_id"], one["reason"]) for one in landing["left"]] == [(3, "checks_failed")]
    assert git(repo, "rev-parse", "main") == landing["after"]
    assert {"one", "two"} <= set(git(repo, "ls-tree", "--name-only", "main").split())
    assert (repo / "two").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--land", "both"], "option `--land` is `both`"),
        (["--land", "queue"], "`--land queue` needs a check"),
        (["--land", "merge", "--detach"], "`--land` cannot be used with"),
        (["--land", "merge", "--dry-run"], "`--land` cannot be used with"),
        (["--land", "merge", "--pick", "auto"], "`--pick` and `--land` cannot be used together"),
    ],
)
def test_impossible_landings_are_errors_before_the_run(
    capsys: pytest.CaptureFixture, options: list[str], said: str
) -> None:
    assert run(["parallel", "true", *SHELL, *options]) == 3
    assert said in capsys.readouterr().err
