"""Find the files of a project that decide what its tests do (its instruments)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from orchestrator.text.path_patterns import Pattern, parse

Kind = Literal["test", "control", "mixed"]
"""Kinds of instruments: tests and their data; control of the test runner; control among other
content.
"""

_CONTROL = (
    "conftest.py", "pytest.ini", ".pytest.ini", "noxfile.py", ".coveragerc", ".testr.conf",
    "sitecustomize.py", "usercustomize.py", "*.pth",
    "jest.config.*", "vitest.config.*", "vitest.workspace.*", "karma.conf.*", ".mocharc*",
    "playwright.config.*", "cypress.config.*", "phpunit.xml*", ".rspec", "spec_helper.rb",
)  # fmt: skip
_TEST = (
    "tests/", "test/", "testing/", "__tests__/", "__snapshots__/", "spec/", "specs/", "e2e/",
    "testdata/", "test_*.py", "*_test.py", "tests.py", "*_test.go", "*.test.[cm]?[jt]s*",
    "*.test.[jt]s*", "*.spec.[jt]s*", "*_spec.rb", "*_test.rb", "*Test.java", "*Tests.java",
    "*Test.kt", "*Test.php", "*_test.exs", "*.bats",
)  # fmt: skip
_MIXED = (
    "pyproject.toml", "package.json", "setup.cfg", "tox.ini", "Makefile", "makefile", "justfile",
    "Cargo.toml", "go.mod", "pom.xml", "build.gradle*", "Rakefile", "composer.json", "setup.py",
    "CMakeLists.txt", "Taskfile.yml",
)  # fmt: skip
_GENERATED = (
    "*.lock", "*-lock.json", "*-lock.yaml", "go.sum", "*.min.js", "*.min.css", "*.map", "*.snap",
    "*_pb2.py", "*.pb.go", "dist/", "build/", "node_modules/", "vendor/",
)  # fmt: skip


@dataclass(frozen=True)
class Instruments:
    """The rules that decide which files of a project are tests or control tests."""

    patterns: tuple[str, ...] = ()
    """Further patterns of files that control tests."""

    @cached_property
    def _rules(self) -> tuple[tuple[Kind, tuple[Pattern, ...]], ...]:
        return (
            ("control", _parsed((*_CONTROL, *self.patterns))),
            ("test", _parsed(_TEST)),
            ("mixed", _parsed(_MIXED)),
        )

    def kind(self, path: str) -> Kind | None:
        """Return what a file does for tests; None if it belongs to the product."""
        return next((kind for kind, rules in self._rules if _covers(rules, path)), None)

    def is_protected(self, path: str) -> bool:
        """Return whether the base's version of a file replaces that of a candidate."""
        return self.kind(path) in ("test", "control")


def is_generated(path: str) -> bool:
    """Return whether a file is written by a program, such as a lock file."""
    return _covers(_parsed(_GENERATED), path)


def _parsed(texts: Sequence[str]) -> tuple[Pattern, ...]:
    return tuple(parse(text) for text in texts)


def _covers(rules: Sequence[Pattern], path: str) -> bool:
    return any(rule.covers(path) for rule in rules)
