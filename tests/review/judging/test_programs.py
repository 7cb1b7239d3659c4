"""Tests of files that a check executes: a candidate must not win by changing them."""

import py_compile
import sys
from pathlib import Path

import pytest

from orchestrator.review.judging.programs import programs_of
from tests.support.judging import FAST, RIGHT, TESTS, flags, judge
from tests.support.merges import World


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("sh check.sh", ["check.sh"]),
        ("./check.sh --fast; echo $?", ["check.sh"]),
        ("bash -ec './a.sh && python3 b.py'", ["a.sh", "b.py"]),
        ("bash -eo pipefail ci/all.sh", ["ci/all.sh"]),
        ("sh -c \"sh -c 'sh c.sh'\"", ["c.sh"]),
        ("cd sub && ./run.sh", ["run.sh"]),
        ("FOO=1 timeout 5 python3 -W error run.py", ["run.py"]),
        ("/usr/bin/env node -r ./a.js b.js", ["a.js", "b.js"]),
        ("if ! ./x; then . lib/y.sh\n(../z) fi", ["x", "lib/y.sh", "z"]),
        ("sh < check.sh", ["check.sh"]),
        ("python3 -m tools.check", ["tools/check.py", "tools/check/__main__.py"]),
        ("python3 'a [b].py'", [r"a \[b\].py"]),
        ("grep -q x README.md", []),
        ("python3 -c 'import a'", []),
        ("pytest a.py", []),
        ("sh '", []),
        (" ", []),
    ],
)
def test_executed_files(command: str, programs: list[str]) -> None:
    assert programs_of([command, command]) == tuple(f"**/{path}" for path in programs)


PROJECT = {
    "Makefile": """PYTHON ?= python3
RUN := $(PYTHON) tools/run.py

test: lint prepare
\t@sh tools/check.sh --fast
\t$(RUN)

lint:
\t-./tools/lint
prepare: ; sh tools/prepare.sh
clean:
\tsh tools/clean.sh
""",
    "sub/Makefile": "all:\n\tsh tools/all.sh\n",
    "tools/check.sh": "#!/bin/sh\n# sh tools/comment.sh\n. tools/lib.sh\nmake lint\n",
    "tools/lib.sh": "bash tools/deep.sh\n",
    "tools/deep.sh": "sh tools/check.sh\n",
    "tools/lint": "#!/usr/bin/env python3\nsh tools/never.sh\n",
    "package.json": '{"scripts": {"pretest": "sh tools/pre.sh", "test": "npm run unit; make lint",'
                    ' "unit": "node tools/unit.js", "other": "sh tools/other.sh"}}',
    "justfile": "check:\n    sh tools/just.sh\n",
    "tox.ini": "[testenv]\ndeps = x\ncommands =\n    sh tools/tox.sh\nskip = sh tools/no.sh\n",
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("make test", "check.sh run.py lint prepare.sh lib.sh deep.sh"),
        ("make -s -j4 lint", "lint"),
        ("cd . && make", "check.sh run.py lint prepare.sh lib.sh deep.sh"),
        ("make -C sub", "all.sh"),
        ("sh -c 'make lint'", "lint"),
        ("npm test", "pre.sh unit.js lint"),
        ("yarn run unit", "unit.js"),
        ("just check", "just.sh"),
        ("tox -e py", "tox.sh"),
        ("make nothing; npm run nothing", ""),
    ],
)
def test_files_that_build_files_and_scripts_execute(command: str, programs: str) -> None:
    found = {path.rpartition("/")[2] for path in programs_of([command], PROJECT.get)}
    assert found == {*programs.split()}


@pytest.mark.parametrize("text", ["{", '{"scripts": []}', "[" * 9999, '{"scripts": {"test": 1}}'])
def test_unusable_build_files_start_nothing(text: str) -> None:
    assert programs_of(["npm test"], {"package.json": text}.get) == ()


def test_script_that_a_makefile_starts_is_compared_with_the_base(world: World) -> None:
    world.base = world.commit(
        {"tools/check.sh": f"{FAST}\n", "Makefile": "test:\n\tsh tools/check.sh\n"}
    )
    cheat = {"tools/check.sh": "exit 0\n"}
    judgement = judge(world, cheat, checks=(), must_fix=("make -s test",))
    assert (judgement.decision, judgement.picked) == ("undecided", None)
    assert "needs_own_configuration" in flags(judgement.ranking[0], out=False)


def test_candidate_that_changes_what_a_check_executes_has_to_be_reviewed(world: World) -> None:
    world.base = world.commit({"check.sh": f"{FAST}\n", "Makefile": f"check:\n\t{FAST}\n"})
    script, makefile = {"check.sh": "exit 0\n"}, {"GNUmakefile": "check:\n\ttrue\n"}
    for cheat, check in ((script, "sh check.sh"), (makefile, "make -s check")):
        judgement = judge(world, cheat, {"calc.py": RIGHT}, checks=(check,))
        best, other = judgement.ranking
        assert (judgement.picked, best.worker_id, best.decided_by) == (None, 2, "review")
        assert "needs_own_configuration" in flags(other, out=False)
        alone = judge(world, cheat, checks=(check,))
        assert (alone.decision, alone.picked) == ("undecided", None)


def test_compiled_tests_do_not_count(world: World, tmp_path: Path) -> None:
    """Python loads a compiled module without a look at its source, if the module says so."""
    source, compiled = tmp_path / "test_calc.py", tmp_path / "compiled"
    source.write_text("import unittest\n\nclass T(unittest.TestCase):\n    def test_a(self): ...\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), cfile=str(compiled), invalidation_mode=mode)
    name = f"__pycache__/test_calc.{sys.implementation.cache_tag}.pyc"
    world.base = world.commit({"test_calc.py": TESTS, "tests/test_calc.py": None})
    check = f"{sys.executable} -m unittest test_calc"
    (cheat,) = judge(world, {name: compiled.read_bytes()}, checks=(check,)).ranking
    assert (flags(cheat), cheat.flags[0].file) == (["tests_weakened"], name)
