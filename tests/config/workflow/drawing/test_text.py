"""Tests of the list of tasks in waves, read back line by line."""

import random
import re
from pathlib import Path

import pytest

from orchestrator.config.workflow.drawing.graph import shape_of
from orchestrator.config.workflow.drawing.text import listing
from orchestrator.config.workflow.model import Task, Workflow
from orchestrator.config.workflow.parsing.reader import read_workflow
from tests.support.drawn_workflows import RELEASE, any_workflow, batches, edges_of, workflow

WORKFLOWS = Path(__file__).parents[3] / "data" / "workflows"
DESIGN_FIRST = {
    "design": [],
    "backend-api": ["design"],
    "frontend-ui": ["design"],
    "database-schema": ["design"],
    "security-audit": ["backend-api", "frontend-ui", "database-schema"],
    "integration-tests": ["security-audit"],
    "deploy": ["integration-tests"],
}


def read(text: str) -> tuple[list[tuple[int, str]], set[tuple[str, str]]]:
    """Return the tasks of a list with their waves, and the dependencies."""
    tasks: list[tuple[int, str]] = []
    edges: set[tuple[str, str]] = set()
    wave = 0
    for line in re.sub(r"\n {6,}", " ", text).split("\n"):
        number, name, after = re.fullmatch(r"(\d+)? +(\S+)(?: +after (.+))?", line).groups()
        wave = int(number or wave)
        tasks.append((wave, name))
        edges |= {(before, name) for before in re.split(", +", after or "") if before}
    return tasks, edges


def test_list_of_a_small_workflow():
    assert listing(workflow(DESIGN_FIRST)) == (
        "1  design\n"
        "2  backend-api        after design\n"
        "   frontend-ui        after design\n"
        "   database-schema    after design\n"
        "3  security-audit     after backend-api, frontend-ui, database-schema\n"
        "4  integration-tests  after security-audit\n"
        "5  deploy             after integration-tests"
    )


@pytest.mark.parametrize(
    "name", ["task-manifest.yaml", "auth-workflow.ax.yaml", "feature-release.ax.yaml", "SQUAD.md"]
)
@pytest.mark.parametrize("width", [None, 100, 60])
def test_example_files_are_listed(name, width):
    one = read_workflow(WORKFLOWS / name).workflow
    text = listing(one, width=width)
    assert max(map(len, text.split("\n"))) <= (width or 1000)
    assert read(text)[1] == edges_of(one)


def test_implied_dependencies_are_left_out():
    one = workflow(RELEASE)
    assert read(listing(one))[1] == edges_of(one)
    assert ("post-system", "database-migrations") not in edges_of(one)
    narrow = listing(one, width=50)
    assert max(map(len, narrow.split("\n"))) <= 50
    assert read(narrow)[1] == edges_of(one)


def check(one: Workflow, text: str) -> None:
    tasks, edges = read(text)
    assert sorted(name for _, name in tasks) == sorted(task.id for task in one.tasks)
    assert edges == edges_of(one)
    waves = [[task.id for task in wave] for wave in one.waves()]
    assert [
        [name for n, name in tasks if n == number] for number in range(1, len(waves) + 1)
    ] == waves


@pytest.mark.parametrize("seed", range(80))
def test_list_has_the_tasks_and_dependencies_of_the_workflow(seed):
    one = any_workflow(seed)
    text = listing(one)
    check(one, text)
    assert listing(one) == text, "the list differs between two calls"


@pytest.mark.parametrize("seed", range(300, 350))
def test_narrow_list_has_the_same_dependencies(seed):
    one = any_workflow(seed)
    text = listing(one, width=100)
    assert max(map(len, text.split("\n"))) <= 100
    check(one, text)


def test_long_names_are_not_cut():
    long = {f"{'x' * 40}{number}{'y' * 40}": [] for number in range(30)}
    assert [name for _, name in read(listing(workflow(long), width=20))[0]] == list(long)
    assert [name for _, name in read(listing(workflow(long), width=1))[0]] == list(long)


def test_foreach_is_one_line():
    assert listing(batches()) == (
        "1  list\n2  move × 3  after list\n3  sum-up    after move × 3"  # noqa: RUF001
    )


def test_batches_with_different_dependents_are_listed_separately():
    whole = batches()
    one = whole.model_copy(
        update={"tasks": (*whole.tasks, Task(id="odd", task="t", depends_on=("move-2",)))}
    )
    assert read(listing(one))[1] == edges_of(one)
    assert "move-2" in listing(one)


def test_failure_handler_is_marked():
    assert "\n3  sum-up (on_failure)  after " in listing(batches(when="on_failure"))


def test_hundreds_of_tasks_are_listed():
    choose = random.Random(1)
    names = [f"t{number}" for number in range(300)]
    one = workflow({name: choose.sample(names[max(0, n - 40) : n], min(n, 2))
                    for n, name in enumerate(names)})  # fmt: skip
    assert read(listing(one))[1] == {
        (shape_of(one).nodes[a].name, shape_of(one).nodes[b].name) for a, b in shape_of(one).edges
    }
