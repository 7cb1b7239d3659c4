"""Tests of `--land`: a run whose branches are merged at its end."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from orchestrator.cli.app import run
from orchestrator.cli.foreground import run_in_foreground
from orchestrator.cli.next_step import Sequel
from orchestrator.cli.options import OutputOptions
from orchestrator.errors import ConfigError
from orchestrator.results import RunResult
from tests.support.repository import git
from tests.support.runs import configured

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


def test_with_json_a_failed_landing_is_in_the_one_object(
    result: RunResult, capsys: pytest.CaptureFixture
) -> None:
    class Ended:
        run_id = result.run_id

        def execute(self) -> RunResult:
            return result

    class Landing:
        def __call__(self, _: RunResult, *, show_text: bool) -> Sequel:
            assert not show_text
            raise ConfigError("moved", key="target.changed", hint="again")

    output = OutputOptions(json=True, next_step=Landing())  # type: ignore[arg-type]
    assert run_in_foreground(Ended(), configured("true"), nullcontext(), output=output) == 3  # type: ignore[arg-type]
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["run_id"] == result.run_id
    assert (found["error"]["key"], found["error"]["exit_code"]) == ("target.changed", 3)
    assert "moved" in shown.err
