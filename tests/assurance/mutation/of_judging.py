"""Protections of judgements against candidates."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

_JUDGE = "tests/judging/test_judge.py"
_PARTS = "tests/judging/test_parts.py"
_TOURNAMENT = "tests/judging/test_tournament.py"
_KILLED = "tests/judging/test_killed.py"
_DOCKER = "tests/cli/commands/test_judge.py"


def judging() -> Iterator[Protection]:
    """Return the protections of a judgement."""
    yield from patches(
        "judging/trees.py judging/flags.py judging/comparison.py judging/judge.py "
        "judging/evidence.py judging/cases.py judging/trials.py judging/mutant_runs.py "
        "judging/mutants.py judging/hidden_tests.py judging/ranking.py",
        (f"{_JUDGE} {_KILLED}",),
        ("tests of the base replace those of a candidate",
         "if entry.mode != _REPOSITORY and self.instruments.is_protected(path)", "if False"),
        ("new files that control tests are removed",
         'return kind == "control" or tests == "frozen"', 'return tests == "frozen"'),
        ("new links among tests are removed", " or entry.mode == _LINK", ""),
        ("candidate without a change is out",
         'flag="empty", out=True', 'flag="empty", out=False'),
        ("candidate that weakened tests is out",
         'flag="tests_weakened", out=True', 'flag="tests_weakened", out=False'),
        ("candidate that hides failing tests is out",
         'flag="forged", out=True', 'flag="forged", out=False'),
        ("check reports every mutant as failed",
         "hidden, unclear = {*(known.sure & here) - failed}, set[int]()",
         "hidden, unclear = set[int](), set[int]()"),
        ("test runner that another program starts is tried with mutants",
         "return _RUNNERS if is_indirect else ()", "return ()"),
        ("check without a result with mutants does not pass",
         "if runs.has_no_result(commit, verdict.command)\n", "if False\n"),
        ("hidden tests have mutants, too",
         "self._evidence, rules.all_checks, rules.hidden)", "self._evidence, rules.all_checks)"),
        ("candidate is not picked by a check that proves nothing",
         "        if without is None:\n", "        if True:\n"),
        ("candidate's own tests prove nothing",
         'if self._rules.tests == "free" and case.has_own_tests:', "if False:"),
        ("check without tests passes no candidate",
         "if missing or not after:", "if missing:"),
        ("candidate that lost tests is out", "if missing or not after:", "if not after:"),
        ("check that must be fixed fails on the base",
         'if answer == "pass" and command in rules.must_fix:', "if False:"),
        ("check whose results on the base differ counts for no candidate",
         "                self.unstable.add(command)\n", "                pass\n"),
        ("hidden tests count", 'and self.hidden in (None, "pass")', ""),
        ("names of hidden tests are not kept", "attempt=attempt, is_secret=True)",
         "attempt=attempt)"),
        ("candidate that needs its own tests or configuration is not picked automatically",
         "    if first.needs_review:\n", "    if False:\n"),
        ("checks also run without a candidate's new tests",
         '"frozen": frozen, "configuration"', '"configuration"'),
        ("checks also run with the base's configuration files",
         '"frozen": frozen, "configuration": configured,', '"frozen": frozen,'),
        ("one judgement of a repository at a time", "    if lock is None:\n", "    if False:\n"),
        ("results are kept for a judgement that is repeated",
         "write_atomically(self._place / key, self._known[key].model_dump_json())", "pass"),
    )  # fmt: skip
    yield from patches(
        "landing/merge.py landing/exclusion.py landing/pull_requests.py web/merge_pages.py",
        ("tests/landing/test_excluded.py",),
        (
            "workers that the judgement excludes are merged only if a person insists",
            "    if found is not None:\n        said =",
            "    if False:\n        said =",
        ),
        (
            "branch on top of excluded work is excluded too",
            '"rev-list", branch.commit',
            '"rev-list", "--max-count=1", branch.commit',
        ),
        (
            "whoever names a worker does not name the excluded worker below it",
            "        if number in insisted:\n",
            "        if insisted:\n",
        ),
        (
            "best worker is not published with excluded work below it",
            "if self._wish.is_best and (",
            "if False and (",
        ),
        (
            "web view does not propose to merge excluded workers",
            "    return [number for number in good if number not in out]",
            "    return good",
        ),
    )
    yield from patches(
        "judging/mutant_runs.py",
        ("tests/judging/test_protected.py",),
        ("branch that hides failing tests does not pass the queue",
         "                if twice:\n", "                if False:\n"),
    )  # fmt: skip
    yield from patches(
        "judging/mutant_runs.py judging/instruments.py",
        ("tests/judging/test_cheats.py tests/judging/test_parts.py",),
        ("check that succeeds reports no mutant as failed",
         "            failed -= mix.mutants", "            pass"),
        ("names are compared as Python compares them",
         "_names(_CONTROL_IN_ANY_CASE).cover(path.lower())",
         "_names(_CONTROL_IN_ANY_CASE).cover(path)"),
        ("new `__init__.py` among tests controls them", 'if found == "test" and',
         "if False and"),
        ("new modules of test runners are compared", "if found is None and shadows(",
         "if False and shadows("),
    )  # fmt: skip
    yield from patches(
        "judging/python_mutants.py judging/failing_tests.py judging/ranking.py judging/judge.py "
        "judging/trials.py",
        ("tests/judging/test_mutants.py", "tests/judging/test_tournament.py"),
        ("mutants are made only where an expectation is always checked",
         "        if any(isinstance(node, ast.Return) for node in ast.walk(statement)):\n",
         "        if False:\n"),
        ("hidden tests without mutants prove nothing",
         "return None if runs.tries_hidden else next(in_process, None)", "return None"),
        ("values are changed rather than operators",
         "        if len(found) == 1:\n", "        if False:\n"),
        ("name in a report of another test is no failure",
         "(name in last if", "(name in words if"),
        ("lint and coverage decide nothing alone",
         '_CLEAR = DECISIVE - {"lint", "coverage"}', "_CLEAR = DECISIVE"),
        ("linter has the configuration of the base",
         "self._trees.with_base_configuration(case.protected, case.branch.commit)\n            for",
         "case.protected\n            for"),
    )  # fmt: skip
    yield from patches(
        "judging/judge.py judging/instruments.py",
        ("tests/judging/test_programs.py",),
        ("files that a check executes are compared with the base's",
         "instruments=Instruments(rules.instruments, programs, modules)",
         "instruments=Instruments(rules.instruments, (), modules)"),
        ("scripts that a build file starts are compared with the base's",
         "programs_of(rules.all_checks, trees.text_of_base)", "programs_of(rules.all_checks)"),
        ("candidate's `GNUmakefile` does not decide what a check does", ' "GNUmakefile",', ""),
        ("compiled modules of a candidate do not count", '"__pycache__", "*.pyc", ', ""),
    )  # fmt: skip
    yield from patches(
        "judging/failing_tests.py judging/coverage_file.py judging/hidden_tests.py "
        "judging/tournament.py judging/pick.py runs/merging.py judging/judge.py",
        (f"{_PARTS} {_TOURNAMENT}", f"{_DOCKER} tests/cli/commands/test_merge_queue.py"),
        ("JUnit file declares no document type",
         "    parser.StartDoctypeDeclHandler = cases.refuse\n"
         "    parser.EntityDeclHandler = cases.refuse\n", ""),
        ("coverage file declares no entity",
         "            parser.EntityDeclHandler = lines.refuse_entity\n", ""),
        ("coverage file has a limited number of lines",
         "if self._number > MOST_LINES:", "if False:"),
        ("JUnit file has a limited number of tests",
         "if len(self.found) > MOST_CASES:", "if False:"),
        ("hidden files are outside the repository",
         "if place.is_relative_to(top.resolve()):", "if False:"),
        ("comparison counts only if both orders agree",
         'if said[a, b] == "A" and said[b, a] == "B":', 'if said[a, b] == "A":'),
        ("only the last line of a judge counts", "loads(rows[-1])", "loads(rows[0])"),
        ("branch that moved since it was judged is not picked",
         "if branches.branches[0].commit != chosen.commit:", "if False:"),
        ("queue: tests of the target count", "        if protected != commit:\n",
         "        if False:\n"),
    )  # fmt: skip
    yield from patches(
        "runs/commit_checks.py",
        ("tests/runs/test_commit_checks.py",),
        ("settings for agents do not end checks", " **_UNLIMITED,", ""),
    )
