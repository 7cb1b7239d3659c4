"""Tests of topological order and cycles, with random graphs."""

import random
import re
from itertools import pairwise
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.config.workflow.parsing.reader import read_workflow
from orchestrator.config.workflow.parsing.task_nodes import cycles, in_order

Graph = dict[str, list[str]]


def some_graph(chance: random.Random) -> Graph:
    """Return random tasks that depend on earlier ones, shuffled."""
    names = [f"t{number}" for number in range(chance.randint(1, 40))]
    graph = {
        name: chance.sample(names[:number], chance.randint(0, min(number, 4)))
        for number, name in enumerate(names)
    }
    chance.shuffle(names)
    return {name: graph[name] for name in names}


def with_circle(graph: Graph, chance: random.Random) -> Graph:
    circle = chance.sample([*graph], chance.randint(1, min(5, len(graph))))
    for name, following in zip(circle, [*circle[1:], circle[0]], strict=True):
        graph[name] = [*graph[name], following]
    return graph


def write(tmp_path: Path, graph: Graph) -> Path:
    path = tmp_path / "flow.yaml"
    lines = [f"- {{id: {name}, depends_on: {before}}}\n" for name, before in graph.items()]
    path.write_text("tasks:\n" + "".join(lines))
    return path


@pytest.mark.parametrize("seed", range(40))
def test_each_task_comes_after_its_dependencies(tmp_path: Path, seed: int) -> None:
    graph = some_graph(random.Random(seed))

    tasks = read_workflow(write(tmp_path, graph)).workflow.tasks

    assert sorted(task.id for task in tasks) == sorted(graph)
    assert {task.id: set(task.depends_on) for task in tasks} == {k: {*v} for k, v in graph.items()}
    done: set[str] = set()
    for task in tasks:
        ready = [name for name in graph if name not in done and done >= {*graph[name]}]
        assert task.id == ready[0], "of the tasks that could be next, the first in the file is next"
        done.add(task.id)


@pytest.mark.parametrize("seed", range(40))
def test_cycle_is_reported_with_its_tasks(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    graph = with_circle(some_graph(chance), chance)

    with pytest.raises(ConfigError) as caught:
        read_workflow(write(tmp_path, graph))

    told = re.findall(r"depend on each other: (.+)", caught.value.message)
    assert told
    for way in told:
        steps = way.split(" -> ")
        assert steps[0] == steps[-1]
        assert len({*steps}) == len(steps) - 1
        assert all(after in graph[step] for step, after in pairwise(steps))


@pytest.mark.parametrize("seed", range(40))
def test_all_cycles_are_found(seed: int) -> None:
    chance = random.Random(seed)
    graph = with_circle(with_circle(some_graph(chance), chance), chance)

    found = [name for circle in cycles(graph) for name in circle]

    assert len({*found}) == len(found)
    kept = {name: [b for b in before if b not in found] for name, before in graph.items()}
    assert len(in_order({name: kept[name] for name in kept if name not in found})) == (
        len(graph) - len(found)
    )


def test_cycle_starts_with_its_first_task_in_the_file() -> None:
    assert cycles({"x": ["b"], "a": ["b"], "b": ["a"]}) == [["a", "b"]]


def test_long_chain_is_sorted() -> None:
    chain = {str(number): [str(number - 1)] if number else [] for number in range(5000)}
    assert in_order(dict(reversed(chain.items()))) == [*chain]
    assert len(cycles({**chain, "0": ["4999"]})[0]) == 5000
