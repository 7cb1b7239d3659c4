"""A batch on disk: the submissions of one file, whose results another file gets one by one.

Both files have a JSON object on each line. The results alone say what is done: whoever starts again
with the same two files goes on, however the process before has ended.
"""

import fcntl
import os
import secrets
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from orchestrator.base.errors import MOST_MISTAKES, ConfigError, mistakes
from orchestrator.base.files.output import open_to_append
from orchestrator.base.text.quantities import size
from orchestrator.base.text.sanitize import one_line
from orchestrator.sandbox.models import Finished, Submission

LONGEST_LINE = 64 * 1024**2
"""Maximum number of bytes of a submission."""
_LONGEST_RESULT = 1024**3
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HINT = 'each line is a JSON object such as {"id": "1", "command": ["python3", "main.py"]}'


def as_line(finished: Finished) -> str:
    """Return a result as one line of JSON, in ASCII."""
    return finished.model_dump_json(ensure_ascii=True)


class Batch:
    """The submissions of a file, of which only one line at a time is in memory."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Read and check all submissions.

        Args:
            file: The file, which stays open and can be read again.
            name: Its name, for messages.

        Raises:
            ConfigError: A line is no submission, an id is missing or not unique, or there is none.
        """
        self._name, self._file, self._start = name, file, file.tell()
        # With a secret key, nobody can choose ids of equal hashes.
        self._key = secrets.token_bytes(16)
        self._hashes = array("Q", sorted(self._hash(found.id) for _, found in self._read()))
        if not self._hashes:
            raise ConfigError(f"{name} has no submission", key="batch.empty", hint=_HINT)
        if twice := {each for each, other in pairwise(self._hashes) if each == other}:
            raise self._equal_ids(twice)
        self._done = bytearray(len(self._hashes))

    def __len__(self) -> int:
        """Return the number of submissions."""
        return len(self._hashes)

    @property
    def left(self) -> int:
        """Return the number of submissions that are neither done nor taken."""
        return self._done.count(0)

    def note(self, name: str) -> bool:
        """Note that a submission is done; return False if there is no such one left."""
        wanted = self._hash(name)
        place = bisect_left(self._hashes, wanted)
        if place == len(self) or self._hashes[place] != wanted or self._done[place]:
            return False
        self._done[place] = 1
        return True

    def take(self) -> Iterator[Submission]:
        """Take the submissions that are left, in the order of the file.

        Raises:
            ConfigError: The file was changed meanwhile, and a line is no submission.
        """
        # protection: recorded-submissions-do-not-run-again
        yield from (submission for _, submission in self._read() if self.note(submission.id))

    def _hash(self, name: str) -> int:
        return int.from_bytes(blake2b(name.encode(), digest_size=8, key=self._key).digest())

    def _read(self) -> Iterator[tuple[int, Submission]]:
        """Yield the submissions with the numbers of their lines, up to the first mistake."""
        problems: list[str] = []
        self._file.seek(self._start)
        for number, line in _lines(self._file, LONGEST_LINE):
            if not line.strip():
                continue
            try:
                # protection: length-of-submissions-limited
                if len(line) > LONGEST_LINE:
                    raise ValueError(f"the line is longer than {size(LONGEST_LINE)}")
                submission = Submission.model_validate_json(line, strict=True)
                if not submission.id:
                    raise ValueError("`id` is missing")
            except ValueError as error:
                problems.append(f"{self._name}, line {number}: {_why(error)}")
                if len(problems) > MOST_MISTAKES or len(line) > LONGEST_LINE:
                    break
            else:
                if not problems:
                    yield number, submission
        if problems:
            raise mistakes(problems, _HINT, "batch", key="batch.invalid")

    def _equal_ids(self, twice: set[int]) -> ConfigError:
        first: dict[str, int] = {}
        problems = [
            f"{self._name}, line {n}: line {first[found.id]} has the id `{one_line(found.id)}` too"
            for n, found in self._read()
            if self._hash(found.id) in twice and first.setdefault(found.id, n) != n
        ]
        hint = "each submission needs an id of its own"
        return mistakes(problems, hint, "batch", key="batch.invalid")


class Results:
    """A file that gets results: each is on the disk before the next one is written."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        """Open or create the file; no other process writes to it until `close`.

        Args:
            path: The file.
            resume: Whether it may have results already.

        Raises:
            ConfigError: It has results, is in use, or cannot be written.
        """
        self._path = path
        try:
            if path.exists() and not path.is_file():
                raise OSError(0, "is not a regular file")
            self._file = open_to_append(path)
            # A new name is lost with the power, unless the directory is on the disk, too.
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            os.fsync(folder)
            os.close(folder)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise ConfigError(
                f"another batch writes its results to {path}",
                key="batch.busy",
                hint="wait for its end, or name another file",
            ) from error
        if not resume and os.fstat(self._file).st_size:
            self.close()
            raise ConfigError(
                f"{path} has results already",
                key="batch.has-results",
                hint="`--resume` goes on with what they lack; else name another file",
            )

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def read(self) -> Iterator[Finished]:
        """Yield the results in the file, and remove the beginning of one at its end.

        Raises:
            ConfigError: The file has something else.
        """
        complete, broken = 0, None
        with Path(f"/proc/self/fd/{self._file}").open("rb") as file:
            for number, line in _lines(file, _LONGEST_RESULT):
                if broken is not None:
                    break
                try:
                    finished = Finished.model_validate_json(line)
                except ValueError:
                    broken = number
                    continue
                complete += len(line)
                yield finished
                if not line.endswith(b"\n"):
                    self._append(b"\n")
                    complete += 1
            else:
                if broken is not None:
                    # protection: torn-result-is-removed
                    os.truncate(self._file, complete)
                return
        raise ConfigError(
            f"{self._path}, line {broken}: is no result of a batch",
            key="batch.other-results",
            hint="name the file that `sandbox batch --results` wrote",
        )

    def write(self, line: str) -> None:
        """Append a line, and wait until it is on the disk.

        Raises:
            ConfigError: The file cannot be written; it is as before.
        """
        before = os.fstat(self._file).st_size
        try:
            self._append(line.encode() + b"\n")
        except OSError as error:
            with suppress(OSError):
                os.truncate(self._file, before)
            raise self._unwritable(error) from error

    def _append(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._file, left) :]
        # protection: results-are-durable
        os.fsync(self._file)

    def _unwritable(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"results cannot be written to {self._path}: {error.strerror}",
            key="batch.unwritable",
            hint="`--resume` goes on, once the file can be written",
        )


def _lines(file: BinaryIO, most: int) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers; of a longer line, only the beginning."""
    number = 0
    while line := file.readline(most + 1):
        number += 1
        yield number, line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line


def _why(error: ValueError) -> str:
    """Return what is wrong with a line, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    said = []
    for found in error.errors(include_url=False)[:5]:
        name = ".".join(str(part) for part in found["loc"] if part != "[key]")
        if found["type"] == "json_invalid":
            said.append(f"is not JSON: {found['ctx']['error']}")
        elif found["type"] == "missing":
            said.append(f"`{name}` is missing")
        elif found["type"] == "extra_forbidden":
            said.append(f"`{name}` is unknown")
        else:
            why = str(found.get("ctx", {}).get("error", found["msg"]))
            said.append(f"`{name}`: {why[:1].lower()}{why[1:]}" if name else why)
    return one_line("; ".join(said), limit=400)
