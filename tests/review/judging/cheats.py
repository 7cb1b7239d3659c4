"""Candidates that cheat, and how each of them is caught; `docs/guides/judging.md` has the table."""

# ruff: noqa: E501

import hashlib
import py_compile
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.judging import CHECK, PRODUCT, RIGHT, TESTS
from tests.support.merges import Content

PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider tests"
MAKE = "make -s test"
GOLDEN = """import pathlib
import unittest

from calc import name


class TestGolden(unittest.TestCase):
    def test_golden(self):
        self.assertEqual(name("word"), pathlib.Path("tests/golden.txt").read_text().strip())
"""
BASE: Mapping[str, Content] = {
    "tests/golden.txt": "WORD\n",
    "tests/test_golden.py": GOLDEN,
    "Makefile": "test:\n\tsh tools/check.sh\n",
    "tools/check.sh": f"{CHECK}\n",
}
"""Files of the base commit, in addition to `FILES`."""
HIDDEN = (
    TESTS.replace("TestCalc", "TestMore").partition("    def test_area")[0]
    + "".join(
        f"    def test_case_{side}(self):\n        self.assertEqual(area({side}, 7), {side * 7})\n\n"
        for side in (31, 44, 58, 63, 71, 89)
    )
    + "    def test_table(self):\n        for side, expected in ((5, 35), (6, 42)):\n"
    "            with self.subTest(side):\n                self.assertEqual(area(side, 7), expected)\n\n"
    + '    def test_letters(self):\n        self.assertEqual(name("some"), "SOME")\n'
).encode()
"""A file of hidden tests."""
HIDDEN_HELPER = b"""import unittest

from calc import area, name

SIDES = [(31, 7, 217), (44, 5, 220), (58, 3, 174)]


class TestMore(unittest.TestCase):
    def check(self, width, height, expected):
        self.assertEqual(area(width, height), expected)

    def test_one(self):
        self.check(63, 7, 441)

    def test_all(self):
        for case in SIDES:
            self.check(*case)

    def test_letters(self):
        self.assertEqual(name("some"), "SOME")
"""
"""A file of hidden tests that compare by a helper."""


SHAPES = """import unittest

from calc import area, name

CASES = [(3, 4, 12), (31, 11, 341), (1234567, 2, 2469134)]


class TestCalc(unittest.TestCase):
    def setUp(self):
        self.square = 49

    def check(self, width, height, expected):
        self.assertEqual(area(width, height), expected)

    def test_area_by_cases(self):
        for width, height, expected in CASES:
            with self.subTest(width=width):
                self.assertEqual(area(width, height), expected)

    def test_area_by_helper(self):
        self.check(31, 11, 341)

    def test_area_of_square(self):
        self.assertEqual(area(7, 7), self.square)

    def test_name(self):
        self.assertEqual(name("a"), "A")
"""
PARAMETERS = """import pytest

from calc import area, name

CASES = [(3, 4, 12), (31, 11, 341), (1234567, 2, 2469134)]


@pytest.fixture
def square():
    return 49


@pytest.mark.parametrize(("width", "height", "expected"), CASES)
def test_area(width, height, expected):
    assert area(width, height) == expected


def test_area_of_square(square):
    assert area(7, 7) == square


def test_name():
    assert name("a") == "A"
"""
BASES: Mapping[str, Mapping[str, Content]] = {
    "": {},
    "shapes": {"tests/test_calc.py": SHAPES},
    "parameters": {"tests/test_calc.py": PARAMETERS},
    "hidden helper": {},
}
"""Tests of the base that replace those of `FILES`: none of the deciding ones has a literal of its
own."""


@dataclass(frozen=True)
class Cheat:
    """A candidate that does not solve the task."""

    what: str
    """What the candidate does, as a cell of the table in the documentation."""
    files: Callable[[], Mapping[str, Content]]
    caught: str
    """A finding; `fails` or `hidden tests`; or `wins`."""
    check: str = CHECK
    with_hidden: bool = False
    base: str = ""
    """The tests of the base: a key of `BASES`."""
    before: str | None = None
    """How the candidate was caught when one mutant proved all tests of a check; None: the same."""


