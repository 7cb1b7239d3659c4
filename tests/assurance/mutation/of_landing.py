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
        "landing/land.py landing/checkout.py landing/target.py landing/record.py "
        "files/lock_file.py",
        (_UNFIT, f"{_KILLED} {_MERGE}"),
        ("target: branch moves only from its expected commit", "why, ref, change.new, change.old)",
         "why, ref, change.new)"),
        ("target: branch has not moved since the merge began",
         "if commit_of(repository, target.ref) != target.commit:",
         "if False:"),
        ("target: checkout has not changed since the merge began",
         "if target.checkout != _checkout(repository, target.branch):", "if False:"),
        ("target: no rebase in another worktree", "& {target.ref, target.branch}:", "& set():"),
        ("target: no merge in progress", '    "MERGE_HEAD": "a merge",\n', ""),
        ("target: no rebase in progress", '    "rebase-merge": "a rebase",\n', "",
         "a rebase is also noticed because it records the name of the branch"),
        ("target: no cherry-pick in progress", '    "CHERRY_PICK_HEAD": "a cherry-pick",\n', ""),
        ("target: no other git command changes the index",
         'if (checkout.git_dir / "index.lock").exists():', "if False:",
         "git refuses to write the files, and the branch moves back"),
        ("target: uncommitted changes are kept",
         'git.run("read-tree", "-n", "-m", "-u", old, new, timeout=CHECKOUT_TIMEOUT)', "pass"),
        ("target: untracked and ignored files are kept",
         "    _check_untracked(checkout, [path for _, path in changed], tracked)\n", ""),
        ("target: disk has enough free space", "    if free < needed:\n", "    if False:\n"),
        ("target: index is unchanged before the merge",
         "    copy = repository.state_dir / f\"index-{os.getpid()}\"",
         '    copy = checkout.git_dir / "index"'),
        ("target: branch moves back if its files cannot be written",
         "    if change.landed.moves:\n        why",
         "    if False:\n        why"),
        ("target: change is recorded before it begins",
         "    note_under_way(repository, change)\n", ""),
        ("target: change of a dead process is completed",
         "_complete_files(repository, find_target(repository, landed.branch), change)", "pass"),
        ("undo only of a branch that has not moved since",
         "    if not landed.is_undone_from(target.commit):\n", "    if False:\n"),
        ("merges that never happened are not undone",
         "if one.moves and one.before == target.commit]", "if False]"),
        ("one merge of a repository at a time",
         "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass"),
        ("merge into branches of workers is refused",
         "if ref.startswith(BRANCHES) or ref in repository.worker_branches():", "if False:"),
    )  # fmt: skip
    yield from patches(
        "landing/chain.py landing/checkout.py landing/branches.py landing/merge.py "
        "cli/commands/diff.py",
        (f"{_MERGE} {_HOSTILE}", "tests/cli/commands/test_conflicts.py",
         "tests/cli/commands/test_merge.py"),
        ("merged trees are checked like harvested trees",
         "check_trees(self.git, base=onto, tip=commit, repository=self.repository)", "pass"),
        ("rebase of merge commits is refused", "if any(len(row) != 2 for row in rows):",
         "if False:"),
        ("filters do not run in the user's checkout",
         "config = repository.without_filters()", "config = {}"),
        ("merged branch belongs to the run",
         "if run.run_id == history.run_id and (ref", "if (ref"),
        ("printed patch is sanitised", 'lines(piece.decode("utf-8", "replace"))',
         'piece.decode("utf-8", "replace")'),
        ("unchanged patch is not printed in CI jobs",
         "    if raw and in_ci(os.environ):\n", "    if False:\n"),
        ("failed workers are merged only by number",
         "elif branch.status is Status.SUCCESS or self._wish.named:", "elif True:"),
    )  # fmt: skip
    yield from patches(
        "landing/queue.py landing/merge.py landing/branches.py runs/commit_test.py "
        "state/run_directory.py",
        ("tests/landing/test_queue.py", "tests/cli/commands/test_merge_queue.py"),
        ("queue: failed checks are repeated", "_TWICE = 2\n", "_TWICE = 1\n"),
        ("queue: no branch is blamed if the target fails",
         '        if first == "fail":\n', "        if False:\n"),
        ("queue: no branch is blamed without an answer",
         '            if answer == "none":\n                return None\n', ""),
        ("queue: runs of checks have no branches to merge",
         "(self.path / _TEST).touch()", "pass"),
        ("queue: branches of checks are removed",
         "        cleanup(self._root, engine=self._engine, run_id=result.run_id, purge=True)\n",
         ""),
    )  # fmt: skip
