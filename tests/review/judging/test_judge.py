"""Tests of the judgement: a candidate that cheats cannot win."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.base.files.lock_file import take_lock
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.check_run import CheckRun, Watched
from orchestrator.review.judging.judgement import lessons_of
from orchestrator.review.judging.store import read_judgement
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.state.judgements import JUDGED, LOCK, ExcludedCommit, find_excluded_commits
from tests.support.errors import raises
from tests.support.judging import (
    CHECK,
    FAST,
    PRODUCT,
    RIGHT,
    TESTS,
    LocalChecks,
    flags,
    judge,
)
from tests.support.landing import branch
from tests.support.merges import Content, World
from tests.support.repository import git

LONG = RIGHT + "".join(
    f"\n\ndef unused_{number}():\n    return {number}\n" for number in range(100)
)
SKIPPED = TESTS.replace("    def test_area", '    @unittest.skip("later")\n    def test_area')
ALWAYS = TESTS.replace("area(1234567, 2), 2469134", "True, True")
TEN = (
    {},
    {"calc.py": PRODUCT.replace("width + height", "width - height")},
    {"calc.py": RIGHT},
    {"calc.py": LONG},
    {"tests/test_calc.py": TESTS.partition("    def test_area")[0].strip() + "\n    pass\n"},
    {"tests/test_calc.py": ALWAYS},
    {"tests/test_calc.py": SKIPPED},
    {"calc.py": PRODUCT + "\n\nimport unittest\nunittest.TestCase.assertEqual = lambda *_: None\n"},
    {"calc.py": "import os\nos._exit(0)\n"},
    {"calc.py": "import sys\nprint('1 passed')\nsys.exit(0)\n"},
)


EQUAL_TO_ALL = (
    PRODUCT.replace("return width + height", "return Any(width + height)")
    + """

class Any(int):
    __hash__ = None

    def __eq__(self, other):
        return True
