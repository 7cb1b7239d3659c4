"""Tests that the page of the attacks keeps cells that were not measured again."""

from tests.assurance.attacks.attack import every
from tests.assurance.attacks.campaign import Observation
from tests.assurance.attacks.table import PAGE, Table


def rows(page: str) -> dict[str, str]:
    return {line.split(" | ")[0]: line for line in page.splitlines() if line.startswith("| ")}


def test_cells_that_were_not_measured_again_are_kept() -> None:
    before = Table().page(PAGE.read_text())
    assert "| - |" in before
    assert "| ✓ |" in before
    first, second, *_ = every()
    table = Table()
    table.add(Observation(first), column="root, overlay")
    table.add(Observation(second, ["a | b", "c", "d"]), column="user, overlay")
    after = table.page(before)
    changed = {name for name, row in rows(before).items() if rows(after)[name] != row}
    assert changed == {f"| {second.name}"}
    assert rows(after)[f"| {second.name}"].endswith(" | a \\| b; c; 1 more |")
    assert "user, overlay: 1 of" in after
    assert Table().page(after) == after
