"""Tests of workflows drawn as SVG."""

import re
from xml.etree import ElementTree

import pytest

from orchestrator.config.workflow.drawing.svg import svg
from orchestrator.config.workflow.model import Task, Workflow
from tests.support.drawn_workflows import RELEASE, any_workflow, edges_of, workflow


class TestSvg:
    SPACE = "{http://www.w3.org/2000/svg}"

    @pytest.mark.parametrize("seed", range(40))
    def test_svg_edges_connect_their_nodes(self, seed):
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
            segments = self.segments(path.attrib["d"])
            points = [segments[0][0], *(segment[-1] for segment in segments)]
            x, y, width, height = boxes[first]
            assert points[0] == (x + width, y + height / 2)
            x, y, width, height = boxes[last]
            assert points[-1] == (x, y + height / 2)
            # Every segment begins and ends horizontally, so that no edge has a corner.
            assert all(part[0][1] == part[1][1] and part[-2][1] == part[-1][1] for part in segments)
            assert [point[0] for point in points] == sorted(point[0] for point in points)
            for name, box in boxes.items():
                if name not in (first, last):
                    assert not any(self.meets(segment, box) for segment in segments)
        assert seen == edges_of(one)

    @staticmethod
    def segments(path: str) -> list[list[tuple[float, float]]]:
        """Return the lines and Bézier curves of a path, each with its end and control points."""
        found, end = [], (0.0, 0.0)
        for letter, numbers in re.findall(r"([MLC])([^MLC]+)", path):
            values = [float(number) for number in numbers.split()]
            points = [*zip(values[::2], values[1::2], strict=True)]
            if letter != "M":
                assert len(points) == {"L": 1, "C": 3}[letter]
                found.append([end, *points])
            end = points[-1]
        return found

    def meets(self, segment: list[tuple[float, float]], box) -> bool:
        """Return whether a segment, which is within the rectangle of its points, meets a box."""
        xs, ys = zip(*segment, strict=True)
        return self.meet((min(xs), min(ys)), (max(xs), max(ys)), box)

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

    @pytest.mark.parametrize("seed", range(40))
    def test_edges_of_different_nodes_share_no_line(self, seed):
        """Otherwise a reader could follow an edge to a wrong node."""
        owners: dict[float, str] = {}
        for path in ElementTree.fromstring(svg(any_workflow(seed)).encode()).iter():
            for segment in (
                self.segments(path.attrib.get("d", "")) if "data-from" in path.attrib else ()
            ):
                if len(segment) == 2:
                    first = path.attrib["data-from"]
                    assert owners.setdefault(segment[0][1], first) == first

    def test_boxes_do_not_overlap(self):
        root = ElementTree.fromstring(svg(workflow(RELEASE)).encode())
        boxes = list(self.boxes(root).values())
        assert len(boxes) == len(RELEASE)
        page = float(root.attrib["width"]), float(root.attrib["height"])
        for n, (x, y, width, height) in enumerate(boxes):
            assert x >= 0 and y >= 0 and x + width <= page[0] and y + height <= page[1]  # noqa: PT018
            corners = (x, y), (x + width, y + height)
            assert not any(self.meet(*corners, other) for other in boxes[n + 1 :])

    def test_text_is_escaped(self):
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
