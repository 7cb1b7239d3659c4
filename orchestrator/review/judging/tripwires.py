"""Find new code of a product that touches the test runner, or the process in which tests run.

Honest code seldom does. Such a candidate is no cheat for certain: a person looks at the line.
Python is parsed; in other languages, tokens are compared. Only lines count that are new.
"""

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from orchestrator.base.text.sanitize import one_line
from orchestrator.review.judging.shadowing import modules_of
from orchestrator.review.judging.text_tripwires import of_text, uses_of
from orchestrator.review.judging.tokens import Language
from orchestrator.review.judging.trees import Trees

_RUNNERS = frozenset(
    {"unittest", "pytest", "_pytest", "doctest", "nose", "nose2", "pluggy", "xdist", "hypothesis",
     "testtools", "ward", "behave"}
)  # fmt: skip
_INTERNALS = frozenset(
    {"gc", "atexit", "ctypes", "_ctypes", "cffi", "builtins", "_builtins", "linecache", "marshal",
     "faulthandler", "_thread", "bdb", "pdb", "trace", "codeop", "zipimport"}
)  # fmt: skip
_HARMLESS_IMPORTLIB = frozenset({"metadata", "resources", "import_module", "util"})
_OF_SYS = frozenset(
    {"modules", "_getframe", "_getframemodulename", "_current_frames", "settrace", "setprofile",
     "gettrace", "monitoring", "meta_path", "path_hooks", "path_importer_cache", "addaudithook",
     "unraisablehook", "excepthook", "displayhook", "_current_exceptions"}
)  # fmt: skip
_OF_MODULES = {
    "sys": _OF_SYS,
    "os": frozenset({"_exit", "abort", "fork", "forkpty", "execl", "execle", "execlp", "execlpe",
                     "execv", "execve", "execvp", "execvpe", "posix_spawn", "register_at_fork",
                     "killpg"}),
    "inspect": frozenset({"currentframe", "stack", "trace", "getouterframes", "getinnerframes",
                          "getframeinfo", "getsource", "getsourcelines", "getsourcefile"}),
    "threading": frozenset({"excepthook", "settrace", "setprofile", "main_thread",
                            "settrace_all_threads", "setprofile_all_threads"}),
    "traceback": frozenset({"extract_stack", "walk_stack", "print_stack", "format_stack"}),
    "signal": frozenset({"alarm", "setitimer", "raise_signal"}),
    "types": frozenset({"FunctionType", "CodeType"}),
    "importlib": frozenset({"reload", "machinery", "abc", "_bootstrap", "_bootstrap_external",
                            "invalidate_caches"}),
    "importlib.util": frozenset({"module_from_spec", "spec_from_file_location",
                                 "spec_from_loader", "LazyLoader"}),
}  # fmt: skip
_ATTRIBUTES = frozenset(
    {"_getframe", "_current_frames", "settrace", "setprofile", "meta_path", "path_hooks", "f_back",
     "f_locals", "f_globals", "f_code", "f_builtins", "tb_frame", "gi_frame", "cr_frame",
     "__subclasses__", "__globals__", "__builtins__", "__code__", "__closure__", "_exit",
     "excepthook", "addaudithook", "get_objects", "get_referrers", "get_referents", "co_names",
     "co_consts", "co_code", "__import__", "__loader__", "exec_module", "__mro_entries__",
     "_testMethodName", "testsRun", "wasSuccessful", "failureException"}
)  # fmt: skip
_MODULE_NAMES = frozenset({"sys", "_sys", "builtins", "gc", *_RUNNERS})
_BUILTIN = frozenset({"int", "str", "float", "bool", "bytes", "tuple", "complex", "list", "dict"})
MOST = 20
"""Maximum number of lines that are reported for one candidate."""
_LARGEST = 1024**2
_CODE = re.compile(r".*\.(?:pyi?|pyx|[cm]?[jt]sx?|vue|svelte|go|rs)")
_NAMES = re.compile(
    r"\b(?:def|func|fn)\s+(test\w+|Test\w+)|\bclass\s+(\w*Test\w*)|"
    r"""\b(?:test|it)\(\s*['"`]([^'"`\n]{6,100})['"`]"""
)


