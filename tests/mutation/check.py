"""Take away one protection after the other, and see which test notices.

    python -m tests.mutation.check                    all of them: an hour or more
    python -m tests.mutation.check harvest git        those of some areas
    python -m tests.mutation.check --report FILE      write the table, merged with what is there

Works on a copy of the repository: nothing here is changed.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.protections import PROTECTIONS, Protection

ROOT = Path(__file__).parents[2]
_TIMEOUT = 400
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*)?(?: - .*)?$", re.MULTILINE)
_NO_TESTS = {4, 5}
"""What pytest exits with when a file is not there, or nothing was chosen."""
_HEAD = """# Protections

Each was taken away on a copy of this repository (`python -m tests.mutation.check`), and the tests
were run: the test that noticed first is named.

| area | protection | noticed by | remark |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Verdict:
    """What came of taking one protection away."""

    area: str
    name: str
    noticed: str
    """The test, or nothing."""
    remark: str = ""

    @property
    def row(self) -> str:
        """A line of the table."""
        return f"| {self.area} | {self.name} | {self.noticed or 'not covered'} | {self.remark} |"


class Copy:
    """A copy of the repository that patches are tried on."""

    def __init__(self, root: Path) -> None:
        self.root = root
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "dist")
        shutil.copytree(ROOT, root, ignore=ignored, symlinks=True)

    def check(self, area: str, protection: Protection) -> Verdict:
        """Take it away, run its tests, put it back."""
        path = self.root / protection.path
        whole = path.read_text()
        if whole.count(protection.old) != 1:
            times = whole.count(protection.old)
            remark = f"the patch is out of date: its text is there {times} times"
            return Verdict(area, protection.name, "", remark)
        path.write_text(whole.replace(protection.old, protection.new))
        try:
            noticed = next(
                (n for tests in protection.tests if (n := self.first_failure(tests))), ""
            )
        finally:
            path.write_text(whole)
        return Verdict(area, protection.name, noticed, "" if noticed else protection.why_not)

    def first_failure(self, tests: str) -> str:
        """Run some tests until one fails, and name it.

        Raises:
            RuntimeError: They could not be run.
        """
        # Without what protects from them, tests may leave trees that nothing else can remove.
        scratch = self.root.with_name("tmp")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:xdist"]
        command += ["-p", "no:cacheprovider", "--basetemp", str(scratch)]
        env = {**os.environ, "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [*command, *_words(tests)], cwd=self.root, env=env, capture_output=True, text=True,
                timeout=_TIMEOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"{tests}: hangs"
        finally:
            subprocess.run(["rm", "-rf", str(scratch)], check=False)
        if done.returncode == 0 or done.returncode in _NO_TESTS:
            return ""
        if found := _FAILED.search(done.stdout):
            return f"`{found[1].partition('tests/')[2]}`"
        raise RuntimeError(f"`{tests}` cannot be run: {(done.stdout + done.stderr)[-1000:]}")


def _words(tests: str) -> list[str]:
    paths, _, expression = tests.partition(" -k ")
    return [*shlex.split(paths), *(["-k", expression] if expression else [])]


def sound(copy: Copy, chosen: Iterable[Protection]) -> bool:
    """Hold that the tests pass while nothing is taken away."""
    fine = True
    for tests in dict.fromkeys(tests for protection in chosen for tests in protection.tests):
        if failed := copy.first_failure(tests):
            sys.stdout.write(f"fails as it is: {failed}\n")
            fine = False
    return fine


def merged(report: Path, verdicts: Iterable[Verdict]) -> str:
    """Give the table with new rows in the place of old ones."""
    rows: dict[tuple[str, str], str] = {}
    known = report.read_text().splitlines() if report.exists() else []
    for line in known:
        cells = [cell.strip() for cell in line.split(" | ")]
        if line.startswith("| ") and not line.startswith(("| area", "| ---")):
            rows[cells[0].removeprefix("| "), cells[1]] = line
    rows |= {(verdict.area, verdict.name): verdict.row for verdict in verdicts}
    names = [(area, p.name) for area, found in PROTECTIONS.items() for p in found]
    table = "\n".join(rows[name] for name in names if name in rows)
    return f"{_HEAD}{table}\n"


@contextmanager
def _scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="orchestrator-mutation-"))
    # Some tests are run by another user.
    path.chmod(0o711)
    try:
        yield path
    finally:
        subprocess.run(["rm", "-rf", str(path)], check=False)


def main() -> int:
    """Check the areas asked for; exit 1 when a protection is not covered and nothing excuses it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("areas", nargs="*", choices=[[], *PROTECTIONS], help="default: all")
    parser.add_argument("--only", default="", help="protections whose name contains this")
    parser.add_argument("--report", type=Path, help="a Markdown file to write the table to")
    parser.add_argument("--trust", action="store_true", help="do not run the tests unpatched first")
    options = parser.parse_args()
    chosen = [
        (area, protection)
        for area in options.areas or PROTECTIONS
        for protection in PROTECTIONS[area]
        if options.only in protection.name
    ]
    verdicts = []
    with _scratch() as scratch:
        copy = Copy(scratch / "copy")
        if not options.trust and not sound(copy, (protection for _, protection in chosen)):
            return 1
        for area, protection in chosen:
            verdicts.append(copy.check(area, protection))
            sys.stdout.write(f"{verdicts[-1].row}\n")
            sys.stdout.flush()
            if options.report:
                options.report.write_text(merged(options.report, verdicts))
    return int(any(not verdict.noticed and not verdict.remark for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
