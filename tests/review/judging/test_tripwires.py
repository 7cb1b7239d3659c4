"""Tests of tripwires: new code that touches the test runner needs a person, other code does not."""

import pytest

from orchestrator.review.judging.trees import Trees
from orchestrator.review.judging.tripwires import find_touches, touches_of
from tests.support.merges import World

TESTS = {"test_area", "tests/test_calc.py", "test_calc.py", "tests.test_calc", "TestCalc",
         "adds small numbers"}  # fmt: skip
TOUCHES = {
    "py": (
        "import unittest",
        "from unittest import TestCase as T",
        "import unittest.mock as m",
        "from _pytest import runner",
        "import pytest",
        "import doctest",
        "import gc",
        "import atexit",
        "from atexit import register",
        "import ctypes",
        "import builtins",
        "import linecache",
        "import sys\nx = sys.modules",
        "import sys as s\nx = s.modules.get('a')",
        "from sys import modules as m",
        "import sys\ns = sys",
        "import sys\nx = getattr(sys, 'mod' + 'ules')",
        "import sys\nx = getattr(sys, name)",
        "import sys\nx = vars(sys)",
        "import sys\nx = sys.__dict__['modules']\nsys.__dict__['a'] = 1",
        "import os\nx = os.sys.modules",
        "from os import sys",
        "import logging\nx = logging.sys",
        "import sys\nf = sys._getframe(1)",
        "def f(x):\n    return x.__traceback__.tb_frame.f_back",
        "import inspect\nx = inspect.stack()",
        "from inspect import currentframe",
        "import traceback\nx = traceback.extract_stack()",
        "import os\nos._exit(0)",
        "import os\nos.execvp('true', ['true'])",
        "import os\nif os.fork():\n    pass",
        "from os import _exit as done",
        "import sys\nsys.settrace(f)",
        "import sys\nsys.monitoring.use_tool_id(1, 'a')",
        "import sys\nsys.stdout = open('/dev/null', 'w')",
        "import sys\nsys.exit = lambda *_: None",
        "import sys\nsys.meta_path.insert(0, F())",
        "import threading\nthreading.excepthook = f",
        "import threading\nthreading.main_thread().join()",
        "import json\njson.dumps = f",
        "import socket\nsetattr(socket, 'create_connection', f)",
        "x = __import__('os')",
        "x = __builtins__",
        "exec('1')",
        "eval(text)",
        "import importlib\nm = importlib.import_module(name)",
        "import importlib\nm = importlib.import_module('unittest')",
        "from importlib.machinery import PathFinder",
        "import importlib.util\nx = importlib.util.spec_from_file_location('a', 'b')",
        "for one in object.__subclasses__():\n    pass",
        "x = f.__globals__",
        "x = f.__code__.co_consts",
        "import os\nx = os.environ.get('PYTEST_CURRENT_TEST')",
        "import os\nx = 'ORCHESTRATOR_JUNIT' in os.environ",
        "x = 'test_area'",
        "x = open('tests/test_calc.py').read()",
        "class Any(int):\n    def __eq__(self, other):\n        return True",
    ),
    "js": (
        "const test = require('node:test')",
        "import { mock } from 'node:test'",
        "import { vi } from 'vitest'",
        "const vm = require('vm')",
        "const { Module } = require('node:module')",
        "delete require.cache[x]",
        "process.exit(0)",
        "process . exitCode = 0",
        "process.on('exit', () => {})",
        "process['exit'](0)",
        "Error.prepareStackTrace = f",
        "const s = new Error('x').stack",
        "assert.strictEqual = () => {}",
        "Object.assign(assert, { equal() {} })",
        "globalThis.expect = f",
        "expect.extend({})",
        "Number.prototype.valueOf = f",
        "Object.defineProperty(Object.prototype, 'x', {})",
        "const x = eval('1')",
        "const x = require('node:' + 'test')",
        "if (process.env.NODE_TEST_CONTEXT) x()",
        "if (process.env['JEST_WORKER_ID']) x()",
        "const x = 'adds small numbers'",
        "const x = [].constructor.constructor('x')()",
    ),
    "go": (
        'import "testing"',
        'import (\n\t"fmt"\n\t"testing"\n)',
        'package calc\nvar a = os.Args',
        "package calc\nfunc init() { os.Exit(0) }",
        "package calc\nfunc f() { runtime.Callers(0, nil) }",
        'package calc\nvar f = flag.Lookup("test.v")',
        'import "unsafe"',
        "package calc\nfunc f() { os.Stdout = nil }",
        "package calc\nfunc f() { syscall.Kill(1, 9) }",
    ),
    "rs": (
        "fn f() { std::process::exit(0); }",
        "fn f() { for a in std::env::args() {} }",
        "fn f() { std::panic::set_hook(Box::new(|_| {})); }",
        "fn f() { let n = std::thread::current().name(); }",
        "fn f() -> bool { cfg!(test) }",
        "fn f() { let _ = std::panic::catch_unwind(|| {}); }",
        'fn f() { std::env::var("NEXTEST").unwrap(); }',
    ),
}  # fmt: skip
HONEST = {
    "py": (
        "import inspect\n\n\ndef f(x):\n    return inspect.signature(x)",
        "import os\nHOME = os.environ.get('HOME', '/')\nos.environ['A'] = 'b'",
        "import logging\nlog = logging.getLogger(__name__)\nlog.warning('x')",
        "import sys\n\n\ndef main():\n    print('x', file=sys.stderr)\n    sys.exit(2)\n\n\n"
        "if __name__ == '__main__':\n    main()",
        "import argparse\nimport sys\n\n\ndef parse(argv=None):\n    return argv or sys.argv[1:]",
        "import importlib.metadata\nV = importlib.metadata.version('x')",
        "import importlib\n\n\ndef load(name):\n    return importlib.import_module(f'calc.{name}')",
        "def get(thing, name):\n    return getattr(thing, name, None)",
        "def put(thing, values):\n    for k, v in values.items():\n        setattr(thing, k, v)",
        "import calc\ncalc.DEBUG = True",
        "from dataclasses import dataclass\n\n\n@dataclass\nclass P:\n    x: int\n\n"
        "    def __eq__(self, other):\n        return self.x == other.x",
        "import signal\nsignal.signal(signal.SIGTERM, print)",
        "import subprocess\nsubprocess.run(['ls'], check=True)",
        "import threading\nt = threading.Thread(target=print)\nt.start()",
        "import re\nP = re.compile('a')",
        "def test_connection():\n    '''By unittest or pytest.'''\n    return 'a testing text'",
        "from .sys import modules",
        "import os.path\nx = os.path.join('tests', 'data')",
        "import traceback\n\n\ndef f():\n    traceback.print_exc()",
        "self.sys = 1\nx = self.modules",
        "import numpy as np\nnp.random.seed(1)\nx = np.array([1])\nx[0] = 2",
        "import sys\nif sys.version_info < (3, 12) and sys.platform == 'linux':\n    pass",
    ),
    "js": (
        "import assert from 'node:assert'\nassert.ok(x)\nexport const test = (x) => x.test(y)",
        "const fs = require('fs')\nmodule.exports = { area }\nexports.name = name",
        "#!/usr/bin/env node\nprocess.exit(main(process.argv))",
        "class E extends Error { constructor() { super('x'); Error.captureStackTrace(this, E) } }",
        "const re = /process.exit\\(/; console.log(re.test(x), err.stack)",
        "// process.exit(0)\nconst s = 'process.exit(0) is bad'",
        "const { a = 1 } = options; obj.prototype = x; map.test = 1",
        "const home = process.env.HOME ?? process.cwd()",
        "const mod = await import('./other.js')",
    ),
    "go": (
        'package main\nimport "os"\nfunc main() {\n\tos.Exit(run(os.Args[1:]))\n}',
        'package calc\nimport ("fmt"; "errors"; "reflect")\nvar _ = reflect.DeepEqual',
        "package calc\n// testing.T and os.Args\nfunc Testing() {}",
    ),
    "rs": (
        "fn main() { if std::env::args().len() > 2 { std::process::exit(2); } }",
        "use std::env;\nfn f() { env::var(\"HOME\").ok(); }\n#[cfg(test)]\nmod tests {}",
        "// panic::set_hook\nfn f<'a>(x: &'a str) -> char { 'x' }",
    ),
}  # fmt: skip