@dataclass(frozen=True)
class Touch:
    """A new line that touches the test runner."""

    path: str
    line: int
    what: str

    @property
    def said(self) -> str:
        """Return file, line and what the line uses."""
        return f"{one_line(self.path)}:{self.line} {self.what}"


def touches_of(trees: Trees, commit: str, *, base: str | None = None) -> list[Touch]:
    """Return the lines of a commit that touch the test runner and that the base does not have.

    Args:
        trees: Reads files of the commits.
        commit: The commit.
        base: The commit with which it is compared. Default: the base of the trees.
    """
    base = base or trees.base
    before, after = trees.entries(base), trees.entries(commit)
    kind = trees.instruments.kind
    changed = [
        path
        for path, entry in after.items()
        if before.get(path) != entry
        and entry.is_file
        and _CODE.fullmatch(path)
        and kind(path) not in ("test", "control")
    ]
    if not changed:
        return []
    files = {path: entry for path, entry in before.items() if entry.is_file}
    tests = [path for path in files if kind(path) == "test"]
    words = {part for path in tests for part in (path, path.rpartition("/")[2])}
    words |= {path.removesuffix(".py").replace("/", ".") for path in tests if path.endswith(".py")}
    for content in trees.contents(files[path].blob for path in tests):
        for named in _NAMES.finditer(content.decode("utf-8", "replace")):
            words.add(next(name for name in named.groups() if name))
    own = modules_of([*before, *after])
    found = list[Touch]()
    for path in changed:
        (new,) = [*trees.contents([after[path].blob])] or [b""]
        (old,) = [*trees.contents([files[path].blob])] if path in files else [b""]
        rows = find_touches(path, new, _added(old, new), words, own)
        found += [Touch(path, line, what) for line, what in rows]
    return found[:MOST]


def _added(old: bytes, new: bytes) -> set[int]:
    """Return the numbers of the new lines of a file; all lines of a very large one."""
    # Form feeds and the like end no line here, nor for the parsers.
    before, after = (data[:_LARGEST].replace(b"\r\n", b"\n").split(b"\n") for data in (old, new))
    left = Counter(before)
    found = set[int]()
    for number, row in enumerate(after, start=1):
        # protection: only-lines-that-base-has-as-often-are-not-new
        if left[row] > 0:
            left[row] -= 1
        else:
            found.add(number)
    return found


def find_touches(
    path: str, content: bytes, added: Collection[int], tests: Collection[str], own: Collection[str]
) -> Iterator[tuple[int, str]]:
    """Yield the lines that touch the test runner, and what they use.

    Args:
        path: A file of the product.
        content: The file as the candidate wrote it.
        added: Numbers of the lines that the candidate added.
        tests: Names of the tests, and of their files.
        own: Names of the project's own Python modules.
    """
    text = content[:_LARGEST].decode("utf-8", "replace")
    suffix = PurePosixPath(path).suffix
    found = dict[int, str]()
    if suffix in (".py", ".pyi", ".pyx"):
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = None  # it cannot be loaded by this version of Python; other versions may
        rows = _Python(tree, tests, own).found if tree else uses_of(text, "js", tests)
    else:
        language: Language = {".go": "go", ".rs": "rust"}.get(suffix, "js")  # type: ignore[assignment]
        rows = uses_of(text, language, tests)
    for line, what in rows:
        if line in added:
            found.setdefault(line, what)
    yield from sorted(found.items())[:MOST]


