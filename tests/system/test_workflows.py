"""Tests of workflow files of other tools on a real daemon.

The agents are scripted: the tests check the order of tasks and their base commits.
"""

import json
import os
import random
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from shutil import copytree
from typing import Any

import docker
import pytest

from orchestrator.config.settings.container import Limits
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.labels import REPOSITORY
from orchestrator.runs.runner import ParallelRunner
from tests.support.cli import Completed, orchestrator, start
from tests.support.images import built_image
from tests.support.live import PATIENCE, eventually
from tests.support.random_workflows import check_carried_out, random_workflow
from tests.support.repository import git, make_repository
from tests.support.runs import branches, configured

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

IMAGE = f"orchestrator-test/scripted:{os.environ.get('PYTEST_XDIST_WORKER', 'latest')}"
DATA = Path(__file__).parents[1] / "data" / "workflows"
Span = tuple[datetime, datetime]
SHARING = """
name: Sharing
tasks:
  - id: evil
    task: |
      ln -s /etc/passwd $ORCHESTRATOR_FINDINGS; echo kept > $ORCHESTRATOR_ARTIFACTS/kept.txt
      ln -s /etc/passwd $ORCHESTRATOR_ARTIFACTS/passwd; mkfifo $ORCHESTRATOR_ARTIFACTS/fifo
  - id: honest
    task: |
      echo '- slow' > $ORCHESTRATOR_FINDINGS; echo new > new.txt
  - id: sum
    reduce: [evil, honest]
    task: |
      cd /run/orchestrator
      for one in shared inputs; do
        touch $one/new || rm -f $one/* || mv $one/results.json . || chmod 777 $one && echo WRITTEN
      done
      touch ../worker-1/handed/new && echo WRITTEN
      cat $ORCHESTRATOR_CONTEXT shared/status.md
      cat $ORCHESTRATOR_INPUTS/honest.diff; ls $ORCHESTRATOR_INPUTS
      cp $ORCHESTRATOR_RESULTS $ORCHESTRATOR_ARTIFACTS/told.json
"""


@pytest.fixture(scope="module")
def scripted(docker_engine: DockerEngine) -> Iterator[str]:
    """Build an image with an agent that follows its script."""
    with built_image(docker_engine, Path(__file__).parent / "scripted", IMAGE):
        yield IMAGE


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = make_repository(tmp_path / "repo")
    copytree(DATA, tmp_path / "workflows")
    return repo


def run(repo: Path, image: str, file: str, *more: str) -> Completed:
    path = repo.parent / "workflows" / file
    return orchestrator(
        "spec", "run", str(path), "--image", image, "--json", "--cpus", "0.5", *more, cwd=repo,
        env={"ORCHESTRATOR_MEMORY": "256m"},
    )  # fmt: skip


def run_together(
    repo: Path, client: docker.APIClient, image: str, file: str, names: tuple[str, ...], *more: str
) -> dict[str, dict[str, Any]]:
    """Run a workflow in which some tasks do not end before all of them run."""

    def running() -> list[str]:
        labels = [f"{REPOSITORY}={repo / '.git'}", "orchestrator.role=worker"]
        return [one["Id"] for one in client.containers(filters={"label": labels})]

    def release() -> None:
        eventually(lambda: over.is_set() or len(running()) == len(names), "all at one moment")
        for container in running():
            at = client.exec_create(container, ("touch", "/tmp/go"))
            client.exec_start(at)

    over = threading.Event()
    thread = threading.Thread(target=release)
    thread.start()
    try:
        return results(run(repo, image, file, "--env", f"TOGETHER={' '.join(names)}", *more))
    finally:
        over.set()
        thread.join()


