"""Judge candidates by hidden tests: files that are added for a second run of all checks.

The files are outside of the repository, and no candidate ever sees them.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from orchestrator.base.errors import ConfigError
from orchestrator.base.files.safe_open import read_limited
from orchestrator.base.text.sanitize import is_text, one_line
from orchestrator.review.judging.cases import Case
from orchestrator.review.judging.check_run import Answer
from orchestrator.review.judging.comparison import Comparison
from orchestrator.review.judging.evidence import Evidence, Job
from orchestrator.review.judging.judge_request import JudgingRules
from orchestrator.review.judging.trees import Trees

MOST_FILES = 1000
MOST_BYTES = 16 * 1024**2
"""Maximum size of one hidden file in bytes."""


def read_hidden(directory: Path, *, top: Path) -> dict[str, bytes]:
    """Return the content of all files in a directory, by their relative paths.

    Args:
        directory: The directory.
        top: The repository's top directory. Files in the repository cannot be hidden.

    Raises:
        ConfigError: The directory is missing, empty, in the repository, or has unusable files.
    """
    place = directory.resolve()
    if not place.is_dir():
        raise ConfigError(
            f"`--hidden` is not a directory: {one_line(str(directory))}",
            key="hidden-tests.no-directory",
        )
    # protection: hidden-files-are-outside-repository
    if place.is_relative_to(top.resolve()):
        raise ConfigError(
            "`--hidden` is in the repository, where workers could find it",
            key="hidden-tests.in-repository",
            hint="keep hidden tests in a directory outside the repository",
        )
    found: dict[str, bytes] = {}
    for folder, _, names in os.walk(place):
        for path in (Path(folder, name) for name in sorted(names)):
            shown = str(path.relative_to(place))
            found[shown] = _content(path, shown)
            if len(found) > MOST_FILES:
                raise ConfigError(
                    f"the directory of `--hidden` has more than {MOST_FILES} files",
                    key="hidden-tests.too-many",
                )
    if not found:
        raise ConfigError(
            f"the directory of `--hidden` has no files: {one_line(str(directory))}",
            key="hidden-tests.empty",
        )
    return found


def _content(path: Path, shown: str) -> bytes:
    if not is_text(shown):
        raise ConfigError(
            f"`--hidden`: the name of this path is not valid UTF-8: {one_line(shown)}",
            key="hidden-tests.encoding",
        )
    if ".git" in path.parts:
        raise ConfigError(
            f"`--hidden`: this path is inside `.git`: {one_line(shown)}",
            key="hidden-tests.git-directory",
        )
    try:
        return read_limited(path, most=MOST_BYTES)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(
            f"`--hidden`: `{one_line(shown)}` cannot be read: {why}", key="hidden-tests.unreadable"
        ) from error


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
        trees = {case.number: self.add_to(case.protected) for case in cases}
        for attempt in (1, 2):
            # protection: names-of-hidden-tests-are-not-kept
            self._evidence.collect(
                Job(commit=tree, command=command, attempt=attempt, is_secret=True)
                for tree in trees.values()
                for command in self._rules.all_checks
                if attempt == 1 or self._comparison.on(tree, command).answer == "fail"
            )
        for case in cases:
            tree, found = trees[case.number], dict[str, Answer]()
            for command in self._rules.all_checks:
                if command not in self._comparison.unstable:
                    found[command] = self._comparison.on(tree, command).answer
                    again = found[command] == "fail" and self._comparison.on(tree, command, 2)
                    if again and again.answer != "fail":
                        found[command] = "none"
            answers = {*found.values()}
            case.hidden = "fail" if "fail" in answers else "none" if "none" in answers else "pass"
            case.others = tuple(
                self._comparison.on_tree("hidden", command, answer)
                for command, answer in found.items()
            )

    def add_to(self, commit: str) -> str:
        """Return a commit with the hidden files; the commit itself without hidden files."""
        return self._trees.with_files(commit, self._rules.hidden)