class _Python(ast.NodeVisitor):
    """Finds uses of the runner in Python code."""

    def __init__(self, tree: ast.Module, tests: Collection[str], own: Collection[str]) -> None:
        self.found: list[tuple[int, str]] = []
        self._tests, self._own = tests, own
        self._modules = dict[str, str]()
        """Names of this file that stand for modules of others, or for parts of them."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    self._modules[alias.asname or name] = name
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    self._modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        self._depth = 0
        self.visit(tree)

    def _report(self, node: ast.stmt | ast.expr, what: str) -> None:
        self.found.append((node.lineno, what))

    def _is_foreign(self, node: ast.expr) -> bool:
        """Return whether an expression is a module of others, or a part of one."""
        while isinstance(node, ast.Attribute):
            node = node.value
        known = self._modules.get(node.id) if isinstance(node, ast.Name) else None
        return known is not None and known.partition(".")[0] not in self._own

    def _check_module(self, node: ast.stmt | ast.expr, name: str) -> None:
        first, _, rest = name.partition(".")
        if first in _RUNNERS or first in _INTERNALS:
            self._report(node, f"imports `{first}`")
        module, _, part = name.rpartition(".")
        if part in _OF_MODULES.get(module, ()) or (
            first == "importlib" and rest and rest.partition(".")[0] not in _HARMLESS_IMPORTLIB
        ):
            self._report(node, f"uses `{name}`")

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._check_module(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names if not node.level else ():
            self._check_module(node, f"{node.module}.{alias.name}")
            if alias.name in _MODULE_NAMES and node.module not in self._own:
                self._report(node, f"uses `{alias.name}` of `{node.module}`")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        root = node.value
        module = self._modules.get(root.id) if isinstance(root, ast.Name) else None
        if isinstance(root, ast.Attribute) and isinstance(root.value, ast.Name):
            module = f"{self._modules.get(root.value.id, '?')}.{root.attr}"
        if node.attr in _OF_MODULES.get(module or "", ()) or node.attr in _ATTRIBUTES:
            self._report(node, f"uses `{node.attr}`")
        elif node.attr in _MODULE_NAMES and self._is_foreign(root):
            self._report(node, f"uses `{node.attr}` of another module")
        if not isinstance(node.ctx, ast.Load) and self._is_foreign(root):
            self._report(node, f"changes `{ast.unparse(node)}`")
        if not isinstance(root, ast.Name) or module not in _OF_MODULES:
            self.visit(root)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            of = node.value
            is_dict = isinstance(of, ast.Attribute) and of.attr == "__dict__"
            if is_dict and self._is_foreign(of):
                self._report(node, "changes a module of others")
            is_vars = (
                isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "vars"
            )
            if is_vars and any(self._is_foreign(item) for item in of.args):  # type: ignore[attr-defined]
                self._report(node, "changes a module of others")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        known = self._modules.get(node.id, "")
        module, _, part = known.rpartition(".")
        if known in ("sys", "os", "inspect", "threading", "importlib", "signal"):
            # Attributes of these modules come here only if the module itself is passed on.
            self._report(node, f"passes the module `{known}` on")
        elif part in _OF_MODULES.get(module, ()) or node.id in ("__builtins__", "__loader__"):
            self._report(node, f"uses `{node.id}`")
        elif node.id == "__import__":
            self._report(node, "imports by `__import__`")

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        named = ast.unparse(node.func)
        if name in ("exec", "eval", "compile", "globals", "breakpoint") and name not in (
            "globals",
        ):
            self._report(node, f"calls `{name}`")
        elif name in ("getattr", "setattr", "delattr", "vars") and node.args:
            if self._is_foreign(node.args[0]):
                is_read = name == "getattr" and isinstance(node.args[1:2] or [None], list)
                said = node.args[1] if len(node.args) > 1 else None
                is_plain = is_read and isinstance(said, ast.Constant)
                if not is_plain or str(getattr(said, "value", "")) in _ATTRIBUTES | _OF_SYS:
                    self._report(node, f"calls `{name}` for a module of others")
            elif isinstance(node.args[0], ast.Call) and name == "getattr":
                inner = ast.unparse(node.args[0].func)
                if inner in ("__import__", "import_module", "importlib.import_module"):
                    self._report(node, "loads a module by a computed name")
        elif named.endswith("import_module") and node.args:
            self._check_loaded(node, node.args[0])
        self.generic_visit(node)

    def _check_loaded(self, node: ast.Call, name: ast.expr) -> None:
        if isinstance(name, ast.Constant):
            self._check_module(node, str(name.value))
            return
        # A package of plugins is named by its beginning.
        first = name.values[0] if isinstance(name, ast.JoinedStr) and name.values else None
        said = first.value if isinstance(first, ast.Constant) else ""
        if not isinstance(said, str) or "." not in said:
            self._report(node, "loads a module by a computed name")

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str | bytes):
            said = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if what := of_text(said, self._tests):
                self._report(node, what)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
        compares = [
            inner for inner in node.body
            if isinstance(inner, ast.FunctionDef) and inner.name in ("__eq__", "__ne__")
        ]  # fmt: skip
        if bases & _BUILTIN and compares:
            self._report(compares[0], "compares values of a built-in type in another way")
        self.generic_visit(node)
