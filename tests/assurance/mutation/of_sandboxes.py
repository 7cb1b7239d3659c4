"""Protections of sandboxes without a repository: batches lose nothing, and run nothing twice."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import Always, Never, Remove, Replace


def batches() -> Iterator[Protection]:
    """Batches on disk, which go on after any end of their process."""
    yield from marked(
        ("tests/sandbox/test_queue.py",),
        ("recorded submissions do not run again", Replace("self.note(submission.id)", "True")),
        ("the length of submissions limited", Never()),
        ("a torn result is removed", Remove()),
        ("results are durable", Remove()),
    )  # fmt: skip
    yield from marked(
        ("tests/faces/cli/test_sandbox.py -k interrupted",),
        ("stopped submissions have no result", Always()),
    )
