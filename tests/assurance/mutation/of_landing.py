"""Protections of merges of workers' branches into a branch of the user."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

_UNFIT = "tests/landing/test_unfit.py"
_HOSTILE = "tests/landing/test_merge_hostile.py"
_KILLED = "tests/landing/test_killed.py"
_MERGE = "tests/landing/test_merge.py"


def landing() -> Iterator[Protection]:
    """Return the protections of the user's branch and checkout."""
    yield from patches(
        "landing/land.py landing/checkout.py landing/target.py landing/record.py",
        (_UNFIT, f"{_KILLED} {_MERGE}"),
        ("the branch is moved only from where it was", "why, ref, change.new, change.old)",
         "why, ref, change.new)"),
        ("the branch is where it was", "if commit_of(repository, target.ref) != target.commit:",
         "if False:"),
        ("the checkout is where it was",
         "if target.checkout != _checkout(repository, target.branch):", "if False:"),
        ("no rebase elsewhere", "& {target.ref, target.branch}:", "& set():"),
        ("no merge under way", '    "MERGE_HEAD": "a merge",\n', ""),
        ("no rebase under way", '    "rebase-merge": "a rebase",\n', "",
         "the rebase of the branch is noticed by its name too"),
        ("no cherry-pick under way", '    "CHERRY_PICK_HEAD": "a cherry-pick",\n', ""),
        ("no other git at work", 'if (checkout.git_dir / "index.lock").exists():', "if False:",
         "git notices when it writes the files, and the branch moves back"),
        ("uncommitted changes are kept",
         'git.run("read-tree", "-n", "-m", "-u", old, new, timeout=CHECKOUT_TIMEOUT)', "pass"),
        ("untracked and ignored files are kept",
         "    _check_untracked(checkout, [path for _, path in changed], tracked)\n", ""),
        ("room on the disk", "    if free < needed:\n", "    if False:\n"),
        ("the index is not touched before",
         "    copy = repository.state_dir / f\"index-{os.getpid()}\"",
         '    copy = checkout.git_dir / "index"'),
        ("the branch goes back with its files", "    if change.landed.moves:\n        why",
         "    if False:\n        why"),
        ("a change is noted before it begins", "    note_under_way(repository, change)\n", ""),
        ("a dead change is completed", "        _complete_files(repository, target, change)\n",
         "        pass\n"),
        ("undo only from where it was put",
         "    if not landed.is_undone_from(target.commit):\n", "    if False:\n"),
        ("a landing that never happened is no record",
         "if one.moves and one.before == target.commit]", "if False]"),
        ("one merge at a time", "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass"),
        ("branches of workers are no target",
         "if ref.startswith(BRANCHES) or ref in repository.worker_branches():", "if False:"),
    )  # fmt: skip
    yield from patches(
        "landing/chain.py landing/checkout.py landing/branches.py landing/merge.py "
        "cli/commands/diff.py",
        (f"{_MERGE} {_HOSTILE}", "tests/cli/commands/test_conflicts.py",
         "tests/cli/commands/test_merge.py"),
        ("the rules of a harvest",
         "check_trees(self.git, base=onto, tip=commit, repository=self.repository)", "pass"),
        ("no merge commit is lost in a rebase", "if any(len(row) != 2 for row in rows):",
         "if False:"),
        ("no filter runs in the checkout",
         "config = repository.without_filters()", "config = {}"),
        ("the branch is that of this run",
         "if run.run_id == history.run_id and (ref", "if (ref"),
        ("a patch is harmless", 'lines(piece.decode("utf-8", "replace"))',
         'piece.decode("utf-8", "replace")'),
        ("no raw patch in a CI job", "    if raw and in_ci(os.environ):\n", "    if False:\n"),
        ("failed workers must be named",
         "elif branch.status is Status.SUCCESS or self._wish.named:", "elif True:"),
    )  # fmt: skip
