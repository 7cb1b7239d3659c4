"""The kernel limits the processes and the open files of a step in a pod."""

import json
import shlex
from pathlib import Path

import pytest

from tests.cluster.lab import Lab
from tests.cluster.runs import Start, ended, present, running
from tests.cluster.test_features import do
from tests.support.repository import git

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
_PIDS = 60
_OTHERS = 20
"""Processes of a pod besides those of its task: those that wait, and its own programs."""
_COUNT = """
import json, os, signal
made, files = [], []
try:
    while len(made) < 1000:
        child = os.fork()
        if not child:
            signal.pause()
        made.append(child)
except OSError as error:
    processes = error.errno
for child in made:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
try:
    while len(files) < 10000:
        files.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    opened = error.errno
found = [len(made), processes, len(files), opened]
[os.close(file) for file in files]
print(json.dumps(found), file=open("found", "w"))
"""
_BOMB = """
import os, time
while time.sleep(0.001) is None:
    try:
        if not os.fork():
            time.sleep(600)
            os._exit(0)
    except OSError:
        pass
"""


def python(program: str) -> str:
    return f"python3 -c {shlex.quote(program)}"


def test_processes_and_open_files_are_limited(repo: Path, start: Start) -> None:
    result = ended(start("--pids", str(_PIDS), python(_COUNT)))
    assert result["status"] == "success", result
    assert not {"pids", "open_files"} & {*result["limits_unenforced"]}
    made, processes, files, opened = json.loads(git(repo, "show", f"{result['branch']}:found"))
    assert (processes, opened) == (11, 24)  # EAGAIN, EMFILE
    assert _PIDS - _OTHERS <= made <= _PIDS
    assert 4000 < files <= 4096


def test_fork_bomb_is_stopped_and_its_work_is_kept(lab: Lab, repo: Path, start: Start) -> None:
    """The container with the files has the same user, and can still pack them."""
    task = f"echo x > kept; {python(_BOMB)}"
    result = ended(start("--pids", str(_PIDS), "--timeout-per-worker", "120", task))
    assert (result["status"], result["reason"]) == ("failed", "pids"), result
    assert result["limits_hit"] == ["pids"]
    assert git(repo, "show", f"{result['branch']}:kept") == "x"
    assert present(lab, repo, "jobs") == []


def test_entered_command_is_limited(lab: Lab, repo: Path, start: Start) -> None:
    process = start("--pids", str(_PIDS), "echo up; until [ -e go ]; do sleep 0.2; done")
    running(lab, repo)
    code, out, err = do(lab, repo, "exec", "1", "--", "cat", "/proc/self/limits")
    assert code == 0, err
    lines = {line[:26].strip(): line[26:].split() for line in out.splitlines()}
    assert lines["Max open files"][:2] == ["4096", "4096"]
    assert _PIDS < int(lines["Max processes"][1]) <= _PIDS + _OTHERS
    assert do(lab, repo, "exec", "1", "--", "touch", "go")[0] == 0
    assert ended(process)["status"] == "success"
