"""Number and choice of cases: `pytest tests/assurance/fuzz --fuzz-cases 5000`, `--fuzz-seed 17`."""

import pytest

from tests.assurance.fuzz.seeds import Seeds

_BLOCK = 250
"""Largest number of cases of a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fuzz")
    group.addoption("--fuzz-cases", type=int, default=None, help="cases of each fuzz test")
    group.addoption("--fuzz-seed", type=int, default=None, help="run one case alone, again")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases = min(config.getoption("fuzz_cases", default=None) or 0, _BLOCK)
    for item in items:
        if "/tests/assurance/fuzz/" in str(item.path):
            item.add_marker(pytest.mark.timeout(170 + 2 * cases))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Divide the cases chosen on the command line among tests, which run in several processes."""
    # pytest knows these options only if this directory is named on the command line.
    cases = metafunc.config.getoption("fuzz_cases", default=None)
    only = metafunc.config.getoption("fuzz_seed", default=None)
    chosen = range(cases or 0) if only is None else range(only, only + 1)
    if chosen and "seeds" in metafunc.fixturenames:
        blocks = [chosen[first : first + _BLOCK] for first in range(0, len(chosen), _BLOCK)]
        names = [f"{block[0]}-{block[-1]}" for block in blocks]
        metafunc.parametrize("seeds", blocks, ids=names, indirect=True)


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> Seeds:
    """The seeds to try."""
    return Seeds(getattr(request, "param", None))
