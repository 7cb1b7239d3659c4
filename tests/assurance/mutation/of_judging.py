"""Protections of judgements against candidates."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import (
    Always,
    Both,
    Give,
    Instead,
    Never,
    Remove,
    Replace,
    Unwrap,
    Without,
)

_JUDGE = "tests/review/judging/test_judge.py"
_PARTS = "tests/review/judging/test_parts.py"
_TOURNAMENT = "tests/review/judging/test_tournament.py"
_KILLED = "tests/review/judging/test_killed.py"
_DOCKER = "tests/faces/cli/commands/test_judge.py"


def judging() -> Iterator[Protection]:
    """Return the protections of a judgement."""
    yield from marked(
        (f"{_JUDGE} {_KILLED}",),
        ("tests of the base replace those of a candidate",
         Never("entry.mode != _REPOSITORY and self.instruments.is_protected(path)")),
        ("new files that control tests are removed", Without("kind == 'control'")),
        ("new links among tests are removed", Without("entry.mode == _LINK")),
        ("candidate without a change is out", Give("out=False")),
        ("candidate that weakened tests is out", Give("out=False")),
        ("candidate that hides failing tests is out", Give("out=False")),
        ("check reports every mutant as failed", Instead("(set[int](), set[int]())")),
        ("test runner that another program starts is tried with mutants",
         Instead("()", at="every-test-runner-is-tried-with-mutants")),
        ("check without a result with mutants does not pass",
         Never("runs.has_no_result(commit, verdict.command)")),
        ("hidden tests have mutants, too", Without("rules.hidden")),
        ("candidate is not picked by a check that proves nothing", Never()),
        ("candidate's own tests prove nothing", Never()),
        ("check without tests passes no candidate", Without("not after")),
        ("candidate that lost tests is out", Without("missing")),
        ("tests whose names vary are not lost", Without("name not in run.varying")),
        ("check that must be fixed fails on the base", Never()),
        ("check whose results on the base differ counts for no candidate",
         Remove(at="unsteady-check-counts-for-no-candidate")),
        ("hidden tests count", Without("self.hidden in (None, 'pass')")),
        ("names of hidden tests are not kept", Without("is_secret")),
        ("candidate that needs its own tests or configuration is not picked automatically",
         Never(at="candidate-with-own-tests-is-not-picked")),
        ("checks also run without a candidate's new tests",
         Instead("{'configuration': configured}")),
        ("checks also run with the base's configuration files", Instead("{'frozen': frozen}")),
        ("one judgement of a repository at a time", Never()),
        ("results are kept for a judgement that is repeated", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/review/landing/test_excluded.py",),
        ("workers that the judgement excludes are merged only if a person insists",
         Never(at="excluded-workers-are-merged-only-on-request")),
        ("branch on top of excluded work is excluded too",
         Replace("'rev-list'", "*('rev-list', '--max-count=1')")),
        ("whoever names a worker does not name the excluded worker below it",
         Instead("insisted", at="excluded-worker-below-is-not-named")),
        ("best worker is not published with excluded work below it", Never("self._wish.is_best")),
        ("web view does not propose to merge excluded workers", Instead("good")),
    )  # fmt: skip
    yield from marked(
        ("tests/review/judging/test_protected.py",),
        ("branch that hides failing tests does not pass the queue", Never()),
        ("branch that touches the test runner is merged only by its number", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/review/judging/test_cheats.py tests/review/judging/test_parts.py",),
        ("check that succeeds reports no mutant as failed", Remove()),
        ("names are compared as Python compares them", Unwrap(".lower")),
        ("new `__init__.py` among tests controls them", Never("found == 'test'")),
        ("new modules of test runners are compared", Never("found is None")),
    )  # fmt: skip
    yield from marked(
        ("tests/review/judging/test_mutants.py", "tests/review/judging/test_tournament.py"),
        ("mutants are made only where an expectation is always checked",
         Never(at="mutants-only-where-always-checked")),
        ("hidden tests without mutants prove nothing", Never()),
        ("only tests that no other is reported like", Never()),
        ("values are changed rather than operators", Never()),
        ("name in a report of another test is no failure", Replace("last", "words")),
        ("lint and coverage decide nothing alone", Without("{'lint', 'coverage'}")),
        ("linter has the configuration of the base",
         Instead("{case.number: case.protected for case in cases}")),
    )  # fmt: skip
    yield from marked(
        ("tests/review/judging/test_proof.py",),
        ("each test is proved by its own mutant", Instead("failing")),
        ("nothing rests on a test without a mutant", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/review/judging/test_text_proof.py",),
        ("tests in a changed file of the product are those of the base",
         Replace("self._inner_tests[path]", "self._halves_of(after[path].blob)[1]")),
    )  # fmt: skip
    yield from marked(
        ("tests/review/judging/test_tripwires.py tests/review/judging/test_judge.py",),
        ("only lines that the base has as often are not new", Never()),
        ("candidate that touches the test runner needs a person", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/review/judging/test_programs.py",),
        ("files that a check executes are compared with the base's", Replace("programs", "()")),
        ("scripts that a build file starts are compared with the base's",
         Without("trees.text_of_base")),
        ("candidate's `GNUmakefile` does not decide what a check does", Without("'GNUmakefile'")),
        ("compiled modules of a candidate do not count",
         Both(Without("'__pycache__'"), Without("'*.pyc'"))),
    )  # fmt: skip
    yield from marked(
        (f"{_PARTS} {_TOURNAMENT}", f"{_DOCKER} tests/faces/cli/commands/test_merge_queue.py"),
        ("JUnit file declares no document type", Remove()),
        ("coverage file declares no entity", Remove()),
        ("coverage file has a limited number of lines", Never()),
        ("JUnit file has a limited number of tests", Never()),
        ("hidden files are outside the repository", Never()),
        ("comparison counts only if both orders agree", Without("said[b, a] == 'B'")),
        ("only the last object of a judge counts", Never()),
        ("judge that fails has no answer", Always()),
        ("branch that moved since it was judged is not picked", Never()),
        ("queue: tests of the target count", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/runs/test_commit_checks.py",),
        ("settings for agents do not end checks", Without("budget_per_worker")),
    )  # fmt: skip
