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
        "judging/evidence.py judging/cases.py judging/canary.py judging/canary_runs.py "
        "judging/hidden_tests.py judging/ranking.py",
        (f"{_JUDGE} {_KILLED}",),
        ("tests of the base replace those of a candidate",
         "if self._is_protected(path, entry)},", "if False},"),
        ("new files that control tests are removed",
         'return kind == "control" or tests == "frozen"', 'return tests == "frozen"'),
        ("new links among tests are removed", " or entry.mode == _LINK", ""),
        ("candidate without a change is out",
         'flag="empty", out=True', 'flag="empty", out=False'),
        ("candidate that weakened tests is out",
         'flag="tests_weakened", out=True', 'flag="tests_weakened", out=False'),
        ("candidate that hides failing tests is out",
         'flag="forged", out=True', 'flag="forged", out=False'),
        ("failing tests must be reported, not only make the check fail",
         " or not {*self._expected[command]} <= {*seen.canaries}", ""),
        ("test runner that another program starts is tried with tests that must fail",
         "return _RUNNERS if is_indirect else ()", "return ()"),
        ("names of tests that must fail are made of words of the tests",
         "self.before + self.between.join(named)", 'self.before + "c" + secrets.token_hex(6)'),
        ("check without a result with tests that must fail does not pass",
         "    if canaries.has_no_result(commit, verdict.command):\n", "    if False:\n"),
        ("hidden tests have tests that must fail, too",
         "        self._find_forged([case for case in cases if case.passes], trees)\n", ""),
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
         "            self._keep(key, result)\n", "            pass\n"),
    )  # fmt: skip
    yield from patches(
        "landing/merge.py web/merge_pages.py",
        ("tests/landing/test_excluded.py",),
        (
            "workers that the judgement excludes are merged only if a person insists",
            "if branch.excluded is not None and not self._wish.overrules_judgement:",
            "if False:",
        ),
        (
            "web view does not propose to merge excluded workers",
            " and one.result.commit not in excluded",
            "",
        ),
    )
    yield from patches(
        "judging/canary_runs.py",
        ("tests/judging/test_protected.py",),
        ("branch that hides failing tests does not pass the queue",
         "        if any(self.is_forged(commit, command) for command in self.commands):\n",
         "        if False:\n"),
    )  # fmt: skip
    yield from patches(
        "judging/judge.py judging/instruments.py",
        ("tests/judging/test_programs.py",),
        ("files that a check executes are compared with the base's",
         "Instruments(rules.instruments, programs_of(rules.all_checks))",
         "Instruments(rules.instruments)"),
        ("candidate's `GNUmakefile` does not decide what a check does", ' "GNUmakefile",', ""),
        ("compiled modules of a candidate do not count", '"__pycache__/", "*.pyc", ', ""),
    )  # fmt: skip
    yield from patches(
        "judging/junit.py judging/coverage_file.py judging/hidden_files.py judging/tournament.py "
        "judging/pick.py runs/merging.py judging/judge.py",
        (f"{_PARTS} {_TOURNAMENT}", f"{_DOCKER} tests/cli/commands/test_merge_queue.py"),
        ("JUnit file declares no document type",
         "    parser.StartDoctypeDeclHandler = cases.refuse\n"
         "    parser.EntityDeclHandler = cases.refuse\n", ""),
        ("coverage file declares no entity",
         "    parser.EntityDeclHandler = lines.refuse_entity\n", ""),
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
