"""Tests of `--land`: a run whose branches are merged at its end."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.results import RunResult
from orchestrator.config.workflow.parsing.reader import read_workflow
from orchestrator.config.workflow.planning import run_config
from orchestrator.faces.cli.after_run import LandRun
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.foreground import run_in_foreground
from orchestrator.faces.cli.next_step import Sequel
from orchestrator.faces.cli.options import OutputOptions
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.runs.purposes.merging import Merger
from orchestrator.runs.runner import ParallelRunner
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import configured, shell_run

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


@pytest.mark.extra
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


def landed(
    repo: Path, runner: ParallelRunner, config: Any, capsys: pytest.CaptureFixture, **more: Any
) -> tuple[int, dict[str, Any]]:
    """Execute a run with `--land merge`, and return the exit code and the JSON object."""
    landing = LandRun(Repository(repo), config, "merge", quiet=True)
    output = OutputOptions(json=True, next_step=landing)
    code = run_in_foreground(runner, config, nullcontext(), output, **more)  # type: ignore[arg-type]
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("tasks", "rest", "code", "merged", "failed"),
    [
        (("echo x > x", "true"), {}, 0, [1], []),
        (("exit 1", "exit 1"), {}, 1, [], [1, 2]),
        (("echo x > x", "exit 1"), {}, 1, [1], [2]),
        (("echo x > x", "echo y > y; exit 1"), {}, 1, [1], [2]),
        (("sleep 30",), {"timeout_per_worker": 1}, 5, [], [1]),
        (("echo x > x", "exit 1"), {"fail_on": "all"}, 0, [1], [2]),
        (("echo x > x", "echo y > y; exit 1"), {"fail_on": "all"}, 0, [1], [2]),
    ],
)
def test_a_failed_run_stays_one_whatever_lands(
    repo: Path, local_engine: LocalEngine, capsys: pytest.CaptureFixture,
    tasks: tuple[str, ...], rest: dict[str, Any], code: int, merged: list[int], failed: list[int],
) -> None:  # fmt: skip
    config = configured(*tasks, **rest)
    runner = ParallelRunner(config, repo, engine=local_engine)

    answer, done = landed(repo, runner, config, capsys)

    landing = done["landing"]
    left = [(one["worker_id"], one["reason"]) for one in landing["left"]]
    assert answer == code
    assert (landing["landed"], left) == (merged, [(number, "failed") for number in failed])


def test_a_workflow_whose_required_task_failed_stays_a_failure(
    repo: Path, tmp_path: Path, local_engine: LocalEngine, capsys: pytest.CaptureFixture
) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW.replace("echo one > one", "exit 1"))
    workflow = read_workflow(flow).workflow
    config = run_config(configured("-"), workflow)
    runner = ParallelRunner(config, repo, engine=local_engine, workflow=workflow)

    answer, done = landed(repo, runner, config, capsys, workflow=workflow)

    assert (answer, done["landing"]["landed"]) == (1, [3])
    assert {one["worker_id"] for one in done["landing"]["left"]} == {1, 2}


def test_a_landing_that_leaves_work_of_a_good_worker_fails(
    repo: Path, local_engine: LocalEngine, capsys: pytest.CaptureFixture
) -> None:
    config = configured("echo 1 > a.txt", "echo 2 > a.txt", fail_on="all")
    runner = ParallelRunner(config, repo, engine=local_engine)
    answer, done = landed(repo, runner, config, capsys)
    assert (answer, [one["reason"] for one in done["landing"]["left"]]) == (1, ["conflict"])


def test_a_failed_worker_without_commits_has_nothing_to_merge_even_if_named(
    repo: Path, local_engine: LocalEngine
) -> None:
    done = shell_run(repo, local_engine, "exit 1")
    merger = Merger(repo, config=configured("-"), note=lambda _: None)
    (left,) = merger.merge(MergeRequest(), done.run_id).left
    assert left.message == "the worker did not succeed (failed); it committed nothing"
    named = merger.merge(MergeRequest(), done.run_id, workers=[1])
    assert (named.left, named.contained) == ((), (1,))
