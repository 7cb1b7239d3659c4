"""Measure the structure of the package; `--check` fails where a limit is exceeded.

Part of `make check`. Reads the source only; marks of protections count for no lines. A limit that
is above its target is a ratchet: lower it whenever the measured value falls. `--root` measures
another checkout, for instance an old one.
"""

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imports import (
    ENTRY,
    ROOT,
    Module,
    depths,
    import_graph,
    longest_chain,
    read_modules,
    room_graph,
)

LONG_FILE = 400
MANY_PARAMETERS = 6
TRAVELLING_PARAMETERS = frozenset({"run", "spec", "workspace", "checkpoints", "services", "log"})
"""Parameters that functions pass on together because no object contains them."""
VAGUE_VERBS = frozenset(
    {"Give", "Say", "Tell", "Let", "Have", "Keep", "Take", "Hear", "See", "Name"}
)
"""First words of docstrings that do not say whether a function returns, checks or changes."""

IRREGULAR_PARTICIPLES = frozenset(
    {"broken", "chosen", "drawn", "forbidden", "given", "held", "hidden", "known", "seen", "sent"}
    | {"shown", "spent", "strayed", "taken", "told", "written", "overridden", "unknown"}
)
VERBS_IN_ED = frozenset({"embed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"})
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Limit:
    """The limit of a measurement, and its target."""

    allowed: float
    target: float


LIMITS: Mapping[str, Limit] = {
    "files at the top of the package": Limit(3, 3),
    "rooms": Limit(12, 12),
    "entries of a room, most": Limit(12, 12),
    "floors of rooms": Limit(8, 8),
    "longest import chain": Limit(16, 14),
    "function lines, median": Limit(9, 9),
    "function lines, 90th percentile": Limit(25, 22),
    "function lines, longest": Limit(72, 72),
    "files over 400 lines": Limit(11, 0),
    "functions with 6 or more parameters": Limit(23, 8),
    "functions with travelling parameters": Limit(8, 7),
    "public names per module, median": Limit(3, 3),
    "public names per module, 90th percentile": Limit(10, 11),
    "public names per module, most": Limit(40, 40),
    "docstrings with a vague verb, percent": Limit(2, 2),
    # Places with volumes (`engine/in_place` and what uses it) came on top of what existed; then
    # answers of API servers, forges and proxies that were not expected; then proofs per test, ways
    # of git to start programs, and readers of files that other tools write; then sandboxes that
    # need no repository, with their command line, and commands in containers that end for sure.
    "lines": Limit(104_000, 70_000),
    "lines of docstrings, percent": Limit(14.3, 13),
    "modules": Limit(662, 440),
    "lines per function": Limit(18.2, 20),
    "private functions with one caller, percent": Limit(20.9, 20),
    "function names that begin with a participle, percent": Limit(2.7, 2.5),
    "variables named `one`": Limit(0, 0),
}
AT_LEAST = frozenset({"lines per function"})
"""Measurements whose limit is the smallest value."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the measurements; return 1 if `--check` found a limit exceeded."""
    parser = argparse.ArgumentParser(description="Measure the structure of the package")
    parser.add_argument("--check", action="store_true", help="print only what exceeds its limit")
    parser.add_argument("--list", action="store_true", help="also name what is counted")
    parser.add_argument("--root", type=Path, default=ROOT, help="measure this checkout")
    options = parser.parse_args(arguments)
    modules = read_modules(options.root)
    measured = measure(modules)
    exceeded = {name: value for name, value in measured.items() if _exceeds(name, value)}
    if not options.check:
        print_table(measured)
    if options.list or (exceeded and options.check):
        for line in details(modules):
            print(line)
    for name, value in exceeded.items():
        print(f"error: {name}: {value:g}, limit {LIMITS[name].allowed:g}", file=sys.stderr)
    return 1 if exceeded and options.check else 0


def _exceeds(name: str, value: float) -> bool:
    limit = LIMITS[name].allowed
    return value < limit if name in AT_LEAST else value > limit


def print_table(measured: Mapping[str, float]) -> None:
    """Print every measurement with its limit and its target."""
    print(f"{'':54}{'value':>7}{'limit':>7}{'target':>8}")
    for name, value in measured.items():
        limit = LIMITS[name]
        print(f"{name:54}{value:>7g}{limit.allowed:>7g}{limit.target:>8g}")


