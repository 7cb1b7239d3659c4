"""What all tasks of a workflow can read of each other: who is done, and what they found. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.text.sanitize import lines, one_line

MOST_FINDINGS = 1024**2
"""Characters of all findings together; each task's own are bounded before."""
# The marks of quotes and lists that a line of Markdown may begin with.
_MARKS = r"^(?:[ \t>]|[-+*][ \t]|[0-9]{1,9}[.)][ \t])*"
_HEADING = re.compile(rf"({_MARKS})#{{1,3}}(?=\s|$)", re.MULTILINE)
# What reaches beyond its own line: underlines that make a heading of the line before, fences that
# may stay open, HTML, and definitions that give links of others another target.
_REACHES = re.compile(
    rf"{_MARKS}(?:=+|-+)[ \t]*$|{_MARKS}(?:`{{3}}|~{{3}})|<[A-Za-z/!?]|\]:", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One task, as the others see it."""

    number: int
    title: str
    state: str | None = None
    """What people call how far it is; None before its start."""
    done: bool = False
    """Whether it has succeeded."""
    findings: str = ""

    @property
    def line(self) -> str:
        """Return its line of a list of tasks."""
        state = "" if self.state is None else f" ({self.state})"
        return f"- [{'x' if self.done else ' '}] {self.title} - Agent {self.number}{state}"


def title_of(text: str) -> str:
    """Make a title of a task's id, or of its first words."""
    return one_line(text, limit=80)


def bulletin(head: str, entries: Iterable[Entry]) -> str:
    """Return the file that all tasks can read: what the user gave, who is done, what was found.

    Args:
        head: What it begins with.
        entries: The tasks, in order.
    """
    entries = tuple(entries)
    tasks = "".join(f"{entry.line}\n" for entry in entries)
    return f"{head.rstrip()}\n\n## Task Status\n{tasks}\n{merged_findings(entries)}"


def merged_findings(entries: Iterable[Entry]) -> str:
    """Put findings one below the other, each under a heading that none of them can fake."""
    said = [entry for entry in entries if entry.findings]
    parts = ["## Findings\n"]
    room = MOST_FINDINGS
    for place, entry in enumerate(said):
        part = f"### {entry.title} (Agent {entry.number})\n{_below(entry.findings)}\n"
        room -= len(part)
        if room < 0:
            parts.append(f"There is no room for the findings of {len(said) - place} more tasks.\n")
            break
        parts.append(part)
    return "\n".join(parts)


def _below(findings: str) -> str:
    """Keep findings below the heading that says whose words they are.

    Headings are pushed down. Where anything else could be mistaken for words of others, all of it
    stands in a fence that nothing in it can end.
    """
    text = _HEADING.sub(r"\1####", lines(findings).strip())
    if not _REACHES.search(text):
        return f"{text}\n"
    longest = max((len(run) for run in re.findall("~+", text)), default=0)
    fence = "~" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"
