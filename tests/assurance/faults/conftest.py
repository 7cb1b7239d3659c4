"""Selection of the tests that only `make faults` runs, and its summary of injected faults."""

from collections import defaultdict
from pathlib import Path

import pytest

_IN_FULL = (
    "test_at_once.py",
    "test_many_tasks.py",
    "test_random_faults.py",
    "test_turn_crashes.py",
)
"""Files that `make test` skips completely."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect whole files unless `--faults` is given."""
    if config.getoption("--faults"):
        return
    left_out = [item for item in items if item.path.name in _IN_FULL]
    items[:] = [item for item in items if item.path.name not in _IN_FULL]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def tmp_path(tmp_path: Path, pytestconfig: pytest.Config) -> Path:
    """A directory for the test's repository, with `--mounts bind` where overlays do not work."""
    if pytestconfig.getoption("--mounts") == "overlay":
        return tmp_path
    # The kernel separates the options of an overlay by commas.
    place = tmp_path / f"{tmp_path.name},bind"
    place.mkdir()
    return place


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of faults of each kind that were injected."""
    injected: defaultdict[str, int] = defaultdict(int)
    survived: defaultdict[str, int] = defaultdict(int)
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, kind in report.user_properties:
                if name in ("memory", "threads") and report.when == "call":
                    terminalreporter.write_line(f"{name}: {kind}")
                if name == "fault" and report.when == "call":
                    injected[kind] += 1
                    survived[kind] += outcome == "passed"
    if injected:
        terminalreporter.section("faults survived / injected")
        for kind in sorted(injected):
            terminalreporter.write_line(f"{kind:24} {survived[kind]:4} / {injected[kind]}")
        total = f"{sum(survived.values()):4} / {sum(injected.values())}"
        terminalreporter.write_line(f"{'all':24} {total}")
