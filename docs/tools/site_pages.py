"""MkDocs hook: put the project's pages outside `docs/` on the site, and point links at them."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
FOLDER = "examples"
INDEX = "overview.md"
"""Name of the project's README on the site, because `docs/README.md` is the first page."""
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside `docs/`, and the files of the examples."""
    found = [ROOT / page for page in PAGES]
    found += [path for path in sorted((ROOT / FOLDER).rglob("*")) if path.is_file()]
    for path in found:
        place = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, _on_site(place), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Point links between `docs/` and the pages outside it at their places on the site."""
    here = page.file.src_uri
    folder = posixpath.dirname(_in_project(here))

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link["path"]))
        if (ROOT / target).is_dir():
            return link["text"]
        place = posixpath.relpath(_on_site(target), posixpath.dirname(here) or ".")
        return f"[{link['text']}]({place}{link['anchor'] or ''})"

    return _LINK.sub(moved, markdown)


def _on_site(place: str) -> str:
    """Return the path on the site of a file of the project."""
    return INDEX if place == "README.md" else place.removeprefix("docs/")


def _in_project(place: str) -> str:
    """Return the path in the project of a page of the site."""
    if place == INDEX:
        return "README.md"
    return place if place in PAGES[1:] or place.startswith(f"{FOLDER}/") else f"docs/{place}"
