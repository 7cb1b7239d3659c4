"""Tests of a trial: commands run once as a worker would run them, and nothing is left."""

from pathlib import Path

import pytest

from orchestrator.config.settings.container import Isolation, Limits
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.runs.purposes.trial import Trial, Tried
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import branches


@pytest.mark.parametrize(
    ("setup", "checks", "found"),
    [
        (["touch made"], ["test -e made", "test -e README.md"], (False, False, False)),
        ([], ["false", "true"], (False, True, False)),
        (["exit 3"], ["true"], (True, True)),
        ([], ["sleep 60"], (False, True)),
        (["touch made"], [], (False,)),
    ],
)
def test_problems_of_commands(
    repo: Path, local_engine: LocalEngine, setup: list[str], checks: list[str],
    found: tuple[bool, ...],
) -> None:  # fmt: skip
    config = ParallelConfig(
        tasks=("-",), isolation=Isolation(network="none"), limits=Limits(grace=0.2)
    )
    (repo / "README.md").write_text("base\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "base")
    tried = Trial(config, repo, local_engine).run(setup, checks, ["rm -f made"], limit=4)
    assert (tried.setup is not None, *(one is not None for one in tried.checks)) == found
    assert branches(repo) == []
    assert git(repo, "for-each-ref", "refs/orchestrator") == ""
    assert git(repo, "worktree", "list").count("\n") == 0


def test_failure_names_the_last_line_of_output(repo: Path, local_engine: LocalEngine) -> None:
    config = ParallelConfig(tasks=("-",), isolation=Isolation(network="none"))
    tried = Trial(config, repo, local_engine).run([], ["echo cc: not found; exit 2"], [], limit=60)
    assert tried == Tried(
        setup=None, checks=("`echo cc: not found; exit 2` exited with 2: cc: not found",)
    )
