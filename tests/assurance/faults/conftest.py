"""The table of faults at the end."""

from collections import defaultdict

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many faults of each kind were injected, and survived."""
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
