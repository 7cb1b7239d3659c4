"""Protections of sandboxes without a repository: batches lose nothing, and run nothing twice."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import Always, Instead, Never, Remove, Replace


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
    yield from marked(
        ("tests/runs/cleanup/test_uninstall.py -k live_sandbox",),
        ("live sandboxes stay", Remove()),
    )


def commands() -> Iterator[Protection]:
    """Commands in sandboxes, which stay within them, and end."""
    yield from marked(
        ("tests/sandbox/test_batch.py -k 'not docker'",),
        ("sandboxes of left iterator end", Remove()),
        ("container of submission is removed", Remove()),
        ("reaper gets no secrets", Replace("environment(os.environ)", "dict(os.environ)")),
        ("files of submissions stay in workspace", Never()),
        ("output in memory limited", Instead("10**9")),
        ("links below directory are not followed", Replace("os.O_NOFOLLOW", "0")),
    )  # fmt: skip
    yield from marked(
        ("tests/sandbox/test_batch.py -k 'reason or killed_client'",),
        ("reaper runs before sandbox", Remove()),
        ("sandbox is never root", Always()),
        ("sandbox of dead process ends", Instead("False")),
    )
    yield from marked(
        ("tests/sandbox/test_live.py",),
        ("sandbox over its limits is killed", Remove()),
        ("paths of callers stay in sandbox", Replace("'..' not in inside.parts", "True")),
        ("downloads limited", Never()),
        ("only files and directories are downloaded", Always()),
        ("downloads stay in their directory", Replace("'data'", "'fully_trusted'")),
        ("snapshot is not replaced", Never()),
        ("extended sandbox is left alone", Instead("set(names)")),
    )
    yield from marked(
        ("tests/sandbox/test_pool.py",),
        ("unused sandboxes end with pool", Replace("owned=True", "owned=False")),
    )


def networks() -> Iterator[Protection]:
    """What sandboxes reach, and what is left of it."""
    yield from marked(
        ("tests/sandbox/test_network.py",),
        ("host closed before first sandbox", Remove()),
        ("sandbox without closed network refused", Remove()),
        ("network of living sandbox stays", Instead("set()")),
        ("network of sandbox never wider", Never()),
        ("rules of cut off container", Instead("['accept']")),
        ("cut off container has no network", Remove()),
    )


def roots() -> Iterator[Protection]:
    """Sandboxes that change their root file system, also as root."""
    yield from marked(
        ("tests/sandbox/test_root.py",),
        ("root of sandbox has few capabilities", Instead("('ALL',)")),
        ("no file of root on this machine", Always()),
        ("root only in sandboxes of root", Never()),
        ("writable root counts against disk limit", Instead("None")),
    )
