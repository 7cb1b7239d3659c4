"""Tests of the mark `fast`: which tests get it, and that such a test starts no process."""

import socket
import subprocess
from pathlib import Path

import pytest

from tests.support import cost

TESTS = cost.ROOT / "tests"


def test_imports_decide_whether_a_file_starts_processes(tmp_path: Path) -> None:
    pure, direct = tmp_path / "pure.py", tmp_path / "direct.py"
    pure.write_text("import os\nfrom orchestrator.repository import command\n")
    direct.write_text("def f():\n    import subprocess\n")
    indirect = tmp_path / "indirect.py"
    indirect.write_text("from tests.support.runs import shell_run\n")
    found = [cost.starts_processes(file) for file in (pure, direct, indirect)]
    assert found == [False, True, True]


def test_only_files_about_a_package_may_be_fast() -> None:
    assert cost.may_be_fast(TESTS / "runs" / "scheduling" / "test_budget.py")
    assert not cost.may_be_fast(TESTS / "docs" / "test_pages.py")
    assert not cost.may_be_fast(TESTS / "runs" / "test_runner.py")


def test_fixtures_that_start_processes_are_recognised(request: pytest.FixtureRequest) -> None:
    fixtures = request.session._fixturemanager  # type: ignore[attr-defined]
    names = ("repo", "local_engine", "home", "tmp_path")
    found = {name: fixtures.getfixturedefs(name, request.node)[-1].func for name in names}
    assert [name for name, func in found.items() if cost.uses_starter(func)] == [*names[:2]]


def test_fixtures_of_all_tests_start_no_process(request: pytest.FixtureRequest) -> None:
    used = getattr(request.node, "_fixtureinfo").name2fixturedefs.items()  # noqa: B009
    starters = {name for name, defs in used for one in defs if cost.uses_starter(one.func)}
    assert starters == set()


@pytest.mark.fast
@pytest.mark.parametrize("what", ["process", "connection", "nothing"])
def test_fast_test_that_starts_a_process_or_connects_fails(
    request: pytest.FixtureRequest, what: str
) -> None:
    def do() -> None:
        if what == "process":
            subprocess.run(["true"], check=True)
        elif what == "connection":
            with socket.socket(socket.AF_UNIX) as here:
                here.connect(str(request.path))

    with cost.guarded(request.node):
        if what == "nothing":
            do()
        else:
            with pytest.raises(pytest.fail.Exception, match="mark it `process`"):
                do()
