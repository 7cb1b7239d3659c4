"""Print the result of a merge."""

from shlex import quote

from orchestrator.base.text.quantities import count
from orchestrator.faces.cli.output.messages import show, tell
from orchestrator.review.landing.merged import Merged
from orchestrator.runs.reports.decisions import kept_lines, merge_lines

SOME_LEFT = 1
"""Exit code of a merge that left out some of the branches."""


def show_merged(merged: Merged, *, into: str | None = None) -> None:
    """Print which branches were merged, and which were left out."""
    for line in merge_lines(merged):
        show(line)
    for line in kept_lines(merged):
        tell(line)
    if merged.given_conflicts is not None:
        conflicts = sum(left.reason == "conflict" for left in merged.left)
        given = count(merged.given_conflicts, "conflict")
        tell(f"with the best order: {count(conflicts, 'conflict')}; with the given order: {given}")
    if merged.landed and not merged.dry_run:
        branch = f" --into {quote(merged.target)}" if into else ""
        tell(f"to undo the merge: orchestrator merge --undo{branch}")
