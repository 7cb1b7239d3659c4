"""Links lead somewhere, generated parts are in step, and every page can be found."""

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.markdown import ROOT, anchors, links, pages, read_page

CODES = (0, 1, 2, 3, 4, 5, 6, 7, 70, 130, 141, 143)


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
    """A copy of the pages, to spoil."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    table = Path("orchestrator/cli/option_table.json")
    (tmp_path / table).parent.mkdir(parents=True)
    shutil.copy(ROOT / table, tmp_path / table)
    for page in ROOT.glob("*.md"):
        shutil.copy(page, tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
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


def test_generated_parts_are_in_step(check: ModuleType, capsys: pytest.CaptureFixture) -> None:
    assert check.main(arguments=[]) == 0, capsys.readouterr().err


def test_a_part_out_of_step_is_found_and_written(
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
def test_a_word_left_out_is_found(
    check: ModuleType, copy: Path, capsys: pytest.CaptureFixture, page: str, row: str
) -> None:
    path = copy / "docs" / "reference" / f"{page}.md"
    path.write_text(path.read_text().replace(row, "| nothing |"))

    assert check.main(copy, []) == 1
    assert f"docs/reference/{page}.md has no row" in capsys.readouterr().err


def test_every_exit_code_has_a_row() -> None:
    text = read_page("docs/reference/exit-codes.md")

    assert [code for code in CODES if f"| {code} |" not in text] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_module_that_a_page_names_exists(page: str) -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`", read_page(page))

    assert len(named) > 20
    assert [
        n for n in named if not any((ROOT / top / n).exists() for top in ("", "orchestrator"))
    ] == []


@pytest.mark.parametrize("page", ["README.md"])
def test_the_first_page_is_short(page: str) -> None:
    assert len(read_page(page).splitlines()) <= 120


def test_an_option_that_does_not_exist_is_found(check: ModuleType, copy: Path) -> None:
    page = copy / "docs" / "reference" / "result.md"
    page.write_text(page.read_text() + "\nGiven by `--chekcs`.\n")
    assert list(check.unknown_options(copy)) == [
        "docs/reference/result.md names `--chekcs`, which no command has"
    ]
