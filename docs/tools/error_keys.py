"""Find the keys of errors in the source, for the reference and for the tests of their rules."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from imports import ROOT, Module, read_modules

ROOT_CLASS = "OrchestratorError"
FORM = re.compile(r"[a-z]+(-[a-z]+)*(\.[a-z]+(-[a-z]+)*)+")
"""Nouns with dots between them, such as `worker.unknown`."""
SEVERAL = "mistakes"
"""Function that makes one error of several mistakes; it takes the key as the classes do."""


def error_classes(modules: Mapping[str, Module]) -> dict[str, int]:
    """Return the exit code of each class of errors, by its name."""
    kinds = [
        node
        for module in modules.values()
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
    ]
    codes = {ROOT_CLASS: 70}
    # A class may be defined in a module that is read before the module of its base.
    for _ in kinds:
        known = len(codes)
        for kind in kinds:
            base = next((name for name in map(_name, kind.bases) if name in codes), None)
            if base is not None and kind.name not in codes:
                codes[kind.name] = next(_own_codes(kind), codes[base])
        if len(codes) == known:
            break
    return codes


@cache
def keys(root: Path = ROOT) -> dict[str, set[str]]:
    """Return the classes of the errors that have each key."""
    found = defaultdict(set)
    for _, kind, key in constructions(root):
        if key is not None:
            found[key].add("ConfigError" if kind == SEVERAL else kind)
    return dict(found)


def constructions(root: Path = ROOT) -> Iterator[tuple[str, str, str | None]]:
    """Yield place, class and key of every error that the package makes; no key: None.

    A class whose constructor names the key itself counts once, there.
    """
    modules = read_modules(root)
    codes = error_classes(modules)
    own = dict(_own_keys(modules, codes))
    for kind, (place, key) in own.items():
        yield place, kind, key
    for module in modules.values():
        for node in module.nodes:
            if not isinstance(node, ast.Call) or not (node.args or node.keywords):
                continue
            name = _name(node.func)
            if name in own or (name not in codes and name != SEVERAL and not _is_raised(node)):
                continue
            key = _key(node)
            if not (isinstance(key, ast.Name) and module.name == "orchestrator.base.errors"):
                yield f"{module.path}:{node.lineno}", name or "ConfigError", _text(key)


@cache
def table(_: str = "") -> str:
    """Return a table with a row for each key."""
    codes = error_classes(read_modules(ROOT))
    rows = ["| Key | Exit code | Class |", "|---|--:|---|"]
    for key, kinds in sorted(keys().items()):
        numbers = ", ".join(sorted({str(codes[kind]) for kind in kinds}))
        rows.append(f"| `{key}` | {numbers} | {', '.join(f'`{kind}`' for kind in sorted(kinds))} |")
    return "\n".join(rows)


def _own_keys(
    modules: Mapping[str, Module], codes: Mapping[str, int]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the classes whose constructor names the key, with the place and the key."""
    for module in modules.values():
        for kind in module.nodes:
            if not isinstance(kind, ast.ClassDef) or kind.name not in codes:
                continue
            for node in ast.walk(kind):
                if isinstance(node, ast.Call) and _name(node.func) == "__init__":
                    key = _text(_key(node))
                    if key is not None:
                        yield kind.name, (f"{module.path}:{node.lineno}", key)


def _own_codes(kind: ast.ClassDef) -> Iterator[int]:
    for node in kind.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id == "exit_code":
            yield ast.literal_eval(node.value)


def _is_raised(node: ast.Call) -> bool:
    """Return whether a call that chooses a class of errors makes an error with a key."""
    return isinstance(node.func, ast.Call) and _key(node) is not None


def _key(node: ast.Call) -> ast.expr | None:
    return next((argument.value for argument in node.keywords if argument.arg == "key"), None)


def _text(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _name(node: ast.expr) -> str | None:
    return getattr(node, "id", None) or getattr(node, "attr", None)
