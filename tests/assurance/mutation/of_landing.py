"""Protections of merges of workers' branches into a branch of the user."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, patches

_UNFIT = "tests/landing/test_unfit.py"
_HOSTILE = "tests/landing/test_merge_hostile.py"
_KILLED = "tests/landing/test_killed.py"
_MERGE = "tests/landing/test_merge.py"
_RESOLUTION = "tests/landing/test_resolution.py"
_REQUESTS = "tests/landing/test_pull_requests.py"


def landing() -> Iterator[Protection]:
    """Return the protections of the user's branch and checkout."""
    yield from patches(
        "landing/land.py landing/checkout.py landing/target.py state/landing_record.py "
        "git/in_progress.py files/lock_file.py",
        (_UNFIT, f"{_KILLED} {_MERGE}"),
        ("target: branch moves only from its expected commit",
         "why, ref, change.new, change.old)",
         "why, ref, change.new)"),
        ("target: branch has not moved since the merge began",
         "if repository.commit_of(target.ref) != target.commit:",
         "if False:"),
        ("target: checkout has not changed since the merge began",
         "if target.checkout != _checkout(repository, target.ref):", "if False:"),
        ("target: no rebase in another worktree",
         "    if names & {ref, ref.removeprefix(\"refs/heads/\")}:",
         "    if False:"),
        ("target: checkout whose files cannot be updated", "        if not worktree.is_present:",
         "        if False:"),
        ("target: no merge in progress", '    "MERGE_HEAD": "a merge",\n', ""),
        ("target: no rebase in progress", '    "rebase-merge": "a rebase",\n', "",
         "a rebase is also noticed because it records the name of the branch"),
        ("target: no cherry-pick in progress", '    "CHERRY_PICK_HEAD": "a cherry-pick",\n', ""),
        ("target: no other git command changes the index",
         'if (git_dir / "index.lock").exists():', "if False:",
         "git refuses to write the files, and the branch moves back"),
        ("target: uncommitted changes are kept",
         'git.run("read-tree", "-n", "-m", "-u", old, new, timeout=CHECKOUT_TIMEOUT)', "pass"),
        ("target: untracked and ignored files are kept",
         "    _check_untracked(checkout, paths, tracked)\n", ""),
        ("target: disk has enough free space", "    if free < needed:\n", "    if False:\n"),
        ("target: index is unchanged before the merge",
         "    copy = repository.state_dir / f\"index-{os.getpid()}\"",
         '    copy = checkout.git_dir / "index"'),
        ("target: branch moves back if its files cannot be written",
         "            if change.landed.moves:\n                why",
         "            if False:\n                why"),
        ("target: change is recorded before it begins",
         "    note_under_way(repository, change)\n", ""),
        ("target: change of a dead process is completed",
         "_complete_files(repository, checkout, change)", "pass"),
        ("undo only of a branch that has not moved since",
         "    if not landed.is_undone_from(target.commit):\n", "    if False:\n"),
        ("merges that never happened are not undone",
         "if landed.moves and landed.before == target.commit]", "if False]"),
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
         "(stat or is_log or sys.stdout.isatty())", "(stat or sys.stdout.isatty())"),
        ("`--raw` is refused in CI jobs", "    if raw and is_log:", "    if False:"),
        ("failed workers are merged only by number",
         "if branch.status is not Status.SUCCESS and not wish.named:", "if False:"),
    )  # fmt: skip
    yield from patches(
        "landing/queue.py landing/merge.py landing/branches.py runs/commit_checks.py "
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
    yield from patches(
        "landing/resolution.py landing/merge.py landing/chain.py runs/conflict_agent.py "
        "landing/conflict.py",
        (_RESOLUTION, "tests/runs/test_conflict_agent.py"),
        ("agent: only conflicting files are changed",
         "        if foreign := outside(self.allowed, foreign) if self.allowed else foreign:\n",
         "        if False:\n"),
        ("agent: files are not replaced by links",
         "        if links := [path for path in links if not _is_of_a_side(git, conflict, commit, "
         "path)]:\n", "        if False:\n"),
        ("agent: no conflict marker is left", "        if marked:\n", "        if False:\n"),
        ("agent: no side vanishes without a reason",
         "if _one_side_is_gone(git, conflict, commit, path)]", "if False]"),
        ("agent: a reason says more than the name of the file",
         "path in line and len(line.replace(path, \"\").split()) > 1", "path in line"),
        ("agent: resolutions are checked like harvested trees",
         "            commit = self._commit(self._tree(tree), onto, branch, note)\n"
         "            self._check(commit, onto, branch)\n",
         "            commit = self._commit(self._tree(tree), onto, branch, note)\n"),
        ("agent: the queue resolves conflicts last",
         "queue = Queue(self._add, run_test, verdicts, resolve)",
         "queue = Queue(self._resolve if resolve else self._add, run_test, verdicts)"),
        ("agent: run is continued, not repeated",
         "result = None if known is None else self._continued(known.run_id)", "result = None"),
        ("agent: run has no branch to merge",
         "                self._directory(event.run_id).mark_as_test()\n", ""),
        ("agent: branches of its run are removed",
         "        cleanup(self._repository.top, engine=self._engine, run_id=result.run_id, "
         "purge=True)\n", ""),
    )  # fmt: skip
    yield from patches(
        "git/remotes.py landing/pull_requests.py landing/request_text.py text/quoting.py "
        "landing/stack.py landing/forges.py",
        (_REQUESTS, "tests/text/test_quoting.py"),
        ("pr: nothing is forced", 'f"{commit}:{_HEADS}{branch}"', 'f"+{commit}:{_HEADS}{branch}"'),
        ("pr: one ref is pushed", ', f"remote.{name}.mirror": "false"', ""),
        ("pr: no tags follow", '"push.followTags": "false", ', ""),
        ("pr: texts that someone changed are kept",
         "ours = found.body.lstrip().startswith(marker(self._run.run_id, place.branch))",
         "ours = True"),
        ("pr: texts mention no user",
         'if name != "closes an issue":',
         'if name not in ("closes an issue", "mentions somebody"):'),
        ("pr: texts give no commands",
         'if name != "closes an issue":', 'if name not in ("closes an issue", "gives a command"):'),
        ("pr: texts skip no checks",
         'if name != "closes an issue":', 'if name not in ("closes an issue", "skips checks"):'),
        ("pr: texts have no trailers",
         'if name != "closes an issue":', 'if name not in ("closes an issue", "has a trailer"):'),
        ("pr: texts are cleaned before references are ended",
         "    clean = lines(text)\n    for name", "    clean = text\n    for name"),
        ("pr: no commit of a worker is pushed",
         "        if self._keeps_commits:\n            return branch.commit\n",
         "        return branch.commit\n"),
        ("pr: pushed commits are listed with what they do",
         "effects=(*effects(text),", "effects=(*(),"),
        ("pr: texts stay in their blocks", 'fence = "~" * max(3, longest + 1)', 'fence = "~~~"'),
        ("pr: titles are one short line", "_LONGEST_TITLE = 100", "_LONGEST_TITLE = 10**6"),
        ("pr: commits of others stay",
         "        if _contains(git, there, own):\n            return there\n", ""),
        ("pr: squashed parents leave no conflict",
         "        if squashed:\n", "        if False:\n"),
        ("pr: printed errors are sanitised",
         "why = output_line(said, limit=500) or", "why = said or"),
    )  # fmt: skip
