"""Tests of the facts about this machine: with Linux's files and calls, and without them."""

import errno
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.base import machine

_HIDDEN = """\
import os, sys, time
from pathlib import Path
del time.CLOCK_BOOTTIME, os.sched_getaffinity
from orchestrator.base import machine
assert machine.boot_id() is None
assert machine.free_memory() is None
assert not machine.is_in_memory(Path("/dev/shm"))
assert machine.cpu_count() == os.cpu_count()
assert machine.uptime() > 0
assert machine.total_memory() > 2**26
print("portable")
"""


def test_facts_of_this_machine() -> None:
    assert machine.uptime() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=5)
    assert machine.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert machine.cpu_count() == len(os.sched_getaffinity(0))
    free = machine.free_memory()
    assert free is not None
    assert 0 < free < machine.total_memory()
    assert machine.is_in_memory(Path("/dev/shm"))
    assert not machine.is_in_memory(Path("/dev/shm/missing"))


def test_facts_are_unknown_or_portable_without_linux() -> None:
    hide = 'mount -t tmpfs none /proc && exec "$@"'
    command = ("unshare", "--mount", "sh", "-c", hide, "sh", sys.executable, "-c", _HIDDEN)
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PATH": "/bin"},
    )
    assert (done.stdout, done.stderr) == ("portable\n", "")


class _WithoutAbstractNames(socket.socket):
    def bind(self, address: object) -> None:
        assert str(address).startswith("\0")
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))


@pytest.fixture(params=[True, False], ids=["abstract sockets", "files"])
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    if not request.param:
        monkeypatch.setattr(machine.socket, "socket", _WithoutAbstractNames)
        monkeypatch.setattr(machine.tempfile, "tempdir", str(tmp_path))
    return f"orchestrator-test-{os.getpid()}"


def test_process_is_gone_when_it_has_ended_or_another_one_has_its_number() -> None:
    mark = machine.process_mark()
    boot, pid, start = mark.split()
    with subprocess.Popen(("sleep", "60")) as other:
        others = f"{boot} {other.pid} {machine.start_time(other.pid)}"
        assert not machine.process_is_gone(others, here=True)
        other.kill()
    assert machine.process_is_gone(others, here=True)
    assert not machine.process_is_gone(mark, here=True)
    assert machine.process_is_gone(f"{boot} {pid} {int(start) - 1}", here=True)
    # Before this machine's last start, or on another machine.
    assert machine.process_is_gone(f"other {pid} {start}", here=True)
    assert not machine.process_is_gone(f"other {pid} {start}", here=False)
    assert machine.process_is_gone("", here=True)
    assert machine.process_is_gone(f"{boot} -1 0", here=True)


def test_name_has_one_holder_until_it_is_closed(name: str) -> None:
    held = machine.reserve_name(name)
    assert held is not None
    other = machine.reserve_name(f"{name}-2")
    assert other is not None
    assert machine.reserve_name(name) is None
    other.close()
    held.close()
    again = machine.reserve_name(name)
    assert again is not None
    again.close()


@pytest.mark.parametrize("name", [False], indirect=True)
def test_names_are_never_reserved_in_a_link_of_another_user(name: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"orchestrator-{os.getuid()}").symlink_to("elsewhere")
    with pytest.raises(PermissionError):
        machine.reserve_name(name)
    assert list((tmp_path / "elsewhere").iterdir()) == []
