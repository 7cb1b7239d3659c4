"""Make the tree on which one commit is tested, with the instruments of another commit."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from orchestrator.git.merge_tree import quarantine
from orchestrator.git.repository import Repository
from orchestrator.judging.canary_runs import CanaryRuns, canaries_of_base
from orchestrator.judging.check_run import Answer, Tester, Tests
from orchestrator.judging.evidence import Evidence
from orchestrator.judging.instruments import Instruments
from orchestrator.judging.trees import Trees
from orchestrator.state.judged_results import JUDGED


class Protection:
    """Puts the instruments of a base back into other commits."""

    def __init__(
        self,
        repository: Repository,
        base: str,
        tests: Tests,
        began: datetime,
        patterns: Sequence[str] = (),
    ) -> None:
        """Store the base.

        Args:
            repository: The user's repository, which has all commits.
            base: The commit whose instruments (tests and files that control tests) are used.
            tests: Which instruments of other commits are used in addition.
            began: Date of new commits.
            patterns: Patterns of more files that are instruments.
        """
        self._repository = repository
        self._base = base
        self._tests = tests
        self._began = began
        self._instruments = Instruments(tuple(patterns))

    @property
    def identity(self) -> tuple[str, ...]:
        """Everything that decides which tree a commit is tested on, besides the commit."""
        if self._tests == "free":
            return ("free",)
        tree = self._repository.git.text("rev-parse", f"{self._base}^{{tree}}")
        return (self._tests, "canaries", tree, *self._instruments.patterns)

    def of(self, commit: str) -> str:
        """Return a commit with the base's instruments, or `commit` itself if it has them.

        No ref points at the new commit.
        """
        with self._trees() as trees:
            return trees.with_changes(commit, trees.restored(commit, self._tests))

    def reports_failures(self, commit: str, commands: Sequence[str], tester: Tester) -> Answer:
        """Return whether commands that pass on a commit report tests that must fail.

        Args:
            commit: A commit that `of` returned.
            commands: The commands. Commands that do not report such tests on the base are left out.
            tester: Runs the commands.
        """
        if self._tests == "free" or commit == self._base:
            return "pass"
        with self._trees() as trees:
            evidence = Evidence(tester, trees.git, self._repository.state_dir / JUDGED)
            runs = CanaryRuns(trees, evidence, canaries_of_base(trees, commands))
            runs.calibrate(self._base)
            runs.collect([commit])
            return runs.answer(commit)

    @contextmanager
    def _trees(self) -> Iterator[Trees]:
        place = self._repository.state_dir / "protected"
        with quarantine(self._repository, place) as git:
            yield Trees(self._repository, git, place, self._base, self._began, self._instruments)
