"""Tests of JUnit files, hidden files, new lines of a change and instruments."""

import os
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.git.repository import Repository
from orchestrator.judging.changes import NewLine, read_change
from orchestrator.judging.coverage_file import coverage_of, read_coverage
from orchestrator.judging.failing_tests import read_cases
from orchestrator.judging.hidden_tests import read_hidden
from orchestrator.judging.instruments import Instruments
from orchestrator.judging.shadowing import modules_of, shadows
from tests.support.errors import raises
from tests.support.judging import FILES, PRODUCT, RIGHT
from tests.support.merges import World

JUNIT = b"""<testsuites><testsuite name="pytest" tests="3">
<testcase classname="t" name="a"/>
<testcase classname="t" name="b"><failure message="x">text</failure></testcase>
<testcase classname="t" name="c"><skipped/></testcase>
<testcase classname="t" name="a"><error/></testcase>
</testsuite></testsuites>"""


def test_junit_cases_are_read_and_the_worst_result_counts() -> None:
    assert read_cases(JUNIT) == {"t::a": "failed", "t::b": "failed", "t::c": "skipped"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<testsuite><testcase name='a'>",
        b"<!DOCTYPE x [<!ENTITY a 'aaaa'>]><testsuite><testcase name='&a;'/></testsuite>",
        b"<!DOCTYPE x SYSTEM 'file:///etc/passwd'><testsuite/>",
        b"<a>" * 1000,
        b"\xff\xfe\x00",
        b"<t>" + b"".join(b"<testcase name='%d'/>" % one for one in range(10_001)) + b"</t>",
    ],
)
def test_unusable_junit_files_are_refused(data: bytes) -> None:
    assert read_cases(data) is None


def test_names_of_tests_are_safe_to_print() -> None:
    assert read_cases(b"<t><testcase name='a&#x202e;b'/></t>") == {"a\ufffdb": "passed"}


COBERTURA = b"""<?xml version="1.0" ?>
<!DOCTYPE coverage SYSTEM "http://localhost:1/coverage-04.dtd">
<coverage><sources><source>/w/src</source></sources><packages><package><classes>
<class filename="pkg/a.py"><lines>
<line number="2" hits="1"/><line number="3" hits="0"/></lines></class>
</classes></package></packages></coverage>"""
LCOV = b"TN:\nSF:/w/src/pkg/a.py\nDA:2,1\nDA:3,0,checksum\nDA:x,1\nend_of_record\n"


@pytest.mark.parametrize("data", [COBERTURA, LCOV])
def test_coverage_of_new_lines(data: bytes) -> None:
    coverage = read_coverage(data)
    assert coverage is not None
    assert [*coverage.values()] == [{2: True, 3: False}]
    new = [NewLine("src/pkg/a.py", number, "x") for number in (1, 2, 3)]
    assert coverage_of(coverage, new) == 0.5
    assert coverage_of(coverage, new[:1]) is None, "the line has no code"
    unseen = NewLine("src/pkg/b.py", 1, "y = 1")
    assert coverage_of(coverage, [*new, unseen, NewLine("a.md", 1, "text")]) == 1 / 3
    assert coverage_of(None, new) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"DA:1,1\n",
        b"<coverage><class filename='a'>",
        b"<!DOCTYPE x [<!ENTITY a 'aaaa'>]><coverage><class filename='&a;'/></coverage>",
        b"<a>" * 1000,
        b"SF:a\n" + b"".join(b"DA:%d,1\n" % one for one in range(200_001)),
    ],
)
def test_unusable_coverage_files_are_refused(data: bytes) -> None:
    assert read_coverage(data) is None


def test_hidden_files_are_outside_the_repository(tmp_path: Path) -> None:
    top, hidden = tmp_path / "repo", tmp_path / "hidden"
    (top / "hidden").mkdir(parents=True)
    (hidden / "tests").mkdir(parents=True)
    with raises("hidden-tests.empty"):
        read_hidden(hidden, top=top)
    (hidden / "tests" / "test_a.py").write_text("a")
    assert read_hidden(hidden, top=top) == {"tests/test_a.py": b"a"}
    with raises("hidden-tests.in-repository"):
        read_hidden(top / "hidden", top=top)
    with raises("hidden-tests.no-directory"):
        read_hidden(tmp_path / "nothing", top=top)
    (hidden / "link").symlink_to("/etc/hostname")
    with raises("hidden-tests.unreadable", "`link`"):
        read_hidden(hidden, top=top)
    (hidden / "link").unlink()
    for name, said in (
        (".git/x", "this path is inside `.git`: .git/x"),
        (os.fsdecode(b"\xff"), "the name of this path is not valid UTF-8: "),
    ):
        (hidden / name).parent.mkdir(exist_ok=True)
        (hidden / name).touch()
        with pytest.raises(ConfigError, match=f"`--hidden`: {said}"):
            read_hidden(hidden, top=top)
        (hidden / name).unlink()


