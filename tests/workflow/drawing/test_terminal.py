"""Tests of drawings for a terminal, read back by following their lines."""

import random
import re
from pathlib import Path

import pytest

from orchestrator.workflow.drawing.graph import shape_of
from orchestrator.workflow.drawing.terminal import picture
from orchestrator.workflow.model import Task
from orchestrator.workflow.parsing.reader import read_workflow
from tests.support.drawn_workflows import RELEASE, any_workflow, batches, edges_of, workflow

WORKFLOWS = Path(__file__).parents[2] / "data" / "workflows"
NORTH, EAST, SOUTH, WEST = (0, -1), (1, 0), (0, 1), (-1, 0)
ARMS = {
    "─": (EAST, WEST),
    "│": (NORTH, SOUTH),
    "┌": (EAST, SOUTH),
    "┐": (WEST, SOUTH),
    "└": (NORTH, EAST),
    "┘": (NORTH, WEST),
    "├": (NORTH, SOUTH, EAST),
    "┤": (NORTH, SOUTH, WEST),
    "┬": (EAST, WEST, SOUTH),
    "┴": (EAST, WEST, NORTH),
    "┼": (NORTH, EAST, SOUTH, WEST),
}
BACK = {NORTH: SOUTH, SOUTH: NORTH, EAST: WEST}
DESIGN_FIRST = {
    "design": [],
    "backend-api": ["design"],
    "frontend-ui": ["design"],
    "database-schema": ["design"],
    "security-audit": ["backend-api", "frontend-ui", "database-schema"],
    "integration-tests": ["security-audit"],
    "deploy": ["integration-tests"],
}


