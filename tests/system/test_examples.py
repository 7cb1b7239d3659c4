"""Tests that run every example on the real daemon, with scripted agents."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.labels import REPOSITORY
from tests.support import local_program
from tests.support.cli import orchestrator
from tests.support.fork_program import fork_program
from tests.support.images import built_image
from tests.support.junit_readers import gitlab_cases
from tests.support.repository import git, make_repository

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
IMAGE = f"orchestrator-test/example:{os.environ.get('PYTEST_XDIST_WORKER', 'latest')}"
WORKFLOWS = {
    "research": {"sessions", "payments", "search", "report"},
    "analysis": {"review-1", "findings"},
    "sections": {"auth", "api", "ui"},
    "features": {"schema", "carts", "wish-lists", "reviews", "tests"},
    "test-suites": {"unit", "style", "migrations", "reports"},
}
READ_ONLY = {"research", "analysis"}


@pytest.fixture(scope="module")
def scripted(docker_engine: DockerEngine) -> Iterator[str]:
    """Build an image with an agent that follows its script."""
    with built_image(docker_engine, Path(__file__).parent / "scripted", IMAGE):
        yield IMAGE


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return a repository with parts and tests, and without a network."""
    repo = make_repository(tmp_path / "shop")
    for part in ("auth", "api", "ui"):
        (repo / "src" / part).mkdir()
        (repo / "src" / part / "main.py").write_text("def run():\n    return 1\n")
    (repo / ".gitignore").write_text("__pycache__/\n")
    (repo / "tests").mkdir()
    (repo / "tests" / "test_it.py").write_text(
        "import unittest\n\n\nclass It(unittest.TestCase):\n    def test_it(self):\n        pass\n"
    )
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "parts")
    return repo


def test_every_example_workflow_is_tested() -> None:
    assert {path.stem for path in (EXAMPLES / "workflows").iterdir()} == WORKFLOWS.keys()