def results(done: Completed) -> dict[str, dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return {one["name"]: one for one in done.json["results"]}


def spans(found: Mapping[str, dict[str, Any]]) -> dict[str, Span]:
    return {name: span(one) for name, one in found.items()}


def span(one: Mapping[str, Any]) -> Span:
    started = datetime.fromisoformat(one["started_at"])
    return started, started + timedelta(seconds=one["duration"])


def check_order(found: Mapping[str, Span], edges: Mapping[str, Iterable[str]]) -> None:
    """Check that each task started after all its dependencies had ended."""
    for name, needs in edges.items():
        for other in needs:
            assert found[other][1] <= found[name][0], f"{name} did not wait for {other}"


def overlap(one: Span, other: Span) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


def files(repo: Path, branch: str) -> set[str]:
    listed = git(repo, "ls-tree", "--name-only", branch).splitlines()
    return {name for name in listed if name.endswith(".txt") and name != "a.txt"}


@pytest.mark.extra
def test_task_manifest_runs(repo: Path, client: docker.APIClient, scripted: str) -> None:
    both = ("backend", "frontend")
    found = run_together(repo, client, scripted, "task-manifest.yaml", both)
    times = spans(found)
    check_order(
        times,
        {
            "backend": ["setup-db"],
            "frontend": ["setup-db"],
            "integration-tests": ["backend", "frontend"],
        },
    )
    for alone in ("setup-db", "integration-tests"):
        others = [time for name, time in times.items() if name != alone]
        assert not any(overlap(times[alone], other) for other in others)
    assert files(repo, found["integration-tests"]["branch"]) == {
        "setup-db.txt", "backend.txt", "frontend.txt", "integration-tests.txt",
    }  # fmt: skip
    # Files of dependencies are not listed as modified by the task.
    assert found["integration-tests"]["files_modified"] == ["integration-tests.txt"]


@pytest.mark.extra
def test_workflow_with_a_rate_limit_of_the_configuration(
    repo: Path, client: docker.APIClient, scripted: str
) -> None:
    config, both = repo.parent / "workflows" / "automatosx.providers.json", ("backend", "frontend")
    found = run_together(repo, client, scripted, "workflow.ax.yaml", both, "--config", str(config))
    times = spans(found)
    check_order(
        times,
        {"backend": ["design"], "frontend": ["design"], "tests": ["backend", "frontend"]},
    )


@pytest.mark.extra
def test_three_tasks_run_together_after_a_design(
    repo: Path, client: docker.APIClient, scripted: str
) -> None:
    middle = ("backend-api", "frontend-ui", "database-schema")
    found = run_together(repo, client, scripted, "auth-workflow.ax.yaml", middle)
    times = spans(found)
    check_order(
        times,
        {
            **{name: ["design"] for name in middle},
            "security-audit": middle,
            "integration-tests": ["security-audit"],
            "deploy": ["integration-tests"],
        },
    )
    assert files(repo, found["deploy"]["branch"]) == {f"{name}.txt" for name in found}


@pytest.mark.extra
def test_release_of_twelve_tasks(repo: Path, scripted: str) -> None:
    found = results(run(repo, scripted, "feature-release.ax.yaml", "--workers", "5"))
    core = ["user-management", "post-system", "comment-system"]
    check_order(
        spans(found),
        {
            "comment-system": ["post-system"],
            "user-ui": ["user-management"],
            "post-ui": ["post-system"],
            "comment-ui": ["comment-system"],
            "database-migrations": core,
            "api-documentation": core,
            "e2e-tests": ["user-ui", "post-ui", "comment-ui", "database-migrations"],
            "performance-tests": ["e2e-tests"],
            "staging-deploy": ["performance-tests", "api-documentation"],
            "production-deploy": ["staging-deploy"],
        },
    )
    assert len(found) == 12
    assert files(repo, found["production-deploy"]["branch"]) == {f"{name}.txt" for name in found}


@pytest.mark.extra
def test_stages_run_one_after_another(repo: Path, client: docker.APIClient, scripted: str) -> None:
    names = [one["name"] for one in run(repo, scripted, "staged.yaml", "--dry-run").json["workers"]]
    found = run_together(repo, client, scripted, "staged.yaml", tuple(names[:2]))
    assert names == list(found)
    times = list(spans(found).values())
    stages = [times[:2], times[2:5], times[5:7], times[7:]]
    for before, after in pairwise(stages):
        assert max(end for _, end in before) <= min(start for start, _ in after)


@pytest.mark.extra
def test_squad_and_its_synthesis(repo: Path, client: docker.APIClient, scripted: str) -> None:
    names = ("researcher-1", "researcher-2", "researcher-3")
    found = run_together(repo, client, scripted, "SQUAD.md", names)
    *researchers, last = found
    times = spans(found)
    assert researchers == [*names]
    check_order(times, {last: researchers})
    assert files(repo, found[last]["branch"]) == {f"{name}.txt" for name in found}


@pytest.mark.extra
def test_list_of_tasks_with_the_limit_of_the_configuration(
    repo: Path, client: docker.APIClient, scripted: str
) -> None:
    config = str(repo.parent / "workflows" / "automatosx.config.json")
    plan = run(repo, scripted, "list.yaml", "--config", config, "--dry-run")
    names = tuple(worker["name"] for worker in plan.json["workers"][:4])
    found = run_together(repo, client, scripted, "list.yaml", names, "--config", config)
    assert all(one["status"] == "success" for one in found.values())
    times = list(spans(found).values())
    busiest = max(sum(begun <= start < end for begun, end in times) for start, _ in times)
    assert busiest == 4


@pytest.mark.variants("mounts")
def test_tasks_share_files_and_write_only_their_own(repo: Path, transfer: str) -> None:
    file = repo.parent / "sharing.yaml"
    file.write_text(SHARING)
    done = orchestrator(
        "spec", "run", str(file), "--agent-cli", "shell", "--network", "none", "--json", cwd=repo
    )
    found = results(done)
    assert found["evil"]["artifacts"] == ["kept.txt"]
    assert found["evil"]["message"] == (
        "the worker's `findings.md` is not a readable file; "
        "2 of the worker's artifacts were not regular files and were left out"
        if transfer == "mounts"
        else "3 of the worker's artifacts and findings were not regular or did not fit, and were "
        "left out"
    )
    said = (Path(found["sum"]["log"]) / "stdout.log").read_text()
    assert "WRITTEN" not in said
    for line in (
        "- [x] evil - Agent 1 (complete)\n- [x] honest - Agent 2 (complete)\n",
        "## Findings\n\n### honest (Agent 2)\n- slow\n",
        "| Agent | Task | Status | Last Update |",
        "+new\n",
        "evil.diff\nevil.json\nevil.summary.md\nhonest.diff\n",
    ):
        assert line in said
    told = json.loads((Path(found["sum"]["log"]) / "artifacts" / "told.json").read_text())
    assert [(one["id"], one["files_modified"]) for one in told] == [
        ("evil", []),
        ("honest", ["new.txt"]),
    ]
    assert not list((repo / ".git" / "orchestrator" / "runs").glob("*/inputs"))


@pytest.mark.extra
def test_batches_of_a_commands_output_are_reduced(repo: Path, scripted: str) -> None:
    path = repo.parent / "workflows" / "mapped.yaml"
    path.write_text(
        """
name: Review
tasks:
  - id: review
    foreach: {command: "printf '%s\\n' ui api db docs"}
    batch: 2
    task: look at {{items}} and {{word}}
  - id: sum-up
    reduce: review
    task: all of {{results}}
"""
    )
    failed = run(repo, scripted, "mapped.yaml", "--var", "word=fail")
    assert failed.returncode == 1, failed.stderr
    names = [(one["name"], one["reason"]) for one in failed.json["results"]]
    assert names == [
        ("review-1", "agent_failed"), ("review-2", "agent_failed"), ("sum-up", "dependency"),
    ]  # fmt: skip
    done = run(repo, scripted, "mapped.yaml", "--var", "word=go", "--after", failed.json["run_id"])
    found = results(done)
    assert found["review-2"]["task"] == "look at db\ndocs and go"
    told = git(repo, "show", f"{found['sum-up']['branch']}:sum-up.txt")
    assert [one["id"] for one in json.loads(told.removeprefix("all of "))] == [
        "review-1", "review-2",
    ]  # fmt: skip
    # The command that lists the items is not recorded as a run.
    assert len(orchestrator("ls", "--json", cwd=repo).json["runs"]) == 2


def test_signal_stops_the_command_that_lists_items(repo: Path, client: docker.APIClient) -> None:
    file = repo.parent / "slow.yaml"
    each = {"id": "each", "task": "echo {{item}}", "foreach": {"command": "sleep 120"}}
    file.write_text(json.dumps({"tasks": [each]}))
    process = start(
        "spec", "run", str(file), "--agent-cli", "shell", "--network", "none", cwd=repo,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    said = []
    with process.stderr as lines:
        for line in lines:
            said.append(line.decode())
            if "started" in said[-1]:
                process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 143
    shown = "".join(said)
    assert "listing the items of `foreach`: sleep 120" in shown
    assert "the command of `foreach` was stopped: interrupted" in shown
    assert "hint" not in shown
    place = f"{REPOSITORY}={repo / '.git'}"
    assert client.containers(all=True, filters={"label": place}) == []
    assert branches(repo) == []
    assert git(repo, "worktree", "list").count("\n") == 0


@pytest.mark.extra
def test_after_skips_tasks_that_succeeded_before(repo: Path, scripted: str) -> None:
    path = repo.parent / "workflows" / "half.json"
    tasks = [
        {"id": "one", "task": "first"},
        {"id": "two", "task": "second, to fail"},
        {"id": "both", "task": "sum up {{results}}", "reduce": ["one", "two"]},
    ]
    path.write_text(json.dumps({"name": "half", "tasks": tasks}))
    first = run(repo, scripted, "half.json")
    assert first.returncode == 1, first.stderr
    path.write_text(path.read_text().replace("to fail", "mended"))

    done = run(repo, scripted, "half.json", "--after", first.json["run_id"])
    found = results(done)
    assert found.keys() == {"two", "both"}
    assert done.json["base"] == first.json["base"]
    assert files(repo, found["both"]["branch"]) == {"one.txt", "two.txt", "both.txt"}
    told = git(repo, "show", f"{found['both']['branch']}:both.txt")
    assert '"id": "one"' in told
    assert '"id": "two"' in told
    nothing = run(repo, scripted, "half.json", "--after", done.json["run_id"])
    assert (nothing.returncode, nothing.error["key"]) == (3, "workflow.done")


@pytest.mark.extra
def test_random_workflow_runs_in_containers(repo: Path, docker_engine: DockerEngine) -> None:
    flow = random_workflow(random.Random(11), 14)
    config = configured("-", workers=4, limits=Limits(memory=128 * 1024**2, grace=1))
    result = ParallelRunner(config, repo, engine=docker_engine, workflow=flow).execute()
    check_carried_out(flow, result.results, slots=4)
    assert {one.reason for one in result.results} > {None}
