"""Tests of the usage examples of `architect parallel`, run as its documentation has them."""

import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents.programs.litellm import DEFAULT_MODEL
from tests.support.model_script import Exchange, Rule, Scenario, ToolCall, Turn
from tests.support.model_server import ModelServer
from tests.system.agents.conftest import Orchestrator, run_git

pytestmark = [pytest.mark.docker, pytest.mark.e2e]

PRICES = {
    "gpt-4o": (2.5, 10.0),
    "claude-sonnet-4-6": (3.0, 15.0),
    "deepseek-chat": (0.27, 1.10),
}
"""Prices in USD for a million input and output tokens, as in the agent's table."""
KEYS = {
    "gpt-4o": "key-of-openai",
    "claude-sonnet-4-6": "key-of-anthropic",
    "deepseek-chat": "key-of-deepseek",
}


def _writes(path: str, *, task: str, model: str | None = None) -> Rule:
    write = ToolCall(name="write_file", arguments={"path": path, "content": "done\n"})
    return Rule(task=task, model=model, turns=(Turn(calls=(write,)), Turn(text=f"Wrote {path}.")))


SCENARIO = Scenario(
    (
        _writes("gpt.md", task="optimize", model="gpt-4o"),
        _writes("claude.md", task="optimize", model="claude-sonnet-4-6"),
        _writes("deepseek.md", task="optimize", model="deepseek-chat"),
        _writes("tests/test_auth.py", task="src/auth.py"),
        _writes("tests/test_users.py", task="src/users.py"),
        _writes("tests/test_billing.py", task="src/billing.py"),
        _writes("src/payments.py", task="payments"),
        _writes("src/users.py", task="refactor users"),
    )
)


@dataclass(frozen=True)
class Example:
    """A command of the documentation, with each worker's settings and changes."""

    command: str
    rows: tuple[tuple[str, str, str], ...]
    """Task, model, and the file that the worker changes."""
    notices: int = 0
    """Number of expected notices that a task is repeated."""


MODELS = Example(
    """parallel "optimize the project's SQL queries" \
       --models gpt-4o,claude-sonnet-4-6,deepseek-chat""",
    (
        ("optimize the project's SQL queries", "gpt-4o", "gpt.md"),
        ("optimize the project's SQL queries", "claude-sonnet-4-6", "claude.md"),
        ("optimize the project's SQL queries", "deepseek-chat", "deepseek.md"),
    ),
)
TASKS = Example(
    """parallel \
       --task "add tests to src/auth.py" \
       --task "add tests to src/users.py" \
       --task "add tests to src/billing.py" \
       --workers 3""",
    (
        ("add tests to src/auth.py", "default", "tests/test_auth.py"),
        ("add tests to src/users.py", "default", "tests/test_users.py"),
        ("add tests to src/billing.py", "default", "tests/test_billing.py"),
    ),
)
LIMITS = Example(
    """parallel \
       --task "refactor payments module" \
       --task "refactor users module" \
       --budget-per-worker 2.0 \
       --timeout-per-worker 300""",
    (
        ("refactor payments module", "default", "src/payments.py"),
        ("refactor users module", "default", "src/users.py"),
        ("refactor payments module", "default", "src/payments.py"),
    ),
    notices=1,
)
PAIR = Example(
    """parallel \
       --task "refactor payments module" \
       --task "refactor users module" \
       --workers 2 --budget-per-worker 2.0 --timeout-per-worker 300""",
    LIMITS.rows[:2],
)
EXAMPLES = [
    pytest.param(MODELS, id="models", marks=pytest.mark.extra),
    pytest.param(TASKS, id="tasks", marks=pytest.mark.agents),
    pytest.param(LIMITS, id="limits", marks=pytest.mark.agents),
    pytest.param(PAIR, id="pair", marks=pytest.mark.agents),
]


def _cost(exchange: Exchange) -> float:
    price_in, price_out = PRICES[exchange.plain_model]
    return (exchange.input_tokens * price_in + exchange.output_tokens * price_out) / 1e6


def _succeed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_works_as_documented(
    example: Example, orchestrator: Orchestrator, model_server: ModelServer, shop: Path
) -> None:
    done = orchestrator(*shlex.split(example.command))

    _check_table(_succeed(done), example)
    repeats = [line for line in done.stderr.splitlines() if "first task runs" in line]
    assert len(repeats) == example.notices, done.stderr
    # `wait` returns the result of the same run, so one run is enough.
    run = json.loads(_succeed(orchestrator("wait", "--json")))
    assert run["status"] == "success"
    assert run["base"] == run_git(shop, "rev-parse", "HEAD").strip()
    _check_results(run["results"], example, model_server.exchanges, shop)
    assert run["cost"] == pytest.approx(sum(map(_cost, model_server.exchanges)), abs=1e-6)
    _check_work(example, shop)
    _check_keys(example, model_server.exchanges)


def _check_table(table: str, example: Example) -> None:
    heading = table.splitlines()[0].title().split()
    assert heading == ["Worker", "Task", "Model", "Status", "Steps", "Cost", "Duration", "Files"]
    for number, (task, model, _) in enumerate(example.rows, start=1):
        pattern = rf"^\W*{number}\W.*{re.escape(task)}.*{re.escape(model)}.*success.*\$0\.\d+"
        assert re.search(pattern, table, re.MULTILINE), table


def _check_results(
    results: Sequence[dict[str, Any]], example: Example, exchanges: Sequence[Exchange], shop: Path
) -> None:
    assert len(results) == len(example.rows)
    for number, (result, row) in enumerate(zip(results, example.rows, strict=True), start=1):
        task, model, file = row
        assert result["worker_id"] == number
        assert result["branch"] == f"architect/parallel-{number}"
        assert (result["task"], result["model"]) == (task, model)
        assert (result["status"], result["reason"]) == ("success", None)
        assert (result["steps"], result["exit_code"]) == (1, 0)
        assert result["files_modified"] == [file]
        assert result["worktree_path"] == str(shop / f".architect-parallel-{number}")
        assert 0 < result["duration"] < 600
        asked = [e for e in exchanges if e.task == task and model in ("default", e.plain_model)]
        alike = sum(other[:2] == row[:2] for other in example.rows)
        assert result["cost"] == pytest.approx(sum(map(_cost, asked)) / alike, abs=1e-6)


def _check_work(example: Example, shop: Path) -> None:
    """Check that the work is committed and checked out, and the user's checkout unchanged."""
    assert run_git(shop, "status", "--porcelain") == ""
    assert run_git(shop, "branch", "--show-current").strip() == "main"
    for number, (_, _, file) in enumerate(example.rows, start=1):
        worktree = shop / f".architect-parallel-{number}"
        assert run_git(worktree, "status", "--porcelain") == ""
        assert run_git(worktree, "show", f"architect/parallel-{number}:{file}") == "done\n"
        assert (worktree / file).read_text() == "done\n"


def _check_keys(example: Example, exchanges: Sequence[Exchange]) -> None:
    """Check that each model was asked with the key of its provider."""
    asked = {DEFAULT_MODEL if model == "default" else model for _, model, _ in example.rows}
    keys = {(exchange.plain_model, exchange.key) for exchange in exchanges}
    assert keys == {(model, KEYS[model]) for model in asked}
