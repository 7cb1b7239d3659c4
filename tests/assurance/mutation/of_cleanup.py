"""Protections of files and branches that a cleanup must not remove."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

CLEANUP = "tests/cleanup/test_remove.py"
KEPT = "tests/git/test_kept_refs.py"
CHOICE = "tests/cleanup/test_selection.py"
RESTORE = "tests/cleanup/test_restore.py"
NAMES = "tests/runs/test_naming.py"
PLACES = "tests/cli/test_odd_places.py"
ACCEPTANCE = "tests/system/test_acceptance.py"


def cleanup() -> Iterator[Protection]:
    """Return the checks before something is removed."""
    yield from patches(
        "cleanup/remove.py",
        (CLEANUP, CHOICE, f"{ACCEPTANCE} -k cleanup"),
        ("unmerged work is backed up",
         '                repository.git.run("update-ref", backup, kept)\n',
         "                pass\n"),
        ("objects of a run that lost the engine are removed", 'for name in ("", *gone)',
         'for name in ("",)'),
        ("objects of a run being created are kept", " and not (runs / name).exists()", ""),
        ("live runs are left alone", "        if held:\n            _clean_workers(",
         "        if True:\n            _clean_workers("),
        ("branch checked out elsewhere is kept", "    if elsewhere:\n", "    if False:\n"),
        ("directory that is no worktree is kept",
         "        worker.open_worktree()\n        tip =", "        tip ="),
        ("engine objects of other runs are kept", "found = job.leftovers.get(run.run_id, [])",
         "found = [one for some in job.leftovers.values() for one in some]"),
        ("container is removed before its files are read", "    if occupied:\n",
         "    if False:\n"),
    )  # fmt: skip
    yield from patches(
        "cleanup/orphans.py",
        (CHOICE,),
        ("containers that the engine creates late are removed", "        known += late\n",
         "        late = []\n"),
    )  # fmt: skip
    yield from patches(
        "cleanup/backups.py",
        (CLEANUP, RESTORE),
        ("filters disabled in a snapshot", "        config=repository.without_filters(),\n", ""),
        ("backups are not overwritten", "if held is None or repository.git.succeeds(",
         "if True or repository.git.succeeds("),
    )  # fmt: skip
    yield from patches(
        "cleanup/restore.py",
        (CLEANUP, RESTORE),
        ("restore overwrites nothing", "    if problems:\n", "    if False:\n"),
    )  # fmt: skip
    yield from patches(
        "cleanup/inventory.py", (CHOICE, KEPT),
        ("workers' branches do not count as merged",
         "others = {ref for ref in refs if not (ref.startswith(BRANCHES) or ref in named)}",
         "others = set(refs)"),
        ("pushed branches do not count as merged",
         "others - remote_refs_of_workers(repository)", "others"),
        ("unharvested work does not count as merged",
         "    if worker.is_stranded():\n        return False\n", ""),
        ("worktree with uncommitted work is not clean", " and is_clean(repository, worker)", ""),
    )  # fmt: skip
    yield from patches(
        "state/run_record.py",
        ("tests/state/test_run_record.py",),
        ("values of variables are not recorded", "exclude=without", "exclude={}"),
    )  # fmt: skip
    yield from patches(
        "state/run_directory.py",
        ("tests/state/test_run_record.py",),
        ("records are private to the user", "self.path.chmod(0o700)", "self.path.chmod(0o755)"),
        ("length of read results limited", "file.read(most + 1)", "file.read()"),
        ("large results are not parsed",
         "return content if len(content) <= most else None", "return content"),
    )  # fmt: skip


def names() -> Iterator[Protection]:
    """Return the protections of existing files and branches from names of templates."""
    yield from patches(
        "runs/naming.py",
        (NAMES,),
        ("existing paths are not overwritten", "if os.path.lexists(path):\n", "if False:\n"),
        ("worktree paths do not follow links of the repository",
         "if directory.is_symlink() and not may_be_link:", "if False:"),
        ("worktree in another repository refused", 'if os.path.lexists(directory / ".git"):',
         "if False:"),
        ("worktree in a directory with tracked files refused",
         "if name and is_reserved(name, [first + star]):", "if False:"),
        ("branch with the name of a tag refused",
         "for meaning in (ref, *other_meanings(name))):", "for meaning in (ref,)):"),
        ("invalid branch names refused", "if not right or _SPECIAL", "if _SPECIAL"),
        ("number is used by one worker only", " | {worker.number for worker in claimed}", ""),
    )  # fmt: skip
    yield from patches(
        "config/untrusted_file.py",
        (NAMES,),
        ("discovered file cannot place worktrees outside", " or _leads_outside(setting)", ""),
    )
    yield from patches(
        "git/worktree.py",
        (NAMES,),
        ("user's worktree is not mistaken for a worker's",
         "if marked and not (git_dir / WORKER_MARK).exists():", "if False:"),
    )  # fmt: skip
    yield from patches(
        "git/worktree.py",
        (f"{PLACES} -k copied",),
        ("copied repository leaves the original's worktrees alone",
         'if not is_same(place_of(git_dir) / ".git", path / ".git"):', "if False:"),
    )  # fmt: skip
    yield from patches(
        "git/repository.py",
        (NAMES,),
        (
            "run in a worker's worktree refused",
            "if (self.git_dir / WORKER_MARK).exists():",
            "if False:",
        ),
    )
    yield from patches(
        "runs/reservation.py",
        (NAMES,),
        (
            "name with a secret refused",
            "if worker.is_named and not _is_same(",
            "if False and not _is_same(",
        ),
    )