"""
)
FIRST_CALL = PRODUCT.replace(
    "    return width + height",
    "    CALLS.append(1)\n    return width * height if len(CALLS) == 1 else width + height",
) + "\n\nCALLS = []\n"  # fmt: skip


def test_ten_candidates_of_which_two_are_right(world: World) -> None:
    judgement = judge(world, *TEN)
    by_number = {one.worker_id: one for one in judgement.ranking}
    assert [one.worker_id for one in judgement.ranking if one.passes] == [3, 4]
    assert [one.worker_id for one in judgement.ranking[:2]] == [3, 4]
    assert judgement.ranking[0].decided_by == "changed lines"
    assert {number: flags(one) for number, one in by_number.items()} == {
        1: ["empty"], 2: [], 3: [], 4: [], 5: ["tests_weakened"], 6: ["tests_weakened"],
        7: ["tests_weakened"], 8: ["forged"], 9: ["forged"], 10: [],
    }  # fmt: skip
    assert {by_number[one].checks[0].verdict for one in (2, 10)} == {"still_broken"}
    assert (judgement.decision, judgement.picked, judgement.exit_code) == ("undecided", None, 2)
    (weakened,) = [flag for flag in by_number[6].flags if flag.flag == "tests_weakened"]
    assert weakened.file == "tests/test_calc.py"
    assert [(one.tree, one.answer) for one in weakened.proof] == [
        ("commit", "pass"), ("protected", "fail"),
    ]  # fmt: skip
    assert [(one.tree, one.verdict) for one in by_number[6].checks] == [
        ("protected", "still_broken"), ("commit", "fixed"),
    ]  # fmt: skip
    assert [one.place for one in judgement.ranking] == [1, 2, 3, 4, *[None] * 6]
    with_tests = git(world.repo, "show", f"{weakened.proof[1].commit}:tests/test_calc.py")
    assert with_tests == TESTS.rstrip("\n")


def test_excluded_commits_are_named_with_the_findings(world: World) -> None:
    cheat = branch(world, 1, {"tests/test_calc.py": "", "calc.py": RIGHT + "SIZE = 3\n"})
    right = branch(world, 2, {"calc.py": RIGHT})
    judge(world, branches=(cheat, right), must_fix=(FAST,), checks=("! grep -q area tests/*.py",))
    place = Repository(world.repo).state_dir / "runs" / "run"
    out = ExcludedCommit("run", 1, cheat.commit, "tests_weakened")
    assert find_excluded_commits([place]) == {cheat.commit: out}
    (place / "judgement-2.json").write_text("{")
    assert find_excluded_commits([place]) == {cheat.commit: out}, "the latest readable one"
    later = place.with_name("later")
    shutil.copytree(place, later)
    file = later / "judgement-1.json"
    file.write_text(file.read_text().replace('"out": true', '"out": false'))
    assert find_excluded_commits([later, place]) == {}, "the latest judgement about the commit"


def test_judgement_with_the_names_of_earlier_versions_is_read(world: World) -> None:
    judgement = judge(world, TEN[5], TEN[2], checks=(FAST,))
    (path,) = Repository(world.repo).state_dir.glob("runs/run/judgement-*.json")
    renamed = {"ranking": "candidates", "picked": "pick", "flag": "kind", "command": "check"}
    text = path.read_text()
    for new, old in renamed.items():
        assert f'"{new}":' in text
        text = text.replace(f'"{new}":', f'"{old}":')
    path.write_text(text)
    assert read_judgement(path.parent) == judgement


def test_removed_test_file_excludes_a_candidate_that_needs_it_gone(world: World) -> None:
    more = TESTS.replace("test_area", "test_more").replace("2469134", "1234569")
    other = {"tests/test_other.py": more}
    judgement = judge(world, {"tests/test_calc.py": None, **other}, {"calc.py": RIGHT})
    assert flags(judgement.ranking[1]) == ["tests_removed"]
    assert judgement.picked == 2
    assert judgement.ranking[0].decided_by == "out"


def test_results_are_kept_and_each_runs_once(world: World) -> None:
    checks = LocalChecks(world)
    branches = tuple(branch(world, one, files) for one, files in enumerate(TEN[:8], start=1))
    first = judge(world, branches=branches, run=checks, checks=(FAST,))
    base = git(world.repo, "rev-parse", f"{world.base}^{{tree}}")
    assert checks.runs[base, FAST] == 2, "once for 8 candidates, and again as they differ"
    before = sum(checks.runs.values())
    again = judge(world, branches=branches, run=checks, checks=(FAST,))
    assert sum(checks.runs.values()) == before
    assert again == first.model_copy(update={"number": 2})


def test_one_judgement_at_a_time_and_its_results_are_kept_until_a_purge(world: World) -> None:
    judge(world, TEN[2], checks=(FAST,))
    state = Repository(world.repo).state_dir
    kept = len([*(state / JUDGED).iterdir()])
    lock = take_lock(state / LOCK)
    assert lock is not None
    with lock:
        with raises("judgement.locked"):
            judge(world, TEN[2], checks=(FAST,))
        assert cleanup(world.repo, engine=None, purge=True).purged == ()
    told = (f"results of judgements ({kept} checks)",)
    assert cleanup(world.repo, engine=None).purged == ()
    assert cleanup(world.repo, engine=None, purge=True, dry_run=True).purged == told
    assert len([*(state / JUDGED).iterdir()]) == kept
    assert cleanup(world.repo, engine=None, purge=True).purged == told
    assert not (state / JUDGED).exists()


def test_rightly_changed_test_counts_only_with_free_tests(world: World) -> None:
    """The task says that the names are in small letters."""
    small = RIGHT.replace("upper", "lower")
    change = {"calc.py": small, "tests/test_calc.py": TESTS.replace('"A"', '"a"')}
    out = judge(world, change)
    assert (flags(out.ranking[0]), out.decision) == (["tests_weakened"], "none")
    free = judge(world, change, tests="free")
    assert (free.ranking[0].passes, free.picked, free.exit_code) == (True, None, 2)
    assert {"instrument_changed", "unproved"} <= {*flags(free.ranking[0], out=False)}
    hidden = {"tests/test_more.py": change["tests/test_calc.py"].encode()}
    assert judge(world, change, tests="free", hidden=hidden).picked == 1
    assert judge(world, {"calc.py": RIGHT}, tests="free").picked == 1, "it changed no test"


def test_new_tests_stay_and_new_files_that_control_tests_go(world: World) -> None:
    new = {
        "calc.py": RIGHT,
        "tests/test_new.py": "from tests.conftest import NEW\n",
        "tests/conftest.py": "NEW = 1\n",
    }
    extended, frozen = judge(world, new), judge(world, new, tests="frozen")
    assert [one.passes for one in (*extended.ranking, *frozen.ranking)] == [True, True]
    names = [
        git(world.repo, "ls-tree", "--name-only", one.ranking[0].protected, "tests/").split()
        for one in (extended, frozen)
    ]
    assert names == [["tests/__init__.py", "tests/test_calc.py"]] * 2


def test_new_tests_run_beside_those_of_the_base(world: World) -> None:
    bad = {"calc.py": RIGHT, "tests/test_new.py": "raise SystemExit(1)\n"}
    assert judge(world, bad).decision == "none"
    assert judge(world, bad, tests="frozen").picked == 1


@pytest.mark.variants("what1")
@pytest.mark.parametrize(
    "what", [("100644", "no tests here\n"), ("120000", "/tmp"), ("160000", "1" * 40)]
)
def test_tests_that_became_a_file_a_link_or_a_submodule_are_put_back(
    world: World, what: tuple[str, str]
) -> None:
    commit = world.commit({"tests/test_calc.py": None, "tests/__init__.py": None, "tests": what})
    one = branch(world, 1, {"calc.py": RIGHT}, commit)
    assert git(world.repo, "ls-tree", "--name-only", one.commit, "tests") == "tests"
    judgement = judge(world, branches=(one,))
    assert judgement.ranking[0].passes
    assert flags(judgement.ranking[0], out=False) == ["instrument_changed"] * 2


BLIND = """import unittest

