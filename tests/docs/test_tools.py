"""Tests of the scripts that measure and draw the package, with small packages."""

import importlib
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from orchestrator.base.results import Status
from tests.bench.page import PAGE, with_tables
from tests.docs.markdown import ROOT

SVG = "{http://www.w3.org/2000/svg}"
PACKAGE = {
    "__init__.py": "",
    "errors.py": '"""Every error."""\n',
    "git/__init__.py": '"""Every git command."""\n',
    "git/command.py": "from orchestrator.errors import problem\n",
    "cli/__init__.py": '"""What a person sees."""\n',
    "cli/app.py": "from orchestrator.runs import start\nimport orchestrator.git.command\n",
    "runs/__init__.py": '"""Start a run."""\n',
    "runs/start.py": "from orchestrator.git.command import run\n",
}


def tool(name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT / "docs" / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def package(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        file = root / "orchestrator" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def measured(root: Path) -> dict[str, float]:
    values: dict[str, float] = tool("measure").measure(tool("imports").read_modules(root))
    return values


def test_longest_chain_and_layers_are_derived_from_imports(tmp_path: Path) -> None:
    root = package(tmp_path, {**PACKAGE, "one.py": 'def give():\n    """Give one."""\n'})
    modules = tool("imports").read_modules(root)

    assert tool("imports").longest_chain(tool("imports").import_graph(modules)) == [
        "orchestrator.cli.app",
        "orchestrator.runs.start",
        "orchestrator.git.command",
        "orchestrator.errors",
    ]
    assert measured(root)["floors of rooms"] == 4
    assert measured(root)["files at the top of the package"] == 3


def test_import_cycle_is_an_error(tmp_path: Path) -> None:
    root = package(
        tmp_path, {"one.py": "import orchestrator.two", "two.py": "import orchestrator.one"}
    )

    with pytest.raises(ValueError, match=r"orchestrator\.one, orchestrator\.two"):
        measured(root)


@pytest.mark.parametrize(
    ("source", "name", "value"),
    [
        ("def f(a, b, c, *, d, e, **f): ...", "functions with 6 or more parameters", 1),
        ("class C:\n    def f(self, b, c, d, e, f): ...", "functions with 6 or more parameters", 0),
        ("def f(run, spec): ...", "functions with travelling parameters", 1),
        ("def f(run, other): ...", "functions with travelling parameters", 0),
        ("A = 1\nB: int = 2\n_c = 3\ndef d(): ...\nclass E: 1", "public names per module, most", 4),
        ("def f():\n    '''Tell it.'''", "docstrings with a vague verb, percent", 100),
        ("def f():\n    '''Return it.'''", "docstrings with a vague verb, percent", 0),
        ("#\n" * 401, "files over 400 lines", 1),
        ("def _f(): ...\n_f()", "private functions with one caller, percent", 50),
        ("def _f(): ...\n_f()\n_f()", "private functions with one caller, percent", 0),
        ("def _told(): ...", "function names that begin with a participle, percent", 50),
        ("def need(): ...", "function names that begin with a participle, percent", 0),
        ("for one in []: print(one)", "variables named `one`", 1),
        ('"""Text."""', "lines of docstrings, percent", 50),
    ],
)  # fmt: skip
def test_measure_of_a_source(tmp_path: Path, source: str, name: str, value: int) -> None:
    base = "def plain():\n    return 1\n"
    root = package(tmp_path, {"one.py": source, "two.py": base})

    assert measured(root)[name] == value


def test_exceeded_limit_fails_the_check_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = package(tmp_path, {"one.py": "def f():\n    '''Tell it.'''\n"})

    assert tool("measure").main(["--check", "--root", str(root)]) == 1
    printed = capsys.readouterr()
    assert "one.py:1: f: vague verb Tell" in printed.out
    assert "error: docstrings with a vague verb, percent: 100" in printed.err


def test_table_has_every_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = package(tmp_path, {"one.py": "def f():\n    '''Return it.'''\n"})

    assert tool("measure").main(["--root", str(root)]) == 0
    printed = capsys.readouterr().out
    assert [name for name in tool("measure").LIMITS if name not in printed] == []


def test_drawing_places_each_package_above_its_imports(tmp_path: Path) -> None:
    drawing = ET.fromstring(tool("rooms").draw(package(tmp_path, PACKAGE)))
    texts = {text.text: float(text.get("y", 0)) for text in drawing.iter(f"{SVG}text")}

    assert texts["cli/"] < texts["runs/"] < texts["git/"] < texts["errors.py"]
    assert "Every git command." in texts


def test_arrow_implied_by_a_longer_path_is_not_drawn(tmp_path: Path) -> None:
    drawing = ET.fromstring(tool("rooms").draw(package(tmp_path, PACKAGE)))

    # Drawn: cli > runs and runs > git; cli > git is implied, and errors has no arrows.
    assert len([path for path in drawing.iter(f"{SVG}path") if path.get("class") == "arrow"]) == 2


def test_new_tables_leave_the_other_parts_of_the_page() -> None:
    page = "<!-- measured: a -->\n<!-- end -->\n\n<!-- measured: b -->\nold\n<!-- end -->\n"
    first = with_tables(page, "a", "new")
    assert first == page.replace("a -->\n", "a -->\nnew\n")
    assert with_tables(first, "b", "newer") == first.replace("old", "newer")
    with pytest.raises(ValueError, match="no part `c`"):
        with_tables(page, "c", "new")


def test_page_has_a_part_for_each_benchmark() -> None:
    program = (ROOT / "tests" / "bench" / "all.py").read_text()
    names = re.findall(r'^    "(\w+)": \("bench_', program, re.MULTILINE)
    assert names
    assert sorted(names) == sorted(re.findall(r"<!-- measured: (\w+) -->", PAGE.read_text()))


def test_picture_of_workers_shows_every_final_state() -> None:
    shown = [row.state for row in tool("states_picture").rows()]

    assert sorted(shown) == sorted([*Status, "cancelled", "skipped", "died"])
