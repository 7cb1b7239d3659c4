"""Tests of the names that `import orchestrator` promises."""

from dataclasses import is_dataclass
from typing import Any

import pytest
from pydantic import ValidationError

import orchestrator
from tests.support.command_names import commands


@pytest.mark.parametrize("name", orchestrator.__all__)
def test_promised_name_can_be_imported(name: str) -> None:
    assert getattr(orchestrator, name) is not None


OPTIONS = {"MergeOptions": {}, "JudgingRules": {"checks": ("make",)}, "Rounds": {}}


def test_every_dataclass_of_options_is_validated() -> None:
    """Classes that a caller fills in; the others are only returned."""
    named = {name: getattr(orchestrator, name) for name in orchestrator.__all__}
    filled_in = {name for name, kind in named.items() if is_dataclass(kind)}
    assert filled_in == {*OPTIONS}
    for name in OPTIONS:
        assert hasattr(named[name], "__pydantic_validator__")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("MergeOptions", {"order": "bogus"}),
        ("MergeOptions", {"form": "bogus"}),
        ("MergeOptions", {"on_conflict": "bogus"}),
        ("MergeOptions", {"tests": "bogus"}),
        ("MergeOptions", {"checks": "make"}),
        ("MergeOptions", {"checks": ("",)}),
        ("MergeOptions", {"checks": ("a\0b",)}),
        ("MergeOptions", {"allowed": ("../x",)}),
        ("MergeOptions", {"checks": ("make",), "dry_run": True}),
        ("MergeOptions", {"checks": ("make",), "on_conflict": "stop"}),
        ("MergeOptions", {"on_conflict": "agent", "form": "rebase"}),
        ("MergeOptions", {"on_conflict": "agent", "dry_run": True}),
        ("MergeOptions", {"ordre": "best"}),
        ("JudgingRules", {"tests": "bogus"}),
        ("JudgingRules", {"must_fix": ("",)}),
        ("JudgingRules", {"lint": "ruff"}),
        ("JudgingRules", {"instruments": ("../x",)}),
        ("Rounds", {"first": 0}),
        ("Rounds", {"until": 0}),
        ("Rounds", {"until": "two"}),
    ],
)
def test_value_that_the_command_line_refuses_is_refused(name: str, wrong: dict[str, Any]) -> None:
    kind = getattr(orchestrator, name)
    assert kind(**OPTIONS[name])
    with pytest.raises((ValidationError, TypeError)):
        kind(**OPTIONS[name] | wrong)


API: dict[str, str] = {
    "sandbox run": "run_all",
    "sandbox batch": "run_all",
    "sandbox create": "Sandbox.create",
    "sandbox exec": "Sandbox.run",
    "sandbox cp": "Sandbox",
    "sandbox ls": "Sandbox.list",
    "sandbox rm": "Sandbox.kill",
    "sandbox extend": "Sandbox.extend",
    "sandbox pause": "Sandbox.pause",
    "sandbox resume": "Sandbox.resume",
    "sandbox snapshot": "Sandbox.snapshot",
    "parallel": "ParallelRunner",
    "run-one": "ParallelRunner",
    "run": "read_workflow",
    "spec run": "read_workflow",
    "spec validate": "read_workflow",
    "spec graph": "Workflow.waves",
    "ls": "list_runs",
    "watch": "History.events",
    "events": "History.events",
    "wait": "History.wait",
    "report": "report",
    "logs": "WorkerResult",
    "network log": "WorkerResult",
    "resume": "resume",
    "retry": "retry",
    "continue": "continue_worker",
    "stop": "History.stop",
    "diff": "diff",
    "conflicts": "conflicts",
    "merge": "merge",
    "eval": "evaluate",
    "judge": "judge",
    "compare": "compare",
    "pick": "pick",
    "parallel-cleanup": "clean_up",
    "gc": "clean_up",
    "restore": "restore",
    "config show": "ParallelConfig",
}
"""For each command, the name in `orchestrator` that does the same for a Python program."""
_FOR_PEOPLE = "shows something to a person, or needs a terminal"
_SET_UP = "sets up or checks the machine or the project, once"
_SERVER = "serves another program; a Python program uses what the server uses"
NO_API: dict[str, str] = {
    **dict.fromkeys(("exec", "shell"), _FOR_PEOPLE),
    **dict.fromkeys(("ui", "mcp"), _SERVER),
    **dict.fromkeys(("init", "doctor", "completion", "setup", "uninstall"), _SET_UP),
    **dict.fromkeys(("image build", "image ls", "image save", "image load", "image sbom"), _SET_UP),
    "image push": _SET_UP,
    **dict.fromkeys(("cache warm", "cache ls", "cache clear"), _SET_UP),
    "kubernetes manifest": _SET_UP,
    **dict.fromkeys(("config schema", "spec schema", "config validate"), "is about files"),
    "config allow": "is a decision of a person, or of a script in that person's name",
    "network sets": "reads the settings of package managers of this machine",
    "pr": "uses the user's programs and passwords for a forge",
}
"""For each command without a name in `orchestrator`, the reason."""


def test_every_command_has_a_name_in_the_api_or_a_reason() -> None:
    assert {*API} | {*NO_API} == {*commands()}
    assert not {*API} & {*NO_API}
    for name in API.values():
        first, _, rest = name.partition(".")
        assert first in orchestrator.__all__
        found = getattr(orchestrator, first)
        assert not rest or callable(getattr(found, rest))
