"""Tests of JUnit files as programs of every kind write them; the files are untrusted."""

from collections.abc import Mapping

import pytest

from orchestrator.review.judging.failing_tests import read_cases
from orchestrator.review.judging.junit_file import Room, WorkerTest, read_junit
from tests.support.judging import FAST, PRODUCT, RIGHT, flags, judge
from tests.support.merges import World

# Written by ctest 4.4.5 and GoogleTest 1.12.1.
CTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="(empty)" tests="7" failures="2" disabled="1" skipped="3" hostname="" time="1">
<testcase name="good" classname="good" time="0.0093271" status="run">
<properties/><system-out></system-out></testcase>
<testcase name="bad" classname="bad" time="0.00867665" status="fail">
<failure message="Failed"/><properties/><system-out>why
</system-out></testcase>
<testcase name="off" classname="off" time="0" status="disabled">
<properties/><system-out>Disabled</system-out></testcase>
<testcase name="skips" classname="skips" time="0.00935993" status="notrun">
<skipped message="SKIP_RETURN_CODE=77"/><properties/><system-out></system-out></testcase>
<testcase name="missing" classname="missing" time="0" status="notrun">
<skipped message="Unable to find executable"/><properties/>
<system-out>Unable to find executable: /nonexistent/prog</system-out></testcase>
</testsuite>"""
GTEST = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="5" failures="1" disabled="2" errors="0" time="0.001" name="AllTests">
<testsuite name="S" tests="4" failures="1" disabled="1" skipped="1" errors="0" time="0.001">
<testcase name="Runs" file="t.cc" line="2" status="run" result="completed" time="0" classname="S" />
<testcase name="Fails" file="t.cc" line="3" status="run" result="completed" classname="S">
<failure message="t.cc:3&#x0A;Expected" type=""><![CDATA[t.cc:3
Expected]]></failure>
<failure message="second" type=""><![CDATA[second]]></failure></testcase>
<testcase name="Skips" status="run" result="skipped" time="0" classname="S">
<skipped message="t.cc:4&#x0A;why"><![CDATA[t.cc:4
why]]></skipped></testcase>
<testcase name="DISABLED_X" status="notrun" result="suppressed" time="0" classname="S" />
</testsuite>
<testsuite name="DISABLED_T" tests="1" failures="0" disabled="1" skipped="0" errors="0" time="0">
<testcase name="Y" status="notrun" result="suppressed" time="0" classname="DISABLED_T" />
</testsuite></testsuites>"""
P, S, F = "passed", "skipped", "failed"
CASE = '<testsuite><testcase classname="c" name="t"{}</testcase></testsuite>'
FILES: dict[str, tuple[str | bytes, Mapping[str, str]]] = {
    "ctest": (CTEST, {"good::good": P, "bad::bad": F, "off::off": S, "skips::skips": S,
                      "missing::missing": F}),
    "GoogleTest": (GTEST, {"S::Runs": P, "S::Fails": F, "S::Skips": S, "S::DISABLED_X": S,
                           "DISABLED_T::Y": S}),
    "jest: a suite that cannot be loaded": (
        '<testsuites tests="0" errors="1"><testsuite name="b.test.js" tests="0" errors="1">'
        '<error message="cannot find module x">trace</error></testsuite></testsuites>',
        {"b.test.js": F}),
    "errors without an element": (
        '<testsuite name="s" tests="0" errors="1"><system-err>it broke</system-err></testsuite>',
        {"s": F}),
    "errors beside a test that passed": (
        '<testsuite name="s" errors="1" failures="0"><testcase name="t"/></testsuite>',
        {"t": P, "s": F}),
    "an error of a suite beside its tests": (
        '<testsuite name="s" errors="1"><testcase name="t"/><error/></testsuite>',
        {"t": P, "s": F}),
    "counts of nested suites are those of their tests": (
        '<testsuites failures="1"><testsuite name="a" failures="1"><testsuite name="b" '
        'failures="1"><testcase name="t"><failure/></testcase></testsuite></testsuite>'
        '<testsuite name="g" failures="0" errors=""><testcase name="u"/></testsuite></testsuites>',
        {"t": F, "u": P}),
    "only the root counts": ('<testsuites name="r" errors="2"/>', {"r": F}),
    "Surefire: rerun until it failed": (
        CASE.format('><failure message="m"/><rerunFailure message="n">x</rerunFailure>'),
        {"c::t": F}),
    "Surefire: flaky, and passed": (
        CASE.format('><flakyFailure message="m"><stackTrace>x</stackTrace></flakyFailure>'
                    "<flakyError/>"), {"c::t": P}),
    "the worst of several results": (
        CASE.format("><skipped/>").replace("</testsuite>", '<testcase classname="c" name="t"/>'
        '<testcase classname="c" name="t"><error/></testcase></testsuite>'), {"c::t": F}),
    "a namespace": (
        '<j:testsuite xmlns:j="urn:x"><j:testcase name="t"><j:failure/></j:testcase>'
        "</j:testsuite>", {"t": F}),
    "a default namespace": (
        '<testsuite xmlns="urn:x"><testcase name="t"><skipped/></testcase></testsuite>', {"t": S}),
    "a status only": (
        "<testsuite>" + "".join(f'<testcase name="{word}" status="{word}"/>' for word in
            ("Failed", "ERROR", "skipped", "disabled", "pending", "run", "passed", "ok", ""))
        + "</testsuite>",
        {"Failed": F, "ERROR": F, "skipped": S, "disabled": S, "pending": S, "run": P, "passed": P,
         "ok": P, "unnamed": P}),
    "an element for disabled": (CASE.format('><disabled message="x"/>'), {"c::t": S}),
    "a status that its element refutes": (CASE.format(' status="run"><failure/>'), {"c::t": F}),
    "a property is no result": (
        CASE.format('><properties><property name="error" value="1"/></properties>'), {"c::t": P}),
    "control characters of a terminal": (
        CASE.format("><failure>\x1b[31mred\x1b[0m\0</failure>"), {"c::t": F}),
    "a reference to no character": (CASE.format('><failure message="&#27;[0m&#0;"/>'),
                                    {"c::t": F}),
    "an ampersand": (CASE.format("><failure>a && b &nbsp; &lt;</failure>"), {"c::t": F}),
    "bytes of no encoding": (CASE.format("><failure>X</failure>").encode().replace(b"X", b"\xff"),
                             {"c::t": F}),
    "UTF-16": (CASE.format("><skipped/>").encode("utf-16"), {"c::t": S}),
    "UTF-16 without a mark": (CASE.format("><skipped/>").encode("utf-16-be"), {"c::t": S}),
    "UTF-16 that claims to be UTF-8": (
        ('<?xml version="1.0" encoding="utf-8"?>' + CASE.format("><skipped/>")).encode("utf-16"),
        {"c::t": S}),
    "UTF-8 that claims to be UTF-16": (
        '<?xml version="1.0" encoding="utf-16"?>' + CASE.format("><skipped/>"), {"c::t": S}),
    "Latin-1": (
        '<?xml version="1.0" encoding="iso-8859-1"?><testsuite><testcase name="\u00fc"/>'
        "</testsuite>", {"\u00fc": P}),
    "a byte order mark": ("\ufeff" + CASE.format("><skipped/>"), {"c::t": S}),
    "an empty line before the declaration": (
        '\r\n<?xml version="1.0"?>\r\n<testsuite><testcase name="t"/></testsuite>\r\n\0', {"t": P}),
}  # fmt: skip
"""What programs write, and the result of each test."""