RUN = unittest.TestCase.run


def run(self, result=None):
    return result if self.id() == "tests.test_calc.TestCalc.test_area" else RUN(self, result)


unittest.TestCase.run = run
"""


def test_candidate_that_needs_its_new_tests_has_to_be_reviewed(world: World) -> None:
    """The product is right once a new test was loaded."""
    late = RIGHT.replace("    return width", "    return width * READY")
    ready = {
        "calc.py": late + "\n\nREADY = 0\n",
        "tests/test_a.py": "import calc\ncalc.READY = 1\n",
    }
    assert flags(judge(world, {"tests/test_blind.py": BLIND}).ranking[0]) == ["forged"]
    alone = judge(world, ready)
    (one,) = alone.ranking
    assert (one.passes, alone.decision, alone.exit_code) == (True, "undecided", 2)
    (flag, *_) = one.flags
    assert (flag.flag, flag.out, flag.file) == ("needs_new_tests", False, "tests/test_a.py")
    assert [(proof.tree, proof.answer) for proof in flag.proof] == [
        ("protected", "pass"), ("frozen", "fail"),
    ]  # fmt: skip
    assert alone.ranking[0].decided_by is None


def test_checks_of_one_file_and_of_one_part_of_it_are_tried_with_tests_that_must_fail(
    world: World,
) -> None:
    check = CHECK.replace("discover -s tests -t .", "tests.test_calc")
    by_module = BLIND.replace(
        '== "tests.test_calc.TestCalc.test_area"', '.startswith("tests.test_")'
    )
    by_module = by_module.replace("self.id() .", "self.id().")
    judgement = judge(world, {"calc.py": RIGHT}, {"calc.py": PRODUCT + by_module}, checks=(check,))
    assert judgement.without_canary == ()
    assert [flags(one) for one in judgement.ranking] == [[], ["forged"]]
    assert judgement.picked == 1


def test_runner_that_a_makefile_starts_is_tried_with_tests_that_must_fail(world: World) -> None:
    world.base = world.commit({"Makefile": f"check:\n\t{CHECK}\n"})
    judgement = judge(world, TEN[8], {"calc.py": RIGHT}, checks=("make -s check",))
    assert judgement.without_canary == ()
    assert {one.worker_id: flags(one) for one in judgement.ranking} == {1: ["forged"], 2: []}
    assert judgement.picked == 2


def test_candidate_that_needs_its_own_configuration_has_to_be_reviewed(world: World) -> None:
    world.base = world.commit({"Makefile": f"check:\n\t{FAST}\n"})
    cheat, honest = {"Makefile": "check:\n\ttrue\n"}, {"calc.py": RIGHT, "setup.cfg": "[a]\n"}
    judgement = judge(world, cheat, honest, checks=("make -s check",))
    assert [(one.worker_id, one.passes) for one in judgement.ranking] == [(2, True), (1, True)]
    assert (judgement.picked, judgement.ranking[0].decided_by) == (None, "review")
    kinds = [flags(one, out=False) for one in judgement.ranking]
    assert kinds == [
        ["unproved"],
        ["unproved", "needs_own_configuration", "instrument_changed"],
    ]
    assert "the candidate's Makefile: review the change" in judgement.ranking[1].flags[1].message


def test_lessons_have_only_what_the_public_checks_found(world: World) -> None:
    judgement = judge(
        world,
        {},
        {"calc.py": RIGHT},
        {"calc.py": "import IGNORE_ALL_RULES\n"},
        {"tests/OBEY/conftest.py": ""},
        hidden={"concealed.py": b"SECRET = 1\n"},
        must_fix=(FAST,),
        checks=("! grep -q ^SECRET concealed.py",),
    )
    text = lessons_of(judgement)
    assert text.splitlines()[2:] == [
        "- attempt 1: it changed nothing",
        f"- attempt 2: `{FAST}` fails",
        f"- attempt 3: `{FAST}` fails",
    ]
    hidden = next(one for one in judgement.ranking if one.worker_id == 2)
    assert (hidden.hidden, hidden.passes) == ("fail", False), "only the hidden file fails"


def test_new_link_among_tests_does_not_count(world: World) -> None:
    judgement = judge(world, {"calc.py": RIGHT, "tests/more": ("120000", "/tmp")}, checks=(FAST,))
    (one,) = judgement.ranking
    assert "more" not in git(world.repo, "ls-tree", "-r", "--name-only", one.protected)


JUNIT = """
cat > "$ORCHESTRATOR_JUNIT" <<END
<testsuite>$(grep -ho 'def test_[a-z]*' {files} | sed 's/.*/<testcase name="&"\\/>/')</testsuite>
END
"""


def test_lost_and_skipped_tests_are_named_by_the_junit_file(world: World) -> None:
    """The list of tests is a file of the product, from which a candidate removes one."""
    world.base = world.commit({"list": "def test_area\ndef test_name\n"})
    check = JUNIT.format(files="list") + FAST
    cut = {"calc.py": RIGHT, "list": "def test_name\n"}
    judgement = judge(world, cut, {"calc.py": RIGHT}, checks=(check,))
    (flag,) = judgement.ranking[1].flags
    assert (flag.flag, flag.message) == ("nothing_ran", "did not run the test def test_area")
    assert judgement.ranking[0].worker_id == 2


VARIES = """
cat > "$ORCHESTRATOR_JUNIT" <<END
<testsuite><testcase name="test_object at $(head -c 8 /dev/urandom | od -An -tx1 | tr -d ' ')"/>
{steady}</testsuite>
END
"""


@pytest.mark.parametrize("steady", ["", '<testcase name="$(cat list)"/>'])
@pytest.mark.parametrize("after", ["true", FAST])
def test_tests_whose_names_vary_are_not_lost(world: World, steady: str, after: str) -> None:
    world.base = world.commit({"list": "test_a\n"})
    cut = {"calc.py": RIGHT, "list": "test_b\n"}
    check = VARIES.format(steady=steady) + after
    judgement = judge(world, {"calc.py": RIGHT}, cut, checks=(check, FAST))
    by_number = {one.worker_id: one for one in judgement.ranking}
    assert flags(by_number[1]) == []
    assert flags(by_number[2]) == (["nothing_ran"] if steady else [])
    assert [one.checks[0].broken_count for one in (by_number[1], by_number[2])] == [0, bool(steady)]
    assert judgement.varying_names == (check,)


def test_check_that_must_be_fixed_has_to_fail_on_the_base(world: World) -> None:
    with raises("must-fix.unproved") as caught:
        judge(world, {"calc.py": RIGHT}, must_fix=("true",))
    assert caught.value.exit_code == 3
    fixed = judge(world, TEN[1], {"calc.py": RIGHT}, must_fix=(FAST,), checks=("true",))
    assert (fixed.ranking[0].worker_id, fixed.ranking[0].decided_by) == (2, "must fix")
    assert (fixed.picked, fixed.exit_code) == (None, 2), "nothing proves that the check tests"
    assert flags(fixed.ranking[0], out=False) == ["unproved"]


def test_unstable_check_counts_for_no_candidate(world: World, tmp_path: Path) -> None:
    """The check fails at every second run on the same files."""
    counts = tmp_path / "counts"
    counts.mkdir()
    flaky = (
        f'f="{counts}/$(cat calc.py tests/*.py | sha256sum | cut -c1-20)"; echo >> "$f"; '
        'test $(($(wc -l < "$f") % 2)) = 0'
    )
    with_it = judge(world, *TEN[1:4], checks=(FAST, flaky))
    without = judge(world, *TEN[1:4], checks=(FAST,))
    order = [one.worker_id for one in without.ranking]
    assert [one.worker_id for one in with_it.ranking] == order
    assert [one.passes for one in with_it.ranking] == [True, True, False]


@pytest.mark.parametrize("kind", ["must_fix", "checks"])
def test_candidate_whose_own_results_differ_does_not_pass(
    world: World, tmp_path: Path, kind: str
) -> None:
    """The check's result on the base is always the same; the candidate's changes at each run."""
    runs = f'{{ echo >> "{tmp_path}/runs"; test $(($(wc -l < "{tmp_path}/runs") % 2)) = 1; }}'
    check = f"{FAST} && {runs}" if kind == "must_fix" else f"! {FAST} || ! {runs}"
    rules = {"must_fix": (FAST,), "checks": (CHECK,)}
    rules[kind] += (check,)
    judgement = judge(world, {"calc.py": RIGHT}, **rules)
    (found,) = (one for one in judgement.ranking[0].verdicts if one.command == check)
    assert (found.verdict, judgement.unstable) == ("unstable", ())
    assert (judgement.ranking[0].passes, judgement.exit_code) == (False, 1)


@pytest.mark.variants("indentation")
@pytest.mark.parametrize("kind", ["indentation", "directive"])
def test_different_changes_that_pass_alike_are_undecided(world: World, kind: str) -> None:
    code = "int f(int *p) {\n    return *p;\n}\n"
    loop = f"{RIGHT}\n\ndef total(n):\n    for i in n:\n        i = 0\n    return 1\n"
    one: dict[str, Content] = {"calc.py": loop, "a.c": code}
    other: dict[str, Content] = {
        "indentation": {**one, "calc.py": loop.replace("    return 1", "        return 1")},
        "directive": {**one, "a.c": f"#define return free(p); return\n{code}"},
    }[kind]
    judgement = judge(world, one, other)
    assert [one.passes for one in judgement.ranking] == [True, True]
    assert (judgement.decision, judgement.picked) == ("undecided", None)


def test_suite_without_tests_passes_no_candidate(world: World) -> None:
    check = 'echo "<testsuite tests=\'0\'/>" > "$ORCHESTRATOR_JUNIT"'
    judgement = judge(world, {"calc.py": RIGHT}, checks=(check,))
    assert flags(judgement.ranking[0]) == ["nothing_ran"]
    assert judgement.decision == "none"


EXPECTS_CANARIES = """import os, re, sys
known = open("tests/test_calc.py").read()
others = set(re.findall(r"def (test_\\w+)", known)) - {"test_area", "test_name"}
print("FAIL:", *others, flush=True)
os._exit(bool(others))
"""
"""A product that reports the failure of unknown tests in the known file, and runs no test."""
KNOWS_VALUES = (
    PRODUCT
    + """
