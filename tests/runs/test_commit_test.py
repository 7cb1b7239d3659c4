"""Tests of the identity under which verdicts of checks are kept."""

from pathlib import Path

import pytest

from orchestrator.config.project import Project
from orchestrator.runs.commit_test import ContainerTest
from tests.support.local_engine import LocalEngine
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
