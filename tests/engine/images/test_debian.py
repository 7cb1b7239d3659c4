"""Tests of the call of mmdebstrap, with stand-ins for the program."""

import os
import time
from pathlib import Path

import pytest

from orchestrator.base.errors import ImageBuildError
from orchestrator.engine.images.debian import bootstrap
from tests.support.errors import raises


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of a stand-in for mmdebstrap."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "mmdebstrap"


def write(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.process
def test_packages_and_target_are_arguments_of_mmdebstrap(program: Path, tmp_path: Path) -> None:
    write(program, 'for last; do :; done; printf "%s\\n" "$@" >"$last"')
    bootstrap(tmp_path / "base.tar", ("git", "python3"))
    arguments = (tmp_path / "base.tar").read_text().splitlines()
    assert "--include=git,python3" in arguments
    assert f"--mode={'root' if os.geteuid() == 0 else 'unshare'}" in arguments
    assert arguments[-2:] == ["trixie", str(tmp_path / "base.tar")]


@pytest.mark.process
def test_failure_shows_the_last_lines(program: Path, tmp_path: Path) -> None:
    write(program, "seq 100; printf 'E: \\033[31mno mirror\\n' >&2; exit 25")
    with pytest.raises(ImageBuildError) as caught:
        bootstrap(tmp_path / "base.tar", ("git",))
    head, *lines = caught.value.message.splitlines()
    assert head == "cannot bootstrap an image: `mmdebstrap` ended with exit code 25"
    assert len(lines) == 15
    assert lines[-2:] == ["  100", "  E: no mirror"]


def test_missing_program_has_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises("mmdebstrap.missing", "apt-get install mmdebstrap"):
        bootstrap(tmp_path / "base.tar", ("git",))


def is_over(process: Path) -> bool:
    try:
        return "State:\tZ" in process.read_text()
    except OSError:
        return True


@pytest.mark.process
def test_timeout_kills_the_program_and_its_children(program: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    note = f"echo $! >{pid_file}.new; mv {pid_file}.new {pid_file}"
    write(program, f"sleep 300 & {note}; trap 'exit 1' TERM; wait")
    # A busy machine may need longer to start the program and its child.
    for seconds in (1, 20):
        started = time.monotonic()
        with pytest.raises(ImageBuildError, match=f"did not finish within {seconds} s"):
            bootstrap(tmp_path / "base.tar", ("git",), timeout=seconds)
        assert time.monotonic() - started < seconds + 100
        if pid_file.exists():
            break
    child = Path("/proc", pid_file.read_text().strip(), "status")
    deadline = time.monotonic() + 180
    while not is_over(child):
        assert time.monotonic() < deadline, "a child process is still running"
        time.sleep(0.05)
