"""Tests of the documentation site: complete, self-contained, and without broken links."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, pages

_FETCHED = re.compile(
    r"<(?:script|img|iframe)[^>]* src=\"https?:|<link[^>]* rel=\"stylesheet\"[^>]*http"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the documentation with all files that the site is built from."""
    for folder in ("docs", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for file in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml"):
        shutil.copy(file, tmp_path)
    return tmp_path


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


def test_site_has_every_page_and_loads_no_external_resources(project: Path) -> None:
    done = build(project)

    assert done.returncode == 0, done.stderr
    site = project / "build" / "site"
    built = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    wanted = {page.removeprefix("docs/").replace(".md", ".html") for page in pages()}
    wanted -= {"README.html"}
    assert wanted - built == set()
    assert {"index.html", "overview.html"} <= built
    assert [page for page in built if _FETCHED.search((site / page).read_text())] == []
    pictures = [(site / page).parent / src for page in built for src in _sources(site / page)]
    assert {"rooms.svg", "terminal.svg"} <= {picture.name for picture in pictures}
    assert [picture for picture in pictures if not picture.exists()] == []


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
