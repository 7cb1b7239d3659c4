"""Create the commit on which checks run: a worker's files, with the base commit's tests."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from os import fsdecode

from orchestrator.base.files.owner import own_place
from orchestrator.config.settings.judging import Tests
from orchestrator.repository.commits.merge_tree import quarantine
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.check_run import Answer, Tester
from orchestrator.review.judging.evidence import Evidence
from orchestrator.review.judging.instruments import Instruments
from orchestrator.review.judging.mutant_runs import MutantRuns
from orchestrator.review.judging.shadowing import modules_of
from orchestrator.review.judging.trees import Trees
from orchestrator.review.judging.tripwires import touches_of
from orchestrator.review.landing.branches import Branch
from orchestrator.state.judgements import JUDGED

_SHOWN = 3


class Protection:
    """Puts a base commit's tests, and files that control tests, back into other commits."""

    def __init__(
        self,
        repository: Repository,
        base: str,
        tests: Tests,
        began: datetime,
        patterns: Sequence[str] = (),
    ) -> None:
        """Store the arguments.

        Args:
            repository: The user's repository, which has all commits.
            base: The commit whose tests, and files that control tests, are used.
            tests: `frozen`: only the base's tests count; `extend`: new tests too; `free`: all tests
                of the other commits.
            began: Start of the run, which becomes the date of the created commits.
            patterns: Patterns of additional files that control tests.
        """
        self._repository = repository
        self._base = base
        self._tests = tests
        self._began = began
        paths = map(fsdecode, repository.git.tree(base, "--name-only"))
        self._instruments = Instruments(
            tuple(patterns), modules=modules_of(paths), drops_shadows=True
        )

        self.untried: tuple[str, ...] = ()
        """Checks of which nothing shows that they report failures, on the last tested commit."""

    @property
    def identity(self) -> tuple[str, ...]:
        """Return texts that differ if two protections may put different tests into a commit."""
        if self._tests == "free":
            return ("free",)
        tree = self._repository.git.text("rev-parse", f"{self._base}^{{tree}}")
        return (self._tests, "mutants", tree, *self._instruments.patterns)

    def of(self, commit: str) -> str:
        """Return `commit` with the base's tests and test control files, as a new commit if needed.

        No ref points at the new commit.
        """
        with self._trees() as trees:
            return trees.with_changes(commit, trees.changes_to_restore(commit, self._tests))

    def reports_failures(self, commit: str, commands: Sequence[str], tester: Tester) -> Answer:
        """Return `fail` if a command that passes misreports mixed tests, else `pass` or `none`.

        Args:
            commit: A commit that `of` returned.
            commands: The commands. A command that does not report mutants as failed on the base
                is left out.
            tester: Runs the commands.
        """
        if self._tests == "free" or commit == self._base:
            return "pass"
        with self._trees() as trees:
            evidence = Evidence(tester, trees.git, own_place(self._repository.state_dir, JUDGED))
            runs = MutantRuns(trees, evidence, commands)
            runs.calibrate(self._base)
            runs.collect([commit])
            self.untried = tuple(item for item in commands if item not in runs.checks_tried)
            return runs.answer(commit)

    def touches(self, branch: Branch) -> str | None:
        """Return the first new lines of a branch that touch the test runner; None without any."""
        if self._tests == "free":
            return None
        with self._trees() as trees:
            found = touches_of(trees, branch.commit, base=branch.base)
        return ", ".join(touch.said for touch in found[:_SHOWN]) or None

    @contextmanager
    def _trees(self) -> Iterator[Trees]:
        place = own_place(self._repository.state_dir, "protected")
        with quarantine(self._repository, place) as git:
            yield Trees(self._repository, git, place, self._base, self._began, self._instruments)