def _found(language: str, text: str) -> list[str]:
    rows = range(1, text.count("\n") + 2)
    found = find_touches(f"calc.{language}", text.encode(), rows, TESTS, {"calc"})
    return [what for _, what in found]


@pytest.mark.parametrize(
    ("language", "text"), [(key, text) for key, texts in TOUCHES.items() for text in texts]
)
def test_code_that_touches_the_runner_is_found(language: str, text: str) -> None:
    assert _found(language, text)


@pytest.mark.parametrize(
    ("language", "text"), [(key, text) for key, texts in HONEST.items() for text in texts]
)
def test_other_code_is_not_found(language: str, text: str) -> None:
    assert _found(language, text) == []


def test_only_new_lines_of_the_product_count(world: World, trees: Trees) -> None:
    old = "import atexit\n\natexit.register(print)\n"
    base = world.commit({"shop.py": old, "tests/test_shop.py": "def test_price(): ...\n"})
    new = {
        "shop.py": old.replace("import", "x = 1\nimport"),
        "more.py": "x = 1\n\n\nNAME = 'test_price'\n",
        "tests/test_more.py": "import unittest\n",
        "build/hook.py": "import unittest\n",
        "notes.md": "import unittest\n",
    }
    found = touches_of(trees, world.commit(new, base), base=base)
    assert [(one.path, one.line) for one in found] == [("build/hook.py", 1), ("more.py", 4)]
