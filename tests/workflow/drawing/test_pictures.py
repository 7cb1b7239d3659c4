"""Pictures of workflows: read back, they say what the workflow says, whatever it is."""

import random
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from orchestrator.workflow.drawing.graph import shape_of
from orchestrator.workflow.drawing.mermaid import mermaid
from orchestrator.workflow.drawing.svg import svg
from orchestrator.workflow.drawing.terminal import picture
from orchestrator.workflow.model import Task, Workflow
from orchestrator.workflow.parsing.reader import read_workflow

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
RELEASE = {
    "user-management": [],
    "post-system": [],
    "comment-system": ["post-system"],
    "user-ui": ["user-management"],
    "post-ui": ["post-system"],
    "comment-ui": ["comment-system"],
    "database-migrations": ["user-management", "post-system", "comment-system"],
    "api-documentation": ["user-management", "post-system", "comment-system"],
    "e2e-tests": ["user-ui", "post-ui", "comment-ui", "database-migrations"],
    "performance-tests": ["e2e-tests"],
    "staging-deploy": ["performance-tests", "api-documentation"],
    "production-deploy": ["staging-deploy"],
}


def workflow(tasks: dict[str, list[str]], **more) -> Workflow:
    return Workflow(
        name="a workflow",
        tasks=tuple(Task(id=name, task=name, depends_on=after) for name, after in tasks.items()),
        **more,
    )


def any_workflow(seed: int) -> Workflow:
    """Narrow and wide, sparse and dense, with names of many lengths."""
    choose = random.Random(seed)
    count, reach = choose.randint(1, 30), choose.choice((2, 5, 30))
    density = choose.choice((0.1, 0.3, 0.7))
    names = [f"{'long-' * choose.randint(0, 6)}t{number}" for number in range(count)]
    return workflow(
        {
            name: [one for one in names[max(0, n - reach) : n] if choose.random() < density]
            for n, name in enumerate(names)
        }
    )


def reduced(tasks: dict[str, list[str]]) -> set[tuple[str, str]]:
    """The edges that no longer way implies, found by walking all of them."""

    def reaches(start: str, end: str) -> bool:
        return any(one == end or reaches(one, end) for one in tasks[start] if one in tasks)

    return {
        (before, name)
        for name, after in tasks.items()
        for before in after
        if not any(other != before and reaches(other, before) for other in after)
    }


class Tracer:
    """Reads a picture as people do: from a name to the right, wherever a line leads."""

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
        """Pairs of names; one that a break cut is followed through its number."""
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
        """The names of the arrows that the line beginning here ends in."""
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
                waiting.append((x + 1, y, EAST))  # it passes below
                continue
            is_start = (x, y) in {(at, row) for _, at, row in self.starts}
            assert BACK[heading] in arms or is_start, f"a line ends in the air at {x}, {y}"
            # From left to right: no line goes back to where others come from.
            turns = [arm for arm in arms if arm not in (BACK[heading], WEST)]
            waiting += [(x + arm[0], y + arm[1], arm) for arm in turns]
        return ends


def is_connector(name: str) -> bool:
    return re.fullmatch(r"\(\d+\)", name) is not None


def edges_of(one: Workflow) -> set[tuple[str, str]]:
    return reduced({task.id: list(task.depends_on) for task in one.tasks})


def test_a_chain_with_a_fan_in_it():
    assert picture(workflow(DESIGN_FIRST)) == (
        "         ┌─► backend-api ──────┐\n"
        "design ──┼─► frontend-ui ──────┼─► security-audit ──► integration-tests ──► deploy\n"
        "         └─► database-schema ──┘"
    )


@pytest.mark.parametrize(
    "name", ["task-manifest.yaml", "auth-workflow.ax.yaml", "feature-release.ax.yaml", "SQUAD.md"]
)
@pytest.mark.parametrize("width", [None, 100, 60])
def test_the_files_of_others(name, width):
    one = read_workflow(WORKFLOWS / name).workflow
    text = picture(one, width=width)
    assert max(map(len, text.split("\n"))) <= (width or 1000)
    assert traced(text) == edges_of(one)
    assert " after " not in text


def test_a_release():
    assert Tracer(picture(workflow(RELEASE))).edges() == edges_of(workflow(RELEASE))
    assert ("post-system", "database-migrations") not in edges_of(workflow(RELEASE))
    narrow = picture(workflow(RELEASE), width=100)
    assert max(map(len, narrow.split("\n"))) <= 100
    assert Tracer(narrow).edges() == edges_of(workflow(RELEASE))


