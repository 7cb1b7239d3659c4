"""Read the JUnit files that workers left as artifacts."""

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from orchestrator.base.text.sanitize import one_line
from orchestrator.review.judging.junit_file import Room, WorkerTest, read_junit
from orchestrator.worker.workspace.artifacts import collected

_MOST_BYTES = 8 * 1024**2
"""Maximum size in bytes of a JUnit file."""
_MOST_FILES = 100
_MOST_READ = 32 * 1024**2
"""Maximum size in bytes of all JUnit files of one worker."""
_MOST_CASES = 20_000
"""Maximum number of tests of one worker."""
_CASES = 200_000
"""Number of tests that the workers of a run share, if each of them has many."""
_TEXT = 20 * 1000**2
"""Number of characters of messages and texts that the workers of a run share."""


def read_tests(
    root: Path, globs: Iterable[str], *, workers: int = 1
) -> Iterator[list[WorkerTest] | str]:
    """Yield the tests of each JUnit file of a worker, and what is wrong with a file.

    Messages and texts of tests are empty after the worker's share of them is used.

    Args:
        root: The worker's state directory.
        globs: Patterns of the paths of the files among the artifacts; `*` also matches `/`.
        workers: Number of workers of the run.
    """
    patterns, files, left = tuple(globs), 0, _MOST_READ
    room = Room(min(_MOST_CASES, _CASES // workers), _TEXT // workers)
    for path, file in collected(root):
        if not any(fnmatchcase(path, pattern) for pattern in patterns):
            continue
        files += 1
        if files > _MOST_FILES:
            yield f"there are more than {_MOST_FILES} JUnit files: the others were left out"
            return
        try:
            data = file.read(min(_MOST_BYTES, left) + 1)
            left -= len(data)
            # protection: size-of-all-junit-files-limited
            if left < 0:
                yield f"the JUnit files exceed {_MOST_READ // 1024**2} MiB: some were left out"
                return
        except OSError as error:
            yield f"{one_line(path)}: {error.strerror or 'unreadable'}"
            continue
        # protection: size-of-junit-file-limited
        if len(data) > _MOST_BYTES:
            yield f"{one_line(path)}: the file is larger than {_MOST_BYTES // 1024**2} MiB"
            continue
        tests, problem = read_junit(data, room)
        if tests or not problem:
            yield tests
        if problem:
            yield f"{one_line(path)}: {problem}"
