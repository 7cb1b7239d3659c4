"""Tests that a report is written as a whole or not at all, wherever its process is killed."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, os, resource, signal, sys
from pathlib import Path

from orchestrator.reports.formats import FORMATS, Target
from tests.support.reports import three_workers

place = Path(sys.argv[1])
report = three_workers(place, text="text " * 4000, task="a task")
target = Target("html", place / "report.html")
new = FORMATS["html"].render(report)


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


def state():
    if not target.path.exists():
        return "absent"
    return {new: "new", "old": "old"}.get(target.path.read_text(), "half")


def attempt(prepare, value, before):
    target.path.unlink(missing_ok=True)
    if before == "old":
        target.path.write_text("old")
    child = os.fork()
    if child == 0:
        prepare(value)
        target.write(report)
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([prepare.__name__, value, before, ended, state()]))
    return ended


for before in ("absent", "old"):
    number = 0
    while attempt(dies_at_event, number, before):
        number += 1
    for size in (0, 1, len(new) // 2, len(new) - 1):
        attempt(dies_at_size, size, before)
"""
KILLED, TOO_LARGE = -9, -25


def test_a_killed_process_leaves_no_half_report(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    attempts = [json.loads(line) for line in done.stdout.splitlines()]
    for how, _, before, code, after in attempts:
        if code == 0:
            assert after == "new"
        else:
            assert code == (KILLED if how == "dies_at_event" else TOO_LARGE)
            assert after in (before, "new")
    # The last steps are the rename and the removal of the file that was renamed.
    kills = [after for how, _, _, code, after in attempts if (how, code) == ("dies_at_event", -9)]
    assert {"absent", "old", "new"} == {*kills}
