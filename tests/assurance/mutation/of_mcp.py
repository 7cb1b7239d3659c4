"""Protections of the MCP server: what a client gets, and what text of workers can do to it."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import Always, Give, Instead, Never, Remove, Replace, Without

_HOSTILE = "tests/faces/mcp/test_hostile.py"
_MERGING = "tests/faces/mcp/test_merging.py"
_STORY = "tests/faces/mcp/test_story.py"


def mcp() -> Iterator[Protection]:
    """Return the protections of the MCP server."""
    yield from marked(
        (_HOSTILE,),
        ("only allowed tools are offered", Without("tool.needs is None or tool.needs in allowed")),
        ("unknown arguments are refused", Give("extra='ignore'")),
        ("ids of runs are no paths", Without("pattern")),
        ("calls end in time", Without("timeout")),
        ("late work is not repeated", Remove()),
        ("text of logs is bounded", Always()),
        ("text of logs is neutralised", Replace("output_lines", "str")),
        ("text of patches is neutralised", Replace("lines", "str")),
        ("settings of clients grant no more", Never()),
        ("settings of clients reach no further", Never()),
        ("only the user decides", Never("field in fixed and given != mine")),
        ("tasks of clients are bounded", Remove()),
        ("tasks of clients' workflows are bounded", Remove()),
        ("no commands for items", Remove()),
    )  # fmt: skip
    yield from marked(
        (_MERGING,),
        ("token works once", Instead("self._kept.get(asked.token)")),
        ("only who may merge gets a token", Without("self.may_merge")),
        ("previewed commits are merged", Never()),
        ("previewed target is merged into", Give("into=None")),
        ("target has not moved", Never()),
        ("previewed workers are merged", Never()),
    )  # fmt: skip
    yield from marked(
        (_STORY,),
        ("workers of all runs are bounded", Never()),
        ("budget of all runs is bounded", Never()),
        ("unknown costs count as budgets", Without("run.budget")),
    )  # fmt: skip
