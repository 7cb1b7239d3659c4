"""Show a judgement as a table with the reasons for its order."""

from orchestrator.cli.output.formats import table, terminal_width
from orchestrator.judging.judgement import Judgement
from orchestrator.reports.decisions import HEADING, candidate_row, decision, flag_lines


def judgement_text(judgement: Judgement) -> str:
    """Return the table of candidates, the findings about each candidate, and the decision."""
    heading = tuple(name.upper() for name in HEADING)
    rows = [heading, *map(candidate_row, judgement.ranking)]
    found = [*flag_lines(judgement)]
    parts = [table(rows, width=terminal_width(), shrink=2), *(["", *found] if found else []), ""]
    return "\n".join([*parts, decision(judgement)])