def measure(modules: Mapping[str, Module]) -> dict[str, float]:
    """Return every measurement by its name.

    Raises:
        ValueError: Modules or rooms import each other in a circle.
    """
    graph = import_graph(modules)
    rooms = room_graph(modules, graph)
    found = [function for module in modules.values() for function in functions(module)]
    lengths = [
        _length(function, module) for module in modules.values() for function in functions(module)
    ]
    names = [len(list(public_names(module))) for module in modules.values()]
    words = first_words(found)
    chain = longest_chain(graph)
    return {
        "files at the top of the package": sum(len(m.path.parts) == 2 for m in modules.values()),
        "rooms": len(rooms.keys() - ENTRY),
        "entries of a room, most": max(map(len, room_entries(modules).values()), default=0),
        "floors of rooms": max(depths(without_entries(rooms)).values(), default=0),
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
        **_measure_reading(modules, found),
    }


def without_entries(rooms: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """Return the rooms without the files at the top of the package."""
    return {room: others - ENTRY for room, others in rooms.items() if room not in ENTRY}


def room_entries(modules: Mapping[str, Module]) -> dict[str, set[str]]:
    """Return for every room the names of the files and folders at its top."""
    found: dict[str, set[str]] = {}
    for module in modules.values():
        parts = module.path.parts[1:]
        if len(parts) > 2 or (len(parts) == 2 and not module.is_package):
            found.setdefault(parts[0], set()).add(parts[1])
    return found


def _measure_reading(modules: Mapping[str, Module], found: Sequence[Function]) -> dict[str, float]:
    """Measure how much there is to read, and how far a reader has to jump."""
    lines = sum(module.lines for module in modules.values())
    nodes = [node for module in modules.values() for node in module.nodes]
    return {
        "lines": lines,
        "lines of docstrings, percent": _percent(
            sum(_docstring_lines(node) for m in modules.values() for node in m.nodes),
            lines,
        ),
        "modules": len(modules),
        "lines per function": round(lines / len(found), 1),
        "private functions with one caller, percent": _percent(
            sum(1 for module in modules.values() for _ in single_callers(module)), len(found)
        ),
        "function names that begin with a participle, percent": _percent(
            sum(map(_begins_with_participle, found)), len(found)
        ),
        "variables named `one`": sum(map(_is_one, nodes)),
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
            if _begins_with_participle(function):
                yield f"{place}: begins with a participle"
        for function in single_callers(module):
            yield f"{module.path}:{function.lineno}: {function.name}: one caller"


def functions(module: Module) -> Iterator[Function]:
    """Yield every function and method of a module, nested ones included."""
    for node in module.nodes:
        if isinstance(node, Function):
            yield node


def single_callers(module: Module) -> Iterator[Function]:
    """Yield the private functions that their module names in exactly one place."""
    names = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in module.nodes
        if isinstance(node, ast.Name | ast.Attribute)
    )
    for function in functions(module):
        private = function.name.startswith("_") and not function.name.startswith("__")
        if private and names[function.name] == 1:
            yield function


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


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 1)


def _docstring_lines(node: ast.AST) -> int:
    if isinstance(node, ast.Module | ast.ClassDef | Function) and node.body:
        match node.body[0]:
            case ast.Expr(value=ast.Constant(value=str())) as text:
                return (text.end_lineno or text.lineno) - text.lineno + 1
            case _:
                pass
    return 0


def _begins_with_participle(function: Function) -> bool:
    word = function.name.lstrip("_").split("_")[0]
    regular = word.endswith("ed") and word not in VERBS_IN_ED
    return regular or word in IRREGULAR_PARTICIPLES


def _is_one(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id == "one" and isinstance(node.ctx, ast.Store)
    return isinstance(node, ast.arg) and node.arg == "one"


def _length(function: Function, module: Module) -> int:
    lines = range(function.lineno, (function.end_lineno or function.lineno) + 1)
    return len(lines) - len(module.marks.intersection(lines))


def _has_many_parameters(function: Function) -> bool:
    return len(parameters(function)) >= MANY_PARAMETERS


def _has_travelling_parameters(function: Function) -> bool:
    return len(TRAVELLING_PARAMETERS.intersection(parameters(function))) > 1


if __name__ == "__main__":
    sys.exit(main())
