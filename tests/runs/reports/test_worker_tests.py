"""Tests of JUnit files that workers left: hostile files are bounded, and never hide a failure."""

import os
from pathlib import Path

import pytest

from orchestrator.runs.reports.junit import WorkerTest, read_tests

GOOD = """<?xml version="1.0"?>
<testsuites><testsuite name="s">
<testcase classname="a.B" name="one" time="0.25"/>
<testcase classname="a.B" name="two"><failure message="m" type="t">long text</failure></testcase>
<testcase name="three"><skipped message="later"/></testcase>
<testcase name="four"><skipped/><error message="broke"/><failure message="not this"/></testcase>
</testsuite></testsuites>
"""
BOMB = '<!DOCTYPE x [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><testsuite>&b;</testsuite>'


def left(root: Path, name: str, content: str | bytes) -> Path:
    path = root / "artifacts" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_tests_of_matching_files_are_read(tmp_path: Path) -> None:
    left(tmp_path, "deep/er/junit.xml", GOOD)
    left(tmp_path, "other.xml", "not read")
    (found,) = read_tests(tmp_path, ["*junit.xml"])
    assert found == [
        WorkerTest(suite="a.B", name="one", seconds=0.25),
        WorkerTest(suite="a.B", name="two", seconds=0, outcome="failed", message="m",
                   text="long text"),
        WorkerTest(suite="", name="three", seconds=0, outcome="skipped", message="later"),
        WorkerTest(suite="", name="four", seconds=0, outcome="failed", message="broke"),
    ]  # fmt: skip
    assert [*read_tests(tmp_path, ["no*"])] == []
    assert [*read_tests(tmp_path / "none", ["*"])] == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (BOMB, "document type"),
        ("<testsuite>", "not XML"),
        ("", "not XML"),
        ("<html/>", "not a JUnit file"),
        (b"<testsuite>" + b" " * (8 * 1024**2) + b"</testsuite>", "larger than 8 MiB"),
        ("<testsuite>" + "<testcase name='a'/>" * 20_001 + "</testsuite>", "more tests than"),
        ("<testsuite>" * 60 + "</testsuite>" * 60, "nested too deeply"),
        (b'<?xml version="1.0" encoding="evil"?><testsuite/>', "not XML"),
        (b'<?xml version="1.0" encoding="shift_jis"?><testsuite/>', "not XML"),
        (b'<?xml version="1.0" encoding="undefined"?><testsuite/>', "not XML"),
    ],
)
def test_unusable_files_are_named(tmp_path: Path, content: str | bytes, problem: str) -> None:
    left(tmp_path, "j.xml", content)
    (found,) = read_tests(tmp_path, ["*"])
    assert isinstance(found, str)
    assert found.startswith("j.xml: ")
    assert problem in found


@pytest.mark.parametrize("time", ["nan", "inf", "-1", "1e400", "soon", ""])
def test_odd_durations_count_as_none(tmp_path: Path, time: str) -> None:
    left(tmp_path, "j.xml", f'<testsuite><testcase name="a" time="{time}"/></testsuite>')
    assert [*read_tests(tmp_path, ["*"])] == [[WorkerTest(suite="", name="a", seconds=0)]]


def test_links_and_special_files_are_not_read(tmp_path: Path) -> None:
    secret = left(tmp_path / "elsewhere", "j.xml", GOOD)
    place = left(tmp_path, "real.txt", "").parent
    (place / "j.xml").symlink_to(secret)
    (place / "folder").symlink_to(secret.parent)
    os.mkfifo(place / "fifo.xml")
    assert [*read_tests(tmp_path, ["*.xml"])] == []


def test_many_files_are_bounded(tmp_path: Path) -> None:
    for number in range(120):
        left(tmp_path, f"{number}.xml", "<testsuite/>")
    found = [*read_tests(tmp_path, ["*"])]
    assert len(found) == 101
    assert sum(isinstance(one, str) for one in found) == 1


def test_texts_are_bounded(tmp_path: Path) -> None:
    long = "x" * 100_000
    left(tmp_path, "j.xml", f'<testsuite><testcase name="{long}" classname="{long}">'
         f'<failure message="{long}">{long}</failure></testcase></testsuite>')  # fmt: skip
    ((case,),) = read_tests(tmp_path, ["*"])
    assert max(map(len, (case.name, case.suite, case.message, case.text))) <= 4000  # type: ignore[union-attr]


def test_tests_of_many_workers_share_the_room(tmp_path: Path) -> None:
    case = '<testcase name="a"><failure message="{0}">{0}</failure></testcase>'.format("x" * 4000)
    left(tmp_path, "j.xml", f"<testsuite>{case * 100}</testsuite>")
    ((*found,),) = read_tests(tmp_path, ["*"], workers=1000)
    assert sum(len(test.message) + len(test.text) for test in found) == 20_000
    assert [test.outcome for test in found] == ["failed"] * 100
    left(tmp_path, "j.xml", f"<testsuite>{'<testcase/>' * 201}</testsuite>")
    assert [type(one) for one in read_tests(tmp_path, ["*"], workers=1000)] == [str]


def test_size_of_all_files_is_bounded(tmp_path: Path) -> None:
    for number in range(6):
        left(tmp_path, f"{number}.xml", b"<testsuite>" + b" " * 8_000_000 + b"</testsuite>")
    found = [*read_tests(tmp_path, ["*"])]
    assert found[:-1] == [[]] * 4
    assert "32 MiB" in found[-1]
