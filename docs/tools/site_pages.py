"""MkDocs hook: what the site has beyond the pages of `docs/`.

Pages outside `docs/` are put on the site, and links point at them. Copying a block with a prompt
copies its commands alone. Each page is also there as Markdown; `theme/llms.txt` lists them.
"""

import html
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md")
FOLDERS = ("examples", "skills")
INDEX = "overview.md"
"""Name of the project's README on the site, because `docs/README.md` is the first page."""
PROMPT = "$ "
_BLOCK = re.compile(r'<div class="highlight">(?P<inner><pre>.*?</pre>)</div>', re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside `docs/`, and the files of examples and skills."""
    found = [ROOT / page for page in PAGES]
    inside = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))
    found += [path for path in inside if path.is_file()]
    for path in found:
        place = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, _on_site(place), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: object) -> str:
    """Point links between `docs/` and the pages outside it at their places on the site.

    A link to a directory, or to a file that is not on the site, points at the repository, if its
    address is known.
    """
    here = page.file.src_uri
    folder = posixpath.dirname(_in_project(here))

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, link["path"]))
        is_page = target in PAGES or target.partition("/")[0] in ("docs", *FOLDERS)
        if not is_page or (ROOT / target).is_dir():
            address = f"{config.repo_url.rstrip('/')}/tree/HEAD/{target}" if config.repo_url else ""
            return f"[{link['text']}]({address})" if address else link["text"]
        place = posixpath.relpath(_on_site(target), posixpath.dirname(here) or ".")
        return f"[{link['text']}]({place}{link['anchor'] or ''})"

    return _LINK.sub(moved, markdown)


def on_page_content(content: str, **_: object) -> str:
    """Let the button of a block copy its commands without prompt and output."""
    return _BLOCK.sub(_with_commands, content)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Write the page as Markdown beside its HTML file."""
    target = Path(config.site_dir, page.file.src_uri)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page.markdown or "", encoding="utf-8")
    return output


def _with_commands(block: re.Match[str]) -> str:
    text = html.unescape(_TAG.sub("", block["inner"]))
    if not text.startswith(PROMPT):
        return block[0]
    copied = html.escape(commands(text)).replace("\n", "&#10;")
    return f'<div class="highlight" data-copy="{copied}">{block["inner"]}</div>'


def commands(session: str) -> str:
    """Return the commands of a session: the lines after a prompt, with their continuations."""
    found: list[str] = []
    continues = False
    for line in session.splitlines():
        if continues or line.startswith(PROMPT):
            found.append(line if continues else line.removeprefix(PROMPT))
            continues = line.endswith("\\")
    return "\n".join(found)


def _on_site(place: str) -> str:
    """Return the path on the site of a file of the project."""
    return INDEX if place == "README.md" else place.removeprefix("docs/")


def _in_project(place: str) -> str:
    """Return the path in the project of a page of the site."""
    if place == INDEX:
        return "README.md"
    is_outside = place in PAGES[1:] or place.partition("/")[0] in FOLDERS
    return place if is_outside else f"docs/{place}"
