"""Judge candidates by hidden tests: files that are added for a second run of all checks."""

from collections.abc import Sequence

from orchestrator.judging.cases import Case, JudgingRules
from orchestrator.judging.check_run import Answer
from orchestrator.judging.comparison import Comparison
from orchestrator.judging.evidence import Evidence, Job
from orchestrator.judging.trees import Trees


class HiddenTests:
    """Runs the checks with the hidden files."""

    def __init__(
        self, rules: JudgingRules, trees: Trees, evidence: Evidence, comparison: Comparison
    ) -> None:
        """Store the arguments. No check runs yet."""
        self._rules = rules
        self._trees = trees
        self._evidence = evidence
        self._comparison = comparison

    def judge(self, cases: Sequence[Case]) -> None:
        """Set the result of the hidden tests."""
        if not self._rules.hidden:
            return
        trees = {case.number: self.added_to(case.protected) for case in cases}
        for attempt in (1, 2):
            self._evidence.collect(
                Job(commit=tree, command=command, attempt=attempt, is_secret=True)
                for tree in trees.values()
                for command in self._rules.all_checks
                if attempt == 1 or self._comparison.on(tree, command).answer == "fail"
            )
        for case in cases:
            found = {one: self._answer(trees[case.number], one) for one in self._counted}
            answers = {*found.values()}
            case.hidden = "fail" if "fail" in answers else "none" if "none" in answers else "pass"
            case.others = tuple(
                self._comparison.on_tree("hidden", command, answer)
                for command, answer in found.items()
            )

    def added_to(self, commit: str) -> str:
        """Return a commit with the hidden files; the commit itself without hidden files."""
        return self._trees.with_files(commit, self._rules.hidden)

    @property
    def _counted(self) -> list[str]:
        return [one for one in self._rules.all_checks if one not in self._comparison.unstable]

    def _answer(self, tree: str, command: str) -> Answer:
        first = self._comparison.on(tree, command).answer
        if first != "fail":
            return first
        return "fail" if self._comparison.on(tree, command, 2).answer == "fail" else "none"