@pytest.mark.parametrize(("content", "results"), FILES.values(), ids=FILES)
def test_results_are_those_that_the_program_meant(
    content: str | bytes, results: Mapping[str, str]
) -> None:
    if isinstance(content, str):
        content = content.encode("latin-1" if "8859" in content else "utf-8")
    assert read_cases(content) == results


def read(content: str) -> tuple[list[WorkerTest], str]:
    return read_junit(content.encode(), Room(cases=1000, text=100_000))


def test_reasons_are_kept_wherever_they_are_written() -> None:
    said = {test.name: f"{test.message}|{test.text}" for test in read(CTEST)[0]}
    assert (said["bad"], said["off"]) == ("Failed|why", "|")
    assert said["skips"] == "SKIP_RETURN_CODE=77|"
    assert said["missing"].startswith("Unable to find executable|Unable to find executable: /none")
    assert read(GTEST)[0][1].text == "t.cc:3\nExpectedsecond"
    for name, reason in (("jest: a suite that cannot be loaded", "cannot find module x|trace"),
                         ("errors without an element",
                          "1 failed, which the file does not name|it broke"),
                         ("Surefire: rerun until it failed", "m|")):  # fmt: skip
        (test,), problem = read(f"<testsuites>{FILES[name][0]}</testsuites>")  # type: ignore[str-bytes-safe]
        assert (f"{test.message}|{test.text}", problem) == (reason, "")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1,234.56", 1234.56), ("1,234", 1234), ("12,345,678.5", 12345678.5), ("0,5", 0.5),
     ("12,25", 12.25), ("1.234,56", 1234.56), ("0,123", 0.123), ("1 234,5", 1234.5),
     ("1\u202f234.5", 1234.5), ("1'234.5", 1234.5), (" 2.5 ", 2.5), ("1e-05", 1e-05), (".5", 0.5),
     ("", 0), ("-1", 0), ("NaN", 0), ("inf", 0), ("soon", 0), (",", 0), ("1,2,3", 0)],
)  # fmt: skip
def test_durations_with_separators(written: str, seconds: float) -> None:
    (test,), _ = read(f'<testsuite><testcase name="t" time="{written}"/></testsuite>')
    assert test.seconds == pytest.approx(seconds)


@pytest.mark.parametrize("end", ["", "<testcase name='b'>", "</testcase></testcase>", "<x y=1>",
                                 "</testsuite><testsuite/>"])  # fmt: skip
def test_tests_before_a_break_are_read_and_the_break_is_told(end: str) -> None:
    tests, problem = read(f"<testsuite><testcase name='a'><failure/></testcase>{end}")
    assert [test.name for test in tests] == ["a"]
    assert problem.startswith("the file is not XML")


DISABLED = GTEST.replace('status="run" result="completed" time="0"',
                         'status="notrun" result="suppressed" time="0"')  # fmt: skip


def test_candidate_that_disables_a_test_without_an_element_is_out(world: World) -> None:
    world.base = world.commit({"result.xml": GTEST, "calc.py": PRODUCT})
    judgement = judge(
        world, {"result.xml": DISABLED, "calc.py": RIGHT}, {"calc.py": RIGHT},
        checks=('cp result.xml "$ORCHESTRATOR_JUNIT"',), must_fix=(FAST,),
    )  # fmt: skip
    found = {one.worker_id: "new_skips" in flags(one) for one in judgement.ranking}
    assert found == {1: True, 2: False}
