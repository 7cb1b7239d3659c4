"""Every reader of files that other programs wrote meets the same damage.

What is good is still read, and a file that is not read is named: no traceback, and no silence.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.base.errors import OrchestratorError
from orchestrator.faces.cli.init.project_tree import Tree
from orchestrator.network.gateway.package_managers import Machine, npm_urls, pip_urls
from orchestrator.review.judging.coverage_file import read_coverage
from orchestrator.review.judging.failing_tests import read_cases
from orchestrator.review.judging.junit_file import Room, read_junit
from orchestrator.runs.reports.sarif_input import read_sarif
from orchestrator.runs.resuming.feedback import feedback_from_file
from tests.support.reports import sarif_log

Reading = tuple[str, bool]
"""What was read, as text, and whether it is said that something was not."""


@dataclass(frozen=True)
class Reader:
    """A reader, with a file that has the parts `first` and `second`, and something between them."""

    read: Callable[[Path], Reading]
    good: str
    """The file; `@` is the place between the parts."""
    bad: Sequence[str] = ()
    """What may be there without harm to the parts."""
    nesting: tuple[str, str] = ("", "")
    """A part that can be nested."""
    is_quiet: bool = False
    """Whether nothing depends on the file: it is a help to find what the user can also name."""


def of_sarif(path: Path) -> Reading:
    unread: Counter[str] = Counter()
    found = [f"{place.path} {place.text}" for place in read_sarif(path, unread)]
    return " ".join(found), bool(unread)


def of_junit(path: Path) -> Reading:
    tests, problem = read_junit(path.read_bytes(), Room(cases=1000, text=100_000))
    return " ".join(test.name for test in tests), bool(problem)


def of_candidate(path: Path) -> Reading:
    cases = read_cases(path.read_bytes())
    return " ".join(cases or ()), cases is None


def of_coverage(path: Path) -> Reading:
    found = read_coverage(path.read_bytes())
    return " ".join(found or ()), found is None


def of_ci(path: Path) -> Reading:
    return feedback_from_file(path).message, False


def of_pip(path: Path) -> Reading:
    machine = Machine(environ={"HOME": "/nonexistent", "PIP_CONFIG_FILE": str(path)}, root=path)
    return " ".join(url.url for url in pip_urls(machine)), False


def of_uv(path: Path) -> Reading:
    place = path.parent / "uv"
    place.mkdir(exist_ok=True)
    (place / "uv.toml").write_bytes(path.read_bytes())
    machine = Machine(environ={"XDG_CONFIG_HOME": str(path.parent)}, root=path)
    return " ".join(url.url for url in pip_urls(machine)), False


def of_npm(path: Path) -> Reading:
    machine = Machine(environ={"NPM_CONFIG_USERCONFIG": str(path)}, root=path)
    return " ".join(url.url for url in npm_urls(machine)), False


RESULTS = json.dumps(json.loads(sarif_log(("R", "first", 1, "x"), ("R", "second", 2, "x"))))
CASE = '<testcase name="{}"/>'
JUNIT = f"<testsuite>{CASE.format('first')}@{CASE.format('second')}</testsuite>"
READERS = {
    "SARIF": Reader(
        of_sarif, RESULTS.replace('}, {"ruleId"', '}, @{"ruleId"'),
        bad=("null,", "3,", "{},", '{"locations": 3},', '{"ruleId": null, "message": []},',
             '{"locations": [{"physicalLocation": {"artifactLocation": {"uri": 3}}}]},'),
        nesting=("[", "]"),
    ),
    "JUnit": Reader(
        of_junit, JUNIT, bad=("\x1b[0m", "\0", "&", "<x/>", "<testcase/>", "&#0;", "<testsuite/>",
                              '<testcase time="x" name="n"/>'), nesting=("<x>", "</x>"),
    ),
    "JUnit of a candidate": Reader(
        of_candidate, JUNIT, bad=("\x1b[0m", "\0", "&", "<x/>"), nesting=("<x>", "</x>"),
    ),
    "Cobertura": Reader(
        of_coverage, '<coverage><class filename="first"><line number="1" hits="1"/></class>@'
        '<class filename="second"><line number="1" hits="0"/></class></coverage>',
        bad=('<line number="x" hits="1"/>', "<class/>", '<line number="1" hits="-1"/>'),
        nesting=("<x>", "</x>"),
    ),
    "lcov": Reader(
        of_coverage, "SF:first\nDA:1,1\nend_of_record\n@\nSF:second\nDA:1,0\nend_of_record\n",
        bad=("DA:x,1", "DA:", "SF:", "\0", "end_of_record"),
    ),
    "CI log": Reader(of_ci, "first\n@\nsecond\n", bad=("\0", "\x1b[", "\r\r", "\u202e", "<x>")),
    "CI JUnit": Reader(
        of_ci, "<testsuite><testcase name='first'><failure/></testcase>@"
        "<testcase name='second'><failure/></testcase></testsuite>",
        bad=("\x1b[0m", "\0", "&"), nesting=("<x>", "</x>"),
    ),
    "pip.conf": Reader(
        of_pip, "[global]\nindex-url = https://first\n@\nextra-index-url = https://second\n",
        bad=("no value", "= x", "[global]", "index_url_of = 3"), is_quiet=True,
    ),
    "uv.toml": Reader(
        of_uv, 'index-url = "https://first"\n@\n[pip]\nextra-index-url = ["https://second"]\n',
        bad=("index = 3", "extra-index-url = 3", 'index = [3, {url = 3}, {}]', "pip-x = {}"),
        nesting=("x = [", "]"), is_quiet=True,
    ),
    ".npmrc": Reader(
        of_npm, "registry=https://first\n@\n@x:registry=https://second\n",
        bad=("nothing", "=", "registry", "\0", "always-auth=true"), is_quiet=True,
    ),
}  # fmt: skip


def filled(reader: Reader, part: str = "") -> str:
    return reader.good.replace("@", part, 1)


def read(reader: Reader, path: Path, data: bytes) -> Reading:
    path.write_bytes(data)
    try:
        return reader.read(path)
    except OrchestratorError as error:
        return "", "\n" not in error.message


def damages() -> Iterator[tuple[str, str, bytes]]:
    for name, reader in READERS.items():
        whole = filled(reader)
        yield name, "as it is", whole.encode()
        yield name, "a byte order mark", whole.encode("utf-8-sig")
        yield name, "UTF-16", whole.encode("utf-16")
        yield name, "UTF-16 without a mark", whole.encode("utf-16-le")
        yield name, "line ends of Windows", whole.replace("\n", "\r\n").encode()
        for part in reader.bad:
            yield name, repr(part), filled(reader, part).encode()


@pytest.mark.parametrize(
    ("name", "data"),
    [pytest.param(name, data, id=f"{name}: {what}") for name, what, data in damages()],
)
def test_good_parts_are_read_whatever_is_beside_them(
    tmp_path: Path, name: str, data: bytes
) -> None:
    found, _ = read(READERS[name], tmp_path / "file", data)
    assert "first" in found
    assert "second" in found


HOSTILE = {
    "empty": b"", "blank": b" \r\n\t\n", "null": b"null", "a list": b"[]", "a text": b'"x"',
    "a number": b"1e999", "NUL": b"\0" * 100, "binary": bytes(range(256)) * 40,
    "half a mark": b"\xff", "mark only": b"\xff\xfe", "deep list": b"[" * 100_000,
    "deep object": b'{"a":' * 100_000, "deep XML": b"<a>" * 100_000, "a section": b"[x",
    "entities": b'<!DOCTYPE x [<!ENTITY a "aa">]><testsuite><testcase name="&a;"/></testsuite>',
    "twice": b'{"runs": [], "runs": 3}', "long line": b"x" * 3_000_000,
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_file_that_is_no_such_file_is_named(tmp_path: Path, name: str) -> None:
    reader = READERS[name]
    begin, end = reader.nesting
    deep = filled(reader, begin * 2000 + end * 2000).encode() if begin else b""
    cut = filled(reader).encode()[: len(filled(reader)) // 2]
    for what, data in {**HOSTILE, "nested": deep, "cut": cut}.items():
        found, said = read(reader, tmp_path / "file", data)
        is_log = name.startswith("CI") and bool(found)
        assert said or is_log or reader.is_quiet or "first" in found or not data.strip() or (
            what in ("null", "a list", "a text", "a number", "twice", "NUL")
        ), what  # fmt: skip


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_manifests_of_a_project_are_read_or_named(tmp_path: Path, data: bytes) -> None:
    for name in ("package.json", "pyproject.toml", "compose.yaml"):
        (tmp_path / name).write_bytes(data)
    tree = Tree(tmp_path, ("package.json", "pyproject.toml", "compose.yaml"))
    for content in (tree.json("package.json"), tree.toml("pyproject.toml"),
                    tree.document("compose.yaml")):  # fmt: skip
        assert isinstance(content, dict)
    assert all("\n" not in problem for problem in tree.problems)
