"""Tests that `orchestrator.agents` exports everything that an adapter in another package needs."""

import ast

import orchestrator.agents
from orchestrator.agents import Agent
from tests.docs.markdown import blocks
from tests.support.interface import types_of

GUIDE = "docs/guides/agent-adapter.md"


def imported_names() -> dict[str, set[str]]:
    """Return the names that the guide's programs import, by module."""
    found: dict[str, set[str]] = {}
    for block in blocks(GUIDE):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("orch"):
                    found.setdefault(node.module or "", set()).update(a.name for a in node.names)
    return found


def test_every_promised_name_exists() -> None:
    missing = [n for n in orchestrator.agents.__all__ if not hasattr(orchestrator.agents, n)]

    assert missing == []


def test_guide_imports_only_promised_names() -> None:
    found = imported_names()

    assert {*found} == {"orchestrator.agents"}
    assert found["orchestrator.agents"] - {*orchestrator.agents.__all__} == set()


def test_every_type_in_the_protocol_is_exported() -> None:
    assert types_of(Agent) - {*orchestrator.agents.__all__} == set()
    assert {"AgentSettings", "ExitStatus", "Reason", "WorkerSpec"} <= types_of(Agent)