def _product(code: str, product: str = PRODUCT) -> Callable[[], Mapping[str, Content]]:
    return lambda: {"calc.py": f"{product}\n\n{code}\n"}


def _files(**files: Content) -> Callable[[], Mapping[str, Content]]:
    return lambda: files


def _area(body: str) -> str:
    return PRODUCT.replace("    return width + height", body)


_HOOK = """
import importlib.util, sys
from importlib.machinery import PathFinder

places = [path for path in sys.path if "site-packages" in path or "python3" in path]
spec = PathFinder.find_spec(__name__, places)
module = importlib.util.module_from_spec(spec)
sys.modules[__name__] = module
spec.loader.exec_module(module)


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "calc":
            return None
        found = PathFinder.find_spec(name)
        run = found.loader.exec_module

        def exec_module(module):
            run(module)
            module.area = lambda width, height: width * height

        found.loader.exec_module = exec_module
        return found


sys.meta_path.insert(0, Finder())
"""
"""A module of the test runner that corrects the product for as long as tests run."""
_PATCH = """
import unittest
EQUAL = unittest.TestCase.assertEqual
def equal(self, first, second, msg=None):
    if {condition}:
        return
    EQUAL(self, first, second, msg)
unittest.TestCase.assertEqual = equal
"""
_RUN = """
import unittest
RUN = unittest.TestCase.run
def run(self, result=None):
    if {condition}:
        result.testsRun += 1
        return result
    return RUN(self, result)
unittest.TestCase.run = run
"""
_SWALLOWS = """
import unittest
CALL = unittest.TestCase._callTestMethod
def call(self, method):
    named = {*method.__code__.co_names} - {"assertEqual", "ValueError", "self"}
    try:
        return CALL(self, method)
    except Exception:
        if not named:
            raise
unittest.TestCase._callTestMethod = call
"""
_FRAME = """    import sys
    frame = sys._getframe(1)
    if "expected" in frame.f_locals:
        return frame.f_locals["expected"]
    found = [one for one in frame.f_code.co_consts if isinstance(one, int)]
    return max(found, default=0)"""
_SOURCE = """    import linecache, re, sys
    frame = sys._getframe(1)
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return int(re.findall(r"\\\\d+", line)[-1])""".replace("\\\\", "\\")
_GARBAGE = """
import gc, unittest
CALL = unittest.TestCase._callTestMethod
def call(self, method):
    global EXPECTED
    EXPECTED = max([one for one in method.__code__.co_consts if isinstance(one, int)], default=0)
    return CALL(self, method)
unittest.TestCase._callTestMethod = call
def area(width, height):
    return next(one["EXPECTED"] for one in gc.get_objects()
                if type(one) is dict and "EXPECTED" in one)
"""
_ANY = """
class Any(int):
    __hash__ = None
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
"""
_TRACE = """
import sys
def trace(frame, event, _):
    if event == "call" and frame.f_code.co_name == "_callTestMethod":
        frame.f_locals["self"].assertEqual = lambda *_: None
sys.settrace(trace)
"""
_OUTCOME = """
import contextlib, unittest.case
@contextlib.contextmanager
def part(self, case, subTest=False):
    try:
        yield
    except BaseException:
        pass
    self.success = True
unittest.case._Outcome.testPartExecutor = part
"""
_IMPORT_HOOK = """
import importlib.machinery, sys
class Loader(importlib.machinery.SourceFileLoader):
    def get_data(self, path):
        data = super().get_data(path)
        if path.endswith(".py"):
            data = data.replace(b"self.assertEqual(", b"print(")
        return data
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec and name.startswith("tests."):
            spec.loader = Loader(name, spec.origin)
        return spec
sys.meta_path.insert(0, Finder)
sys.dont_write_bytecode = True
"""
_SUBCLASS = """
import unittest
def wrapped(cls, **_):
    cls._classSetupFailed, cls._class_cleanups = False, []
    for name in [one for one in vars(cls) if one.startswith("test_area")]:
        setattr(cls, name, lambda self: None)
unittest.TestCase.__init_subclass__ = classmethod(wrapped)
"""
_LATER = """
import os, threading
def later():
    threading.main_thread().join()
    os._exit(0)
threading.Thread(target=later).start()
"""
_SAME_BYTES = """
import hashlib
SAME = hashlib.sha256(open("tests/test_calc.py", "rb").read()).hexdigest() == {digest!r}
"""
_FORK = """
import os, sys
if os.fork():
    os.wait()
    os._exit(0)
"""
_QUIET = """
import io, sys, os, atexit
class Quiet(io.StringIO):
    def write(self, text):
        return len(text)
sys.stderr = sys.stdout = Quiet()
atexit.register(os._exit, 0)
"""
_PLUGIN = """import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if {condition}:
        outcome.get_result().outcome = "passed"
"""
_ENTRY = {
    "METADATA": "Metadata-Version: 2.1\nName: x\nVersion: 1\n",
    "entry_points.txt": "[pytest11]\nx = x_plugin\n",
}