@pytest.mark.parametrize("name", WORKFLOWS)
@pytest.mark.variants("test-suites")
def test_example_workflow_runs(shop: Path, scripted: str, name: str) -> None:
    done = orchestrator(
        "spec", "run", str(EXAMPLES / "workflows" / f"{name}.yaml"), "--json", "--cpus", "0.5",
        "--memory", "256m", cwd=shop,
        env={} if name == "test-suites" else {"ORCHESTRATOR_IMAGE": scripted},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = {one["name"]: one for one in done.json["results"]}
    assert results.keys() == WORKFLOWS[name]
    assert {one["status"] for one in results.values()} == {"success"}
    wrote = any(one["files_modified"] for one in results.values())
    assert wrote == (name not in READ_ONLY | {"test-suites"})
    if name == "sections":
        changed = {one["name"]: one["files_modified"] for one in results.values()}
        assert changed == {part: [f"src/{part}/{part}.txt"] for part in results}


@pytest.mark.extra
def test_scheduled_example_runs(shop: Path) -> None:
    folder = EXAMPLES / "scheduled"
    (shop / "nightly.yaml").write_text((folder / "nightly.yaml").read_text())
    commands = [
        line[line.index("spec run") :].split()
        for name in ("crontab", "orchestrator.service")
        for line in (folder / name).read_text().splitlines()
        if "spec run" in line and not line.startswith("#")
    ]
    assert [command[:3] for command in commands] == [["spec", "run", "nightly.yaml"]] * 2
    for command in commands:
        done = orchestrator(*command, cwd=shop)
        assert (done.returncode, done.stderr) == (0, "")
        (line,) = done.stdout.splitlines()
        assert ": success; 2 of 2 workers succeeded; " in line


@pytest.fixture(params=["processes", pytest.param("containers", marks=pytest.mark.extra)])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Return variables with which an example runs its tasks as processes, or in containers."""
    if request.param == "containers":
        yield {}
        return
    with fork_program(tmp_path / "forks", "tests.support.local_program"):
        yield {
            local_program.FOLDER: str(tmp_path / "engine"),
            "PATH": f"{tmp_path / 'forks'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }


def example(
    repo: Path, name: str, *arguments: str, **env: str
) -> "subprocess.CompletedProcess[str]":
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["sh", str(EXAMPLES / name / "run.sh"), *arguments],
        cwd=repo, env={**os.environ, "PATH": path, **env}, capture_output=True, text=True,
        timeout=500, check=False,
    )  # fmt: skip


def results(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text())["results"]


def is_clean(repo: Path, engine: DockerEngine) -> bool:
    branches = git(repo, "branch", "--list", "architect/*")
    worktrees = list(repo.glob(".architect-*"))
    return not (branches or worktrees or engine.leftovers({REPOSITORY: str(repo / ".git")}))


def test_ci_runner_example_runs(
    shop: Path, docker_engine: DockerEngine, places: dict[str, str]
) -> None:
    checks = ("python3 -m unittest discover -s tests", "python3 -m compileall -q src")
    done = example(shop, "ci-runner", *checks, **places)
    assert done.returncode == 0, done.stderr
    assert [one["status"] for one in results(shop / "run.json")] == ["success", "success"]
    assert is_clean(shop, docker_engine)
    done = example(shop, "ci-runner", "exit 3", checks[1], **places)
    assert done.returncode == 1
    assert [one["exit_code"] for one in results(shop / "run.json")] == [3, 0]
    assert is_clean(shop, docker_engine)
    assert example(shop, "ci-runner", **places).returncode == 3


def test_sharded_tests_example_runs(
    tmp_path: Path, docker_engine: DockerEngine, places: dict[str, str]
) -> None:
    repo = tmp_path / "prices"
    shutil.copytree(EXAMPLES / "sharded-tests", repo)
    git(repo, "init", "-q")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "a shop")
    done = example(repo, "sharded-tests", "3", **places)
    assert done.returncode == 0, done.stderr
    cases = gitlab_cases((repo / "orchestrator.xml").read_text())
    names = [case.name for case in cases if not case.name.startswith("worker-")]
    assert sorted(names) == sorted(re.findall(r"def (test_\w+)", all_tests(repo)))
    assert {path.name for path in (repo / "artifacts").glob("worker-*/*")} == {
        "junit.xml", "covered-files.txt",
    }  # fmt: skip
    assert is_clean(repo, docker_engine)
    # The next run would mix its files with these.
    again = example(repo, "sharded-tests", "3", **places)
    assert (again.returncode, "is not empty" in again.stderr) == (3, True)
    shutil.rmtree(repo / "artifacts")
    (repo / "prices.py").write_text((repo / "prices.py").read_text().replace("// 100\n", "// 99\n"))
    git(repo, "commit", "-qam", "break it")
    broken = example(repo, "sharded-tests", "3", **places)
    assert broken.returncode == 1
    failed = [case for case in gitlab_cases((repo / "orchestrator.xml").read_text())
              if case.status == "failed"]  # fmt: skip
    assert "test_half" in {case.name for case in failed}


def all_tests(repo: Path) -> str:
    return "".join(path.read_text() for path in (repo / "tests").glob("test_*.py"))


def test_untrusted_task_example_runs(shop: Path) -> None:
    secret = shop.parent / "secret.txt"
    secret.write_text("a secret of this machine")
    tasks = shop.parent / "tasks.txt"
    tasks.write_text(
        f"echo done > done.txt\n\ncat {secret} || echo denied > denied.txt; env > env.txt\n"
        "ls /sys/class/net > nets.txt; id -u > id.txt\n"
    )
    done = example(shop, "untrusted-tasks", str(tasks), MINE="t0psecret")
    assert done.returncode == 0, done.stderr
    first, second, third = results(shop / "results.json")
    assert [first["files_modified"], first["status"]] == [["done.txt"], "success"]
    assert second["files_modified"] == ["denied.txt", "env.txt"]
    assert "t0psecret" not in git(shop, "show", f"{second['branch']}:env.txt")
    assert git(shop, "show", f"{third['branch']}:nets.txt") == "lo"
    assert git(shop, "show", f"{third['branch']}:id.txt") != "0"
    assert not (shop / "done.txt").exists()


@pytest.mark.extra
def test_command_line_example_runs(shop: Path, scripted: str, docker_engine: DockerEngine) -> None:
    before = git(shop, "rev-parse", "HEAD")
    limits = {"ORCHESTRATOR_MEMORY": "256m", "ORCHESTRATOR_NETWORK": "none"}
    task = "Add a test for the parser"
    done = example(
        shop, "command-line", task, "one", "two", ORCHESTRATOR_IMAGE=scripted, **limits
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert git(shop, "diff", "--name-only", before, "HEAD") == "task.txt"
    assert is_clean(shop, docker_engine)
    done = example(
        shop, "command-line", f"fail: {task}", "one", "two", ORCHESTRATOR_IMAGE=scripted, **limits
    )  # fmt: skip
    assert done.returncode == 1
    assert git(shop, "diff", "--name-only", before, "HEAD") == "task.txt"
