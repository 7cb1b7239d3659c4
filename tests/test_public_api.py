"""Tests of the names that `import orchestrator` promises."""

import pytest

import orchestrator


@pytest.mark.parametrize("name", orchestrator.__all__)
def test_promised_name_can_be_imported(name: str) -> None:
    assert getattr(orchestrator, name) is not None
