"""Number and choice of cases: `pytest tests/assurance/fuzz --fuzz-cases 5000`, `--fuzz-seed 17`."""

import pytest

from tests.assurance.fuzz.seeds import Seeds


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fuzz")
    group.addoption("--fuzz-cases", type=int, default=None, help="cases of each fuzz test")
    group.addoption("--fuzz-seed", type=int, default=None, help="run one case alone, again")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases = config.getoption("fuzz_cases", default=None) or 0
    for item in items:
        if "/tests/assurance/fuzz/" in str(item.path):
            item.add_marker(pytest.mark.timeout(170 + 2 * cases))


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> Seeds:
    """The seeds to try."""
    # pytest knows these options only if this directory is named on the command line.
    config = request.config
    return Seeds(
        cases=config.getoption("fuzz_cases", default=None),
        only=config.getoption("fuzz_seed", default=None),
    )
