"""Mark tests as `fast` by what they use, and let a fast test fail that starts a process.

A test is `fast` if it is in a package's folder, its file imports nothing that starts processes,
and its fixtures use nothing of the kind: `pytest -m fast` reads no other file. A fast test fails
if the code under test starts a process or opens a connection: it needs the mark `process`.
"""

import ast
import functools
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLOW = ("docker", "e2e", "bench", "agents", "process")
_FOLDERS = ("assurance", "bench", "docs", "system")
"""Folders of tests that do not belong to one package."""
_STARTERS = frozenset({"subprocess", "multiprocessing", "docker", "pty", "http", "socket"})
"""Modules that start processes or open connections."""
_EVENTS = frozenset({
    "subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system",
    "pty.spawn", "socket.connect", "socket.bind",
})  # fmt: skip
_guarded: list[str] = []
"""Name of the running fast test; empty if no fast test is running."""


@functools.cache
def may_be_fast(file: Path) -> bool:
    """Return whether a file may have fast tests."""
    return file.relative_to(ROOT / "tests").parts[0] not in _FOLDERS and not starts_processes(file)


@functools.cache
def starts_processes(file: Path) -> bool:
    """Return whether a test file imports a module that starts processes, directly or not."""
    return any(
        name.partition(".")[0] in _STARTERS
        or ((found := ROOT / f"{name.replace('.', '/')}.py").is_file() and starts_processes(found))
        for name in _imported(file)
        if not name.startswith("orchestrator")
    )


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def mark(items: Iterable[pytest.Item]) -> None:
    """Add the mark `fast` to each test that is fast."""
    for item in items:
        if not any(item.get_closest_marker(mark) for mark in SLOW) and not _is_slow(item):
            item.add_marker("fast")


def _is_slow(item: pytest.Item) -> bool:
    fixtures = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009
    return not may_be_fast(item.path) or any(
        uses_starter(one.func) for all in fixtures for one in all
    )


def uses_starter(fixture: object) -> bool:
    """Return whether a fixture uses a module that starts processes."""
    code, place = getattr(fixture, "__code__", None), getattr(fixture, "__globals__", {})
    used = (place.get(name) for name in getattr(code, "co_names", ()))
    modules = (getattr(one, "__module__", None) or getattr(one, "__name__", None) for one in used)
    return any(_is_starter(str(name)) for name in modules if name)


def _is_starter(module: str) -> bool:
    file = ROOT / f"{module.replace('.', '/')}.py"
    if module.startswith("tests.") and file.is_file():
        return starts_processes(file)
    return module.partition(".")[0] in _STARTERS


def order(items: list[pytest.Item]) -> None:
    """Put files with containers, which take long, first, and fast tests at the end."""
    files: dict[Path, int] = {}
    for item in items:
        files[item.path] = max(files.get(item.path, 0), _cost(item))
    items.sort(key=lambda item: -files[item.path])


def _cost(item: pytest.Item) -> int:
    if item.get_closest_marker("e2e"):
        return 3
    if item.get_closest_marker("docker"):
        return 2
    return 0 if item.get_closest_marker("fast") else 1


@contextmanager
def guarded(item: pytest.Item) -> Iterator[None]:
    """Let a fast test fail that starts a process or opens a connection."""
    if not item.get_closest_marker("fast"):
        yield
        return
    _watch()
    _guarded.append(item.nodeid)
    try:
        yield
    finally:
        _guarded.clear()


@functools.cache
def _watch() -> None:
    # Python cannot remove an audit hook, so it is added only once.
    sys.addaudithook(_refuse)


def _refuse(event: str, _: tuple[object, ...]) -> None:
    if _guarded and event in _EVENTS:
        told = f"{_guarded[0]} is fast by what it imports, and does `{event}`"
        _guarded.clear()
        pytest.fail(f"{told}: mark it `process`", pytrace=False)
