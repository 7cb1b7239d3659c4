"""Tests that every crash point names an existing function."""

import pytest

from tests.assurance.faults.points import (
    FLOW_POINTS,
    LANDING_POINTS,
    POINTS,
    TURN_POINTS,
    holders,
)

ALL = {**POINTS, **FLOW_POINTS, **LANDING_POINTS, **TURN_POINTS}


@pytest.mark.parametrize("point", ALL)
def test_crash_point_names_an_existing_function(point: str) -> None:
    found, name = holders(ALL[point].target)
    assert found
    assert all(callable(getattr(holder, name)) for holder in found)
