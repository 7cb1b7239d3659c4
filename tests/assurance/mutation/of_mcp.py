"""Protections of the MCP server: what a client gets, and what text of workers can do to it."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

_HOSTILE = "tests/mcp/test_hostile.py"
_MERGING = "tests/mcp/test_merging.py"
_STORY = "tests/mcp/test_story.py"


def mcp() -> Iterator[Protection]:
    """Return the protections of the MCP server."""
    yield from patches(
        "mcp/tools.py mcp/arguments.py mcp/server.py mcp/reading.py config/untrusted_file.py "
        "mcp/starting.py",
        (_HOSTILE,),
        ("only allowed tools are offered", "if tool.needs is None or tool.needs in allowed", ""),
        ("unknown arguments are refused", 'extra="forbid", strict', 'extra="ignore", strict'),
        ("ids of runs are no paths", 'pattern=r"^[0-9A-Za-z]([0-9A-Za-z-]{0,62}[0-9A-Za-z])?$",\n',
         ""),
        ("calls end in time", "await asyncio.wait({watched}, timeout=LONGEST_CALL)",
         "await asyncio.wait({watched})"),
        ("late work is not repeated", "self._late[key] = future", "pass"),
        ("text of logs is bounded", "if len(text.encode()) <= MOST_TEXT:", "if True:"),
        ("text of logs is neutralised", "_whole_lines(data), output_lines)",
         "_whole_lines(data), str)"),
        ("text of patches is neutralised", "_fitting(piece, lines)", "_fitting(piece, str)"),
        ("settings of clients grant no more", "is_wider = wider is not None and wider(mine, given)",
         "is_wider = False"),
        ("settings of clients reach no further",
         "reaches_further = field in BOUNDED and _reach(config, field) > _reach(without, field)",
         "reaches_further = False"),
        ("only the user decides", "(field in fixed and given != mine)", "False"),
        ("tasks of clients are bounded", '_check(config, settings, "the run")', "pass"),
        ("tasks of clients' workflows are bounded", "_check(own, settings, f\"task `{task.id}`\")",
         "pass"),
        ("no commands for items",
         'raise ConfigError(\n        f"`foreach` with', 'ConfigError(\n        f"`foreach` with'),
    )  # fmt: skip
    yield from patches(
        "mcp/merging.py landing/target.py", (_MERGING,),
        ("token works once", "self._kept.pop(asked.token, None)", "self._kept.get(asked.token)"),
        ("only who may merge gets a token", "if tried.landed and self.may_merge:",
         "if tried.landed:"),
        ("previewed commits are merged", "if _commits(present) != _commits(preview.run):",
         "if False:"),
        ("previewed target is merged into", "into=branch,", "into=None,"),
        ("target has not moved",
         "if (merged.target, merged.before) != (previewed.target, previewed.before):", "if False:"),
        ("previewed workers are merged", "if merged.landed != previewed.landed:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "mcp/starting.py", (_STORY,),
        ("workers of all runs are bounded", "if free <= 0:", "if False:"),
        ("budget of all runs is bounded", "if rest <= 0:", "if False:"),
        ("unknown costs count as budgets", "else run.budget or 0.0", "else 0.0"),
    )  # fmt: skip
