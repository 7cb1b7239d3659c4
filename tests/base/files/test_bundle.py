"""Tests of the programs of `in_container` as one text that fits into an argument."""

import errno
import subprocess
import sys

import pytest

from orchestrator.base.files.bundle import bundle

PROGRAM = "orchestrator.worker.in_container.pack_work"
MOST_BYTES = 128 * 1024 - 1
"""Maximum number of bytes of one argument that Linux passes to a program."""
HEADROOM = 24 * 1024
"""Minimum distance, in bytes, between the program's size and the limit of an argument."""


def test_harvest_program_fits_into_an_argument() -> None:
    assert len(bundle(PROGRAM).encode()) < MOST_BYTES - HEADROOM


def test_limit_of_an_argument_is_that_of_the_system() -> None:
    assert subprocess.run(["true", "x" * MOST_BYTES], check=False).returncode == 0
    with pytest.raises(OSError, match="Argument list too long") as caught:
        subprocess.run(["true", "x" * (MOST_BYTES + 1)], check=False)
    assert caught.value.errno == errno.E2BIG


def test_python_without_the_package_runs_the_harvest() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", bundle(PROGRAM), *("/nowhere",) * 9],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    # The error shows that all modules were found and the program began to work.
    assert "FileNotFoundError" in done.stderr
    assert "/nowhere" in done.stderr
