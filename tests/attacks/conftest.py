"""Options, callers, and the runs, each made once and asked by many tests."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attacks.attack import Attack
from tests.attacks.caller import Caller, callers
from tests.attacks.campaign import Campaign, run_campaign
from tests.attacks.table import Table

Run = Callable[[str, str, tuple[Attack, ...]], Campaign]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("attacks")
    group.addoption("--measure-plain", action="store_true", help="attack plain `docker run` too")
    group.addoption("--write-table", action="store_true", help="write docs/attacks.md")


@pytest.fixture(scope="session")
def grounds() -> Iterator[Path]:
    """Give a directory that every caller can reach; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory(prefix="attacks-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def everyone(grounds: Path) -> Iterator[dict[str, Caller]]:
    with callers(grounds) as found:
        yield found


@pytest.fixture(scope="session")
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    found = Table()
    yield found
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and found.rows:
        reporter.write_line("")
        reporter.write_line(found.text())
    if request.config.getoption("write_table", default=False):
        found.write()


@pytest.fixture(scope="session")
def campaigns(everyone: dict[str, Caller], grounds: Path, table: Table) -> Run:
    """Give a function that makes a run once, however often it is asked."""
    known: dict[tuple[str, str, tuple[str, ...]], Campaign] = {}

    def run(name: str, mode: str, attacks: tuple[Attack, ...]) -> Campaign:
        key = (name, mode, tuple(attack.name for attack in attacks))
        if key not in known:
            # A comma in the path: overlay options cannot be told it, so a checkout is mounted.
            folder = "with,comma" if mode == "bind" else "plain"
            place = grounds / name / folder / attacks[0].name
            known[key] = run_campaign(everyone[name], place, attacks)
            for observation in known[key].observations:
                table.add(observation, column=f"{name}, {mode}")
        return known[key]

    return run
