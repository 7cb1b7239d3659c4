"""Tests of the documentation site: complete, self-contained, and without broken links."""

import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, blocks, pages
from tests.docs.session import steps
from tests.support.chromium import Page, browser

_FETCHED = re.compile(
    r"<(?:script|img|iframe)[^>]* src=\"https?:|<link[^>]* rel=\"stylesheet\"[^>]*http"
)

_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_KEEP_WHAT_IS_COPIED = """
var copied = null;
document.execCommand = () => {
  copied = document.querySelector("body > textarea").value;
  return true;
};
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the documentation with all files that the site is built from."""
    for folder in ("docs", "examples", "skills"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for file in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml"):
        shutil.copy(file, tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the documentation as it is."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(target)]
    quiet = {"NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env={**os.environ, **quiet}, check=True)
    return target


def build(project: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make docs` does."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build"],
        cwd=project,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_site_has_every_page_and_loads_no_external_resources(site: Path) -> None:
    built = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    wanted = {page.removeprefix("docs/").replace(".md", ".html") for page in pages()}
    wanted -= {"README.html"}
    assert wanted - built == set()
    assert {"index.html", "overview.html"} <= built
    assert [page for page in built if _FETCHED.search((site / page).read_text())] == []
    pictures = [(site / page).parent / src for page in built for src in _sources(site / page)]
    assert {"rooms.svg", "terminal.svg", "workers.svg"} <= {picture.name for picture in pictures}
    assert [picture for picture in pictures if not picture.exists()] == []


def test_copying_a_block_copies_its_commands_alone(site: Path) -> None:
    page = (site / "getting-started.html").read_text()

    copied = [html.unescape(found) for found in re.findall(r' data-copy="([^"]*)"', page)]

    wanted = [list(steps(block)) for block in blocks("docs/getting-started.md")]
    assert copied == ["\n".join(step.command for step in block) for block in wanted]
    assert len(copied) > 3
    assert not any("WORKER" in text or text.startswith("$") for text in copied)


def test_programs_find_every_page_as_markdown(site: Path) -> None:
    listed = re.findall(r"^- \[[^]]+\]\(([^)]+\.md)\)", (site / "llms.txt").read_text(), re.M)

    built = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    assert {place.replace("README.md", "index.md") for place in listed} == {
        page.replace(".html", ".md") for page in built - {"404.html"}
    }
    assert [place for place in listed if not (site / place).read_text().startswith("# ")] == []


def test_pages_link_to_the_repository_that_the_builder_names(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPOSITORY_URL", "https://git.example/us/orchestrator")

    done = build(project)

    assert done.returncode == 0, done.stderr
    index = (project / "build" / "site" / "index.html").read_text()
    assert 'href="https://git.example/us/orchestrator"' in index


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.mark.extra
@pytest.mark.process
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_first_page_fits_and_has_the_readers_theme(
    site: Path, page: Page, width: int, theme: str
) -> None:
    page.open(site / "index.html", width=width, theme=theme)

    assert page.value(_OVERFLOW) == 0
    background = "getComputedStyle(document.body).backgroundColor"
    is_white = "==" if theme == "light" else "!="
    page.wait_for("document.querySelector('label[for^=__palette]:not([hidden])') !== null")
    page.wait_for(f"{background} {is_white} 'rgb(255, 255, 255)'")


@pytest.mark.extra
@pytest.mark.process
def test_button_of_a_block_copies_the_commands(site: Path, page: Page) -> None:
    page.open(site / "getting-started.html")
    page.wait_for("document.querySelectorAll('[data-clipboard-target]').length > 0")
    page.value(_KEEP_WHAT_IS_COPIED)

    page.value("document.querySelectorAll('[data-clipboard-target]')[1].click()")

    second = blocks("docs/getting-started.md")[1]
    assert page.value("copied") == "\n".join(step.command for step in steps(second))


def _sources(page: Path) -> list[str]:
    found: list[str] = re.findall(r'<img[^>]* src="([^"]+)"', page.read_text())
    return found


def test_broken_link_or_omitted_page_fails_the_build(project: Path) -> None:
    guide = project / "docs" / "guides" / "ci.md"
    guide.write_text(guide.read_text() + "\n[a](nosuch.md) [b](models.md#nosuch)\n")
    (project / "docs" / "guides" / "hidden.md").write_text("# Hidden\n")

    done = build(project)

    assert done.returncode == 1
    assert "contains a link 'nosuch.md'" in done.stderr
    assert "does not contain an anchor '#nosuch'" in done.stderr
    assert "guides/hidden.md" in done.stderr
