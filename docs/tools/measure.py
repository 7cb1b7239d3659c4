"""Measure the structure of the package; `--check` fails where a limit is exceeded.

Part of `make check`. Reads the source only. A limit that is above its target is a ratchet: lower it
whenever the measured value falls. `--root` measures another checkout, for instance an old one.
"""

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imports import ROOT, Module, depths, import_graph, longest_chain, read_modules, room_graph

LONG_FILE = 400
MANY_PARAMETERS = 6
TRAVELLING_PARAMETERS = frozenset({"run", "spec", "workspace", "checkpoints", "services", "log"})
"""Parameters that functions pass on together because no object contains them."""
VAGUE_VERBS = frozenset(
    {"Give", "Say", "Tell", "Let", "Have", "Keep", "Take", "Hear", "See", "Name"}
)
"""First words of docstrings that do not say whether a function returns, checks or changes."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Limit:
    """The limit of a measurement, and its target."""

    allowed: float
    target: float


LIMITS: Mapping[str, Limit] = {
    "files at the top of the package": Limit(8, 8),
    "rooms": Limit(29, 29),
    "floors of rooms": Limit(10, 10),
    "longest import chain": Limit(14, 14),
    "function lines, median": Limit(9, 9),
    "function lines, 90th percentile": Limit(22, 22),
    "function lines, longest": Limit(72, 72),
    "files over 400 lines": Limit(0, 0),
    "functions with 6 or more parameters": Limit(8, 8),
    "functions with travelling parameters": Limit(10, 10),
    "public names per module, median": Limit(3, 3),
    "public names per module, 90th percentile": Limit(11, 11),
    "public names per module, most": Limit(40, 40),
    "docstrings with a vague verb, percent": Limit(2, 2),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the measurements; return 1 if `--check` found a limit exceeded."""
    parser = argparse.ArgumentParser(description="Measure the structure of the package")
    parser.add_argument("--check", action="store_true", help="print only what exceeds its limit")
    parser.add_argument("--list", action="store_true", help="also name what is counted")
    parser.add_argument("--root", type=Path, default=ROOT, help="measure this checkout")
    options = parser.parse_args(arguments)
    modules = read_modules(options.root)
    measured = measure(modules)
    exceeded = {name: value for name, value in measured.items() if value > LIMITS[name].allowed}
    if not options.check:
        print_table(measured)
    if options.list or (exceeded and options.check):
        for line in details(modules):
            print(line)
    for name, value in exceeded.items():
        print(f"error: {name}: {value:g}, limit {LIMITS[name].allowed:g}", file=sys.stderr)
    return 1 if exceeded and options.check else 0


def print_table(measured: Mapping[str, float]) -> None:
    """Print every measurement with its limit and its target."""
    print(f"{'':42}{'value':>7}{'limit':>7}{'target':>8}")
    for name, value in measured.items():
        limit = LIMITS[name]
        print(f"{name:42}{value:>7g}{limit.allowed:>7g}{limit.target:>8g}")


def measure(modules: Mapping[str, Module]) -> dict[str, float]:
    """Return every measurement by its name.

    Raises:
        ValueError: Modules or rooms import each other in a circle.
    """
    graph = import_graph(modules)
    rooms = room_graph(modules, graph)
    found = [function for module in modules.values() for function in functions(module)]
    lengths = [_length(function) for function in found]
    names = [len(list(public_names(module))) for module in modules.values()]
    words = first_words(found)
    chain = longest_chain(graph)
    return {
        "files at the top of the package": sum(len(m.path.parts) == 2 for m in modules.values()),
        "rooms": len(rooms),
        "floors of rooms": max(depths(rooms).values()),
        "longest import chain": len(chain),
        "function lines, median": percentile(lengths, 50),
        "function lines, 90th percentile": percentile(lengths, 90),
        "function lines, longest": max(lengths),
        "files over 400 lines": sum(module.lines > LONG_FILE for module in modules.values()),
        "functions with 6 or more parameters": sum(map(_has_many_parameters, found)),
        "functions with travelling parameters": sum(map(_has_travelling_parameters, found)),
        "public names per module, median": percentile(names, 50),
        "public names per module, 90th percentile": percentile(names, 90),
        "public names per module, most": max(names),
        "docstrings with a vague verb, percent": round(
            100 * sum(words[verb] for verb in VAGUE_VERBS) / max(1, words.total()), 1
        ),
    }


def details(modules: Mapping[str, Module]) -> Iterator[str]:
    """Name the longest chain of imports, and every function that is counted."""
    yield "longest import chain: " + " > ".join(longest_chain(import_graph(modules)))
    for module in modules.values():
        if module.lines > LONG_FILE:
            yield f"{module.path}: {module.lines} lines"
        for function in functions(module):
            place = f"{module.path}:{function.lineno}: {function.name}"
            if _has_many_parameters(function):
                yield f"{place}: {len(parameters(function))} parameters"
            if _has_travelling_parameters(function):
                together = TRAVELLING_PARAMETERS.intersection(parameters(function))
                yield f"{place}: travelling parameters {', '.join(sorted(together))}"
            if first_words([function]).keys() & VAGUE_VERBS:
                yield f"{place}: vague verb {''.join(first_words([function]))}"


def functions(module: Module) -> Iterator[Function]:
    """Yield every function and method of a module, nested ones included."""
    for node in ast.walk(module.tree):
        if isinstance(node, Function):
            yield node


def parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters without `self` and `cls`."""
    listed = function.args
    several = [one for one in (listed.vararg, listed.kwarg) if one]
    found = [*listed.posonlyargs, *listed.args, *listed.kwonlyargs, *several]
    names = [one.arg for one in found]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def public_names(module: Module) -> Iterator[str]:
    """Yield the names that a module defines at its top without a leading underscore."""
    for node in module.tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names = [name]
            case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case ast.Assign(targets=targets):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))


def first_words(found: Sequence[Function]) -> Counter[str]:
    """Count the first words of the functions' docstrings."""
    texts = (ast.get_docstring(function) for function in found)
    return Counter(text.split()[0].rstrip(".,:;") for text in texts if text)


def percentile(values: Sequence[int], percent: int) -> int:
    """Return the value that `percent` of the values do not exceed."""
    return sorted(values)[len(values) * percent // 100]


def _length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _has_many_parameters(function: Function) -> bool:
    return len(parameters(function)) >= MANY_PARAMETERS


def _has_travelling_parameters(function: Function) -> bool:
    return len(TRAVELLING_PARAMETERS.intersection(parameters(function))) > 1


if __name__ == "__main__":
    sys.exit(main())
