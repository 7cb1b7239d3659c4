"""Tests of the keys of errors, over the syntax trees of the package and of the tests."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError, GitCommandError, mistakes
from tests.docs.markdown import ROOT
from tests.support.errors import raises

sys.path.insert(0, str(ROOT / "docs" / "tools"))
import error_keys

KEYS = error_keys.keys()
CLASSES = error_keys.error_classes(error_keys.read_modules())


def test_every_error_has_a_literal_key_of_the_right_form():
    made = list(error_keys.constructions())
    wrong = [
        (place, kind, key)
        for place, kind, key in made
        if key is None or not error_keys.FORM.fullmatch(key)
    ]
    assert wrong == []
    assert len(made) > 450
    assert {"OrchestratorError", "GitCommandError", "UnresolvedError"} <= {made[1] for made in made}


def test_a_key_has_one_exit_code():
    several = {key: kinds for key, kinds in KEYS.items() if len({CLASSES[k] for k in kinds}) > 1}
    assert several == {}


def test_a_missing_or_computed_key_is_found(tmp_path: Path):
    package = tmp_path / "orchestrator"
    package.mkdir()
    (package / "wrong.py").write_text(
        "class OddError(OrchestratorError):\n    exit_code = 9\n"
        'raise OddError("a", key="odd.one")\nraise OddError("b")\n'
        'error = OddError("c", key=f"odd.{1}")\nmistakes(["d"], "e")\n'
        'raise next(kinds, OddError)("f", key="odd.two")\nraise KeyError("g")\n'
    )
    found = [(kind, key) for _, kind, key in error_keys.constructions(tmp_path)]
    assert sorted(found, key=str) == [
        ("ConfigError", "odd.two"), ("OddError", "odd.one"), ("OddError", None),
        ("OddError", None), ("mistakes", None),
    ]  # fmt: skip


def keys_in_tests() -> Iterator[tuple[str, str]]:
    """Yield the keys that tests expect, and those of errors that they make, with their places."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not re.search(r"\b(raises|reports)\(\"|\bkey=", source) or path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(source)):
            found: ast.expr | None = None
            if isinstance(node, ast.Call):
                if getattr(node.func, "id", "") in {"raises", "reports"}:
                    found = node.args[0]
                elif getattr(node.func, "id", "") in CLASSES:
                    found = next((word.value for word in node.keywords if word.arg == "key"), None)
            elif isinstance(node, ast.Compare) and ast.unparse(node.left).endswith("error.key"):
                found = node.comparators[0]
            if isinstance(found, ast.Constant):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", found.value


def test_keys_in_tests_exist():
    found = list(keys_in_tests())
    assert [(place, key) for place, key in found if key not in KEYS] == []
    assert len(found) > 150


def test_an_error_is_expected_by_key_and_values():
    with raises("worker.unknown", 3, "list them") as caught:
        raise ConfigError("there is no worker 3", key="worker.unknown", hint="list them")
    assert isinstance(caught.value, ConfigError)
    with pytest.raises(AssertionError), raises("worker.unknown", 4):
        raise ConfigError("there is no worker 3", key="worker.unknown")
    with pytest.raises(AssertionError), raises("worker.live"):
        raise ConfigError("there is no worker 3", key="worker.unknown")


def test_one_and_several_mistakes_have_the_same_key():
    assert mistakes(["a"], "hint", key="option.invalid").key == "option.invalid"
    assert mistakes(["a", "b"], "hint", key="option.invalid").key == "option.invalid"
    assert GitCommandError(["log"], 1, "").key == "git.failed"