def test_change_counts_the_product_and_has_its_new_lines(world: World) -> None:
    commit = world.commit(
        {"calc.py": RIGHT, "tests/test_more.py": "x\n" * 9, "package-lock.json": "{}\n"}
    )
    change = read_change(Repository(world.repo), Instruments(), base=world.base, commit=commit)
    assert (change.lines, change.files) == (2, 3)
    assert [(one.path, one.number, one.text) for one in change.added] == [
        ("calc.py", 2, "    return width * height")
    ]


def test_equal_changes_have_the_same_form(world: World) -> None:
    def form(text: str) -> str:
        commit = world.commit({"calc.py": text})
        found = read_change(Repository(world.repo), Instruments(), base=world.base, commit=commit)
        return found.form

    commented = RIGHT.replace("    return width", "\n    # the area\n    return  width")
    assert form(RIGHT) == form(commented)
    assert form(RIGHT) != form(RIGHT.replace("width *", "2 *"))
    one, other = ("import a\nimport b\n" + PRODUCT, "import b\nimport a\n" + PRODUCT)
    assert form(one) == form(other)


def test_instruments() -> None:
    rules = Instruments(("ci/*.sh",))
    kinds = {
        "tests/conftest.py": "control", "a/test_b.py": "test", "tests/data/a.json": "test",
        "ui/a.spec.ts": "test", "pkg/a_test.go": "test", "pyproject.toml": "mixed",
        "src/contest.py": None, "src/latest.py": None, "ci/run.sh": "control",
        "pytest.ini": "control", ".gitattributes": "control", "a/__pycache__/b.pyc": "control",
        "unittest.py": "control", "src/unittest.py": "mixed", "src/pytest/a.py": None,
        "GNUmakefile": "mixed", ".npmrc": "mixed", "node_modules/.bin/jest": "mixed",
        "ci/run": "mixed", "src/target.py": None, "sub/target/x": "mixed", "target": None,
        "x-1.dist-info/entry_points.txt": "control", "x.egg-info/PKG-INFO": "control",
        ".envrc": "mixed", "a.test.mts": "test",
        "a-1.DIST-INFO/entry_points.txt": "control", "src/a-1.Dist-Info": "control",
        "a.EGG-INFO/x": "control", "a.egg-link": "control", "a.egg/EGG-INFO/x": "control",
        "tests/__init__.py": "control", "pkg/__init__.py": None, "pkg/main_test.go": "control",
        "test_a/__init__.py": "control", "__pycache__": "control", "unittest": "control",
        "setupTests.ts": "control", "sitecustomize.so": "control", "ruff.toml": "mixed",
        "sub/.eslintrc.json": "mixed", "build.rs": "mixed", "test_a.so": "control",
        "a.spec.cjs": "test", "a_test.ts": "test", "latest.ts": None,
    }  # fmt: skip
    assert {path: rules.kind(path) for path in kinds} == kinds


def test_new_modules_of_test_runners() -> None:
    known = modules_of(["queue.py", "src/shop/__init__.py", "json/notes.md", "README.md"])
    assert known == {"queue", "shop"}
    loaded = {
        "difflib.py", "src/difflib.py", "lib/pluggy/__init__.py", "iniconfig.cpython-311-x.so",
        "json/__init__.py", "pytest_mine.py", "org/python/core.py", "_pytest_x/__init__.py",
    }  # fmt: skip
    others = {
        "queue.py", "shop/difflib.py", "json/notes.md", "platform/server.py", "cmd/main.go",
        "src/shop/types.py", "helpers.py", "html/index.html",
    }  # fmt: skip
    assert {path for path in loaded | others if shadows(path, known)} == loaded
    rules = Instruments(modules=known)
    assert (rules.kind("difflib.py"), rules.kind("queue.py")) == ("mixed", None)
    assert Instruments(drops_shadows=True).kind("difflib.py") == "control"
    assert [path for path in FILES if rules.is_protected(path)] == [
        "tests/__init__.py", "tests/test_calc.py",
    ]  # fmt: skip
