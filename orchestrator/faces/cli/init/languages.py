"""Derive setup and check commands from the files of each language's tools.

A worker's home directory is emptied between setup and agent, so setup must write everything to the
worktree. Tools that download to the home directory, such as Go and Cargo, have no setup command.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from orchestrator.faces.cli.init.project_tree import Tree, join, parent


@dataclass(frozen=True)
class Command:
    """A command that sets up or tests the project. All texts are untrusted."""

    line: str
    needs: str
    """Program that must be installed for the command to work."""
    source: str
    """File from which the command was derived."""
    leaves: str | None = None
    """Directory that the command creates and that should not be committed."""

    def below(self, directory: str) -> "Command":
        """Return the command for a directory, run from the repository's top."""
        return Command(
            line=f"cd {shlex.quote(directory)} && {self.line}",
            needs=self.needs,
            source=join(directory, self.source),
            leaves=self.leaves and join(directory, self.leaves),
        )


@dataclass(frozen=True)
class Tools:
    """The setup and test commands for one directory and language."""

    name: str
    """Name of the tool, such as `npm` or `uv`."""
    language: str
    source: str
    checks: tuple[Command, ...] = ()
    setup: Command | None = None
    of_members: bool = True
    """Whether the commands also set up and test the directories below this directory."""


def detect(tree: Tree, directory: str) -> Iterator[Tools]:
    """Yield the setup and test commands of one directory, at most one set per language."""
    here = tree if directory == "." else tree.at(directory)
    for detector in (*_ANYWHERE, *(_AT_TOP if here is tree else ())):
        tools = detector(here)
        if tools is not None and here is not tree:
            tools = replace(
                tools,
                source=join(directory, tools.source),
                setup=tools.setup and tools.setup.below(directory),
                checks=tuple(check.below(directory) for check in tools.checks),
            )
        if tools is not None:
            yield tools


ENSUREPIP = "ensurepip"
"""Python's module for virtual environments, which is not part of Debian's Python by default."""
_PYTHON: Mapping[str, tuple[str, str, str]] = {
    "uv.lock": ("uv", "uv sync --frozen", "uv run --no-sync"),
    "poetry.lock": (
        "poetry",
        "POETRY_VIRTUALENVS_IN_PROJECT=1 poetry install --no-interaction",
        "poetry run",
    ),
    "pdm.lock": ("pdm", "pdm sync", "pdm run"),
    "Pipfile.lock": ("pipenv", "PIPENV_VENV_IN_PROJECT=1 pipenv sync --dev", "pipenv run"),
    "Pipfile": ("pipenv", "PIPENV_VENV_IN_PROJECT=1 pipenv install --dev", "pipenv run"),
}
"""Lock files of Python's package managers, each with the program, its install command and the
prefix for running commands.
"""
_REQUIREMENTS = (
    "requirements.txt",
    *("requirements-dev.txt", "requirements-test.txt"),
    *("dev-requirements.txt", "test-requirements.txt"),
)
_PYTEST = re.compile(r"^\[(tool:)?pytest\]|^\[tool\.pytest", re.MULTILINE)
_IMPORTS = re.compile(r"^[ \t]*(?:from|import)[ \t]+(pytest|unittest|django\.test)\b", re.MULTILINE)
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")
_MOST_READ = 200
"""Maximum number of files that are read to decide which test runner they are for."""
_RUNNERS = (Command("tox run", "tox", "tox.ini"), Command("nox", "nox", "noxfile.py"))


def _python(here: Tree) -> Tools | None:
    lock = here.first(*_PYTHON)
    if lock is None:
        requirements = [name for name in _REQUIREMENTS if name in here]
        project = here.first("pyproject.toml", "setup.py")
        content = here.toml("pyproject.toml")
        # Many pyproject.toml files contain only settings of linters.
        if project == "pyproject.toml" and not content.keys() & {"project", "build-system"}:
            project = None
        source = requirements[0] if requirements else project
        if source is None:
            checks = _python_checks(here, runner="", needs="python3")
            return (
                Tools("Python", "Python", checks[0].source, checks, None, False) if checks else None
            )
        words = [word for name in requirements for word in ("-r", name)]
        if project:
            offered = _table(content, "project", "optional-dependencies")
            extras = ",".join(name for name in ("dev", "test", "tests") if name in offered)
            words += ["-e", f".[{extras}]" if extras else "."]
        install = f"python3 -m venv .venv && .venv/bin/pip install {shlex.join(words)}"
        checks = _python_checks(here, runner=".venv/bin/", needs=ENSUREPIP)
        return Tools("pip", "Python", source, checks, Command(install, ENSUREPIP, source, ".venv"))
    program, install, run = _PYTHON[lock]
    if program == "uv" and "workspace" in _table(here.toml("pyproject.toml"), "tool", "uv"):
        install += " --all-packages"
    checks = _python_checks(here, runner=f"{run} ", needs=program)
    return Tools(program, "Python", lock, checks, Command(install, program, lock))