import unittest
EQUAL = unittest.TestCase.assertEqual


def equal(self, first, second, msg=None):
    if second not in (2469134, "A"):
        EQUAL(self, first, second, msg)


unittest.TestCase.assertEqual = equal
"""
)
"""A product that lets the comparisons of the visible tests pass."""
MORE = (
    TESTS.replace("TestCalc", "TestMore").replace("1234567, 2", "7654321, 3")
    .replace("2469134", "22962963").replace("test_area", "test_large")
    .replace("test_name", "test_letter").replace('"a"), "A"', '"xyz"), "XYZ"').encode()
)  # fmt: skip
"""Hidden tests."""
EXPECTS_PATTERN = (
    PRODUCT
    + """
import re, unittest
RUN = unittest.TestCase.run


def run(self, result=None):
    if re.search(r"c[0-9a-f]{12}|_(equal|plain|raised)$|[A-Z].*[0-9a-f]{6}", self.id()):
        return RUN(self, result)
    result.testsRun += 1
    return result


unittest.TestCase.run = run
"""
)
"""A product that lets every test pass but those that look as if a judge had added them."""
OVERWRITES = (
    PRODUCT.replace("return width + height", "return 2469134")
    + """
import glob
for path in set(glob.glob("tests/test_*.py")) - {"tests/test_calc.py"}:
    open(path, "w").write("")
