"""Tests of mutants: tests with a changed expectation that nothing but their meaning tells apart."""

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from orchestrator.review.judging.case_source import CaseSource, Strength
from orchestrator.review.judging.check_run import Watched
from orchestrator.review.judging.failing_tests import find_failed_tests
from orchestrator.review.judging.mutants import Mixes, make_mixes
from orchestrator.review.judging.python_source import PythonSource
from orchestrator.review.judging.text_mutants import TextSource
from tests.support.judging import PRODUCT, RIGHT, flags, judge
from tests.support.merges import World

UNITTEST = b'''
import unittest

class TestAll(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(sum([1, 2]), 3)
    def test_text(self):
        self.assertEqual("a".upper(), "A")
    def test_list(self):
        self.assertListEqual(sorted([2, 1]), [1, 2])
    def test_names(self):
        self.assertEqual({"a": [1.5, None]}, dict(a=[1.5, None]))
    def test_variable(self):
        one = other = object()
        self.assertEqual(one, other)
    def test_truth(self):
        self.assertTrue([1])
    def test_none(self):
        self.assertIsNone({}.get(1))
    def test_order(self):
        self.assertLess(1, len("ab"))
    def test_raises(self):
        with self.assertRaises(KeyError):
            {}["a"]
    def test_call_raises(self):
        self.assertRaises(ValueError, int, "x")
    def test_several(self):
        """More than one expectation."""
        for one in ():
            self.assertEqual(one, 1)
        with self.subTest("x"):
            self.assertIn(1, [1])
        assert not []
        assert len("ab") == 2, "why"
        assert "ab"
'''
NOTHING_TO_CHANGE = b"""
import unittest

class TestAll(unittest.TestCase):
    def test_nothing(self):
        pass
    def test_perhaps(self):
        if len(""):
            self.assertEqual(1, 2)
    def test_left_before(self):
        if not len(""):
            return
        self.assertEqual(1, 2)
    def test_raises_before(self):
        with self.assertRaises(KeyError):
            {}["a"].assertEqual(1, 2)
            self.assertEqual(1, 2)
    def helper(self):
        self.assertEqual(1, 2)
"""


def _mixes(files: dict[str, bytes], seed: int = 1, command: str = "python3 -m unittest") -> Mixes:
    made = make_mixes([command], [*files], files.__getitem__, Random(seed))
    assert made is not None
    return made


def _changed(source: CaseSource, seed: int = 1) -> str:
    """Return the text of a file in which every test is replaced by a mutant."""
    chosen = dict(enumerate(source.strengths()))

    def chance_of(place: int) -> Random:
        return Random(f"{seed} {place}")

    return source.with_mutants(chosen, frozenset(), chance_of).decode()


def _strengths(source: CaseSource) -> dict[str, Strength]:
    names = (name.name for name in source.names)
    return dict(zip(names, source.strengths(), strict=True))


def _reported(
    mixes: Mixes, number: int, files: Sequence[str], place: Path, *command: str
) -> set[str]:
    for path in files:
        (place / path).parent.mkdir(exist_ok=True)
        (place / path).write_bytes(mixes.mixes[number].files[path])
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    failed = find_failed_tests(done.stdout + done.stderr, None, mixes.all_watched)
    return {mixes.tests[one].watched.words[-1] for one in failed if one < len(mixes.tests)}


@pytest.mark.variants("unittest-0")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("runner", ["unittest", "pytest"])
def test_each_test_fails_in_one_mix_and_passes_in_the_other(
    tmp_path: Path, seed: int, runner: str
) -> None:
    mixes = _mixes({"test_all.py": UNITTEST}, seed)
    names = {one.watched.words[-1] for one in mixes.tests}
    assert names == {*re.findall(r"def (test_\w+)", UNITTEST.decode())}
    command = [
        sys.executable,
        "-m",
        runner,
        *(["-q", "-p", "no:cacheprovider"] * (runner == "pytest")),
    ]
    both = []
    for number, mix in enumerate(mixes.mixes):
        reported = _reported(mixes, number, ["test_all.py"], tmp_path, *command, "test_all.py")
        assert reported == {mixes.tests[one].watched.words[-1] for one in mix.mutants}
        both.append(reported)
    assert both[0] | both[1] == names
    assert not both[0] & both[1]


