"""What judging candidates is to do, as the command line and Python programs ask for it."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from orchestrator.config.settings.judging import Pattern, Tests
from orchestrator.config.settings.option import Group, Option
from orchestrator.config.settings.values import CHECKED, CommandLine, Commands


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class JudgingRules:
    """The rules by which candidates are judged: the request of `orchestrator judge`.

    The first sentence of a field's docstring is the help text of its option.
    """

    checks: Annotated[
        Commands,
        Option(
            Group.JUDGING,
            "CMD",
            flag="--check",
            repeatable=True,
            default="`checks` of the configuration",
        ),
    ]
    """Command that must succeed on each worker's commit; repeatable."""
    must_fix: Annotated[Commands, Option(Group.JUDGING, "CMD", repeatable=True)] = ()
    """Check that fails on the base commit and must pass on a candidate; repeatable."""
    tests: Annotated[Tests, Option(Group.JUDGING)] = "extend"
    """Tests that count: the base's, also the candidate's new tests, or only the candidate's."""
    instruments: Annotated[
        tuple[Pattern, ...], Option(Group.JUDGING, "GLOB", flag="--instrument", repeatable=True)
    ] = ()
    """Files besides tests, such as `ci/*.sh`, that checks take from the base commit; repeatable."""
    hidden: Mapping[str, bytes] = field(default_factory=dict)
    """Content of files, by path, that are added to a candidate for a second run of all checks."""
    lint: Annotated[Commands, Option(Group.JUDGING, "CMD", repeatable=True)] = ()
    """Linter that prints a line per finding; candidates that add fewer rank higher; repeatable."""
    coverage: Annotated[CommandLine | None, Option(Group.JUDGING, "CMD")] = None
    """Command that writes lcov or Cobertura XML to $ORCHESTRATOR_COVERAGE, to rank candidates."""
    probe: Annotated[CommandLine | None, Option(Group.JUDGING, "CMD")] = None
    """Command whose output shows behaviour; candidates that agree with more others rank higher."""
    judge: Annotated[CommandLine | None, Option(Group.JUDGING, "CMD")] = None
    """Command that compares two candidates whose checks and probes have equal results."""

    @property
    def all_checks(self) -> tuple[str, ...]:
        """Return all checks, those of `must_fix` included, without duplicates."""
        return tuple(dict.fromkeys((*self.must_fix, *self.checks)))

    @property
    def commands(self) -> tuple[str, ...]:
        """Return the commands of checks, linters, coverage, probe and judge."""
        others = (self.coverage, self.probe, self.judge)
        return (
            *self.all_checks,
            *self.lint,
            *(command for command in others if command is not None),
        )


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Rounds:
    """How many candidates run at a time: what `orchestrator eval` asks beyond the rules."""

    first: Annotated[int | None, Option(Group.JUDGING, "N")] = Field(default=None, ge=1)
    """Run N candidates at a time, in the order of `--models`, until one passes. Default: all
    candidates, in a single round.
    """
    until: Annotated[
        int, Option(Group.JUDGING, "K", help="With `--first`: stop when K candidates pass.")
    ] = Field(default=1, ge=1)
    """Number of passing candidates after which no further round starts."""
    learn: Annotated[
        bool,
        Option(
            Group.JUDGING,
            help="With `--first`: tell later candidates which checks earlier candidates failed.",
        ),
    ] = False
    """Whether candidates of later rounds are told which checks earlier candidates did not pass. The
    results of hidden tests are never told.
    """
