"""Read a worker's objects through git, also with a program in a separate process with limits."""

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from orchestrator.base.errors import GitCommandError
from orchestrator.repository.git.command import Git, too_long
from orchestrator.repository.git.defaults import LIBRARIES
from orchestrator.repository.git.failures import excerpt
from orchestrator.repository.git.limits import UNTRUSTED

_BATCH = ("cat-file", "--batch")


@contextmanager
def open_objects(git: Git) -> Iterator[tuple[int, int]]:
    """Start `git cat-file --batch`, and yield file descriptors of its output and of its input.

    Raises:
        GitCommandError: Git ended before it had read every request for an object.
    """
    with tempfile.TemporaryFile() as said, _batch(git, said) as (batch, *places):
        try:
            with _kill_after((git.limits or UNTRUSTED).time, batch):
                yield places[0], places[1]
        except BrokenPipeError:
            raise GitCommandError(_BATCH, batch.wait(), excerpt(said)) from None


@contextmanager
def _batch(git: Git, said: IO[bytes]) -> Iterator[tuple["subprocess.Popen[bytes]", int, int]]:
    """Start git, yield the process with both descriptors, and kill the process at the end."""
    answers, to_program = os.pipe()
    questions, to_git = os.pipe()
    try:
        try:
            batch = git.within(git.limits or UNTRUSTED).start(
                *_BATCH, stdin=questions, stdout=to_program, stderr=said, keeps_leases=False
            )
        finally:
            os.close(to_program)
            os.close(questions)
        try:
            yield batch, answers, to_git
        finally:
            _end(batch)
            batch.wait()
    finally:
        os.close(answers)
        os.close(to_git)


def consult(git: Git, program: Sequence[str], order: bytes, *, most: int = 64 * 1024) -> bytes:
    """Run a program that reads objects by asking git for them, and return the program's output.

    The program queries a `git cat-file --batch` process, so that a worker's data is parsed in a
    process with its own limits. Two file descriptors are appended to the program's arguments: of
    git's output, and of git's input.

    Args:
        git: Runs git commands on the repository.
        program: The command line.
        order: The program's stdin.
        most: Maximum number of bytes that the program may print.

    Raises:
        GitCommandError: The program failed, or exceeded its limits.
        OutputTooLongError: The program printed more than `most`.
    """
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as asked:
        asked.write(order)
        asked.seek(0)
        with _batch(git, said) as (batch, *places):
            limits = git.limits or UNTRUSTED
            # Python finds its shared libraries with these variables.
            libraries = {name: os.environ[name] for name in LIBRARIES if name in os.environ}
            # protection: resource-limits-of-object-readers
            command = limits.around([*program, *map(str, places)])
            reader = subprocess.Popen(
                command, stdin=asked, stdout=subprocess.PIPE, stderr=said, env=libraries, cwd="/",
                pass_fds=places, start_new_session=True,
            )  # fmt: skip
            killed = _kill_after(limits.time, batch, reader)
            with killed, reader, reader.stdout or said as stdout:
                verdict = stdout.read(most + 1)
                reader.kill() if len(verdict) > most else reader.wait()
        # protection: output-of-object-readers-limited
        if len(verdict) > most:
            raise too_long(_BATCH, most)
        if reader.returncode != 0:
            raise GitCommandError(_BATCH, reader.returncode, excerpt(said))
    return verdict


@contextmanager
def _kill_after(seconds: float, *processes: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Kill the processes if the `with` block takes longer than `seconds`."""
    clock = threading.Timer(seconds, _end, args=processes)
    # protection: object-readers-have-timeout
    clock.start()
    try:
        yield
    finally:
        clock.cancel()


def _end(*processes: "subprocess.Popen[bytes]") -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            process.kill()