PYTEST = b"""
import pytest

@pytest.mark.parametrize("side, expected", [(1, 1), (2, 4), (3, 9)])
def test_squares(side, expected):
    assert side * side == expected

@pytest.mark.parametrize("word", ["aa", "bb"])
def test_words(word):
    assert word[0] * 2 == word

def test_assigned():
    expected = {"total": [1, 2]}
    assert dict(total=[1, 2]) == expected

def test_loop():
    for one, double in ((1, 2), (2, 4)):
        assert one * 2 == double

def test_round_trip():
    value = "text"
    assert value.upper().lower() == value

def test_computed():
    assert sorted([2, 1]) == [*range(1, 3)]

def test_roughly():
    assert 0.30000000000000004 == pytest.approx(0.1 + 0.2)
"""


@pytest.mark.variants("0")
@pytest.mark.parametrize("seed", range(6))
def test_values_of_variables_and_tables_are_changed(tmp_path: Path, seed: int) -> None:
    mixes = _mixes({"test_all.py": PYTEST}, seed, "pytest")
    names = {*re.findall(r"def (test_\w+)", PYTEST.decode())}
    assert {one.watched.words[-1] for one in mixes.tests} == names
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_all.py"]
    for number, mix in enumerate(mixes.mixes):
        reported = _reported(mixes, number, ["test_all.py"], tmp_path, *command)
        assert reported == {mixes.tests[one].watched.words[-1] for one in mix.mutants}


def test_values_are_changed_rather_than_operators() -> None:
    """A value that is equal to everything passes a test whose operator is turned around."""
    source = PythonSource(PYTEST)
    for seed in range(20):
        changed = _changed(source, seed)
        rows = [row.strip() for row in changed.splitlines() if row.strip().startswith("assert")]
        assert "assert side * side == expected" in rows
        assert "assert one * 2 == double" in rows
        assert "assert dict(total=[1, 2]) == expected" in rows
        assert "assert value.upper().lower() == value" not in rows


@pytest.mark.parametrize("text", ["1e999", "-1e999", "''", "b''", "[]", "{}", "None", "{1: None}"])
def test_odd_literals_end_no_judgement(text: str) -> None:
    source = PythonSource(f"def test_a():\n    assert f() == {text}\n".encode())
    assert _changed(source).count("assert") == 1


@pytest.mark.parametrize("text", [b"def", b"x = 0x" + b"f" * 5000, b"\0", b"x = " + b"(" * 9999])
def test_files_that_cannot_be_written_anew_are_left_out(text: bytes) -> None:
    text = b"def test_a():\n    assert f() == 1\n" + text
    assert make_mixes(["pytest"], ["test_a.py"], lambda _: text, Random(1)) is None


def test_only_expectations_that_are_always_checked_are_changed() -> None:
    """What a test reaches only sometimes may pass in a mutant of an honest candidate too."""
    found = PythonSource(NOTHING_TO_CHANGE)
    sure = [name for name, strength in _strengths(found).items() if strength is Strength.SURE]
    assert sure == ["test_raises_before"]
    assert "assertRaises(KeyError)" not in _changed(found)


def test_mutants_keep_names_kinds_and_layout() -> None:
    """The two mixes differ in constants, operators and names of assertions only."""
    mixes = _mixes({"test_all.py": UNITTEST})
    first, second = (one.files["test_all.py"].decode() for one in mixes.mixes)
    original = ast.unparse(ast.parse(UNITTEST)) + "\n# x\n"
    assert original not in (first, second), "no file is the one that a candidate knows"
    lines = [text.splitlines() for text in (original, first, second)]
    assert len({len(one) for one in lines}) == 1
    names = [[row for row in one if row.lstrip().startswith(("def", "class"))] for one in lines]
    assert names[0] == names[1] == names[2]


@pytest.mark.parametrize("seed", range(20))
def test_changed_constants_keep_their_kind_and_look(seed: int) -> None:
    text = b"def test_a():\n    assert f() == [22962963, 'total', 1.25, True]\n"
    source = PythonSource(text)
    changed = _changed(source, seed)
    (values,) = re.findall(r"== (\[.*\])", changed)
    before, after = [22962963, "total", 1.25, True], ast.literal_eval(values)
    assert before != after
    assert [type(one) for one in before] == [type(one) for one in after]
    assert len(str(before)) - 1 <= len(str(after)) <= len(str(before)) + 1


