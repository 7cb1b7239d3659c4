"""What a merge is to do, as the command line, Python programs, web pages and agents ask for it."""

from typing import Annotated, Literal, Self

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from orchestrator.base.results import Form
from orchestrator.config.settings.judging import Pattern, Tests
from orchestrator.config.settings.option import Group, Option
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.settings.values import CHECKED, Commands

Order = Literal["given", "best"]
OnConflict = Literal["stop", "skip", "agent"]


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class MergeRequest:
    """How the branches of a run are merged.

    The first sentence of a field's docstring is the help text of its option.
    """

    form: Annotated[Form, Option(Group.MERGING, flag="--as")] = "merge"
    """Add each worker's work by a merge, as one commit, by a rebase, or uncommitted."""
    order: Annotated[Order, Option(Group.MERGING)] = "given"
    """Merge order: as the workers are given, or so that as many as possible are merged."""
    on_conflict: Annotated[
        OnConflict | None, Option(Group.MERGING, default="stop; skip with `--queue`")
    ] = None
    """On a conflict: merge nothing, leave the branch out, or let an agent resolve it. The default
    is `stop`, and with checks `skip`.
    """
    unfiltered: Annotated[bool, Option(Group.MERGING)] = False
    """Also accept files for which a required filter of git, such as encryption, did not run."""
    checks: Annotated[
        Commands,
        Option(
            Group.MERGING,
            "CMD",
            flag="--check",
            repeatable=True,
            help="With `--queue`: command that must succeed on each merged commit; repeatable.",
            default="`checks` of the configuration",
        ),
    ] = ()
    """Commands that must succeed on each merged commit. Default: no command."""
    tests: Annotated[
        Tests,
        Option(
            Group.MERGING,
            help="With `--queue`, tests that count: the target's, also new tests, or all as "
            "merged.",
        ),
    ] = "extend"
    """Whose tests the checks use: the target's tests (`frozen`), these and new tests of the merged
    commit (`extend`), or all tests of the merged commit (`free`).
    """
    agent: ParallelConfig | None = None
    """Settings of the agent that resolves conflicts; the first task is its prompt."""
    allowed: Annotated[
        tuple[Pattern, ...],
        Option(
            Group.MERGING,
            "GLOB",
            flag="--allow-path",
            repeatable=True,
            help="With `--on-conflict agent`: files without a conflict that it may change; "
            "repeatable.",
        ),
    ] = ()
    """Patterns of files that the agent may change in addition to the files with conflicts."""
    into: Annotated[
        str | None, Option(Group.MERGING, "BRANCH", default="the branch that is checked out")
    ] = None
    """Branch to merge into."""
    dry_run: Annotated[bool, Option(Group.COMMON)] = False
    """Print what would be merged, and change nothing."""

    @model_validator(mode="after")
    def _can_be_used_together(self) -> Self:
        if self.dry_run and (self.checks or self.on_conflict == "agent"):
            raise ValueError("`dry_run` runs no checks and no agent")
        if self.checks and self.on_conflict == "stop":
            raise ValueError("with `checks`, `on_conflict` is `skip` or `agent`")
        if self.on_conflict == "agent" and self.form == "rebase":
            raise ValueError(
                "`on_conflict agent` cannot be used with `form rebase`: use `form merge` or "
                "`form squash`"
            )
        return self

    @property
    def stops_on_conflict(self) -> bool:
        """Return whether nothing is merged if a branch of an untested merge conflicts."""
        return self.on_conflict in (None, "stop")


MergeOptions = MergeRequest
"""The name of the class in `import orchestrator`."""
