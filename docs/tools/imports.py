"""Read which module of the package imports which, from the source alone."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "orchestrator"
ENTRY = frozenset({"__init__", "__main__", "events"})
"""Files at the top of the package, which are no rooms: entry points, and a name for programs."""

Graph = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Module:
    """One source file of the package."""

    name: str
    path: Path
    """Path relative to the project."""
    source: str

    @property
    def is_package(self) -> bool:
        """Whether the file is an `__init__.py`."""
        return self.path.name == "__init__.py"

    @property
    def room(self) -> str:
        """The folder or file at the top of the package to which the module belongs."""
        parts = self.path.parts[1:]
        return parts[0] if len(parts) > 1 else parts[0].removesuffix(".py")

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed source."""
        return ast.parse(self.source)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree, which takes longer to walk than to read again."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def marks(self) -> frozenset[int]:
        """The numbers of the lines that only mark a protection."""
        lines = enumerate(self.source.splitlines(), start=1)
        return frozenset(n for n, line in lines if line.lstrip().startswith("# protection: "))

    @cached_property
    def lines(self) -> int:
        """The number of lines without marks."""
        return self.source.count("\n") - len(self.marks)


@cache
def read_modules(root: Path = ROOT) -> Mapping[str, Module]:
    """Return every module of the package by its dotted name; the package is read once."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path.relative_to(root), path.read_text(encoding="utf-8"))
    return found


def import_graph(modules: Mapping[str, Module]) -> Graph:
    """Return for every module the modules that it imports, including imports inside functions."""
    return {
        name: frozenset(_imported(module, modules)) - {name} for name, module in modules.items()
    }


def _imported(module: Module, modules: Mapping[str, Module]) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in modules:
                    yield inner
                elif node.module in modules:
                    yield node.module


def room_graph(modules: Mapping[str, Module], graph: Graph) -> dict[str, frozenset[str]]:
    """Return for every room the rooms that its modules import."""
    rooms: dict[str, set[str]] = {module.room: set() for module in modules.values()}
    for name, imported in graph.items():
        room = modules[name].room
        rooms[room] |= {modules[other].room for other in imported} - {room}
    return {room: frozenset(others) for room, others in rooms.items()}


def depths(graph: Graph) -> dict[str, int]:
    """Return for every node the number of nodes on the longest chain that starts at it.

    Raises:
        ValueError: Some nodes import each other in a circle; the message names them.
    """
    found: dict[str, int] = {}
    left = dict(graph)
    while left:
        ready = [node for node, others in left.items() if not others & left.keys()]
        if not ready:
            raise ValueError(f"circle of imports among: {', '.join(sorted(left))}")
        for node in ready:
            found[node] = 1 + max((found[other] for other in left[node]), default=0)
        for node in ready:
            del left[node]
    return found


def longest_chain(graph: Graph) -> list[str]:
    """Return the longest chain of nodes in which each node imports the next."""
    depth = depths(graph)
    chain: list[str] = []
    choices: Iterable[str] = graph
    by_depth: Callable[[str], tuple[int, str]] = lambda node: (depth[node], node)  # noqa: E731
    while choices:
        chain.append(max(choices, key=by_depth))
        choices = graph[chain[-1]]
    return chain