def _table(content: object, *keys: str) -> Mapping[str, Any]:
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content if isinstance(content, dict) else {}


def _python_checks(here: Tree, *, runner: str, needs: str) -> tuple[Command, ...]:
    pytest, pytest_needs = f"{runner or 'python3 -m '}pytest", needs if runner else "pytest"
    source = (
        here.first("pytest.ini", "conftest.py", "tests/conftest.py")
        or here.first("pyproject.toml", "tox.ini", "setup.cfg", having=_PYTEST)
        or here.first(*_REQUIREMENTS, "pyproject.toml", "Pipfile", having=re.compile(r"\bpytest\b"))
    )
    if source is not None:
        return (Command(pytest, pytest_needs, source),)
    for place in ("tests", "test"):
        tests = [name for name in here.under(place) if _TEST_FILE.fullmatch(_base_name(name))]
        if not tests:
            continue
        for name in tests[:_MOST_READ]:
            # Tests are for `unittest` if they import nothing else.
            imported = set(_IMPORTS.findall(here.text(name)))
            if imported not in ({"unittest"}, {"unittest", "django.test"}):
                where = os.path.commonpath([parent(test) for test in tests])
                return (Command(f"{pytest} {shlex.quote(where)}", pytest_needs, name),)
        line = f"{runner}python" if runner else "python3"
        line += f" -m unittest discover -s {place}"
        line += " -t ." if f"{place}/__init__.py" in here else ""
        if not any(_base_name(name).startswith("test_") for name in tests):
            line += " -p '*_test.py'"
        return (Command(line, needs, tests[0]),)
    return tuple(command for command in _RUNNERS if command.source in here)[:1]


def _base_name(name: str) -> str:
    return PurePosixPath(name).name


_JAVASCRIPT: Mapping[str, tuple[str, str]] = {
    "pnpm-lock.yaml": ("pnpm", "pnpm install --frozen-lockfile"),
    "yarn.lock": ("yarn", "yarn install --frozen-lockfile"),
    "bun.lock": ("bun", "bun install --frozen-lockfile"),
    "bun.lockb": ("bun", "bun install --frozen-lockfile"),
    "package-lock.json": ("npm", "npm ci"),
    "npm-shrinkwrap.json": ("npm", "npm ci"),
}
_DEPENDENCIES = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")
_NO_TEST = "no test specified"
"""Text of the placeholder test script that npm writes to a new package.json."""


def _javascript(here: Tree) -> Tools | None:
    package = here.first("package.json")
    if package is None:
        return None
    content = here.json(package)
    lock = here.first(*_JAVASCRIPT)
    if lock is not None:
        manager, install = _JAVASCRIPT[lock]
    else:
        named = str(content.get("packageManager", "")).partition("@")[0]
        manager = named if named in {"npm", "pnpm", "yarn", "bun"} else "npm"
        install = f"{manager} install"
    if lock == "yarn.lock" and "__metadata:" in here.text(lock):
        # By default, yarn would link to packages in the home directory, which is emptied later.
        install = "YARN_ENABLE_GLOBAL_CACHE=false yarn install --immutable"
    source = lock or package
    setup = Command(install, manager, source, "node_modules")
    # Without dependencies, there is nothing to install.
    wanted = lock or "workspaces" in content or any(map(content.get, _DEPENDENCIES))
    test = _table(content, "scripts").get("test")
    line = None
    if isinstance(test, str) and test.strip() and _NO_TEST not in test:
        line = "bun run test" if manager == "bun" else f"{manager} test"
    elif "workspaces" in content and manager == "npm":
        line = "npm test --workspaces --if-present"
    elif "pnpm-workspace.yaml" in here and manager == "pnpm":
        line = "pnpm --recursive --if-present run test"
    checks = (Command(line, manager, package),) if line else ()
    return Tools(manager, "JavaScript", source, checks, setup if wanted else None)


