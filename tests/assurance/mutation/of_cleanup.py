"""Protections of files and branches that a cleanup must not remove."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import Always, Give, Instead, Never, Remove, Replace, Without

CLEANUP = "tests/runs/cleanup/test_remove.py"
KEPT = "tests/repository/test_kept_refs.py"
CHOICE = "tests/runs/cleanup/test_selection.py"
RESTORE = "tests/runs/cleanup/test_restore.py"
NAMES = "tests/runs/test_naming.py"
PLACES = "tests/faces/cli/test_odd_places.py"
ACCEPTANCE = "tests/system/test_acceptance.py"


def cleanup() -> Iterator[Protection]:
    """Return the checks before something is removed."""
    yield from marked(
        ("tests/system/test_transfer.py -k cleanup_collects",),
        ("work in volumes is kept", Instead("{}")),
        ("work of lost place is not replaced", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/base/test_machine.py",),
        ("tests of live processes are left alone", Instead("True")),
    )  # fmt: skip
    yield from marked(
        ("tests/system/test_killed_tests.py",),
        ("tests of killed processes are removed", Never()),
        ("objects of a moment name their process", Without("PROCESS")),
    )  # fmt: skip
    yield from marked(
        (CLEANUP, CHOICE, f"{ACCEPTANCE} -k cleanup"),
        ("unmerged work is backed up", Remove()),
        ("objects of a run that lost the engine are removed", Without("*gone")),
        ("objects of a run being created are kept", Without("not (runs / name).exists()")),
        ("live runs are left alone", Always()),
        ("branch checked out elsewhere is kept", Never()),
        ("directory that is no worktree is kept", Remove()),
        ("engine objects of other runs are kept",
         Instead("[one for some in job.leftovers.values() for one in some]")),
        ("container is removed before its files are read", Never()),
    )  # fmt: skip
    yield from marked(
        (f"{CHOICE} -k LiveRun",),
        ("only ended workers of live runs are removed",
         Without("run.result(worker.number) is not None")),
        ("worker with message is left alone", Without("not awaits_turn(run, worker.number)")),
        ("work of live runs is not purged", Never()),
    )  # fmt: skip
    yield from marked(
        (CHOICE,),
        ("containers that the engine creates late are removed", Instead("[]")),
    )  # fmt: skip
    yield from marked(
        (CLEANUP, RESTORE),
        ("backups are not overwritten", Always("held is None")),
    )  # fmt: skip
    yield from marked(
        (CLEANUP, RESTORE),
        ("restore overwrites nothing", Never()),
    )  # fmt: skip
    yield from marked(
        (CHOICE, KEPT),
        ("workers' branches do not count as merged", Instead("set(refs)")),
        ("pushed branches do not count as merged", Without("remote_refs_of_workers(repository)")),
        ("unharvested work does not count as merged", Remove()),
        ("worktree with uncommitted work is not clean", Without("is_clean(repository, worker)")),
    )  # fmt: skip
    yield from marked(
        ("tests/state/test_run_record.py",),
        ("values of variables are not recorded", Give("exclude={}")),
    )  # fmt: skip
    yield from marked(
        ("tests/state/test_run_record.py",),
        ("records are private to the user", Replace("0o700", "0o755")),
        ("length of read results limited", Without("most + 1")),
        ("large results are not parsed", Instead("content")),
    )  # fmt: skip


def names() -> Iterator[Protection]:
    """Return the protections of existing files and branches from names of templates."""
    yield from marked(
        (NAMES,),
        ("existing paths are not overwritten", Never()),
        ("worktree paths do not follow links of the repository", Never()),
        ("worktree in another repository refused", Never()),
        ("worktree in a directory with tracked files refused", Never()),
        ("branch with the name of a tag refused", Without("*other_meanings(name)")),
        ("invalid branch names refused", Without("not right")),
        ("number is used by one worker only", Without("{worker.number for worker in claimed}")),
    )  # fmt: skip
    yield from marked(
        (NAMES,),
        ("discovered file cannot place worktrees outside", Without("_leads_outside(setting)")),
    )  # fmt: skip
    yield from marked(
        (NAMES,),
        ("user's worktree is not mistaken for a worker's", Never()),
    )  # fmt: skip
    yield from marked(
        (f"{PLACES} -k copied",),
        ("copied repository leaves the original's worktrees alone", Never()),
    )  # fmt: skip
    yield from marked(
        (NAMES,),
        ("run in a worker's worktree refused", Never()),
    )  # fmt: skip
    yield from marked(
        (NAMES,),
        ("name with a secret refused", Never("worker.is_named")),
    )  # fmt: skip
