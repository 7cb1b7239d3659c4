"""Find the files of a project that decide what its tests do (its instruments)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property, lru_cache
from typing import Literal

from orchestrator.base.text.path_patterns import Pattern, parse
from orchestrator.review.judging.shadowing import shadows

Kind = Literal["test", "control", "mixed"]
"""What a file does for tests: `test` (tests and their data), `control` (settings and plugins of a
test runner), or `mixed` (also controls tests, among other things, as `Makefile` does).
"""

_SIMPLE = re.compile(r"(?!\.{1,2}/?$)[\w.*?\[\]-]+/?")
"""Patterns of one name, which `fnmatch` matches as `.gitignore` does."""
# protection: compiled-modules-of-candidate-do-not-count
_CONTROL = (
    "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "noxfile.py",
    ".coveragerc", ".testr.conf", "sitecustomize*", "usercustomize*",
    "/unittest.py", "/unittest", "/pytest.py", "/pytest", "/_pytest", "/nose2.py", "/nose2",
    "pyvenv.cfg", "**/test_*/__init__.py", "**/conftest/__init__.py", "test_*.so", "conftest*.so",
    "*_test.so", "test_*.pyd", "conftest*.pyd",
    "jest.config.*", "jest.setup*", "jest-preset.*", "setupTests.*", "vitest.config.*",
    "vitest.setup*", "vitest.workspace.*", "karma.conf.*", ".mocharc*", "mocha.opts",
    "ava.config.*", "playwright.config.*", "cypress.config.*", "wdio.conf.*", "nextest.toml",
    "phpunit.xml*", ".rspec", "spec_helper.rb", "run_tests*", "run-tests*", "runtests*",
    "test.sh", "tests.sh", ".gitattributes",
    "__pycache__", "*.pyc", "*.pyo", ".pytest_cache", ".mypy_cache", ".ruff_cache",
)  # fmt: skip
_CONTROL_IN_ANY_CASE = (
    "*.dist-info", "*.egg-info", "*.egg", "*.egg-link", "*.pth",
)  # fmt: skip
"""Names that Python's `importlib.metadata` and `site` compare without regard to case, or may."""
_CONTROL_OF_TESTS = ("__init__.py", "testmain_test.go", "main_test.go", "package.json")
"""Names of files that control all tests in their directory, if it is a directory of tests."""
_TEST = (
    "tests/", "test/", "testing/", "unittest/", "unittests/", "__tests__/", "__snapshots__/",
    "spec/", "specs/", "e2e/",
    "testdata/", "test_*.py", "*_test.py", "tests.py", "*_test.go", "*.test.[jt]s*",
    "*.test.[cm][jt]s", "*.spec.[jt]s*", "*.spec.[cm][jt]s", "*[-_]test.[jt]s*", "*_spec.rb",
    "*_test.rb", "*Test.java", "*Tests.java", "*Test.kt", "*Test.php", "*_test.exs", "*.bats",
)  # fmt: skip
# protection: candidates-gnumakefile-does-not-decide-what-check-does
_MIXED = (
    "Makefile", "makefile", "GNUmakefile", "*.mk", "justfile", "Justfile", ".justfile",
    "Taskfile.*", "Rakefile", "CMakeLists.txt", "meson.build", "SConstruct", "dodo.py", "tasks.py",
    "BUILD", "BUILD.bazel", "*.cmake", "CMakePresets.json", "CTest*", "build.rs", "vendor/",
    ".pnp.*", ".yarn/", "WORKSPACE*", "MODULE.bazel", ".bazelrc", "ci/", ".ci/",
    "pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "tox.toml", ".tox/", ".nox/", ".venv/",
    "venv/", "uv.toml", "package.json", ".npmrc", ".yarnrc*", ".pnpmfile.*", "pnpm-workspace.yaml",
    "node_modules/", "vite.config.*", "babel.config.*", ".babelrc*", ".swcrc", "tsconfig*.json",
    "bunfig.toml", "deno.json*", "Cargo.toml", ".cargo/", "target/", "go.mod", "go.work",
    "pom.xml", ".mvn/", "mvnw", "build.gradle*", "settings.gradle*", "gradle.properties",
    "gradlew", "gradle/", ".gradle/", "build.xml", "build.sbt", "Gemfile", "composer.json",
    "mix.exs", ".env", ".envrc",
    "ruff.toml", ".ruff.toml", ".flake8", "mypy.ini", ".mypy.ini", "pyrightconfig.json",
    ".pylintrc", "pylintrc", ".pylintrc.toml", "pylintrc.toml", ".bandit", ".isort.cfg",
    ".style.yapf", ".pydocstyle*", ".pycodestyle", ".eslintrc*", ".eslintignore", "eslint.config.*",
    ".jshintrc",
    ".prettierrc*", ".prettierignore", "prettier.config.*", ".stylelintrc*", "stylelint.config.*",
    "biome.json*", ".oxlintrc.json", "tslint.json", ".nycrc*", "nyc.config.*", ".c8rc*", ".taprc",
    ".golangci.*", "staticcheck.conf", ".rubocop*", ".simplecov", "clippy.toml", ".clippy.toml",
    "rustfmt.toml", ".rustfmt.toml", "tarpaulin.toml", ".clang-tidy", ".clang-format",
    "checkstyle*.xml", "pmd*.xml", "detekt*.yml", ".editorconfig", ".shellcheckrc", ".yamllint*",
    ".hadolint.y*ml", ".markdownlint*", "phpstan*.neon*", "psalm.xml*", ".php-cs-fixer*",
    ".pre-commit-config.yaml", ".semgrepignore", "sonar-project.properties", "codecov.y*ml",
    ".tool-versions", "mise.toml", ".mise.toml", ".python-version", ".nvmrc", ".node-version",
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
    programs: tuple[str, ...] = ()
    """Patterns of files that checks execute."""
    modules: frozenset[str] = frozenset()
    """Python modules of the base commit: a new one may replace a module of a test runner."""
    drops_shadows: bool = False
    """Whether new modules with names of a test runner's modules are removed before checks run."""

    @cached_property
    def _rules(self) -> tuple[tuple[Kind, "_Names"], ...]:
        return (
            ("control", _names((*_CONTROL, *self.patterns))),
            ("test", _names(_TEST)),
            ("mixed", _names((*_MIXED, *self.programs))),
        )

    def kind(self, path: str) -> Kind | None:
        """Return how a file affects tests: `test`, `control` or `mixed`; None if it does not."""
        # protection: names-are-compared-as-python-compares-them
        if _names(_CONTROL_IN_ANY_CASE).cover(path.lower()):
            return "control"
        found = next((kind for kind, names in self._rules if names.cover(path)), None)
        # protection: new-init-py-among-tests-controls-them
        if found == "test" and path.rpartition("/")[2] in _CONTROL_OF_TESTS:
            return "control"
        # protection: new-modules-of-test-runners-are-compared
        if found is None and shadows(path, self.modules):
            return "control" if self.drops_shadows else "mixed"
        return found

    def is_protected(self, path: str) -> bool:
        """Return whether the base commit's version of a file replaces the candidate's version."""
        return self.kind(path) in ("test", "control")


def is_generated(path: str) -> bool:
    """Return whether a file is written by a program, such as a lock file."""
    return _names(_GENERATED).cover(path)


@dataclass(frozen=True)
class _Names:
    """File patterns; patterns of a single name are joined into one regular expression."""

    files: "re.Pattern[str]"
    """Joined patterns of names of files and of directories."""
    directories: "re.Pattern[str]"
    """Joined patterns of names of directories only."""
    others: tuple[Pattern, ...]

    def cover(self, path: str) -> bool:
        """Return whether a pattern matches a file, or a directory above it."""
        *above, name = path.split("/")
        return (
            self.files.fullmatch(name) is not None
            or any(
                self.files.fullmatch(folder) or self.directories.fullmatch(folder)
                for folder in above
            )
            or any(pattern.covers(path) for pattern in self.others)
        )


@lru_cache
def _names(texts: tuple[str, ...]) -> _Names:
    simple = [text for text in texts if _SIMPLE.fullmatch(text)]
    return _Names(
        files=_any_of(text for text in simple if text[-1] != "/"),
        directories=_any_of(text[:-1] for text in simple if text[-1] == "/"),
        others=tuple(parse(text) for text in texts if text not in simple),
    )


def _any_of(names: Iterable[str]) -> "re.Pattern[str]":
    return re.compile("|".join(translate(name) for name in names) or r"(?!)")
