"""Tests of the mark that selects variants of tests."""

import pytest

pytest_plugins = ["pytester"]
CONFTEST = """
from tests.support import variants

def pytest_addoption(parser):
    parser.addoption(variants.OPTION, action="store_true")

def pytest_configure(config):
    config.addinivalue_line("markers", "variants(*patterns)")

def pytest_collection_modifyitems(config, items):
    variants.select(config, items)
"""
TESTS = """
import pytest

pytestmark = pytest.mark.variants("{pattern}")

@pytest.mark.parametrize("name", ["one-a", "one-b", "two-a"])
def test_it(name): pass

def test_without_parameters(): pass
"""


@pytest.mark.parametrize(
    ("pattern", "arguments", "passed"),
    [
        ("one-*", [], 3),
        ("two-a", [], 2),
        ("one-*", ["--every-variant"], 4),
        ("one-*", ["test_variants_of.py::test_it[two-a]"], 1),
    ],
)
def test_named_variants_run(
    pytester: pytest.Pytester, pattern: str, arguments: list[str], passed: int
) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_variants_of=TESTS.format(pattern=pattern))

    pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments).assert_outcomes(
        passed=passed, deselected=0 if arguments else 4 - passed
    )


def test_mark_that_leaves_no_variant_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_variants_of=TESTS.format(pattern="three"))

    done = pytester.runpytest_inprocess("-p", "no:cacheprovider")

    done.stderr.fnmatch_lines(["*the mark `variants` leaves no variant of *::test_it"])
