"""Run the tests of one shard, `python3 run_shard.py 2/4`, and leave JUnit and coverage files."""

import os
import sys
import time
import trace
import unittest
from pathlib import Path
from xml.etree import ElementTree


def tests_of(suite):
    """Yield the single tests of a suite."""
    for one in suite:
        yield from tests_of(one) if isinstance(one, unittest.TestSuite) else [one]


def main():
    """Run every Nth test, and return 1 if one of them fails."""
    number, shards = map(int, sys.argv[1].split("/"))
    found = sorted(tests_of(unittest.defaultTestLoader.discover("tests")), key=lambda one: one.id())
    out = Path(os.environ.get("ORCHESTRATOR_ARTIFACTS", "."))
    tracer = trace.Trace(count=1, trace=0, ignoredirs=[sys.prefix])
    suite, bad = ElementTree.Element("testsuite", name="shop"), 0
    for test in found[number - 1 :: shards]:
        result, started = unittest.TestResult(), time.monotonic()
        tracer.runfunc(test.run, result)
        name = test.id().rpartition(".")
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=name[0],
            name=name[2],
            time=f"{time.monotonic() - started:.3f}",
        )
        for _, text in result.failures + result.errors:
            bad += 1
            ElementTree.SubElement(case, "failure", message=text.splitlines()[-1]).text = text
        for _, reason in result.skipped:
            ElementTree.SubElement(case, "skipped", message=reason)
    ElementTree.ElementTree(suite).write(out / "junit.xml", encoding="utf-8")
    lines = {file for file, _ in tracer.results().counts}
    (out / "covered-files.txt").write_text("".join(f"{name}\n" for name in sorted(lines)))
    print(f"{len(suite)} of {len(found)} tests, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
