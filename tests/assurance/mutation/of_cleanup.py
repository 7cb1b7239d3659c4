"""Protections of files and branches that a cleanup must not remove."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

CLEANUP = "tests/cleanup/test_remove.py"
KEPT = "tests/git/test_kept_refs.py"
CHOICE = "tests/cleanup/test_selection.py"
RESTORE = "tests/cleanup/test_restored_worker_is_printed.py"
NAMES = "tests/runs/test_naming.py"
ACCEPTANCE = "tests/system/test_acceptance.py"


def cleanup() -> Iterator[Protection]:
    """Return the checks before something is removed."""
    yield from patches(
        "cleanup/remove.py",
        (CLEANUP, CHOICE, f"{ACCEPTANCE} -k cleanup"),
        ("backups", '                repository.git.run("update-ref", backup, kept)\n',
         "                pass\n"),
        ("live runs left alone", "        if held:\n            _clean_workers(",
         "        if True:\n            _clean_workers("),
        ("a branch checked out elsewhere stays", "    if elsewhere:\n", "    if False:\n"),
        ("a directory that is no worktree stays",
         "if worker.path.exists() and worker.worktree() is None:", "if False:"),
        ("objects of other runs stay", "found = job.leftovers.get(run.run_id, [])",
         "found = [one for some in job.leftovers.values() for one in some]"),
        ("a dead worker's container is gone before its files are read", "    if occupied:\n",
         "    if False:\n"),
    )  # fmt: skip
    yield from patches(
        "cleanup/backups.py",
        (CLEANUP, RESTORE),
        ("filters off in a snapshot", "        config=repository.without_filters(),\n", ""),
        ("backups not overwritten", "if held is None or repository.git.succeeds(",
         "if True or repository.git.succeeds("),
    )  # fmt: skip
    yield from patches(
        "cleanup/restore.py",
        (CLEANUP, RESTORE),
        ("what is in the way of a restore stays", "    if problems:\n", "    if False:\n"),
    )  # fmt: skip
    yield from patches(
        "cleanup/inventory.py", (CHOICE, KEPT),
        ("what only workers have is not merged",
         "others = {ref for ref in refs if not (ref.startswith(BRANCHES) or ref in named)}",
         "others = set(refs)"),
        ("what was pushed is not merged", "others - pushed_refs(repository)", "others"),
        ("what a dead worker wrote is not merged",
         "    if worker.is_stranded():\n        return False\n", ""),
        ("uncommitted work is not clean", " and is_clean(repository, worker)", ""),
    )  # fmt: skip
    yield from patches(
        "state/run_record.py",
        ("tests/state/test_run_record.py",),
        ("the caller's variables not recorded", "exclude=without", "exclude={}"),
    )  # fmt: skip
    yield from patches(
        "state/run_directory.py",
        ("tests/state/test_run_record.py",),
        ("records are the user's own", "self.path.chmod(0o700)", "self.path.chmod(0o755)"),
        ("results are read to a bound", "file.read(most + 1)", "file.read()"),
        ("results that are too large are not understood",
         "return content if len(content) <= most else None", "return content"),
    )  # fmt: skip


def names() -> Iterator[Protection]:
    """Return the protections of existing files and branches from names of templates."""
    yield from patches(
        "runs/naming.py",
        (NAMES,),
        ("nothing is checked out over what exists", "if os.path.lexists(path):\n", "if False:\n"),
        ("no worktree through a link of the repository",
         "if directory.is_symlink() and not may_be_link:", "if False:"),
        ("no worktree in another repository", 'if os.path.lexists(directory / ".git"):',
         "if False:"),
        ("no worktree where the repository has files",
         "if name and is_reserved(name, [first + star]):", "if False:"),
        ("no branch that is a tag too",
         "if other in self._refs:", "if other == ref in self._refs:"),
        ("names are names of branches", "if not right or _SPECIAL", "if _SPECIAL"),
        ("a number stands for one worker", " | {worker.number for worker in claimed}", ""),
    )  # fmt: skip
    yield from patches(
        "config/untrusted_file.py",
        (NAMES,),
        ("a found file puts no worktree outside", " or _leads_outside(setting)", ""),
    )
    yield from patches(
        "git/worktree.py",
        (NAMES,),
        ("a worktree of the user's is not taken for a worker's",
         "if marked and not (git_dir / WORKER_MARK).exists():", "if False:"),
    )  # fmt: skip
    yield from patches(
        "git/repository.py",
        (NAMES,),
        ("no run in a worker's worktree", "if (self.git_dir / WORKER_MARK).exists():", "if False:"),
    )
    yield from patches(
        "runs/reservation.py",
        (NAMES,),
        (
            "no secret in a name",
            "if worker.is_named and not _is_same(",
            "if False and not _is_same(",
        ),
    )