@pytest.mark.parametrize("seed", range(80))
def test_lines_lead_where_the_workflow_says(seed):
    one = any_workflow(seed)
    text = picture(one)
    tracer = Tracer(text)
    assert sorted(name for name, _, _ in tracer.starts) == sorted(task.id for task in one.tasks)
    assert tracer.edges() == edges_of(one)
    assert Tracer(picture(one)).lines == tracer.lines, "it is drawn in two ways"


@pytest.mark.parametrize("seed", range(300, 350))
def test_a_narrow_terminal_gets_the_same_in_pieces(seed):
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
    """The edges of a picture, by the whole names."""
    full = legend(text)
    edges = Tracer(without_legend(text)).edges()
    return {tuple(full.get(name, name) for name in edge) for edge in edges}


def without_legend(text: str) -> str:
    full = legend(text)
    return text.partition("\n\n" + next(iter(full)))[0] if full else text


def legend(text: str) -> dict[str, str]:
    """Shortened names and what they are short for."""
    return dict(re.findall(r"^(\S*…\S*) +([\w-]+)$", text, re.MULTILINE))


def listed(text: str) -> set[tuple[str, str]]:
    pairs = (line.partition(" after ") for line in text.split("\n"))
    return {(one, name) for name, _, after in pairs if after for one in after.split(", ")}


def test_hardly_any_workflow_is_only_listed():
    texts = [picture(any_workflow(seed), width=100) for seed in range(300, 350)]
    assert sum(" after " in text for text in texts) < 5


def test_names_that_are_cut_to_the_same_stay_apart():
    long = {f"{'x' * 40}{number}{'y' * 40}": [] for number in range(30)}
    text = picture(workflow(long), width=20)
    drawn, _, rest = text.partition("\n\n")
    assert len(set(drawn.split("\n"))) == 30
    assert [line.split()[1] for line in rest.split("\n")] == list(long)


def test_what_ascii_cannot_show_has_something_in_its_place():
    text = picture(workflow(RELEASE), width=60, ascii_only=True)
    assert text.isascii()
    shapes = str.maketrans({**dict.fromkeys("┌┐└┘├┤┬┴┼", "+"), "─": "-", "│": "|", "►": ">"})
    assert text == picture(workflow(RELEASE), width=60).translate(shapes).replace("…", "~")


def batches(**more) -> Workflow:
    each = [Task(id=f"move-{n}", task="t", group="move", depends_on=("list",)) for n in (1, 2, 3)]
    ids = tuple(task.id for task in each)
    return Workflow(
        name="w",
        tasks=(
            Task(id="list", task="t"),
            *each,
            Task(id="sum-up", task="t", depends_on=ids, inputs=ids, **more),
        ),
    )


def test_a_foreach_is_one_node():
    assert picture(batches()) == "list ──► move × 3 ──► sum-up"  # noqa: RUF001
    assert picture(batches(), ascii_only=True) == "list --> move x 3 --> sum-up"


def test_batches_that_others_wait_for_one_by_one_are_drawn_one_by_one():
    whole = batches()
    one = whole.model_copy(
        update={"tasks": (*whole.tasks, Task(id="odd", task="t", depends_on=("move-2",)))}
    )
    assert Tracer(picture(one)).edges() == edges_of(one)
    assert "move-2" in picture(one)


def test_what_runs_after_a_failure_says_so():
    assert picture(batches(when="on_failure")).endswith("sum-up (on_failure)")


def test_hundreds_of_tasks_are_drawn_as_well():
    choose = random.Random(1)
    names = [f"t{number}" for number in range(300)]
    one = workflow({name: choose.sample(names[max(0, n - 40) : n], min(n, 2))
                    for n, name in enumerate(names)})  # fmt: skip
    assert Tracer(picture(one)).edges() == {
        (shape_of(one).nodes[a].name, shape_of(one).nodes[b].name) for a, b in shape_of(one).edges
    }