def test_choice_depends_on_the_seed_only() -> None:
    files = {"test_all.py": UNITTEST, "test_b.py": UNITTEST.replace(b"TestAll", b"TestOther")}
    assert _mixes(files, 7).mixes == _mixes(files, 7).mixes
    assert len({_mixes(files, seed).mixes[0].mutants for seed in range(9)}) > 5


def test_tests_of_the_same_name_are_told_apart_by_class_and_file() -> None:
    other = UNITTEST.replace(b"TestAll", b"TestOther")
    mixes = _mixes({"a/test_all.py": UNITTEST, "a/test_b.py": other})
    assert {len(one.watched.words) for one in mixes.tests} == {3}
    assert len(mixes.tests) == 22
    same = _mixes(
        {
            "a/test_all.py": UNITTEST,
            "b/test_all.py": UNITTEST,
            "test_c.py": b"def test_c():\n    assert f() == 1\n",
        }
    )
    assert {one.watched.words[:2] for one in same.tests[:-1]} == {
        ("a", "test_all"),
        ("b", "test_all"),
    }
    assert same.tests[-1].watched.words == ("test_c",)
    twice = _mixes({"test_all.py": UNITTEST + UNITTEST, "test_c.py": PYTEST})
    assert {one.strength for one in twice.tests if one.path == "test_all.py"} == {Strength.NONE}


JAVASCRIPT = b"""import test from 'node:test'
import assert from 'node:assert'

test('adds small numbers', () => {
  if (false) {
    assert.equal(1, 2)
  }
  assert.strictEqual(1 + 1, 2)
})
test('joins words', () => { assert.equal('a' + 'b', 'ab') })
test('leaves early', () => {
  if (true) return
  assert.equal(1, 2)
})
"""


def test_tests_in_javascript_are_changed_by_their_text(tmp_path: Path) -> None:
    mixes = _mixes({"test/sum.test.mjs": JAVASCRIPT}, command="npm test")
    assert [(one.name, one.strength) for one in mixes.tests] == [
        ("adds small numbers", Strength.SURE), ("joins words", Strength.SURE),
        ("leaves early", Strength.OWN),
    ]  # fmt: skip
    for number, mix in enumerate(mixes.mixes):
        reported = _reported(
            mixes, number, ["test/sum.test.mjs"], tmp_path, "node", "--test", "test/sum.test.mjs"
        )
        names = {mixes.tests[one].name for one in mix.mutants}
        assert reported == names - {"leaves early"}


def test_expectations_of_jest_are_changed_by_their_text() -> None:
    text = textwrap.dedent("""
        describe('cart', () => {
          it('counts', async () => {
            const cart = make()
            expect(cart.size).toBe(3);
            expect(cart.name).not.toBe('x');
          });
          it('counts twice', () => { expect(f()).toEqual("ab") });
          it.skip('waits', () => { expect(f()).toBe(1) });
        });
    """)
    source = TextSource(text.encode(), "js")
    expected = {"counts": Strength.NONE, "counts twice": Strength.SURE}
    assert _strengths(source) == expected, "a part of another name"
    changed = _changed(source, 3).splitlines()
    assert [new for old, new in zip(text.splitlines(), changed, strict=False) if old != new] == [
        row for row in changed if "counts twice" in row
    ]


GO = b"""func TestArea(t *testing.T) {
\tgot := Area(3, 4)
\tif got != 12 {
\t\tt.Errorf("got %d", got)
\t}
}

func TestName(t *testing.T) {
\tassert.Equal(t, "A", Name("a"))
}

func TestLoop(t *testing.T) {
\tfor _, one := range all {
\t\tif one != 3 {
\t\t\tt.Fatal(one)
\t\t}
\t}
\tif Ready() != true {
\t\tWait()
\t}
}
"""


def test_expectations_of_go_are_changed_by_their_text() -> None:
    source = TextSource(GO, "go")
    assert _strengths(source) == {
        "TestArea": Strength.SURE, "TestName": Strength.SURE, "TestLoop": Strength.OWN,
    }  # fmt: skip
    changed = _changed(source, 5)
    assert "got != 12" not in changed
    assert 't, "A", ' not in changed


