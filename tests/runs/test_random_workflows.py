"""Tests of random workflows with real git: every scheduling rule is kept."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.config.workflow.model import Workflow
from orchestrator.runs.runner import ParallelRunner
from tests.support.local_engine import LocalEngine
from tests.support.random_workflows import check_carried_out, random_workflow
from tests.support.repository import fingerprint, git
from tests.support.runs import configured


@pytest.mark.timeout(900)
def test_random_workflow_keeps_all_rules(
    repo: Path, local_engine: LocalEngine, request: pytest.FixtureRequest
) -> None:
    long = request.config.getoption("--faults") > 0
    count, slots = (300, 10) if long else (30, 6)
    flow = random_workflow(random.Random(7 if long else 4), count)
    before = fingerprint(repo)
    config = configured("-", workers=slots, max_worktrees=count)
    result = ParallelRunner(config, repo, engine=local_engine, workflow=flow).execute()
    check_carried_out(flow, result.results, slots=slots)
    reasons = {one.reason for one in result.results}
    assert {Reason.AGENT_FAILED, Reason.DEPENDENCY, None} <= reasons
    assert Reason.CONFLICT in reasons or not long
    _check_files(repo, flow, {str(one.name): one for one in result.results})
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""
    assert fingerprint(repo) == before


def _check_files(repo: Path, flow: Workflow, done: Mapping[str, WorkerResult]) -> None:
    """Check that successful tasks have no files of failed tasks.

    For a dependency that did not succeed, its own dependencies take its place.
    """
    reached: dict[str, set[str]] = {}
    for task in flow.tasks:
        merged = [name for name in task.depends_on if done[name].reason is not Reason.CONFLICT]
        before = set().union(*(reached[name] for name in merged))
        result = done[task.id]
        succeeded = result.status is Status.SUCCESS and result.started_at is not None
        reached[task.id] = before | ({task.id} if succeeded else set())
        if succeeded:
            files = set(git(repo, "ls-tree", "--name-only", str(result.commit)).split())
            own = {name.removesuffix(".txt") for name in files if name.startswith("t")}
            assert own <= reached[task.id]
