"""Derive setup and check commands from the files of each language's tools.

A worker's home directory is emptied between setup and agent, so setup must write everything to the
worktree. Tools that download to the home directory, such as Go and Cargo, have no setup command.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from orchestrator.cli.init.findings import Command, Tools
from orchestrator.cli.init.project_tree import Tree, join, parent

ENSUREPIP = "ensurepip"
"""Python's module for virtual environments, which is not part of Debian's Python by default."""
Detector = Callable[[Tree, str], Tools | None]

_PYTEST = re.compile(r"^\[(tool:)?pytest\]|^\[tool\.pytest", re.MULTILINE)
_IMPORTS = re.compile(r"^[ \t]*(?:from|import)[ \t]+(pytest|unittest|django\.test)\b", re.MULTILINE)
_MOST_READ = 200
"""Maximum number of files that are read to decide which test runner they are for."""
_OF_UNITTEST = ({"unittest"}, {"unittest", "django.test"})
_RUNNERS = (("tox.ini", "tox", "tox run"), ("noxfile.py", "nox", "nox"))
"""Files of programs that run tests, each with the program and its command."""
_TEST_DIRECTORIES = ("tests", "test")
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")
_NO_TEST = "no test specified"
"""Text of the placeholder test script that npm writes to a new package.json."""


def detect(tree: Tree, directory: str) -> Iterator[Tools]:
    """Yield the setup and test commands of one directory, at most one set per language."""
    for detector in DETECTORS:
        tools = detector(tree, directory)
        if tools is not None:
            yield tools


def _first(tree: Tree, directory: str, *names: str) -> str | None:
    return next((path for path in (join(directory, name) for name in names) if path in tree), None)


def _in(directory: str, line: str) -> str:
    return line if directory == "." else f"cd {shlex.quote(directory)} && {line}"


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
    "requirements-dev.txt",
    "requirements-test.txt",
    "dev-requirements.txt",
    "test-requirements.txt",
)


def _python(tree: Tree, directory: str) -> Tools | None:
    lock = _first(tree, directory, *_PYTHON)
    if lock is not None:
        name, install, run = _PYTHON[lock.rpartition("/")[2]]
        if name == "uv" and _uv_workspace(tree, directory):
            install += " --all-packages"
        setup = Command(line=_in(directory, install), needs=name, source=lock)
        checks = _python_checks(tree, directory, runner=f"{run} ", needs=name)
        return _of_python(name, lock, setup, checks)
    return _pip(tree, directory)


def _pip(tree: Tree, directory: str) -> Tools | None:
    requirements = [name for name in _REQUIREMENTS if join(directory, name) in tree]
    project = _first(tree, directory, "pyproject.toml", "setup.py")
    if project is not None and not _is_package(tree, project):
        project = None
    source = join(directory, requirements[0]) if requirements else project
    if source is None:
        tests = _python_checks(tree, directory, runner="", needs="python3")
        return _of_python("Python", tests[0].source, None, tests) if tests else None
    words = [word for name in requirements for word in ("-r", name)]
    words += ["-e", _with_extras(tree, directory)] if project else []
    line = f"python3 -m venv .venv && .venv/bin/pip install {shlex.join(words)}"
    setup = Command(
        line=_in(directory, line),
        needs=ENSUREPIP,
        source=source,
        leaves=join(directory, ".venv"),
    )
    checks = _python_checks(tree, directory, runner=".venv/bin/", needs=ENSUREPIP)
    return _of_python("pip", source, setup, checks)


def _of_python(name: str, source: str, setup: Command | None, checks: tuple[Command, ...]) -> Tools:
    return Tools(
        name=name,
        language="Python",
        source=source,
        setup=setup,
        checks=checks,
        of_members=setup is not None,
    )


def _uv_workspace(tree: Tree, directory: str) -> bool:
    tool = tree.toml(join(directory, "pyproject.toml")).get("tool")
    uv = tool.get("uv") if isinstance(tool, dict) else None
    return isinstance(uv, dict) and "workspace" in uv


def _is_package(tree: Tree, project: str) -> bool:
    # Many pyproject.toml files contain only settings of linters.
    return not project.endswith(".toml") or bool(
        tree.toml(project).keys() & {"project", "build-system"}
    )


def _with_extras(tree: Tree, directory: str) -> str:
    project = tree.toml(join(directory, "pyproject.toml")).get("project")
    offered = project.get("optional-dependencies") if isinstance(project, dict) else None
    extras = [name for name in ("dev", "test", "tests") if name in (offered or {})]
    return f".[{','.join(extras)}]" if extras else "."


def _python_checks(tree: Tree, directory: str, *, runner: str, needs: str) -> tuple[Command, ...]:
    source = _pytest_source(tree, directory)
    if source is not None:
        line = f"{runner}pytest" if runner else "python3 -m pytest"
        needed = needs if runner else "pytest"
        return (Command(line=_in(directory, line), needs=needed, source=source),)
    for place in _TEST_DIRECTORIES:
        tests = [name for name in tree.under(join(directory, place)) if _is_test(name)]
        if tests:
            return (_test_command(tree, directory, tests, runner=runner, needs=needs),)
    for name, program, line in _RUNNERS:
        if join(directory, name) in tree:
            return (Command(line=_in(directory, line), needs=program, source=name),)
    return ()


def _is_test(name: str) -> bool:
    return _TEST_FILE.fullmatch(PurePosixPath(name).name) is not None


def _test_command(
    tree: Tree, directory: str, tests: list[str], *, runner: str, needs: str
) -> Command:
    """Return the command for test files, which are for `unittest` if they import nothing else."""
    read = tests[:_MOST_READ]
    other = [name for name in read if set(_IMPORTS.findall(tree.text(name))) not in _OF_UNITTEST]
    if other:
        common = PurePosixPath(os.path.commonpath([parent(name) for name in tests]))
        where = shlex.quote(str(common.relative_to(directory)))
        line = f"{runner or 'python3 -m '}pytest {where}"
        return Command(
            line=_in(directory, line), needs=needs if runner else "pytest", source=other[0]
        )
    place = PurePosixPath(tests[0]).relative_to(directory).parts[0]
    top = " -t ." if join(directory, f"{place}/__init__.py") in tree else ""
    line = f"{runner}python" if runner else "python3"
    line += f" -m unittest discover -s {place}{top}"
    if not any(PurePosixPath(name).name.startswith("test_") for name in tests):
        line += " -p '*_test.py'"
    return Command(line=_in(directory, line), needs=needs, source=tests[0])


def _pytest_source(tree: Tree, directory: str) -> str | None:
    sure = _first(tree, directory, "pytest.ini", "conftest.py", "tests/conftest.py")
    if sure is not None:
        return sure
    places = ("pyproject.toml", "tox.ini", "setup.cfg")
    for name in (join(directory, place) for place in places):
        if _PYTEST.search(tree.text(name)):
            return name
    for name in (join(directory, place) for place in (*_REQUIREMENTS, "pyproject.toml", "Pipfile")):
        if re.search(r"\bpytest\b", tree.text(name)):
            return name
    return None


_JAVASCRIPT: Mapping[str, tuple[str, str]] = {
    "pnpm-lock.yaml": ("pnpm", "pnpm install --frozen-lockfile"),
    "yarn.lock": ("yarn", "yarn install --frozen-lockfile"),
    "bun.lock": ("bun", "bun install --frozen-lockfile"),
    "bun.lockb": ("bun", "bun install --frozen-lockfile"),
    "package-lock.json": ("npm", "npm ci"),
    "npm-shrinkwrap.json": ("npm", "npm ci"),
}


def _javascript(tree: Tree, directory: str) -> Tools | None:
    package = join(directory, "package.json")
    if package not in tree:
        return None
    lock = _first(tree, directory, *_JAVASCRIPT)
    if lock is not None:
        name, install = _JAVASCRIPT[lock.rpartition("/")[2]]
    else:
        name = _package_manager(tree.json(package))
        install = f"{name} install"
    if name == "yarn" and lock is not None and "__metadata:" in tree.text(lock):
        # By default, yarn would link to packages in the home directory, which is emptied later.
        install = "YARN_ENABLE_GLOBAL_CACHE=false yarn install --immutable"
    described = tree.json(package)
    # Without dependencies, there is nothing to install.
    wanted = lock or "workspaces" in described or any(map(described.get, _DEPENDENCIES))
    setup = Command(
        line=_in(directory, install),
        needs=name,
        source=lock or package,
        leaves=join(directory, "node_modules"),
    )
    return Tools(
        name=name,
        language="JavaScript",
        source=lock or package,
        of_members=True,
        setup=setup if wanted else None,
        checks=tuple(_javascript_checks(tree, package, directory, name)),
    )


_DEPENDENCIES = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies")


def _package_manager(package: Mapping[str, Any]) -> str:
    named = str(package.get("packageManager", "")).partition("@")[0]
    return named if named in {"npm", "pnpm", "yarn", "bun"} else "npm"


def _javascript_checks(tree: Tree, source: str, directory: str, manager: str) -> Iterator[Command]:
    package = tree.json(source)
    scripts = package.get("scripts")
    test = scripts.get("test") if isinstance(scripts, dict) else None
    if isinstance(test, str) and test.strip() and _NO_TEST not in test:
        line = f"{manager} run test" if manager == "bun" else f"{manager} test"
    elif "workspaces" in package and manager == "npm":
        line = "npm test --workspaces --if-present"
    elif join(directory, "pnpm-workspace.yaml") in tree and manager == "pnpm":
        line = "pnpm --recursive --if-present run test"
    else:
        return
    yield Command(line=_in(directory, line), needs=manager, source=source)


def _go(tree: Tree, directory: str) -> Tools | None:
    work, module = join(directory, "go.work"), join(directory, "go.mod")
    if work in tree:
        used = re.findall(r"^\s*(?:use\s+)?(\./[^\s()]*|\.)\s*$", tree.text(work), re.MULTILINE)
        places = [f"{place.rstrip('/')}/..." for place in dict.fromkeys(used)]
        line = f"go test {shlex.join(places or ['./...'])}"
        source = work
    elif module in tree:
        line, source = "go test ./...", module
    else:
        return None
    check = Command(line=_in(directory, line), needs="go", source=source)
    return Tools(
        name="Go", language="Go", source=source, checks=(check,), of_members=source == work
    )


def _rust(tree: Tree, directory: str) -> Tools | None:
    manifest, lock = join(directory, "Cargo.toml"), join(directory, "Cargo.lock")
    if manifest not in tree:
        return None
    whole = " --workspace" if "workspace" in tree.toml(manifest) else ""
    line = f"cargo test{whole}{' --locked' if lock in tree else ''}"
    check = Command(line=_in(directory, line), needs="cargo", source=manifest)
    source = lock if lock in tree else manifest
    return Tools(name="Cargo", language="Rust", source=source, checks=(check,), of_members=True)


def _ruby(tree: Tree, directory: str) -> Tools | None:
    source = _first(tree, directory, "Gemfile.lock", "Gemfile")
    if source is None:
        rake = _first(tree, directory, "Rakefile")
        if rake is None or not re.search(r"TestTask|:test\b", tree.text(rake)):
            return None
        check = Command(line=_in(directory, "rake test"), needs="rake", source=rake)
        return _with_check("Rake", "Ruby", rake, check)
    install = "bundle config set --local path vendor/bundle && bundle install"
    spec = _first(tree, directory, ".rspec", "spec/spec_helper.rb")
    rake = _first(tree, directory, "Rakefile")
    line = "bundle exec rspec" if spec else "bundle exec rake test" if rake else None
    command_source = spec or rake or source
    checks = (
        (Command(line=_in(directory, line), needs="bundle", source=command_source),) if line else ()
    )
    return Tools(
        name="Bundler",
        language="Ruby",
        of_members=True,
        source=source,
        setup=Command(
            line=_in(directory, install),
            needs="bundle",
            source=source,
            leaves=join(directory, "vendor/bundle"),
        ),
        checks=checks,
    )


def _java(tree: Tree, directory: str) -> Tools | None:
    build = _first(tree, directory, "pom.xml", "build.gradle.kts", "build.gradle")
    if build is None:
        return None
    maven = build.endswith("pom.xml")
    name, wrapper = ("Maven", "mvnw") if maven else ("Gradle", "gradlew")
    program = f"./{wrapper}" if join(directory, wrapper) in tree else wrapper.removesuffix("w")
    line = f"{program} --batch-mode test" if maven else f"{program} --console=plain test"
    needs = "java" if program.startswith("./") else program
    check = Command(line=_in(directory, line), needs=needs, source=build)
    return Tools(name=name, language="Java", source=build, checks=(check,), of_members=True)


def _native(tree: Tree, directory: str) -> Tools | None:
    """Return the tools of a project that is built with CMake, Meson or autotools."""
    if directory != ".":
        return None
    cmake = next((name for name in tree.find("CMakeLists.txt") if name.count("/") <= 2), None)
    if cmake is not None and _CTEST.search(tree.text(cmake)):
        source = shlex.quote(parent(cmake))
        line = f"cmake -S {source} -B .build && cmake --build .build && "
        line += "ctest --test-dir .build --output-on-failure"
        return _with_check("CMake", "C", cmake, Command(line=line, needs="cmake", source=cmake))
    if "meson.build" in tree:
        line = "meson setup .build && meson test -C .build"
        return _with_check(
            "Meson", "C", "meson.build", Command(line=line, needs="meson", source="meson.build")
        )
    if "configure" in tree:
        line, needs, source = "./configure && make check", "make", "configure"
    elif "configure.ac" in tree:
        line = "autoreconf --install && ./configure && make check"
        needs, source = "autoreconf", "configure.ac"
    else:
        return None if cmake is None else Tools(name="CMake", language="C", source=cmake)
    return _with_check("autotools", "C", source, Command(line=line, needs=needs, source=source))


_CTEST = re.compile(
    r"^\s*(enable_testing\s*\(|include\s*\(\s*CTest\b)", re.IGNORECASE | re.MULTILINE
)


def _shell(tree: Tree, directory: str) -> Tools | None:
    tests = [name for name in tree.under(directory) if name.endswith(".bats")]
    if directory != "." or not tests:
        return None
    places = shlex.join(sorted({parent(name) for name in tests}))
    return _with_check(
        "Bats", "shell", tests[0], Command(line=f"bats {places}", needs="bats", source=tests[0])
    )


def _perl(tree: Tree, directory: str) -> Tools | None:
    tests = [name for name in tree.under(join(directory, "t")) if name.endswith(".t")]
    if directory != "." or not tests:
        return None
    return _with_check(
        "Perl", "Perl", tests[0], Command(line="prove -lr t", needs="prove", source=tests[0])
    )


def _with_check(name: str, language: str, source: str, check: Command) -> Tools:
    return Tools(name=name, language=language, source=source, checks=(check,), of_members=True)


LOCKS = frozenset({*_PYTHON, *_JAVASCRIPT, "go.mod", "go.work", "Cargo.lock", "Gemfile.lock"})
"""Files that mark a directory as a project with its own dependencies."""
DETECTORS: tuple[Detector, ...] = (
    *(_python, _javascript, _go, _rust, _ruby, _java, _native, _shell, _perl),
)