REPORTS = {
    "unittest": "FAIL: test_a (tests.test_x.TestX.test_a)",
    "unittest -v": "test_a (tests.test_x.TestX.test_a) ... ERROR",
    "pytest": "\x1b[31mFAILED\x1b[0m tests/test_x.py::TestX::test_a - assert 1 == 2",
    "pytest -v": "tests/test_x.py::TestX::test_a FAILED   [ 50%]",
    "pytest -rN": "________________ TestX.test_a ________________",
    "go": "--- FAIL: test_a (0.00s)",
    "tap": "not ok 1 - test_a",
    "jest": "  \u25cf suite \u203a test_a",
    "vitest": " \u00d7 x.test.ts > test_a 3ms",
    "mocha": "  1) suite test_a:",
    "node": "\u2716 test_a (0.1ms)",
}
PASSES = [
    "test_a (tests.test_x.TestX.test_a) ... ok", "tests/test_x.py::TestX::test_a PASSED",
    "ok 1 - test_a", "  \u2713 test_a", "FAILED tests/test_x.py::test_ab", "--- PASS: test_a",
    "FAIL: xtest_a (x)",
]  # fmt: skip


@pytest.mark.parametrize("line", REPORTS.values(), ids=REPORTS)
def test_failed_tests_are_found_in_the_output(line: str) -> None:
    assert find_failed_tests(f"x\n{line}\n", None, [Watched(("test_a",))]) == (0,)


def test_passed_tests_and_other_names_are_no_failures() -> None:
    cases = {"test_x::test_a": "passed", "t::test_b": "failed"}
    watched = [Watched(("test_a",)), Watched(("test_b",))]
    assert find_failed_tests("\n".join(PASSES), cases, watched) == (1,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("command", "is_known"),
    [
        ("python3 -m pytest -q", True), ("make test", True), ("npm run test", True),
        ("cd a && ./check.sh", True), ("go test ./...", False), ("cat test_all.py", False),
    ],
)  # fmt: skip
def test_runner_is_known_by_the_command_or_by_the_files(command: str, is_known: bool) -> None:
    made = make_mixes([command], ["test_all.py", "x"], lambda _: UNITTEST, Random(1))
    assert (made is not None) == is_known


def test_files_that_a_check_names_come_first() -> None:
    paths = [f"tests/test_{number:03}.py" for number in range(500)]
    content = {path: f"def test_{path[-6:-3]}():\n    assert f() == 1\n".encode() for path in paths}
    made = make_mixes(["pytest tests/test_499.py"], paths, content.__getitem__, Random(1))
    assert made is not None
    assert "tests/test_499.py" in {one.path for one in made.tests}
    assert len(made.mixes[0].files) == 400


VOLUME = PRODUCT + "\n\ndef volume(side):\n    return side**3\n"
NEW = """import unittest

from calc import volume


class TestVolume(unittest.TestCase):
    def test_volume(self):
        self.assertEqual(volume(7), 343)

    def test_larger(self):
        self.assertEqual(volume(11), 1331)
"""
FAKED = """

def volume(side):
    return 0


import unittest
unittest.TestCase.assertEqual = lambda *_: None
"""


@pytest.mark.variants("unittest*")
@pytest.mark.parametrize(
    "runner", ["unittest discover -s tests -t .", "pytest -q -p no:cacheprovider tests"]
)
def test_tests_that_the_base_cannot_load_have_mutants(world: World, runner: str) -> None:
    """The task is to write a function that the tests import."""
    world.base = world.commit({"tests/test_volume.py": NEW, "tests/test_calc.py": None})
    check = f"{sys.executable} -m {runner}"
    candidates = ({"calc.py": VOLUME}, {"calc.py": PRODUCT + FAKED})
    judgement = judge(world, *candidates, checks=(), must_fix=(check,))
    assert {one.worker_id: flags(one) for one in judgement.ranking} == {1: [], 2: ["forged"]}
    assert judgement.picked == 1


def test_hidden_tests_without_mutants_prove_nothing(world: World) -> None:
    helped = b"""import unittest
from calc import area

class TestMore(unittest.TestCase):
    def check(self, one):
        self.assertEqual(area(one, 3), one * 3)
    def test_more(self):
        self.check(7)
"""
    judgement = judge(world, {"calc.py": RIGHT}, hidden={"tests/test_more.py": helped})
    assert flags(judgement.ranking[0], out=False) == ["unproved"]
    values = helped.replace(b"one * 3", b"21")
    direct = values.replace(b"self.check(7)", b"self.assertEqual(area(7, 3), 21)")
    assert judge(world, {"calc.py": RIGHT}, hidden={"tests/test_more.py": direct}).picked == 1