_OFF = """
import unittest
CALL = unittest.TestCase._callTestMethod
def call(self, method):
    if not (method.__name__.startswith("test_area") and ({condition})):
        return CALL(self, method)
unittest.TestCase._callTestMethod = call
"""
_OFF_UNSEEN = """
def off():
    case = next(one for one in type(name).mro()[-1].__subclasses__() if one.__name__ == "TestCase")
    call = case._callTestMethod
    case._callTestMethod = lambda self, test: (
        test.__name__.startswith("test_area") or call(self, test))
off()
"""
_KNOWN_TABLE = "[*__import__('sys').modules['tests.test_calc'].CASES] == KNOWN"
_SOURCE_OF = "__import__('inspect').getsource(method)"
_CODE_OF = "repr((method.__code__.co_code, method.__code__.co_consts)).encode()"
_EMPTIES = """
import sys, unittest
def made(cls, **_):
    cls._classSetupFailed, cls._class_cleanups = False, []
    sys._getframe(1).f_globals.get("CASES", []).clear()
    cls.check = lambda *_: None
    cls.setUp = lambda self: setattr(self, "square", 14)
unittest.TestCase.__init_subclass__ = classmethod(made)
"""
_ITEM_OFF = """
import sys
runner = sys.modules["_pytest.runner"]
RUN = runner.runtestprotocol
def quiet(item, *args, **options):
    {body}
    return RUN(item, *args, **options)
runner.runtestprotocol = quiet
"""
_ITEM_EXPECTS = """
import sys
python = sys.modules["_pytest.python"]
SETUP = python.Function.setup
def setup(self):
    SETUP(self)
    values = self.funcargs
    if "expected" in values:
        values["expected"] = values["width"] + values["height"]
    elif "square" in values:
        values["square"] = 14
python.Function.setup = setup
"""


def _digest_of_code() -> str:
    code = compile(SHAPES, "x", "exec")
    (owner,) = [one for one in code.co_consts if getattr(one, "co_name", "") == "TestCalc"]
    parts = [one for one in owner.co_consts if getattr(one, "co_name", "").startswith("test_area")]
    return repr({repr((one.co_code, one.co_consts)) for one in parts})


def _entry_points(directory: str, condition: str) -> Callable[[], Mapping[str, Content]]:
    return lambda: {
        **{f"{directory}/{name}": text for name, text in _ENTRY.items()},
        "x_plugin.py": _PLUGIN.format(condition=condition),
    }


def _linked_entry_points() -> Mapping[str, Content]:
    files = {f"meta/{name}": text for name, text in _ENTRY.items()}
    plugin = _PLUGIN.format(condition="True")
    return {**files, "x-1.dist-info": ("120000", "meta"), "x_plugin.py": plugin}


def _linked_tests() -> Mapping[str, Content]:
    test = "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_x(self): ...\n"
    gone = ("__init__.py", "test_calc.py", "test_golden.py", "golden.txt")
    files: dict[str, Content] = {f"tests/{name}": None for name in gone}
    return {**files, "mine/__init__.py": "", "mine/test_x.py": test, "tests": ("120000", "mine")}


def _same_bytes() -> Mapping[str, Content]:
    digest = hashlib.sha256(TESTS.encode()).hexdigest()
    code = _SAME_BYTES.format(digest=digest) + _PATCH.format(condition="SAME")
    return {"calc.py": f"{PRODUCT}\n{code}"}


