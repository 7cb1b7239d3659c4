"""Combine a program that runs in a container with the modules that it imports into one text.

The image of a container has no copy of this package, and its Python may be another version than the
host's. So the program is passed as source text: `python3 -c TEXT ARGUMENTS`.
"""

import re
from functools import cache
from importlib.resources import files

_IMPORT = re.compile(r"^from (orchestrator(?:\.\w+)+) import", re.MULTILINE)
_START = """\
import sys, types
for name, text in {texts!r}.items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
module.main(*sys.argv[1:])
"""
"""Python source that defines each module under its name, so that later modules can import it."""


@cache
def bundle(program: str) -> str:
    """Return Python source that defines the modules of a program and calls its function `main`.

    Args:
        program: Full name of a module whose function `main` takes the arguments of the command
            line.
    """
    texts: dict[str, str] = {}
    _add(program, texts)
    return _START.format(texts=texts)


def _add(module: str, texts: dict[str, str]) -> None:
    """Add a module to the texts, after the modules that it imports."""
    top, *folders, name = module.split(".")
    text = files(top).joinpath(*folders, f"{name}.py").read_text(encoding="utf-8")
    for imported in _IMPORT.findall(text):
        if imported not in texts:
            _add(imported, texts)
    texts[module] = text
