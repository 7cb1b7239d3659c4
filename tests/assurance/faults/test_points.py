"""Tests that every crash point names an existing function."""

import functools
import importlib

import pytest

from tests.assurance.faults.points import FLOW_POINTS, LANDING_POINTS, POINTS

ALL = {**POINTS, **FLOW_POINTS, **LANDING_POINTS}


@pytest.mark.parametrize("point", ALL)
def test_crash_point_names_an_existing_function(point: str) -> None:
    module, _, path = ALL[point].target.partition(":")
    place = functools.reduce(getattr, path.split("."), importlib.import_module(module))
    assert callable(place)
