"""Tests of the pages' links, generated parts and index."""

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.results import Reason
from tests.docs.markdown import ROOT, anchors, links, pages, read_page

CODES = (0, 1, 2, 3, 4, 5, 6, 7, 70, 74, 130, 143)


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_check", ROOT / "docs" / "check.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the pages for changes."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "orchestrator" / "faces" / "cli").mkdir(parents=True)
    for name in ("option_table.json", "command_table.json"):
        table = Path("orchestrator", "faces", "cli", name)
        shutil.copy(ROOT / table, tmp_path / table)
    for page in ROOT.glob("*.md"):
        shutil.copy(page, tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", pages())
def test_every_link_has_a_target(page: str) -> None:
    for target in links(page):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(str(file.resolve().relative_to(ROOT))), f"{page}: {target}"


def test_every_page_is_in_the_index() -> None:
    index = {str(((ROOT / "docs") / link).resolve()) for link in links("docs/README.md")}

    missing = [page for page in pages() if str(ROOT / page) not in index]

    assert missing == ["docs/README.md"]


def test_generated_parts_are_up_to_date(check: ModuleType, capsys: pytest.CaptureFixture) -> None:
    assert check.main(arguments=[]) == 0, capsys.readouterr().err


def test_outdated_part_is_reported_and_rewritten(
    check: ModuleType, copy: Path, capsys: pytest.CaptureFixture
) -> None:
    page = copy / "docs" / "reference" / "configuration.md"
    good = page.read_text()
    page.write_text(good.replace("| `workers` |", "| `labourers` |"))

    assert check.main(copy, []) == 1
    assert "docs/reference/configuration.md is out of step" in capsys.readouterr().err
    assert check.main(copy, ["--write"]) == 0
    assert page.read_text() == good


@pytest.mark.parametrize(("page", "row"), [("result", "| `oom` |"), ("labels", "orchestrator.run")])
def test_missing_word_is_reported(
    check: ModuleType, copy: Path, capsys: pytest.CaptureFixture, page: str, row: str
) -> None:
    path = copy / "docs" / "reference" / f"{page}.md"
    path.write_text(path.read_text().replace(row, "| nothing |"))

    assert check.main(copy, []) == 1
    assert f"docs/reference/{page}.md has no row" in capsys.readouterr().err


def test_every_exit_code_is_documented() -> None:
    text = read_page("docs/reference/exit-codes.md")

    assert [code for code in CODES if f"| {code} |" not in text] == []


TROUBLESHOOTING = "docs/troubleshooting.md"


def _kinds_of_errors() -> list[type[OrchestratorError]]:
    """Find every error of the product in its source, so that no module is missed."""
    found = {"OrchestratorError": "orchestrator.base.errors"}
    definition = re.compile(r"^class (\w+)\((\w+)\):", re.M)
    sources = sorted((ROOT / "orchestrator").rglob("*.py"))
    classes = [
        (name, base, ".".join(path.relative_to(ROOT).with_suffix("").parts))
        for path in sources
        for name, base in definition.findall(path.read_text())
    ]
    while more := {name: place for name, base, place in classes if base in found} | found:
        if more == found:
            break
        found = more
    return [getattr(importlib.import_module(place), name) for name, place in found.items()]


def test_every_error_reason_and_exit_code_has_a_section_in_troubleshooting() -> None:
    kinds = [kind.__name__.lower() for kind in _kinds_of_errors()]
    wanted = {*kinds, *Reason, *(f"exit-code-{code}" for code in CODES if code)}

    assert len(kinds) > 20
    assert wanted - anchors(TROUBLESHOOTING) == set()


def test_troubleshooting_states_the_exit_code_of_each_kind_of_error() -> None:
    sections = dict(
        re.findall(r"^### (\w+)\n\n(.*?)(?=\n#|\Z)", read_page(TROUBLESHOOTING), re.M | re.S)
    )
    kinds = [kind for kind in _kinds_of_errors() if "xit code" in sections[kind.__name__]]

    assert len(kinds) > 15
    wrong = [k.__name__ for k in kinds if f"xit code {k.exit_code}" not in sections[k.__name__]]
    assert wrong == []


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", "docs/architecture.md", "orchestrator/README.md"]
)
def test_modules_that_a_page_names_exist(page: str) -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`", read_page(page))

    assert len(named) > 20
    assert [
        n for n in named if not any((ROOT / top / n).exists() for top in ("", "orchestrator"))
    ] == []


@pytest.mark.parametrize("page", ["README.md"])
def test_readme_is_short(page: str) -> None:
    assert len(read_page(page).splitlines()) <= 120


def test_unknown_option_is_reported(check: ModuleType, copy: Path) -> None:
    page = copy / "docs" / "reference" / "result.md"
    page.write_text(page.read_text() + "\nGiven by `--chekcs`.\n")
    assert list(check.unknown_options(copy)) == [
        "docs/reference/result.md names `--chekcs`, which no command has"
    ]
