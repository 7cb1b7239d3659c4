"""Write the file with findings and states of tasks that all tasks of a workflow can read."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.base.text.sanitize import lines, one_line

INPUTS = "/run/orchestrator/inputs"
"""Directory in a worker's container with the results of other tasks."""
MOST_FINDINGS = 1024**2
"""Maximum number of characters of all findings together; each task's findings have a limit of their
own.
"""
# Markers of quotes and lists that a line of Markdown may start with.
_MARKS = r"^(?:[ \t>]|[-+*][ \t]|[0-9]{1,9}[.)][ \t])*"
_HEADING = re.compile(rf"({_MARKS})#{{1,3}}(?=\s|$)", re.MULTILINE)
# Markdown that affects other lines: underlines that turn the previous line into a heading, fences
# that may stay open, HTML, and definitions that redirect links elsewhere in the document.
_REACHES = re.compile(
    rf"{_MARKS}(?:=+|-+)[ \t]*$|{_MARKS}(?:`{{3}}|~{{3}})|<[A-Za-z/!?]|\]:", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """State and findings of one task, as shown to other tasks."""

    number: int
    title: str
    state: str | None = None
    """State of the task in words; None before the task starts."""
    done: bool = False
    """Whether the task succeeded."""
    findings: str = ""

    @property
    def line(self) -> str:
        """Return the line for the task in the list of tasks."""
        state = "" if self.state is None else f" ({self.state})"
        return f"- [{'x' if self.done else ' '}] {self.title} - Agent {self.number}{state}"


def title_of(text: str) -> str:
    """Return a title for a task: its id, or the first words of its text."""
    return one_line(text, limit=80)


def bulletin(head: str, entries: Iterable[Entry]) -> str:
    """Return the text of the file that all tasks can read: user's text, task states and findings.

    Args:
        head: The user's text.
        entries: The tasks, in order.
    """
    entries = tuple(entries)
    tasks = "".join(f"{entry.line}\n" for entry in entries)
    return f"{head.rstrip()}\n\n## Task Status\n{tasks}\n{merge_findings(entries)}"


def merge_findings(entries: Iterable[Entry]) -> str:
    """Return the findings of all tasks, each under a heading that findings cannot imitate."""
    reported = [entry for entry in entries if entry.findings]
    parts = ["## Findings\n"]
    room = MOST_FINDINGS
    for place, entry in enumerate(reported):
        part = f"### {entry.title} (Agent {entry.number})\n{_contain(entry.findings)}\n"
        room -= len(part)
        # protection: total-size-of-findings-limited
        if room < 0:
            parts.append(f"The findings of {len(reported) - place} more tasks are left out.\n")
            break
        parts.append(part)
    return "\n".join(parts)


def _contain(findings: str) -> str:
    """Return findings as Markdown that cannot look like the findings of another task.

    Headings are moved to a lower level. If other Markdown could affect text outside of the
    findings, all findings are put into a fenced block, which their text cannot close.
    """
    # protection: headings-in-findings-are-lowered
    text = _HEADING.sub(r"\1####", lines(findings).strip())
    # protection: markdown-that-affects-other-lines-is-fenced
    if not _REACHES.search(text):
        return f"{text}\n"
    longest = max((len(run) for run in re.findall("~+", text)), default=0)
    # protection: fence-is-longer-than-any-in-text
    fence = "~" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}\n"