class Tracer:
    """Reads a drawing by following lines from names to the right."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.names: dict[tuple[int, int], str] = {}
        self.starts: list[tuple[str, int, int]] = []
        for y, line in enumerate(self.lines):
            for found in re.finditer(r"[^\s─-╿►]+", line):
                self.names[found.start(), y] = found.group()
                self.starts.append((found.group(), found.end() + 1, y))

    def at(self, x: int, y: int) -> str:
        inside = 0 <= y < len(self.lines) and 0 <= x < len(self.lines[y])
        return self.lines[y][x] if inside else " "

    def edges(self) -> set[tuple[str, str]]:
        """Pairs of names; a connector at a break is followed by its number."""
        found: dict[str, set[str]] = {}
        for name, x, y in self.starts:
            found.setdefault(name, set()).update(self.reached(x, y))
        return {
            (name, end)
            for name, ends in found.items()
            if not is_connector(name)
            for end in self.ends(ends, found)
        }

    def ends(self, names: set[str], found: dict[str, set[str]]) -> set[str]:
        passed = [self.ends(found[name], found) for name in names if is_connector(name)]
        return set().union(*passed, (name for name in names if not is_connector(name)))

    def reached(self, x: int, y: int) -> set[str]:
        """The names at the arrows that a line reaches."""
        ends: set[str] = set()
        waiting = [(x, y, EAST)] if self.at(x, y) in ARMS else []
        seen = set()
        while waiting:
            step = waiting.pop()
            if step in seen:
                continue
            seen.add(step)
            x, y, heading = step
            character = self.at(x, y)
            if character == "►":
                assert heading == EAST
                ends.add(self.names[x + 2, y])
                continue
            arms = ARMS[character]
            if character == "│" and heading == EAST:
                waiting.append((x + 1, y, EAST))  # the line crosses below the vertical line
                continue
            is_start = (x, y) in {(at, row) for _, at, row in self.starts}
            assert BACK[heading] in arms or is_start, f"a line ends in the air at {x}, {y}"
            # Lines go from left to right, never back.
            turns = [arm for arm in arms if arm not in (BACK[heading], WEST)]
            waiting += [(x + arm[0], y + arm[1], arm) for arm in turns]
        return ends


def is_connector(name: str) -> bool:
    return re.fullmatch(r"\(\d+\)", name) is not None


def test_drawing_of_a_small_workflow():
    assert picture(workflow(DESIGN_FIRST)) == (
        "         ┌─► backend-api ──────┐\n"
        "design ──┼─► frontend-ui ──────┼─► security-audit ──► integration-tests ──► deploy\n"
        "         └─► database-schema ──┘"
    )


@pytest.mark.parametrize(
    "name", ["task-manifest.yaml", "auth-workflow.ax.yaml", "feature-release.ax.yaml", "SQUAD.md"]
)
@pytest.mark.parametrize("width", [None, 100, 60])
def test_example_files_are_drawn(name, width):
    one = read_workflow(WORKFLOWS / name).workflow
    text = picture(one, width=width)
    assert max(map(len, text.split("\n"))) <= (width or 1000)
    assert traced(text) == edges_of(one)
    assert " after " not in text


def test_large_workflow_is_drawn():
    assert Tracer(picture(workflow(RELEASE))).edges() == edges_of(workflow(RELEASE))
    assert ("post-system", "database-migrations") not in edges_of(workflow(RELEASE))
    narrow = picture(workflow(RELEASE), width=100)
    assert max(map(len, narrow.split("\n"))) <= 100
    assert Tracer(narrow).edges() == edges_of(workflow(RELEASE))


@pytest.mark.parametrize("seed", range(80))
def test_lines_connect_the_right_nodes(seed):
    one = any_workflow(seed)
    text = picture(one)
    tracer = Tracer(text)
    assert sorted(name for name, _, _ in tracer.starts) == sorted(task.id for task in one.tasks)
    assert tracer.edges() == edges_of(one)
    assert Tracer(picture(one)).lines == tracer.lines, "the drawing differs between two calls"


@pytest.mark.parametrize("seed", range(300, 350))
def test_wrapped_drawing_has_the_same_edges(seed):
    one = any_workflow(seed)
    text = picture(one, width=100)
    assert max(map(len, text.split("\n"))) <= 100 or " after " in text
    if " after " in text:
        assert listed(text) == edges_of(one)
        return
    assert traced(text) == edges_of(one)
    full = legend(text)
    starts = [name for name, _, _ in Tracer(without_legend(text)).starts]
    shown = [full.get(name, name) for name in starts if not is_connector(name)]
    assert sorted(shown) == sorted(task.id for task in one.tasks)


def traced(text: str) -> set[tuple[str, ...]]:
    """Return the edges of a drawing, by full names."""
    full = legend(text)
    edges = Tracer(without_legend(text)).edges()
    return {tuple(full.get(name, name) for name in edge) for edge in edges}


def without_legend(text: str) -> str:
    full = legend(text)
    return text.partition("\n\n" + next(iter(full)))[0] if full else text


def legend(text: str) -> dict[str, str]:
    """Return the shortened names with their full names."""
    return dict(re.findall(r"^(\S*…\S*) +([\w-]+)$", text, re.MULTILINE))


def listed(text: str) -> set[tuple[str, str]]:
    pairs = (line.partition(" after ") for line in text.split("\n"))
    return {(one, name) for name, _, after in pairs if after for one in after.split(", ")}


def test_few_workflows_are_only_listed():
    texts = [picture(any_workflow(seed), width=100) for seed in range(300, 350)]
    assert sum(" after " in text for text in texts) < 5


def test_shortened_names_stay_distinct():
    long = {f"{'x' * 40}{number}{'y' * 40}": [] for number in range(30)}
    text = picture(workflow(long), width=20)
    drawn, _, rest = text.partition("\n\n")
    assert len(set(drawn.split("\n"))) == 30
    assert [line.split()[1] for line in rest.split("\n")] == list(long)


def test_ascii_drawing_replaces_all_characters():
    text = picture(workflow(RELEASE), width=60, ascii_only=True)
    assert text.isascii()
    shapes = str.maketrans({**dict.fromkeys("┌┐└┘├┤┬┴┼", "+"), "─": "-", "│": "|", "►": ">"})
    assert text == picture(workflow(RELEASE), width=60).translate(shapes).replace("…", "~")


def test_foreach_is_drawn_as_one_node():
    assert picture(batches()) == "list ──► move × 3 ──► sum-up"  # noqa: RUF001
    assert picture(batches(), ascii_only=True) == "list --> move x 3 --> sum-up"


def test_batches_with_different_dependents_are_drawn_separately():
    whole = batches()
    one = whole.model_copy(
        update={"tasks": (*whole.tasks, Task(id="odd", task="t", depends_on=("move-2",)))}
    )
    assert Tracer(picture(one)).edges() == edges_of(one)
    assert "move-2" in picture(one)


def test_failure_handler_is_marked():
    assert picture(batches(when="on_failure")).endswith("sum-up (on_failure)")


def test_hundreds_of_tasks_are_drawn():
    choose = random.Random(1)
    names = [f"t{number}" for number in range(300)]
    one = workflow({name: choose.sample(names[max(0, n - 40) : n], min(n, 2))
                    for n, name in enumerate(names)})  # fmt: skip
    assert Tracer(picture(one)).edges() == {
        (shape_of(one).nodes[a].name, shape_of(one).nodes[b].name) for a, b in shape_of(one).edges
    }