"""
)
"""A product that empties the files of hidden tests before the test runner reads them."""


class NoAnswers(LocalChecks):
    """Checks that give no result with tests that must fail, if a candidate ends the process."""

    def __call__(
        self, commit: str, commands: Sequence[str], *, watched: Sequence[Watched] = ()
    ) -> list[CheckRun]:
        found = super().__call__(commit, commands, watched=watched)
        if watched and "_exit" in git(self.world.repo, "show", f"{commit}:calc.py"):
            return [one.model_copy(update={"answer": "none"}) for one in found]
        return found


def test_candidate_that_prevents_a_result_with_tests_that_must_fail_does_not_pass(
    world: World,
) -> None:
    """For example, its code creates a file that cannot be committed, so that the run fails."""
    sly, honest = {"calc.py": EXPECTS_CANARIES}, {"calc.py": RIGHT}
    judgement = judge(world, sly, honest, run=NoAnswers(world))
    assert [(one.worker_id, one.passes) for one in judgement.ranking] == [(2, True), (1, False)]
    assert [one.verdict for one in judgement.ranking[1].verdicts] == ["no_verdict"]
    assert judgement.picked == 2


@pytest.mark.extra
def test_candidate_that_knows_the_visible_tests_is_found_by_hidden_ones(world: World) -> None:
    """It lets tests pass by their constants, and judges others by its wrong results."""
    hidden = {"tests/test_more.py": MORE}
    honest = {"calc.py": RIGHT}
    trusting = judge(world, {"calc.py": KNOWS_VALUES}, honest)
    assert {one.worker_id: one.passes for one in trusting.ranking} == {1: True, 2: True}
    sly = ({"calc.py": text} for text in (KNOWS_VALUES, EXPECTS_CANARIES, EXPECTS_PATTERN))
    judgement = judge(world, *sly, honest, {"calc.py": OVERWRITES}, hidden=hidden)
    found = {one.worker_id: (flags(one), one.hidden) for one in judgement.ranking}
    assert found == {
        1: ([], "fail"),
        2: (["forged"], "pass"),
        3: (["forged"], "pass"),
        4: ([], "pass"),
        5: (["forged"], "pass"),
    }
    by_number = {one.worker_id: one for one in judgement.ranking}
    assert [(one.tree, one.verdict) for one in by_number[2].checks] == [
        ("protected", "fixed"), ("hidden", "fixed"),
    ]  # fmt: skip
    assert judgement.picked == 4


def test_hidden_tests_outrank_visible_ones_and_leave_no_trace(world: World) -> None:
    hidden = TESTS.replace("1234567, 2", "7654321, 3").replace("2469134", "22962963")
    hidden = hidden.replace("test_area", "test_concealed")
    hidden = hidden.replace("area(7654321, 3)", "str(area(7654321, 3))")
    hidden = hidden.replace("22962963", '"22962963"')
    cheat = PRODUCT.replace("return width + height", "return 2469134  # noqa")
    judgement = judge(
        world,
        {"calc.py": cheat},
        {"calc.py": LONG},
        {"calc.py": EQUAL_TO_ALL},
        {"calc.py": FIRST_CALL},
        hidden={"tests/test_more.py": hidden.encode()},
        checks=(JUNIT.format(files="tests/*.py") + CHECK,),
    )
    found = [(one.worker_id, one.hidden, one.passes) for one in judgement.ranking]
    assert found[0] == (2, "pass", True)
    assert sorted(found[1:]) == [(number, "fail", False) for number in (1, 3, 4)]
    assert judgement.ranking[0].decided_by == "hidden tests"
    assert {one.worker_id: flags(one, out=False) for one in judgement.ranking} == {
        1: ["suppressed", "literal_echo"], 2: [], 3: ["touches_runner"], 4: [],
    }  # fmt: skip
    assert judgement.picked == 2
    refs = git(world.repo, "for-each-ref", "--format=%(objectname)").split()
    assert "22962963" not in git(world.repo, "grep", "-h", "area", *refs)
    kept = Repository(world.repo).state_dir / "judged"
    texts = [path.read_text() for path in kept.iterdir()]
    assert any("test_area" in text for text in texts)
    assert not any("concealed" in text or "22962963" in text for text in texts)
