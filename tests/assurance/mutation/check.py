"""Remove each protection in turn, and find a test that notices.

    python -m tests.assurance.mutation.check                 all of them
    python -m tests.assurance.mutation.check harvest git     some areas
    python -m tests.assurance.mutation.check --report FILE   write the table, merged with FILE
    python -m tests.assurance.mutation.check --thorough      also what no test can notice

The test that `tests/assurance/protections.md` names is tried first, then all tests of the
protection. At the end, every test that noticed is run on the unchanged code. Protections are
removed from copies of the repository, which itself is not changed.
"""

import argparse
import queue
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.base.errors import OrchestratorError
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY
from tests.assurance.mutation.marks import ROOT
from tests.assurance.mutation.prefork import Prefork
from tests.assurance.mutation.protection import Protection
from tests.assurance.mutation.protections import PROTECTIONS
from tests.assurance.mutation.ways import AmbiguousError

TABLE = ROOT / "tests" / "assurance" / "protections.md"
_TIMEOUT = 400
_TEST_TIMEOUT = 90
_CHANCES = 3
"""Tests that may fail by chance before a protection counts as covered by none."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) tests/(\S+?)(\[[\w.-]+\])?(?:\[.*)?(?: - .*)?$", re.M)
_NOTICED = re.compile(r"`([^`]+::[^`]+)`")
_NO_TESTS = {4, 5}
"""Exit codes of pytest for a missing file, and for no selected tests."""
_HEAD = """# Protections

`make mutation` removes each of these protections in a copy of the repository and runs tests until
one fails; the table names this test. A protection that no test can notice has a remark with the
reason, and is only tried with `--thorough`.

{count} protections, {unnoticed}.

| area | protection | noticed by | remark |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Verdict:
    """The result of removing one protection."""

    area: str
    name: str
    noticed: str
    """Name of the test that failed; empty if no test failed."""
    remark: str = ""
    """Accepted reason why no test failed; empty without such a reason."""

    @property
    def row(self) -> str:
        """The row of the table."""
        noticed = f"`{self.noticed}`" if self.noticed else "no test"
        return f"| {self.area} | {self.name} | {noticed} | {self.remark} |"


