"""Tests that a report is written as a whole or not at all, wherever its process is killed.

The same holds for what is appended to GitHub's files of a summary and of outputs.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
DYING = """
import json, os, resource, signal, sys
from pathlib import Path

from tests.support.reports import three_workers

NO_ROOM = 28
place = Path(sys.argv[1])
report = three_workers(place, text="text " * 4000, task="a task")


def dies_at_event(number):
    # Python reports an event before it opens, renames or removes a file.
    def count(event, _):
        nonlocal number
        if event in {"open", "os.rename", "os.remove"}:
            number -= 1
            if number < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)


def dies_at_size(size):
    # The kernel writes as many bytes, and ends the process with the next one.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def ended(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        except OSError:
            os._exit(NO_ROOM)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
REPORTS = f"""{DYING}
from orchestrator.runs.reports.formats import FORMATS, Target

target = Target("html", place / "report.html")
new = FORMATS["html"].render(report)


def state():
    if not target.path.exists():
        return "absent"
    return {{new: "new", "old": "old"}}.get(target.path.read_text(), "half")


def attempt(prepare, value, before):
    target.path.unlink(missing_ok=True)
    if before == "old":
        target.path.write_text("old")
    code = ended(lambda: (prepare(value), target.write(report)))
    print(json.dumps([prepare.__name__, value, before, code, state()]))
    return code


for before in ("absent", "old"):
    number = 0
    while attempt(dies_at_event, number, before):
        number += 1
    for size in (0, 1, len(new) // 2, len(new) - 1):
        attempt(dies_at_size, size, before)
"""
APPENDED = f"""{DYING}
from orchestrator.runs.reports.github import write_outputs, write_summary

BEFORE = "# A summary of an earlier program\\n"


def attempt(write, prepare, value):
    path = place / "file"
    path.write_text(BEFORE)
    code = ended(lambda: (prepare(value), write(report, path)))
    added = path.read_text().removeprefix(BEFORE)
    print(json.dumps([prepare.__name__, write.__name__, code, added]))
    return code, len(path.read_bytes())


for write in (write_summary, write_outputs):
    number = 0
    while (found := attempt(write, dies_at_event, number))[0]:
        number += 1
    for size in (len(BEFORE), len(BEFORE) + 1, found[1] - 1, found[1]):
        attempt(write, dies_at_size, size)
"""
KILLED, TOO_LARGE, NO_ROOM = -9, -25, 28


def attempts_of(program: str, place: Path) -> list[list[Any]]:
    """Run a program whose children are killed; return what it found after each."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(place)],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_killed_process_leaves_no_half_report(tmp_path: Path) -> None:
    attempts = attempts_of(REPORTS, tmp_path)
    for how, _, before, code, after in attempts:
        if code == 0:
            assert after == "new"
        else:
            assert code == (KILLED if how == "dies_at_event" else TOO_LARGE)
            assert after in (before, "new")
    # The last step is the rename.
    kills = [after for how, _, _, code, after in attempts if (how, code) == ("dies_at_event", -9)]
    assert {"absent", "old"} == {*kills}


def test_a_killed_process_appends_a_whole_summary_and_whole_outputs_or_nothing(
    tmp_path: Path,
) -> None:
    attempts = attempts_of(APPENDED, tmp_path)
    for write in ("write_summary", "write_outputs"):
        found = [(how, code, added) for how, name, code, added in attempts if name == write]
        *killed, survivor = [(code, added) for how, code, added in found if how == "dies_at_event"]
        assert {*killed} == {(KILLED, "")}
        code, whole = survivor
        assert code == 0
        assert len(whole) > 100
        # A file system without room, with room for a byte, for all but one byte, and for all.
        limited = [(code, len(added)) for how, code, added in found if how == "dies_at_size"]
        assert limited == [(TOO_LARGE, 0), (NO_ROOM, 0), (NO_ROOM, 0), (0, len(whole))]
