"""Tests that the list of protections is complete, and that every patch applies."""

import ast

import pytest

from orchestrator.engine.docker import rules
from orchestrator.git import defaults as git
from orchestrator.git import disarm
from orchestrator.worker.in_container.host_git import HostGit, Places
from tests.assurance.mutation.protection import ROOT, Protection
from tests.assurance.mutation.protections import PROTECTIONS

ALL = [(area, protection) for area, found in PROTECTIONS.items() for protection in found]
NO_PROTECTIONS = {"protocol.file.allow", "GIT_ADVICE", "LC_ALL"}
"""Git settings that permit something, or only affect messages."""


@pytest.mark.parametrize(("area", "protection"), ALL, ids=[f"{area}: {p.name}" for area, p in ALL])
def test_patch_applies_exactly_once(area: str, protection: Protection) -> None:
    whole = (ROOT / protection.path).read_text()
    assert whole.count(protection.old) == 1, "the code has changed: adapt the patch"
    assert len([p for p in PROTECTIONS[area] if p.name == protection.name]) == 1
    ast.parse(whole.replace(protection.old, protection.new))


def test_every_named_test_exists() -> None:
    words = {word for _, protection in ALL for tests in protection.tests for word in tests.split()}
    paths = {word.partition("::")[0] for word in words if word.startswith("tests/")}
    assert len(paths) > 50
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


def test_every_git_setting_is_listed() -> None:
    listed = "".join(protection.old for protection in PROTECTIONS["git"])
    settings = (git.CONFIG.keys() | git.ENVIRONMENT.keys()) - NO_PROTECTIONS
    assert [name for name in sorted(settings) if f'"{name}"' not in listed] == []


def test_every_git_setting_of_the_harvest_helper_is_listed() -> None:
    listed = "".join(protection.old for protection in PROTECTIONS["helper"])
    environment = HostGit(Places("", "", "", "", "")).env
    settings = [n for n in environment if n.startswith(("GIT_CONFIG", "GIT_NO"))]
    assert [name for name in settings if name not in listed] == []


def test_every_closed_network_is_listed() -> None:
    listed = {protection.name for protection in PROTECTIONS["network"]}
    assert {f"{network} closed" for network in rules.CLOSED} <= listed


def test_every_disarmed_program_is_listed() -> None:
    listed = {protection.old for protection in PROTECTIONS["repository"]}
    assert {f'    (r"{pattern}' for pattern, _ in disarm._HARMLESS} <= listed