class Copy:
    """A copy of the repository from which protections are removed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "dist")
        shutil.copytree(ROOT, root, ignore=ignored, symlinks=True)
        self._tests = Prefork(root, root.with_name(f"{root.name}-output"))

    def close(self) -> None:
        """End the process that runs tests."""
        self._tests.close()

    def check(self, area: str, protection: Protection, last: str) -> Verdict:
        """Remove a protection, run its tests, and restore it."""
        if not protection.tests:
            return Verdict(area, protection.name, "", protection.why_not)
        try:
            path, without = protection.remove(self.root)
        except AmbiguousError as error:
            sys.stdout.write(f"out of date: {area}, {protection.name}: {error}\n")
            return Verdict(area, protection.name, "")
        whole = path.read_text(encoding="utf-8")
        path.write_text(without, encoding="utf-8")
        try:
            noticed = self._who_notices(protection, last)
        except RuntimeError as error:
            sys.stdout.write(f"{area}, {protection.name}: {error}\n")
            noticed = ""
        finally:
            path.write_text(whole, encoding="utf-8")
        return Verdict(area, protection.name, noticed, "" if noticed else protection.why_not)

    def _who_notices(self, protection: Protection, last: str) -> str:
        if last and self.first_failure([f"tests/{last}"]):
            return last
        for tests in protection.tests:
            by_chance: list[str] = []
            while len(by_chance) < _CHANCES:
                found = self.first_failure([*_words(tests), *by_chance])
                if not found:
                    break
                # On a busy machine a test may fail by chance, but hardly twice.
                if self.first_failure([f"tests/{found}"]):
                    return found
                by_chance.append(f"--deselect=tests/{found}")
        return ""

    def first_failure(self, tests: list[str], *, timeout: float = _TIMEOUT) -> str:
        """Run tests until one fails, and return its name; if tests hang, the name of the first.

        Raises:
            RuntimeError: The tests could not be run.
        """
        # Without a protection, tests may leave trees that pytest cannot remove.
        scratch = self.root.with_name(f"{self.root.name}-tmp")
        # `make test` must notice, and it does not run tests with the mark `extra`.
        options = ["-x", "-q", "-p", "no:xdist", "-m", "not extra", "-p", "no:cacheprovider"]
        options += ["--basetemp", str(scratch), "-o", f"timeout={_TEST_TIMEOUT}"]
        try:
            code = self._tests.run([*options, *tests], timeout)
        finally:
            subprocess.run(["rm", "-rf", str(scratch)], check=False)
        if code is None:
            return tests[0].removeprefix("tests/")
        if code == 0 or code in _NO_TESTS:
            return ""
        printed = self._tests.output.read_text(errors="replace")
        if found := _FAILED.search(printed):
            return found[1] + (found[2] or "")
        raise RuntimeError(f"{tests} cannot be run: {printed[-1000:]}")


def _words(tests: str) -> list[str]:
    paths, _, expression = tests.partition(" -k ")
    return [*shlex.split(paths), *(["-k", expression] if expression else [])]


def remembered(report: Path) -> dict[tuple[str, str], str]:
    """Return the rows of a table by area and protection."""
    rows = {}
    for line in report.read_text().splitlines() if report.exists() else ():
        if line.startswith("| ") and not line.startswith(("| area", "| ---")):
            area, name = line.removeprefix("| ").split(" | ")[:2]
            rows[area, name] = line
    return rows


def table(rows: dict[tuple[str, str], str]) -> str:
    """Return the page with the table."""
    names = [(area, p.name) for area, found in PROTECTIONS.items() for p in found]
    known = [rows[name] for name in names if name in rows]
    missed = sum("| no test |" in row for row in known)
    unnoticed = f"{missed} of them noticed by no test" if missed else "each noticed by a test"
    return _HEAD.format(count=len(known), unnoticed=unnoticed) + "\n".join(known) + "\n"


def checked(
    chosen: list[tuple[str, Protection]], last: dict[tuple[str, str], str], jobs: int
) -> Iterator[Verdict]:
    """Check protections, several at once, and yield each verdict when it is known."""
    with _scratch() as scratch, ExitStack() as stack, ThreadPoolExecutor(jobs) as pool:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(jobs):
            copies.put(stack.enter_context(closing(Copy(scratch / f"copy-{number}"))))

        def check(area: str, protection: Protection) -> Verdict:
            copy = copies.get()
            try:
                found = _NOTICED.search(last.get((area, protection.name), ""))
                return copy.check(area, protection, found[1] if found else "")
            finally:
                copies.put(copy)

        asked = [pool.submit(check, area, protection) for area, protection in chosen]
        try:
            for answer in as_completed(asked):
                yield answer.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def failing(verdicts: Iterable[Verdict], jobs: int) -> str:
    """Run every test that noticed on the unchanged code, and return the name of one that fails."""
    tests = sorted({f"tests/{verdict.noticed}" for verdict in verdicts if verdict.noticed})
    parts = [part for number in range(jobs) if (part := tests[number::jobs])]

    def first_failure(number: int, part: list[str]) -> str:
        with closing(Copy(scratch / f"copy-{number}")) as copy:
            return copy.first_failure(part, timeout=_TIMEOUT + 10 * len(part))

    with _scratch() as scratch, ThreadPoolExecutor(jobs) as pool:
        return next(filter(None, pool.map(first_failure, range(jobs), parts)), "")


@contextmanager
def _scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="orchestrator-mutation-"))
    # Some tests run as another user, who needs access.
    path.chmod(0o711)
    try:
        yield path
    finally:
        with suppress(OrchestratorError):
            _remove_objects(path)
        subprocess.run(["rm", "-rf", str(path)], check=False)


def _remove_objects(place: Path) -> None:
    """Remove the containers, networks and volumes left by code without a protection."""
    engine = DockerEngine()
    for leftover in engine.leftovers({MANAGED: "true"}):
        if leftover.labels.get(REPOSITORY, "").startswith(f"{place}/"):
            engine.remove(leftover)
    engine.close()


def _excused(protection: Protection) -> Protection:
    return replace(protection, tests=())


def main() -> int:
    """Check the given areas; exit with 1 if a protection is neither covered nor excused."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("areas", nargs="*", choices=[[], *PROTECTIONS], help="default: all")
    parser.add_argument("--only", default="", help="protections whose name contains this")
    parser.add_argument("--report", type=Path, help="a Markdown file to write the table to")
    parser.add_argument("--new", action="store_true", help="protections that the table has not")
    parser.add_argument("--thorough", action="store_true", help="all, whatever excuses them")
    parser.add_argument("--jobs", type=int, default=4, help="how many at once")
    options = parser.parse_args()
    last = remembered(TABLE)
    chosen = [
        (area, _excused(protection) if protection.why_not and not options.thorough else protection)
        for area in options.areas or PROTECTIONS
        for protection in PROTECTIONS[area]
        if options.only in protection.name
        if not (options.new and (area, protection.name) in last)
    ]
    verdicts = []
    for verdict in checked(chosen, last, options.jobs):
        verdicts.append(verdict)
        sys.stdout.write(f"{verdict.row}\n")
        sys.stdout.flush()
        # Write the report after each verdict, because a long run may be interrupted.
        _report(options.report, verdicts)
    if failed := failing(verdicts, options.jobs):
        sys.stdout.write(f"fails as it is: {failed}\n")
        _report(options.report, [], without=failed)
        return 1
    return int(any(not verdict.noticed and not verdict.remark for verdict in verdicts))


def _report(path: Path | None, verdicts: Sequence[Verdict], *, without: str = "\0") -> None:
    """Merge verdicts into a table, without rows whose test always fails."""
    if path is not None:
        rows = remembered(path) | {(one.area, one.name): one.row for one in verdicts}
        path.write_text(table({name: row for name, row in rows.items() if without not in row}))


if __name__ == "__main__":
    sys.exit(main())
