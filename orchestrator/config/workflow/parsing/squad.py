"""Parse a file SQUAD.md: agents under `## Parallel Agents`, final task under `## Orchestration`."""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.text.split_lines import lines_of_output
from orchestrator.config.loading.document import read_text
from orchestrator.config.loading.sources import message_for_unknown
from orchestrator.config.node import DocumentError, Node
from orchestrator.config.workflow.parsing.manifest import LONGEST_ID
from orchestrator.config.workflow.parsing.templates import has_results

AGENTS, LAST = "Parallel Agents", "Orchestration"
_HEADING = re.compile(r" {0,3}(?P<level>#{1,6})[ \t]+(?P<title>.+?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})")


def is_squad(path: Path) -> bool:
    """Return whether a file has the name of a SQUAD.md file."""
    return path.suffix.lower() in {".md", ".markdown"}


@dataclass(frozen=True)
class _Section:
    level: int
    title: str
    text: str
    line: int


def read_squad(path: Path) -> Node:
    """Read a SQUAD.md file as a workflow with a list of tasks.

    Raises:
        DocumentError: The file cannot be read, or has unknown sections.
    """
    name, part = "", ""
    found: dict[str, list[_Section]] = {AGENTS: [], LAST: []}
    for section in _sections(read_text(path)):
        if section.level == 1:
            name, part = name or section.title, ""
        elif section.level > 1:
            part = part if section.level > 2 and part else _part(section, path)
            found[part].append(section)
    # Text before the first agent is added to each task.
    to_all = "\n\n".join(section.text for section in found[AGENTS] if section.level == 2)
    tasks = []
    for section in found[AGENTS]:
        text = f"{to_all}\n\n{section.text}".strip()
        if section.level > 2:
            tasks.append(_task(section, {"task": text} if text else {}))
    tasks += _last(found)
    members = {"tasks": Node(tasks, 1)}
    return Node(members | ({"name": Node(name, 1)} if name else {}), 1)


def _sections(text: str) -> Iterator[_Section]:
    """Split text at headings of level 1 to 3; a deeper heading is part of its section."""
    level, title, start, body = 0, "", 1, list[str]()
    fence = ""
    for number, line in enumerate(lines_of_output(text), start=1):
        if found := _FENCE.match(line):
            closes = fence and line.strip() == found["fence"] and found["fence"].startswith(fence)
            fence = "" if closes else fence or found["fence"]
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is None or len(heading["level"]) > 3:
            body.append(line)
            continue
        yield _Section(level, title, "\n".join(body).strip(), start)
        level, title, start, body = len(heading["level"]), heading["title"], number, []
    yield _Section(level, title, "\n".join(body).strip(), start)


def _part(section: _Section, path: Path) -> str:
    for part in (AGENTS, LAST):
        if section.level == 2 and section.title.casefold() == part.casefold():
            return part
    if section.level > 2:
        message = f"the section `{section.title}` must be below `## {AGENTS}`"
    else:
        message = message_for_unknown(section.title, (AGENTS, LAST))
    raise DocumentError(f"{path}:{section.line}: {message}")


def _last(found: Mapping[str, list[_Section]]) -> Iterator[Node]:
    sections = found[LAST]
    if not sections:
        return
    text = "\n\n".join(
        section.text if section.level == 2 else f"### {section.title}\n{section.text}"
        for section in sections
    ).strip()
    asked = text if has_results(text) else f"{text or LAST}\n\n{{{{results}}}}"
    before = [_id(section) for section in found[AGENTS] if section.level > 2]
    yield _task(sections[0], {"task": asked, "reduce": before})


def _id(section: _Section) -> str:
    """Return the id of a section's task: its title, or its line if no ASCII letters are in it."""
    plain = unicodedata.normalize("NFKD", section.title).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._").lower()[:LONGEST_ID].strip("-._")
    return slug or f"agent-{section.line}"


def _task(section: _Section, members: Mapping[str, str | list[str]]) -> Node:
    line = section.line
    lists = {
        key: [Node(item, line) for item in value] if isinstance(value, list) else value
        for key, value in members.items()
    }
    named = {"id": _id(section), **lists}
    return Node({key: Node(value, line) for key, value in named.items()}, line)