class TestSvg:
    SPACE = "{http://www.w3.org/2000/svg}"

    @pytest.mark.parametrize("seed", range(40))
    def test_every_edge_goes_from_its_node_to_its_node(self, seed):
        one = any_workflow(seed)
        root = ElementTree.fromstring(svg(one).encode())
        boxes = self.boxes(root)
        assert sorted(boxes) == sorted(task.id for task in one.tasks)
        seen = set()
        for path in root.iter(f"{self.SPACE}path"):
            if "data-from" not in path.attrib:
                continue
            first, last = path.attrib["data-from"], path.attrib["data-to"]
            seen.add((first, last))
            points = [tuple(map(float, pair.split())) for pair in path.attrib["d"][2:].split(" L ")]
            x, y, width, height = boxes[first]
            assert points[0] == (x + width, y + height / 2)
            x, y, width, height = boxes[last]
            assert points[-1] == (x, y + height / 2)
            assert all(a[0] == b[0] or a[1] == b[1] for a, b in zip(points, points[1:]))  # noqa: B905, RUF007
            assert [point[0] for point in points] == sorted(point[0] for point in points)
            for name, box in boxes.items():
                if name not in (first, last):
                    assert not any(self.meet(a, b, box) for a, b in zip(points, points[1:]))  # noqa: B905, RUF007
        assert seen == edges_of(one)

    def boxes(self, root) -> dict[str, tuple[float, ...]]:
        found = {}
        for group in root.findall(f"{self.SPACE}g"):
            rect, text = group.find(f"{self.SPACE}rect"), group.find(f"{self.SPACE}text")
            if rect is not None:
                found[text.text] = tuple(
                    float(rect.attrib[name]) for name in ("x", "y", "width", "height")
                )
        return found

    @staticmethod
    def meet(a, b, box) -> bool:
        x, y, width, height = box
        return (
            min(a[0], b[0]) < x + width
            and max(a[0], b[0]) > x
            and min(a[1], b[1]) < y + height
            and max(a[1], b[1]) > y
        )

    def test_boxes_are_apart_and_on_the_page(self):
        root = ElementTree.fromstring(svg(workflow(RELEASE)).encode())
        boxes = list(self.boxes(root).values())
        page = float(root.attrib["width"]), float(root.attrib["height"])
        for n, (x, y, width, height) in enumerate(boxes):
            assert x >= 0 and y >= 0 and x + width <= page[0] and y + height <= page[1]  # noqa: PT018
            corners = (x, y), (x + width, y + height)
            assert not any(self.meet(*corners, other) for other in boxes[n + 1 :])

    def test_no_text_becomes_markup(self):
        bad = "</title><script>alert(1)</script>]]>&\"'\x00\x1b[2J\u202e\ufffe\U0001ffff<!--"
        one = Workflow(name=bad, tasks=(Task(id="a", task=bad.replace("\0", "")),))
        text = svg(one)
        root = ElementTree.fromstring(text.encode())
        assert {element.tag.removeprefix(self.SPACE) for element in root.iter()} <= {
            "svg", "title", "defs", "marker", "path", "rect", "g", "text"
        }  # fmt: skip
        assert root.find(f"{self.SPACE}title").text.startswith("</title><script>alert(1)</script>")
        assert "<script" not in text
        assert "\ufffe" not in text


class TestMermaid:
    def read(self, text: str) -> tuple[dict[str, str], set[tuple[str, str]]]:
        """Read the part of Mermaid that it is to be."""
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
    def test_it_says_what_the_workflow_says(self, seed):
        one = any_workflow(seed)
        nodes, edges = self.read(mermaid(one))
        assert sorted(nodes.values()) == sorted(task.id for task in one.tasks)
        assert {(nodes[first], nodes[last]) for first, last in edges} == edges_of(one)

    def test_a_name_cannot_break_out(self):
        bad = '"\n---\nclick a "javascript:alert(1)"\n%%{init: {}}%%'
        one = Workflow(name=bad, tasks=(Task(id="a", task="t"),))
        nodes, edges = self.read(mermaid(one))
        assert nodes == {"n0": "a"}
        assert not edges

    def test_nor_can_a_task_that_came_past_the_checks(self):
        bad = 'x"] --> y[<img src=x onerror=alert(1)>]\n`md`;#quot;'
        task = Task.model_construct(**{**Task(id="a", task="t").__dict__, "id": bad})
        one = Workflow.model_construct(name="n", tasks=(task,), max_latency=None)
        nodes, _ = self.read(mermaid(one))
        assert not set(nodes["n0"]) & set('"[]<>`=')
        assert nodes["n0"].startswith("x#34;#93; --#62; y#91;#60;img")

    def test_a_foreach_is_one_node(self):
        nodes, edges = self.read(mermaid(batches()))
        assert nodes == {"n0": "list", "n1": "move × 3", "n2": "sum-up"}  # noqa: RUF001
        assert edges == {("n0", "n1"), ("n1", "n2")}
