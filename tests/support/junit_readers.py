"""How CI systems read JUnit XML: ports of the rules of GitLab and of Jenkins.

- GitLab: `lib/gitlab/ci/parsers/test/junit.rb`, and `test_suite.rb`, which ignores a second case
  with the same key.
- Jenkins: `SuiteResult.java` and `CaseResult.java` of its junit plugin.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "testsuites": ({"testsuite"}, {"name", "tests", "failures", "errors", "time"}),
    "testsuite": (
        {"properties", "testcase"},
        {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    ),
    "properties": ({"property"}, set()),
    "property": (set(), {"name", "value"}),
    "testcase": (
        {"failure", "error", "skipped", "rerunFailure", "flakyFailure"},
        {"name", "classname", "time"},
    ),
    **{tag: (set(), {"type", "message"}) for tag in ("failure", "error", "skipped")},
    **{tag: ({"stackTrace"}, {"type", "message"}) for tag in ("rerunFailure", "flakyFailure")},
    "stackTrace": (set(), set()),
}
"""The elements that a report may have, with their children and attributes; all of them are in the
schema `junit-10.xsd` of the plugin `xunit` of Jenkins.
"""
_OPTIONAL = {"timestamp"}


def problems(element: Element) -> Iterator[str]:
    """Yield what does not fit the common form of JUnit reports."""
    if element.tag not in ALLOWED:
        yield f"unknown element {element.tag}"
        return
    children, attributes = ALLOWED[element.tag]
    given = set(element.attrib)
    if element.tag != "properties" and not attributes - _OPTIONAL <= given <= attributes:
        yield f"{element.tag} has {sorted(given)}"
    for child in element:
        if child.tag not in children:
            yield f"{child.tag} in {element.tag}"
        yield from problems(child)


@dataclass(frozen=True)
class GitLabCase:
    suite: str
    name: str
    status: str
    output: str


def gitlab_cases(text: str) -> list[GitLabCase]:
    """Return the test cases that GitLab shows."""
    root = ElementTree.fromstring(text)
    assert root.tag in {"testsuites", "testsuite"}
    cases: dict[tuple[str, str, str], GitLabCase] = {}
    for one in root.iter("testcase"):
        status, output = "success", ""
        for tag, meaning in (("failure", "failed"), ("error", "error"), ("skipped", "skipped")):
            found = one.find(tag)
            if found is not None:
                status, output = meaning, "".join(found.itertext())
                break
        key = (one.attrib["classname"], one.attrib["name"], one.attrib.get("file", ""))
        case = GitLabCase(key[0], key[1], status, output)
        cases.setdefault(key, case)
    return list(cases.values())


def jenkins_counts(text: str) -> Counter[str]:
    """Return the number of cases of each result that Jenkins shows."""
    root = ElementTree.fromstring(text)
    counts: Counter[str] = Counter()
    for suite in (one for one in root.iter("testsuite") if one.find("testcase") is not None):
        for case in suite.findall("testcase"):
            assert case.get("classname") or suite.get("name")
            float(case.attrib["time"].replace(",", ""))
            if case.find("skipped") is not None:
                counts["skipped"] += 1
            elif case.find("error") is not None or case.find("failure") is not None:
                counts["failed"] += 1
                assert not case.findall("flakyFailure")
            else:
                counts["passed"] += 1
                assert not case.findall("rerunFailure")
    return counts