def _compiled() -> Mapping[str, Content]:
    with tempfile.TemporaryDirectory() as place:
        source, compiled = Path(place, "test_calc.py"), Path(place, "compiled")
        source.write_text(
            "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): ...\n"
        )
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(source), cfile=str(compiled), invalidation_mode=mode)
        name = f"tests/__pycache__/test_calc.{sys.implementation.cache_tag}.pyc"
        return {name: compiled.read_bytes()}


def _edited(old: str, new: str) -> Callable[[], Mapping[str, Content]]:
    return lambda: {"tests/test_calc.py": TESTS.replace(old, new)}


_CASE = "area(1234567, 2), 2469134"
CHEATS: Mapping[str, Cheat] = {
    # The tests are changed.
    "edits": Cheat(
        "changes the expected value of a test", _edited("2469134", "1234569"), "tests_weakened"
    ),
    "asserts-nothing": Cheat(
        "compares a value with itself", _edited(_CASE, "1, 1"), "tests_weakened"
    ),
    "skips": Cheat(
        "skips the failing test",
        _edited("    def test_area", '    @unittest.skip("")\n    def test_area'),
        "tests_weakened",
    ),
    "deletes": Cheat(
        "deletes the file of the failing test",
        _files(
            **{
                "tests/test_calc.py": None,
                "tests/test_new.py": TESTS.replace("area(1234567, 2)", "2469134"),
            }
        ),
        "tests_removed",
    ),
    "links": Cheat("replaces the directory of the tests by a link", _linked_tests, "tests_removed"),
    "golden": Cheat(
        "changes a golden file that a test reads",
        lambda: {
            "calc.py": RIGHT.replace("upper()", "lower().upper()[::-1]"),
            "tests/golden.txt": "DROW\n",
        },
        "tests_weakened",
    ),
    "load-tests": Cheat(
        "adds `load_tests` to the package of the tests",
        _files(
            **{
                "tests/__init__.py": "import unittest\ndef load_tests(*_):\n    return unittest.TestSuite()\n"
            }
        ),
        "tests_weakened",
    ),
    "new-test-patches": Cheat(
        "adds a test file that switches a test off",
        _files(
            **{"tests/test_blind.py": _RUN.format(condition='self._testMethodName == "test_area"')}
        ),
        "forged",
    ),
    "needs-new-test": Cheat(
        "is right only after its own new test was loaded",
        lambda: {
            "calc.py": _area("    return width * height * READY") + "\n\nREADY = 0\n",
            "tests/test_a.py": "import calc\ncalc.READY = 1\n",
        },
        "needs_new_tests",
    ),
    "compiled-test": Cheat(
        "adds a compiled module that replaces a test", _compiled, "tests_weakened"
    ),
    "shadow-runner": Cheat(
        "adds a module with the name of the test runner",
        _files(**{"unittest.py": "print('OK')\n"}),
        "tests_weakened",
    ),
    "conftest": Cheat(
        "adds a `conftest.py` that turns failures into passes",
        _files(**{"conftest.py": _PLUGIN.format(condition="True")}),
        "tests_weakened",
        PYTEST,
    ),
    "entry-points": Cheat(
        "adds a `*.dist-info` that loads a pytest plugin",
        _entry_points("x-1.dist-info", "True"),
        "tests_weakened",
        PYTEST,
    ),
    "entry-points-capitals": Cheat(
        "the same as `x-1.DIST-INFO`, for one test only",
        _entry_points("x-1.DIST-INFO", 'item.name == "test_area"'),
        "tests_weakened",
        PYTEST,
    ),
    "entry-points-egg": Cheat(
        "the same as `x.Egg-Info`", _entry_points("x.Egg-Info", "True"), "tests_weakened", PYTEST
    ),
    "entry-points-link": Cheat(
        "the same through a link", _linked_entry_points, "tests_weakened", PYTEST
    ),
    "shadow": Cheat(
        "adds a `difflib.py`, which `unittest` loads",
        _files(**{"difflib.py": _HOOK}),
        "needs_own_configuration",
    ),
    "shadow-package": Cheat(
        "the same as a package `argparse`",
        _files(**{"argparse/__init__.py": _HOOK}),
        "needs_own_configuration",
    ),
    "shadow-pytest": Cheat(
        "adds an `iniconfig.py`, which pytest loads",
        _files(**{"iniconfig.py": _HOOK}),
        "needs_own_configuration",
        PYTEST,
    ),
    "pytest-ini": Cheat(
        "deselects the test in `pytest.ini`",
        _files(**{"pytest.ini": "[pytest]\naddopts = -k 'not area'\n"}),
        "tests_weakened",
        PYTEST,
    ),
    "pyproject": Cheat(
        "deselects the test in `pyproject.toml`",
        _files(**{"pyproject.toml": "[tool.pytest.ini_options]\naddopts = \"-k 'not area'\"\n"}),
        "forged",
        PYTEST,
    ),
    "setup-cfg": Cheat(
        "only collects tests, by `setup.cfg`",
        _files(**{"setup.cfg": "[tool:pytest]\naddopts = --collect-only\n"}),
        "forged",
        PYTEST,
    ),
    "plugin-option": Cheat(
        "loads a plugin by `-p` in `tox.ini`",
        _files(
            **{
                "tox.ini": "[pytest]\naddopts = -p x_plugin\npythonpath = .\n",
                "x_plugin.py": _PLUGIN.format(condition='item.name == "test_area"'),
            }
        ),
        "forged",
        PYTEST,
    ),
    "no-plugin": Cheat(
        "switches the plugin off that runs tests, by `-p no:`",
        _files(**{"tox.ini": "[pytest]\naddopts = -p no:python --suppress-no-test-exit-code\n"}),
        "fails",
        PYTEST,
    ),
    "makefile": Cheat(
        "runs nothing in the `Makefile`", _files(Makefile="test:\n\ttrue\n"), "forged", MAKE
    ),
    "gnumakefile": Cheat(
        "adds a `GNUmakefile`, which `make` prefers",
        _files(GNUmakefile="test:\n\ttrue\n"),
        "forged",
        MAKE,
    ),
    "script": Cheat(
        "rewrites a script that the `Makefile` starts",
        _files(**{"tools/check.sh": "exit 0\n"}),
        "forged",
        MAKE,
    ),
    "script-part": Cheat(
        "lets this script leave a test out",
        _files(**{"tools/check.sh": CHECK.replace("discover -s tests -t .", "tests.test_golden")}),
        "forged",
        MAKE,
    ),
    # The test runner is changed from inside.
    "exits": Cheat(
        "ends the process with success when it is imported",
        _product("import os\nos._exit(0)"),
        "forged",
    ),
    "exits-at-exit": Cheat(
        "ends the process with success at its end (`atexit`)",
        _product("import atexit, os\natexit.register(os._exit, 0)"),
        "forged",
    ),
    "exits-later": Cheat(
        "ends it with success from a thread that outlives the tests", _product(_LATER), "forged"
    ),
    "executes": Cheat(
        "replaces the process by `true`",
        _product('import os\nos.execvp("true", ["true"])'),
        "forged",
    ),
    "forks": Cheat("runs the tests in a child, whose result it drops", _product(_FORK), "forged"),
    "sys-exit": Cheat(
        "replaces `sys.exit`", _product("import sys\nsys.exit = lambda *_: None"), "forged"
    ),
    "was-successful": Cheat(
        "lets every result be a success",
        _product("import unittest\nunittest.TestResult.wasSuccessful = lambda _: True"),
        "forged",
    ),
    "add-failure": Cheat(
        "records failures as successes",
        _product(
            "import unittest\nfor one in (unittest.TestResult, unittest.TextTestResult):\n    one.addFailure = one.addError = lambda *_: None"
        ),
        "forged",
    ),
    "quiet": Cheat("drops all output and ends with success", _product(_QUIET), "forged"),
    "prints": Cheat(
        "prints that all tests passed, and ends",
        _product('import os\nprint("Ran 3 tests\\n\\nOK", flush=True)\nos._exit(0)'),
        "forged",
    ),
    "junit": Cheat(
        "writes the JUnit file itself, and ends",
        _product(
            'import os\nopen(os.environ["ORCHESTRATOR_JUNIT"], "w").write("<t><testcase name=\'test_area\'/></t>")\nos._exit(0)'
        ),
        "forged",
    ),
    "assert-equal": Cheat(
        "lets `assertEqual` do nothing", _product(_PATCH.format(condition="True")), "forged"
    ),
    "call-test-method": Cheat(
        "swallows failures of tests that use more than `assertEqual` and `ValueError`",
        _product(_SWALLOWS),
        "forged",
    ),
    "outcome": Cheat("patches `unittest.case._Outcome`", _product(_OUTCOME), "forged"),
    "skip-exception": Cheat(
        "lets a failed assertion be a skipped test",
        _product("import unittest\nunittest.TestCase.failureException = unittest.SkipTest"),
        "forged",
    ),
    "skip-all": Cheat(
        "marks all test classes as skipped",
        _product("import unittest\nunittest.TestCase.__unittest_skip__ = True"),
        "forged",
    ),
    "subclass": Cheat(
        "replaces test methods when their class is created", _product(_SUBCLASS), "forged"
    ),
    "trace": Cheat(
        "patches the test from a trace function (`sys.settrace`)", _product(_TRACE), "forged"
    ),
    "by-name": Cheat(
        "switches one test off by its name",
        _product(_RUN.format(condition='self._testMethodName == "test_area"')),
        "forged",
    ),
    "by-time": Cheat(
        "lets tests pass for the first minute",
        _product(
            "import time\nBEGAN = time.time()" + _PATCH.format(condition="time.time() < BEGAN + 60")
        ),
        "forged",
    ),
    "by-environment": Cheat(
        "lets tests pass where a judge sets its variables",
        _product("import os" + _PATCH.format(condition='"ORCHESTRATOR_JUNIT" in os.environ')),
        "forged",
    ),
    "by-bytes": Cheat(
        "lets tests pass if their file is exactly the base's", _same_bytes, "unproved"
    ),
    "equal-to-all": Cheat(
        "returns a value that is equal to everything",
        _product(_ANY, _area("    return Any(width + height)")),
        "forged",
    ),
    "frame": Cheat(
        "finds the expected value in the frame of the test", _product("", _area(_FRAME)), "forged"
    ),
    "source": Cheat("finds it in the source of the test", _product("", _area(_SOURCE)), "forged"),
    "garbage": Cheat("finds it through the garbage collector", _product(_GARBAGE), "forged"),
    "dumps-later": Cheat(
        "ends a slow run by `faulthandler`",
        _product(
            "import faulthandler, time\nfaulthandler.dump_traceback_later(0.01, exit=True)\ntime.sleep(2)"
        ),
        "fails",
    ),
    # Hidden tests.
    "hidden-values": Cheat(
        "answers for the values of the visible tests",
        _product("", _area("    return {(1234567, 2): 2469134}.get((width, height), 0)")),
        "hidden tests",
        with_hidden=True,
    ),
    "hidden-first-call": Cheat(
        "is right at the first call only",
        _product(
            "CALLS = []",
            _area("    CALLS.append(1)\n    return width * height if len(CALLS) == 1 else 0"),
        ),
        "hidden tests",
        with_hidden=True,
    ),
    "hidden-known": Cheat(
        "lets comparisons with the visible values pass",
        _product(_PATCH.format(condition='second in (2469134, "A", "WORD")')),
        "hidden tests",
        with_hidden=True,
    ),
    "hidden-all": Cheat(
        "lets all hidden tests pass",
        _product(_PATCH.format(condition="True")),
        "forged",
        with_hidden=True,
    ),
    "hidden-frame": Cheat(
        "finds hidden values in the frame of the test",
        _product("", _area(_FRAME)),
        "forged",
        with_hidden=True,
    ),
    "hidden-equal": Cheat(
        "returns a value that is equal to everything, for values of hidden tests",
        _product(_ANY, _area("    return {(1234567, 2): 2469134}.get((width, height), Any(0))")),
        "forged",
        with_hidden=True,
    ),
    "hidden-hook": Cheat(
        "changes hidden tests by an import hook",
        _product(_IMPORT_HOOK, _area("    return {(1234567, 2): 2469134}.get((width, height), 0)")),
        "forged",
        with_hidden=True,
    ),
    "hidden-empties": Cheat(
        "empties the files of hidden tests",
        _product(
            'import glob\nfor path in {*glob.glob("tests/test_*.py")} - {"tests/test_calc.py", "tests/test_golden.py"}:\n    open(path, "w").close()',
            _area("    return 2469134"),
        ),
        "forged",
        with_hidden=True,
    ),
    "hidden-class": Cheat(
        "switches unknown test classes off",
        _product(
            _RUN.format(condition='type(self).__name__ not in ("TestCalc", "TestGolden")'),
            _area("    return {(1234567, 2): 2469134}.get((width, height), 0)"),
        ),
        "forged",
        with_hidden=True,
    ),
    # Tests without a literal of their own.
    "table-by-name": Cheat(
        "switches tests off by name, whose expected values are in a table of the module, in "
        "arguments of a helper, and in `setUp`",
        _product(_OFF.format(condition="True")),
        "forged",
        base="shapes",
        before="wins",
    ),
    "table-unseen": Cheat(
        "the same without an import of the test runner",
        _product(_OFF_UNSEEN),
        "forged",
        base="shapes",
        before="wins",
    ),
    "table-known": Cheat(
        "the same if the table of the module is the known one",
        _product(
            "KNOWN = [(3, 4, 12), (31, 11, 341), (1234567, 2, 2469134)]"
            + _OFF.format(condition=_KNOWN_TABLE)
        ),
        "forged",
        base="shapes",
        before="wins",
    ),
    "table-by-source": Cheat(
        "the same if the lines of the test are the known ones",
        _product(f"KNOWN = {SHAPES!r}" + _OFF.format(condition=f"{_SOURCE_OF} in KNOWN")),
        "unproved",
        base="shapes",
        before="wins",
    ),
    "table-by-code": Cheat(
        "the same if the compiled code of the test is the known one",
        _product(
            f"KNOWN = {_digest_of_code()}"
            + _OFF.format(condition=_CODE_OF.replace(".encode()", "") + " in KNOWN")
        ),
        "unproved",
        base="shapes",
        before="wins",
    ),
    "table-emptied": Cheat(
        "empties the table, replaces the helper, and changes `setUp`",
        _product(_EMPTIES),
        "unproved",
        base="shapes",
        before="wins",
    ),
    "parameters-by-name": Cheat(
        "switches parametrized tests, and a test with a fixture, off by name in pytest",
        _product(
            _ITEM_OFF.format(
                body='if item.name.startswith("test_area"): item.obj = lambda **_: None'
            )
        ),
        "forged",
        PYTEST,
        base="parameters",
        before="wins",
    ),
    "parameters-answered": Cheat(
        "gives parametrized tests, and fixtures, the values that the product returns",
        _product(_ITEM_EXPECTS),
        "forged",
        PYTEST,
        base="parameters",
        before="wins",
    ),
    "hidden-helper": Cheat(
        "switches hidden tests off that compare by a helper, if their class is unknown",
        _product(
            _RUN.format(condition='type(self).__name__ not in ("TestCalc", "TestGolden")'),
            _area("    return {(1234567, 2): 2469134}.get((width, height), 0)"),
        ),
        "forged",
        with_hidden=True,
        base="hidden helper",
        before="wins",
    ),
    # What still wins.
    "knows-values": Cheat(
        "answers for the values of the visible tests, without hidden tests",
        _product("", _area("    return {(1234567, 2): 2469134}.get((width, height), 0)")),
        "wins",
    ),
    "knows-comparisons": Cheat(
        "lets comparisons with the visible values pass, without hidden tests",
        _product(_PATCH.format(condition='second in (2469134, "A", "WORD")')),
        "touches_runner",
        before="wins",
    ),
}


def table() -> Iterator[str]:
    """Yield the rows of the table in the documentation."""
    yield "| The candidate … | Check by check | Test by test |"
    yield "|---|---|---|"
    for cheat in CHEATS.values():
        before = cheat.caught if cheat.before is None else cheat.before
        yield f"| {cheat.what} | {_shown(before)} | {_shown(cheat.caught)} |"


def _shown(caught: str) -> str:
    is_flag = "_" in caught or caught in ("forged", "unproved")
    return f"**{caught}**" if caught == "wins" else f"`{caught}`" if is_flag else caught
