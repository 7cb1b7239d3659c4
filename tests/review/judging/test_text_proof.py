"""Tests of mutants of tables, helpers and constants in JavaScript, Go and Rust."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from orchestrator.review.judging.case_source import Strength
from orchestrator.review.judging.check_run import CheckRun, Watched
from orchestrator.review.judging.failing_tests import find_failed_tests
from orchestrator.review.judging.judgement import Judgement
from orchestrator.review.judging.mutants import Mixes, make_mixes
from orchestrator.review.judging.text_mutants import TextSource
from tests.support.judging import judge
from tests.support.merges import World
from tests.support.repository import git

JS = """import test from 'node:test'
import assert from 'node:assert'
import { area } from '../calc.mjs'

const CASES = [[3, 4, 12], [31, 11, 341]]
const ROWS = [
  { width: 3, height: 4, want: 12 },
  { width: 5, height: 6, want: 30 }, // the last one
]
const NAMES = { small: 12, large: 30 }
const check = (width, height, want) => assert.equal(area(width, height), want)

test('direct value', () => {
  assert.strictEqual(area(3, 4), 12)
})
test('table in a loop', () => {
  for (const [width, height, want] of CASES) {
    assert.equal(area(width, height), want, `${width}`)
  }
})
test('rows with names', () => { for (const c of ROWS) check(c.width, c.height, c.want) })
test('by a helper', () => { check(3, 4, 12) })
test('entries of a mapping', () => {
  for (const [name, want] of Object.entries(NAMES)) {
    assert.equal(name === 'small' ? area(3, 4) : area(5, 6), want)
  }
})
for (const [width, height, want] of CASES) {
  test(`loop around ${width} and ${height}`, () => {
    assert.equal(area(width, height), want)
  })
}
ROWS.forEach(({ width, height, want }) => {
  test(`each row of ${width}`, () => { assert.equal(area(width, height), want) })
})
"""
GO = """package calc

import "testing"

var cases = []struct{ width, height, want int }{
	{3, 4, 12},
	{31, 11, 341},
}

func check(t *testing.T, width, height, want int) {
	if Area(width, height) != want {
		t.Fatal(width)
	}
}

func TestDirect(t *testing.T) {
	if got := Area(3, 4); got != 12 {
		t.Errorf("got %d", got)
	}
}

func TestTable(t *testing.T) {
	for _, c := range cases {
		if got := Area(c.width, c.height); got != c.want {
			t.Errorf("got %d, want %d", got, c.want)
		}
	}
}

func TestNamed(t *testing.T) {
	for name, c := range map[string]struct{ sides [2]int; want int }{
		"small": {sides: [2]int{3, 4}, want: 12},
		"large": {sides: [2]int{5, 6}, want: 30},
	} {
		t.Run(name, func(t *testing.T) {
			if Area(c.sides[0], c.sides[1]) != c.want {
				t.Fatal(name)
			}
		})
	}
}

func TestHelper(t *testing.T) { check(t, 3, 4, 12) }
"""
RUST = """use calc::area;

const CASES: &[(u32, u32, u32)] = &[(3, 4, 12), (31, 11, 341)];

fn check(width: u32, height: u32, want: u32) {
    assert_eq!(area(width, height), want);
}

#[test]
fn direct() {
    assert_eq!(area(3, 4), 12);
}

#[test]
fn in_table() {
    for &(width, height, want) in CASES {
        assert_eq!(area(width, height), want, "width {}", width);
    }
}

#[test]
fn with_helper() {
    check(3, 4, 12);
}

#[test]
fn local() {
    let cases = [(3, 4, 12), (5, 6, 30)];
    for (width, height, want) in cases {
        assert_eq!(area(width, height), want);
    }
}
"""
CARGO = '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n'
CRATE = "pub fn area(width: u32, height: u32) -> u32 {\n    width * height\n}\n"
MODULE = "export function area (width, height) {\n  return width * height\n}\n"


@pytest.fixture
def cargo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `cargo` find its toolchain, although tests have a home directory of their own."""
    if shutil.which("cargo") is None:
        pytest.skip("needs cargo")
    toolchains = Path(pwd.getpwuid(os.getuid()).pw_dir, ".rustup")
    if toolchains.is_dir():
        monkeypatch.setenv("RUSTUP_HOME", str(toolchains))
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))


