"""Every place where the harness kills us is there: the code moves on."""

import functools
import importlib

import pytest

from tests.assurance.faults.points import FLOW_POINTS, POINTS

ALL = {**POINTS, **FLOW_POINTS}


@pytest.mark.parametrize("point", ALL)
def test_a_point_names_a_function(point: str) -> None:
    module, _, path = ALL[point].target.partition(":")
    place = functools.reduce(getattr, path.split("."), importlib.import_module(module))
    assert callable(place)
