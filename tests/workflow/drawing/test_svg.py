"""Tests of workflows drawn as SVG."""

from xml.etree import ElementTree

import pytest

from orchestrator.workflow.drawing.svg import svg
from orchestrator.workflow.model import Task, Workflow
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
