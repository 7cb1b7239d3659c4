"""Find new modules that a test runner would load in place of its own.

Python looks for modules in the project before it looks anywhere else. A new `difflib.py` is loaded
by `unittest`, and can make the product right for as long as tests run.
"""

import sys
from collections.abc import Iterable

_PLACES = ("src", "lib", "python")
"""Directories that are often on Python's search path, in addition to the top of the project."""
_SUFFIXES = (".py", ".so", ".pyd")
_OF_RUNNERS = frozenset({
    "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli",
    "attr", "attrs", "colorama", "argcomplete", "xmlschema", "elementpath", "execnet", "xdist",
    "coverage", "hypothesis", "sortedcontainers", "anyio", "sniffio", "trio", "typing_extensions",
    "typeguard", "nose", "zope", "setuptools", "pkg_resources", "_distutils_hack", "pip", "wheel",
    "org",
})  # fmt: skip
"""Modules that test runners and their plugins load or try to load; `copy` tries `org.python`."""
_OF_OTHER_VERSIONS = frozenset({
    "distutils", "imp", "asynchat", "asyncore", "smtpd", "parser", "symbol", "formatter", "macpath",
    "dummy_threading", "_bootlocale", "annotationlib", "compression", "_zstd", "_colorize",
    "_pyrepl", "_suggestions", "_apple_support", "_ios_support", "_android_support",
})  # fmt: skip
_LOADED = sys.stdlib_module_names | _OF_RUNNERS | _OF_OTHER_VERSIONS
_PLUGINS = ("pytest_", "_pytest_", "_hypothesis")


def modules_of(paths: Iterable[str]) -> frozenset[str]:
    """Return the names of the modules and packages that a project's files add to Python's path."""
    return frozenset(found[0] for path in paths if (found := _module(path)))


def shadows(path: str, known: frozenset[str]) -> bool:
    """Return whether a file is a module that a test runner loads in place of its own.

    Args:
        path: The file.
        known: Modules that the project had before.
    """
    found = _module(path)
    if found is None or found[0] in known:
        return False
    name, inner = found
    # Without `__init__`, a directory is used only if there is no other module with its name.
    is_used = inner in ("", "__init__") or name == "org"
    return is_used and (name in _LOADED or name.startswith(_PLUGINS))


def _module(path: str) -> tuple[str, str] | None:
    """Return the module at the top of Python's path to which a file belongs, and the name below."""
    parts = path.split("/")
    if parts[0] in _PLACES and len(parts) > 1:
        parts = parts[1:]
    if not parts[-1].endswith(_SUFFIXES):
        return None
    stem = parts[-1].partition(".")[0]
    return (parts[0], stem) if len(parts) > 1 else (stem, "")
