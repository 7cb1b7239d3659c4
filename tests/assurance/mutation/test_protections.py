"""Tests that the list of protections is complete, and that each can be removed."""

import ast
from textwrap import indent

import pytest

from orchestrator.engine.interface.spec import CLOSED
from orchestrator.repository import programs
from orchestrator.repository.git import defaults as git
from orchestrator.worker.in_container.host_git import HostGit, Places
from tests.assurance.mutation.marks import ROOT, files_of_marks, statement_without
from tests.assurance.mutation.protections import PROTECTIONS
from tests.assurance.mutation.ways import AmbiguousError, Text

ALL = [(area, protection) for area, found in PROTECTIONS.items() for protection in found]
HEADS = {"except": "try:\n pass\n", "case": "match x:\n"}
"""What stands before statements that are none alone."""
NO_PROTECTIONS = {"protocol.file.allow", "GIT_ADVICE", "LC_ALL"}
"""Git settings that permit something, or only affect messages."""


@pytest.mark.parametrize("area", PROTECTIONS)
def test_every_protection_can_be_removed(area: str) -> None:
    problems = []
    for protection in PROTECTIONS[area]:
        try:
            statement = statement_without(protection.file(ROOT), protection.mark, protection.way)
            head = HEADS.get(statement.split(maxsplit=1)[0].strip(":"), "")
            ast.parse(head + (indent(statement, " ") if head.startswith("match") else statement))
        except (AmbiguousError, SyntaxError) as error:
            problems.append(f"{protection.name}: {error}")
    assert problems == []
    names = [protection.name for protection in PROTECTIONS[area]]
    assert sorted(names) == sorted(set(names))


def test_every_mark_is_listed_and_occurs_once() -> None:
    listed = {protection.mark for _, protection in ALL}
    found = files_of_marks(ROOT)
    assert sorted(listed - found.keys()) == []
    assert sorted(found.keys() - listed) == []
    assert {mark: files for mark, files in found.items() if len(files) > 1} == {}


def test_every_named_test_exists() -> None:
    words = {word for _, protection in ALL for tests in protection.tests for word in tests.split()}
    paths = {word.partition("::")[0] for word in words if word.startswith("tests/")}
    assert len(paths) > 50
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


def test_every_git_setting_is_listed() -> None:
    listed = _quoted("git")
    settings = (git.CONFIG.keys() | git.ENVIRONMENT.keys()) - NO_PROTECTIONS
    assert [name for name in sorted(settings) if name not in listed] == []


def test_every_git_setting_of_the_harvest_helper_is_listed() -> None:
    listed = _quoted("helper")
    environment = HostGit(Places("", "", "", "", "")).env
    settings = [n for n in environment if n.startswith(("GIT_CONFIG", "GIT_NO"))]
    assert [name for name in settings if name not in listed] == []


def test_every_closed_network_is_listed() -> None:
    listed = {protection.name for protection in PROTECTIONS["network"]}
    assert {f"{network} closed" for network in CLOSED} <= listed


def test_every_disarmed_program_is_listed() -> None:
    listed = _quoted("repository")
    assert [pattern for pattern, _, _ in programs.PROGRAMS if pattern not in listed] == []


def _quoted(area: str) -> str:
    """Return what the ways to remove the protections of an area quote of the code."""
    ways = [protection.way for protection in PROTECTIONS[area]]
    return "\n".join(way.old if isinstance(way, Text) else str(way) for way in ways)
