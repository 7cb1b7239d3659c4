"""Tests of workflows drawn as Mermaid."""

import re

import pytest

from orchestrator.config.workflow.drawing.text import mermaid
from orchestrator.config.workflow.model import Task, Workflow
from tests.support.drawn_workflows import any_workflow, batches, edges_of


class TestMermaid:
    def read(self, text: str) -> tuple[dict[str, str], set[tuple[str, str]]]:
        """Parse the used subset of Mermaid."""
        head, rest = re.match(
            r'---\ntitle: ("[^\n]*")\n---\nflowchart LR\n(.*)', text, re.S
        ).groups()
        assert head.isascii()
        nodes, edges = {}, set()
        for line in rest.split("\n"):
            node = re.fullmatch(r'    (n\d+)\[{1,2}"([^"]*)"\]{1,2}', line)
            edge = re.fullmatch(r"    (n\d+) --> (n\d+)", line)
            assert node or edge, line
            if node:
                nodes[node[1]] = node[2]
            else:
                edges.add((edge[1], edge[2]))
        return nodes, edges

    @pytest.mark.parametrize("seed", range(20))
    def test_mermaid_has_the_nodes_and_edges_of_the_workflow(self, seed):
        one = any_workflow(seed)
        nodes, edges = self.read(mermaid(one))
        assert sorted(nodes.values()) == sorted(task.id for task in one.tasks)
        assert {(nodes[first], nodes[last]) for first, last in edges} == edges_of(one)

    def test_name_is_escaped(self):
        bad = '"\n---\nclick a "javascript:alert(1)"\n%%{init: {}}%%'
        one = Workflow(name=bad, tasks=(Task(id="a", task="t"),))
        nodes, edges = self.read(mermaid(one))
        assert nodes == {"n0": "a"}
        assert not edges

    def test_unchecked_task_name_is_escaped(self):
        bad = 'x"] --> y[<img src=x onerror=alert(1)>]\n`md`;#quot;'
        task = Task.model_construct(**{**Task(id="a", task="t").__dict__, "id": bad})
        one = Workflow.model_construct(name="n", tasks=(task,), max_latency=None)
        nodes, _ = self.read(mermaid(one))
        assert not set(nodes["n0"]) & set('"[]<>`=')
        assert nodes["n0"].startswith("x#34;#93; --#62; y#91;#60;img")

    def test_foreach_is_one_node(self):
        nodes, edges = self.read(mermaid(batches()))
        assert nodes == {"n0": "list", "n1": "move × 3", "n2": "sum-up"}  # noqa: RUF001
        assert edges == {("n0", "n1"), ("n1", "n2")}