def _go(here: Tree) -> Tools | None:
    source = here.first("go.work", "go.mod")
    if source is None:
        return None
    line = "go test ./..."
    if source == "go.work":
        text = here.text(source)
        used = re.findall(r"^\s*(?:use\s+)?(\./[^\s()]*|\.)\s*$", text, re.MULTILINE)
        places = [f"{place.rstrip('/')}/..." for place in dict.fromkeys(used)]
        line = f"go test {shlex.join(places or ['./...'])}"
    check = Command(line, "go", source)
    return Tools("Go", "Go", source, (check,), of_members=source == "go.work")


def _rust(here: Tree) -> Tools | None:
    if "Cargo.toml" not in here:
        return None
    line = "cargo test"
    line += " --workspace" if "workspace" in here.toml("Cargo.toml") else ""
    line += " --locked" if "Cargo.lock" in here else ""
    check = Command(line, "cargo", "Cargo.toml")
    return Tools("Cargo", "Rust", here.first("Cargo.lock") or "Cargo.toml", (check,))


def _ruby(here: Tree) -> Tools | None:
    source, rake = here.first("Gemfile.lock", "Gemfile"), here.first("Rakefile")
    if source is None:
        rake = here.first("Rakefile", having=re.compile(r"TestTask|:test\b"))
        return Tools("Rake", "Ruby", rake, (Command("rake test", "rake", rake),)) if rake else None
    install = "bundle config set --local path vendor/bundle && bundle install"
    setup = Command(install, "bundle", source, "vendor/bundle")
    spec = here.first(".rspec", "spec/spec_helper.rb")
    checks: tuple[Command, ...] = ()
    if spec or rake:
        line = "bundle exec rspec" if spec else "bundle exec rake test"
        checks = (Command(line, "bundle", spec or rake or source),)
    return Tools("Bundler", "Ruby", source, checks, setup)


def _java(here: Tree) -> Tools | None:
    build = here.first("pom.xml", "build.gradle.kts", "build.gradle")
    if build is None:
        return None
    name, program, option = ("Gradle", "gradle", "--console=plain")
    if build == "pom.xml":
        name, program, option = ("Maven", "mvn", "--batch-mode")
    needs = program
    if f"{program}w" in here:
        program, needs = f"./{program}w", "java"
    check = Command(f"{program} {option} test", needs, build)
    return Tools(name, "Java", build, (check,))


_CTEST = re.compile(
    r"^\s*(enable_testing\s*\(|include\s*\(\s*CTest\b)", re.IGNORECASE | re.MULTILINE
)


def _native(tree: Tree) -> Tools | None:
    """Return the tools of a project that is built with CMake, Meson or autotools."""
    cmake = next((name for name in tree.find("CMakeLists.txt") if name.count("/") <= 2), None)
    if cmake is not None and _CTEST.search(tree.text(cmake)):
        line = f"cmake -S {shlex.quote(parent(cmake))} -B .build && cmake --build .build && "
        line += "ctest --test-dir .build --output-on-failure"
        return Tools("CMake", "C", cmake, (Command(line, "cmake", cmake),))
    for name, command in _NATIVE:
        if command.source in tree:
            return Tools(name, "C", command.source, (command,))
    return None if cmake is None else Tools("CMake", "C", cmake)


_NATIVE = (
    ("Meson", Command("meson setup .build && meson test -C .build", "meson", "meson.build")),
    ("autotools", Command("./configure && make check", "make", "configure")),
    (
        "autotools",
        Command("autoreconf --install && ./configure && make check", "autoreconf", "configure.ac"),
    ),
)


def _shell(tree: Tree) -> Tools | None:
    tests = [name for name in tree.under() if name.endswith(".bats")]
    line = f"bats {shlex.join(sorted({parent(name) for name in tests}))}"
    return Tools("Bats", "shell", tests[0], (Command(line, "bats", tests[0]),)) if tests else None


def _perl(tree: Tree) -> Tools | None:
    tests = [name for name in tree.under("t") if name.endswith(".t")]
    check = Command("prove -lr t", "prove", tests[0]) if tests else None
    return Tools("Perl", "Perl", check.source, (check,)) if check else None


LOCKS = frozenset({*_PYTHON, *_JAVASCRIPT, "go.mod", "go.work", "Cargo.lock", "Gemfile.lock"})
"""Files that mark a directory as a project with its own dependencies."""
_Detector = Callable[[Tree], Tools | None]
_ANYWHERE: tuple[_Detector, ...] = (_python, _javascript, _go, _rust, _ruby, _java)
_AT_TOP: tuple[_Detector, ...] = (_native, _shell, _perl)