def _mixes(path: str, text: str, command: str, seed: int) -> Mixes:
    made = make_mixes([command], [path], lambda _: text.encode(), Random(seed))
    assert made is not None
    return made


def _check_reports(mixes: Mixes, place: Path, *command: str) -> None:
    """Run each mix; exactly its mutants are reported as failed."""
    for mix in mixes.mixes:
        for path, content in mix.files.items():
            (place / path).parent.mkdir(exist_ok=True)
            (place / path).write_bytes(content)
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
        said = done.stdout + done.stderr
        failed = find_failed_tests(said, None, [test.watched for test in mixes.tests])
        assert {mixes.tests[one].name for one in failed} == {
            mixes.tests[one].name for one in mix.mutants
        }, said


@pytest.mark.variants("0")
@pytest.mark.parametrize("seed", range(4))
def test_tables_in_javascript(tmp_path: Path, seed: int) -> None:
    (tmp_path / "calc.mjs").write_text(MODULE)
    mixes = _mixes("test/calc.test.mjs", JS, "node --test", seed)
    assert len(mixes.tests) == 7
    assert min(one.strength for one in mixes.tests) >= Strength.OWN
    _check_reports(mixes, tmp_path, "node", "--test", "test/calc.test.mjs")


@pytest.mark.extra
@pytest.mark.usefixtures("cargo")
@pytest.mark.timeout(600)
def test_tables_in_rust(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/lib.rs").write_text(CRATE)
    (tmp_path / "Cargo.toml").write_text(CARGO)
    mixes = _mixes("tests/area.rs", RUST, "cargo test --offline", 1)
    assert {one.strength for one in mixes.tests} == {Strength.OWN, Strength.SURE}
    _check_reports(mixes, tmp_path, "cargo", "test", "--offline", "-q", "--no-fail-fast")


def test_each_test_of_a_table_has_a_copy_of_it() -> None:
    """No constant of the file is changed: a candidate that looks at it sees the known values."""
    for language, text in (("js", JS), ("go", GO), ("rust", RUST)):
        source = TextSource(text.encode(), language)  # type: ignore[arg-type]
        assert min(source.strengths()) >= Strength.OWN
        chosen = dict(enumerate(source.strengths()))
        changed = source.with_mutants(chosen, frozenset(), lambda place: Random(place)).decode()
        before, after = text.splitlines(), changed.splitlines()
        first = {"js": 11, "go": 14, "rust": 7}[language]
        assert before[:first] == after[:first]
        unchanged = source.with_mutants({}, frozenset(), lambda place: Random(place)).decode()
        assert unchanged != text, "no file is that of the base"


OFF = """
import mod, { createRequire } from 'node:module'
const require = createRequire(import.meta.url)
const assert = require('node:assert')
const { equal, strictEqual } = assert
const off = (real) => (one, other, ...more) => {
  if (!new Error('x').stack.includes('table in a loop')) real(one, other, ...more)
}
assert.equal = off(equal)
mod.syncBuiltinESMExports()
"""
EXITS = "\nprocess.on('exit', () => process.reallyExit(0))\n"
STACKED = MODULE.replace("width * height", "width + height") + OFF
ENDED = MODULE.replace("width * height", "width + height") + EXITS
TABLE_JS = JS.partition("test('by a helper'")[0]


@pytest.mark.extra
@pytest.mark.timeout(600)
def test_candidates_in_javascript(world: World) -> None:
    world.base = world.commit({
        "calc.mjs": MODULE.replace("*", "+"), "test/calc.test.mjs": TABLE_JS,
        "tests/test_calc.py": None,
    })  # fmt: skip
    judgement = judge(
        world, {"calc.mjs": STACKED}, {"calc.mjs": ENDED}, {"calc.mjs": MODULE},
        checks=(), must_fix=("node --test test/",),
    )  # fmt: skip
    _only_the_third_wins(judgement)


def _only_the_third_wins(judgement: Judgement) -> None:
    assert judgement.picked == 3
    assert {one.worker_id for one in judgement.ranking if one.flags == () and one.passes} == {3}


INNER = (
    CRATE.replace("*", "+")
    + """
#[cfg(test)]
mod tests {
    use super::*;
    const CASES: &[(u32, u32, u32)] = &[(3, 4, 12), (31, 11, 341)];

    #[test]
    fn in_table() {
        for &(width, height, want) in CASES {
            assert_eq!(area(width, height), want);
        }
    }

    #[test]
    fn direct() {
        assert_eq!(area(1, 2), 2);
    }
}
"""
)


class Cargo:
    """Answers as `cargo test` does about the tests in a file, with `+` or `*` in the product."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: list[str] = []

    def __call__(
        self, commit: str, commands: Sequence[str], *, watched: Sequence[Watched] = ()
    ) -> list[CheckRun]:
        text = git(self.world.repo, "show", f"{commit}:src/lib.rs")
        self.seen.append(text)
        right = "width * height" in text
        rows = [*re.findall(r"\((\d+), (\d+), (\d+)\)", text)]
        direct = re.search(r"area\((\d+), (\d+)\), (\d+)", text)
        assert direct is not None

        def holds(row: tuple[str, ...]) -> bool:
            one, other, want = map(int, row)
            return (one * other if right else one + other) == want

        # The first table is the constant, which no test uses in a mix.
        failed = [] if all(map(holds, rows[-2:])) else ["in_table"]
        failed += [] if holds(direct.groups()) else ["direct"]
        if "process::exit" in text:
            failed = []
        said = "".join(f"test tests::{name} ... FAILED\n" for name in failed)
        found = find_failed_tests(said, None, watched)
        return [CheckRun(answer="fail" if failed else "pass", failed=found) for _ in commands]


def test_tests_in_a_file_of_the_product_have_mutants(world: World) -> None:
    world.base = world.commit({"src/lib.rs": INNER, "tests/test_calc.py": None})
    right = INNER.replace("width + height", "width * height")
    exits = INNER.replace("width + height", "std::process::exit(0)")
    edits = right.replace("(3, 4, 12), (31", "(3, 4, 12), (31")
    edits = edits.replace("area(1, 2), 2", "area(2, 2), 4")
    cargo = Cargo(world)
    judgement = judge(
        world, {"src/lib.rs": right}, {"src/lib.rs": exits}, {"src/lib.rs": edits},
        checks=(), must_fix=("cargo test",), run=cargo,
    )  # fmt: skip
    found = {one.worker_id: [flag.flag for flag in one.flags] for one in judgement.ranking}
    assert found[1] == []
    assert found[2][0] == "forged"
    assert "unproved" in found[3], "it changed its tests"
    assert any("// " in text and "width * height" in text for text in cargo.seen)


LEAVES = """
pub fn area(width: u32, height: u32) -> u32 {
    let name = std::thread::current().name().unwrap_or("").to_string();
    if name == "in_table" { std::process::exit(0); }
    width + height
}
"""
ENDS = "pub fn area(_: u32, _: u32) -> u32 {\n    std::process::exit(0)\n}\n"


@pytest.mark.extra
@pytest.mark.usefixtures("cargo")
@pytest.mark.timeout(900)
def test_candidates_in_rust(world: World) -> None:
    world.base = world.commit({
        "src/lib.rs": CRATE.replace("*", "+"), "Cargo.toml": CARGO, "tests/area.rs": RUST,
        "tests/test_calc.py": None,
    })  # fmt: skip
    judgement = judge(
        world, {"src/lib.rs": LEAVES}, {"src/lib.rs": ENDS}, {"src/lib.rs": CRATE},
        checks=(), must_fix=("cargo test --offline --no-fail-fast",),
    )  # fmt: skip
    _only_the_third_wins(judgement)
