"""Tests of runs in which an agent resolves a conflict."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch
from orchestrator.review.landing.merged import Merged
from orchestrator.review.landing.resolution import Resolver
from orchestrator.runs.purposes.conflict_agent import ConflictAgent
from orchestrator.state.run_directory import all_runs
from tests.support.landing import branch, merge
from tests.support.local_engine import LocalEngine
from tests.support.merges import World
from tests.support.repository import git
from tests.support.resolving import with_line
from tests.support.runs import configured

ROOT = Path(__file__).parents[2]
RESOLVE = "grep -v '^[<>=]\\{7\\}' numbers > new; mv new numbers"


@pytest.fixture
def world(repo: Path, tmp_path: Path) -> World:
    world = World(repo, tmp_path)
    (repo / "numbers").write_text(with_line("-"))
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "numbers")
    world.base = git(repo, "rev-parse", "HEAD")
    return world


def both(world: World) -> tuple[Branch, Branch]:
    """Return two branches that changed the same line."""
    one = branch(world, 1, {"numbers": with_line("5", "five")})
    return one, branch(world, 2, {"numbers": with_line("5", "cinq")})


def resolve(
    world: World,
    engine: LocalEngine,
    task: str,
    branches: tuple[Branch, Branch] | None = None,
    *,
    checked: bool = False,
    **settings: object,
) -> Merged:
    one, two = branches or both(world)
    config = configured(task, **settings)
    agent = ConflictAgent(config, world.repo, engine, checked=checked)
    resolver = Resolver(agent=agent)
    return merge(world, one, two, on_conflict="agent", resolver=resolver)


def test_agent_resolves_a_conflict_and_leaves_nothing_behind(
    world: World, local_engine: LocalEngine
) -> None:
    refs = set(git(world.repo, "for-each-ref", "--format=%(refname)").split())
    task = f"cat $ORCHESTRATOR_CONTEXT; git log -1 --format=%P; {RESOLVE}"
    merged = resolve(world, local_engine, task)
    assert (merged.landed, merged.left) == ((1, 2), ())
    assert git(world.repo, "show", "main:numbers") == with_line("5", "five", "cinq").strip()
    now = set(git(world.repo, "for-each-ref", "--format=%(refname)").split())
    assert now - refs == {
        "refs/heads/architect/parallel-1", "refs/heads/architect/parallel-2",
        "refs/orchestrator/landed/run",
    }  # fmt: skip
    (run,) = all_runs(Repository(world.repo).state_dir)
    assert (run.run_id, run.is_test) == (merged.resolved[0].run_id, True)
    # Workers 1 and 2 are the authors.
    log = (run.worker(3) / "stdout.log").read_text()
    assert "task 2" in log
    assert "+cinq" in log


@pytest.mark.parametrize(
    ("task", "timeout", "said"),
    [
        ("exit 3", 60, "the agent did not succeed"),
        ("sleep 100", 2, "the agent did not succeed: "),
        ("true", 60, "the agent committed nothing"),
        (f"{RESOLVE}; rm a.txt", 60, "files without a conflict were changed: a.txt"),
    ],
    ids=["fails", "never ends", "does nothing", "removes another file"],
)
def test_other_agents_are_refused_twice(
    world: World, local_engine: LocalEngine, task: str, timeout: int, said: str
) -> None:
    merged = resolve(world, local_engine, task, timeout_per_worker=timeout)
    assert merged.landed == (1,)
    assert [said in one for one in merged.left[0].refused] == [True, True]


def test_checks_of_the_configuration_run_on_the_resolution(
    world: World, local_engine: LocalEngine
) -> None:
    checks = ({"run": "! grep five numbers"},)
    merged = resolve(world, local_engine, RESOLVE, checked=True, checks=checks)
    assert merged.landed == (1,)
    assert "the agent did not succeed" in merged.left[0].refused[0]


def test_reason_for_dropping_a_side_is_read_from_the_findings(
    world: World, local_engine: LocalEngine
) -> None:
    task = (
        "git checkout -q HEAD^2 -- numbers; echo 'numbers: French it is' > $ORCHESTRATOR_FINDINGS"
    )
    merged = resolve(world, local_engine, task)
    assert merged.landed == (1, 2)
    assert git(world.repo, "show", "main:numbers") == with_line("5", "cinq").strip()


AGENT = "orchestrator.runs.purposes.conflict_agent:"
ANSWERS = "orchestrator.review.landing.conflict:StoredAnswers.put"
POINTS = [
    (f"{AGENT}ConflictAgent._new", "before", 1, 1),
    (ANSWERS, "after", 1, 1),
    ("orchestrator.worker.lifecycle:harvest_worker", "before", 1, 1),
    (f"{AGENT}ConflictAgent._proposal", "before", 1, 1),
    (f"{AGENT}cleanup", "after", 1, 1),
    (ANSWERS, "after", 2, 1),
    ("orchestrator.review.landing.merge:land", "before", 1, 1),
]
"""Function, moment and call at which the process dies, and how often the agent runs in all."""


@pytest.mark.parametrize(("target", "when", "nth", "runs"), POINTS)
@pytest.mark.variants("*harvest_worker-before-1-1")
def test_killed_resolution_is_continued_by_the_next_merge(
    world: World, tmp_path: Path, target: str, when: str, nth: int, runs: int
) -> None:
    """The agent runs once, whenever the process of the merge dies."""
    count = tmp_path / "count"
    task = f"echo x >> {count}; {RESOLVE}"
    branches = both(world)
    commits = [one.commit for one in branches]
    engine = tmp_path / "engine"
    program = [sys.executable, "-m", "tests.support.dying_resolution", target, when, str(nth)]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        [*program, str(world.repo), str(engine), task, world.base, *commits],
        cwd=ROOT, capture_output=True, check=False, env={**os.environ, "TMPDIR": str(temporary)},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert git(world.repo, "rev-parse", "main") == world.base

    merged = resolve(world, LocalEngine(engine), task, branches)

    assert (merged.landed, merged.left) == ((1, 2), ())
    assert len(count.read_text().splitlines()) == runs
    assert git(world.repo, "status", "--porcelain") == ""
    assert not (world.repo / ".git/orchestrator/conflict.md").exists()
    assert list(temporary.iterdir()) == []
