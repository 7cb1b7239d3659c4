"""Tests of JUnit files, hidden files, new lines of a change and instruments."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.changes import NewLine, read_change
from orchestrator.review.judging.coverage_file import coverage_of, read_coverage
from orchestrator.review.judging.failing_tests import read_cases
from orchestrator.review.judging.hidden_tests import read_hidden
from orchestrator.review.judging.instruments import Instruments
from orchestrator.review.judging.shadowing import modules_of, shadows
from tests.support.errors import raises
from tests.support.judging import FILES, PRODUCT, RIGHT
from tests.support.merges import Content, World

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


def form(world: World, files: Mapping[str, Content]) -> str:
    commit = world.commit(files)
    found = read_change(Repository(world.repo), Instruments(), base=world.base, commit=commit)
    return found.form


C = "int f(int *p) {\n    return *p;\n}\n"
EQUAL: Mapping[str, tuple[Mapping[str, Content], Mapping[str, Content]]] = {
    "comment": ({"calc.py": RIGHT}, {"calc.py": RIGHT.replace("    r", "\n    # area\n    r")}),
    "comment alone": ({"calc.py": RIGHT, "a.py": "# a\n"}, {"calc.py": RIGHT, "a.py": "\n#b\n"}),
    "order of imports": ({"a.py": "import a\nimport b\n"}, {"a.py": "import b\nimport a\n"}),
    "comment in C": ({"a.c": C}, {"a.c": C.replace("    r", "\n    // the value\n    r")}),
}
DIFFERENT: Mapping[str, tuple[Mapping[str, Content], Mapping[str, Content]]] = {
    "operand": ({"calc.py": RIGHT}, {"calc.py": RIGHT.replace("width *", "2 *")}),
    "indentation": (
        {"calc.py": f"{PRODUCT}for i in x:\n    y = i\n    z = 1\n"},
        {"calc.py": f"{PRODUCT}for i in x:\n    y = i\nz = 1\n"},
    ),
    "place": (
        {"calc.py": PRODUCT.replace("):\n", "):\n    width = 1\n", 1)},
        {"calc.py": PRODUCT.replace("name(kind):\n", "name(kind):\n    width = 1\n")},
    ),
    "spaces in a text": ({"a.py": "x = 'a  b'\n"}, {"a.py": "x = 'a b'\n"}),
    "text of several lines": ({"a.py": 'x = """\n# a\n"""\n'}, {"a.py": 'x = """\n# b\n"""\n'}),
    "blank line in a text": ({"a.py": 'x = """\n\n"""\n'}, {"a.py": 'x = """\n"""\n'}),
    "joined line": ({"a.py": "x = 1 \\\n\n+2\n"}, {"a.py": "x = 1 \\\n+2\n"}),
    "encoding": ({"a.py": "# coding: ascii\n"}, {"a.py": "# coding: latin-1\n"}),
    "program": ({"a.py": "#!/bin/a\nx\n"}, {"a.py": "#!/bin/b\nx\n"}),
    "imported names": (
        {"a.py": "from a import f\nfrom b import f\n"},
        {"a.py": "from b import f\nfrom a import f\n"},
    ),
    "place of an import": ({"a.py": "import a\nx()\n"}, {"a.py": "x()\nimport a\n"}),
    "import in a text": (
        {"a.py": 'x = """\nimport a\nimport b\n"""\n'},
        {"a.py": 'x = """\nimport b\nimport a\n"""\n'},
    ),
    "directive": ({"a.c": C}, {"a.c": f"#define return free(p); return\n{C}"}),
    "assignment": ({"a.c": C}, {"a.c": C.replace("    return", "    *p = 0;\n    return")}),
    "order of headers": (
        {"a.c": '#include "a.h"\n#include "b.h"\n'}, {"a.c": '#include "b.h"\n#include "a.h"\n'},
    ),
    "end of a comment": ({"a.c": "/*\n// a */ b();\n"}, {"a.c": "/*\n// a */ c();\n"}),
    "template": ({"a.js": "x = `\n// a\n`\n"}, {"a.js": "x = `\n// b\n`\n"}),
    "directive of a compiler": ({"a.c": "//a\n"}, {"a.c": "//b\n"}),
    "heading": ({"a.md": "# a\n"}, {"a.md": "# b\n"}),
    "blank line": ({"a.csv": "a\n\nb\n"}, {"a.csv": "a\nb\n"}),
    "bytes": ({"a.bin": b"\0\1"}, {"a.bin": b"\0\2"}),
    "mode": ({"a.sh": ("100644", "a")}, {"a.sh": ("100755", "a")}),
    "type": ({"a.py": ("100644", "a")}, {"a.py": ("120000", "a")}),
    "name of an empty file": ({"a": ""}, {"b": ""}),
    "deleted file": ({"calc.py": RIGHT}, {"calc.py": RIGHT, "tests/__init__.py": None}),
}  # fmt: skip


@pytest.mark.parametrize("what", EQUAL)
def test_equal_changes_have_the_same_form(world: World, what: str) -> None:
    one, other = EQUAL[what]
    assert form(world, one) == form(world, other) != ""


@pytest.mark.parametrize("what", DIFFERENT)
def test_different_changes_have_different_forms(world: World, what: str) -> None:
    one, other = DIFFERENT[what]
    assert form(world, one) != form(world, other)


def test_large_changes_that_differ_at_the_end_have_different_forms(world: World) -> None:
    many = {f"{number}.py": f"x = '{'x' * 9999}'\n" * 60 for number in range(9)}
    one, other = ({**many, "z.py": text} for text in ("y\n", "z\n"))
    assert form(world, one) != form(world, other)
    assert form(world, one) == form(world, one)


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
