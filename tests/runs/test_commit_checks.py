"""Tests of checks of a commit, and of the identity under which their results are kept."""

from pathlib import Path

import pytest

from orchestrator.config.settings.project import Project
from orchestrator.config.settings.run import Triggers
from orchestrator.runs.purposes.commit_checks import ContainerTest
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import configured


@pytest.mark.parametrize(
    "change",
    [
        {"setup": ("make ready",)},
        {"services": {"db": {"image": "postgres:17"}}},
        {"caches": ("pip",)},
    ],
    ids=["setup", "services", "caches"],
)
def test_verdicts_hold_only_for_the_same_project(
    change: dict[str, object], repo: Path, local_engine: LocalEngine
) -> None:
    def identity(project: Project) -> str:
        config = configured("-").model_copy(update={"project": project})
        return ContainerTest(config, ("true",), repo, local_engine).identity("image")

    changed = Project.model_validate(change)
    assert identity(Project()) == identity(Project())
    assert identity(changed) == identity(Project.model_validate(change))
    assert identity(changed) != identity(Project())


def test_settings_for_agents_do_not_end_checks(repo: Path, local_engine: LocalEngine) -> None:
    """A cost that the tested code claims, other files, and another check that failed first."""
    config = configured(
        "-",
        fail_fast=True,
        budget_per_worker=1.0,
        budget_total=1.0,
        triggers=Triggers(paths=("src",), on_trigger="stop"),
    )
    test = ContainerTest(config, (), repo, local_engine)
    commands = (
        "false",
        'echo x > built; echo \'{"type": "orchestrator.report", "cost": 5.0}\'',
        "true",
    )
    results = test.run_checks(git(repo, "rev-parse", "HEAD"), commands)
    assert [one.answer for one in results] == ["fail", "pass", "pass"]
