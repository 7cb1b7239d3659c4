"""Protections of merges of workers' branches into a branch of the user."""

from collections.abc import Iterator

from tests.assurance.mutation.protection import Protection, marked
from tests.assurance.mutation.ways import (
    Always,
    Instead,
    Never,
    Remove,
    Replace,
    Text,
    Unwrap,
    Without,
)

_UNFIT = "tests/review/landing/test_unfit.py"
_HOSTILE = "tests/review/landing/test_merge_hostile.py"
_KILLED = "tests/review/landing/test_killed.py"
_MERGE = "tests/review/landing/test_merge.py"
_RESOLUTION = "tests/review/landing/test_resolution.py"
_REQUESTS = "tests/review/landing/test_pull_requests.py"


def landing() -> Iterator[Protection]:
    """Return the protections of the user's branch and checkout."""
    yield from marked(
        (_UNFIT, f"{_KILLED} {_MERGE}"),
        ("target: branch moves only from its expected commit", Without("change.old")),
        ("target: branch has not moved since the merge began", Never()),
        ("target: checkout has not changed since the merge began", Never()),
        ("target: no rebase in another worktree", Never()),
        ("target: checkout whose files cannot be updated", Never()),
        ("target: no merge in progress", Without("MERGE_HEAD", at="operations-in-progress")),
        ("target: no rebase in progress",
         Without("'rebase-merge'", at="operations-in-progress"),
         "a rebase is also noticed because it records the name of the branch"),
        ("target: no cherry-pick in progress",
         Without("CHERRY_PICK_HEAD", at="operations-in-progress")),
        ("target: no other git command changes the index",
         Never(), "git refuses to write the files, and the branch moves back"),
        ("target: uncommitted changes are kept", Remove()),
        ("target: untracked and ignored files are kept", Remove()),
        ("target: disk has enough free space", Never()),
        ("target: index is unchanged before the merge", Instead("checkout.git_dir / 'index'")),
        ("target: branch moves back if its files cannot be written", Never()),
        ("target: change is recorded before it begins", Remove()),
        ("target: change of a dead process is completed", Remove()),
        ("undo only of a branch that has not moved since", Never()),
        ("merges that never happened are not undone",
         Never("landed.moves and landed.before == target.commit")),
        ("one merge of a repository at a time", Remove()),
        ("merge into branches of workers is refused", Never()),
    )  # fmt: skip
    yield from marked(
        (f"{_MERGE} {_HOSTILE}", "tests/faces/cli/commands/test_conflicts.py",
         "tests/faces/cli/commands/test_merge.py"),
        ("merged trees are checked like harvested trees", Remove()),
        ("rebase of merge commits is refused", Never()),
        ("merged branch belongs to the run", Without("run.run_id == history.run_id")),
        ("printed patch is sanitised", Unwrap("lines")),
        ("unchanged patch is not printed in CI jobs", Without("is_log")),
        ("`--raw` is refused in CI jobs", Never()),
        ("failed workers are merged only by number", Never()),
    )  # fmt: skip
    yield from marked(
        ("tests/review/landing/test_queue.py", "tests/faces/cli/commands/test_merge_queue.py"),
        ("queue: failed checks are repeated", Replace("2", "1")),
        ("queue: no branch is blamed if the target fails", Never()),
        ("queue: no branch is blamed without an answer", Remove()),
        ("queue: runs of checks have no branches to merge", Remove()),
        ("queue: branches of checks are removed", Remove()),
    )  # fmt: skip
    yield from marked(
        (_RESOLUTION, "tests/runs/test_conflict_agent.py"),
        ("agent: only conflicting files are changed", Never()),
        ("agent: files are not replaced by links", Never()),
        ("agent: no conflict marker is left", Never()),
        ("agent: no side vanishes without a reason",
         Never("_one_side_is_gone(git, conflict, commit, path)")),
        ("agent: a reason says more than the name of the file",
         Without("len(line.replace(path, '').split()) > 1")),
        ("agent: resolutions are checked like harvested trees", Remove()),
        ("agent: the queue resolves conflicts last",
         Instead("Queue(self._resolve if resolve else self._add, run_test, verdicts)")),
        ("agent: run is continued, not repeated", Instead("None")),
        ("agent: run has no branch to merge", Remove()),
        ("agent: branches of its run are removed", Remove()),
    )  # fmt: skip
    yield from marked(
        (_REQUESTS, "tests/base/text/test_quoting.py"),
        ("pr: nothing is forced", Text("{commit}:", "+{commit}:")),
        ("pr: programs are not looked up in checkout", Unwrap("absolute_path")),
        ("pr: one ref is pushed", Without("f'remote.{name}.mirror'")),
        ("pr: no tags follow", Without("'push.followTags'")),
        ("pr: texts that someone changed are kept", Always()),
        ("pr: texts mention no user",
         Instead("name not in ('closes an issue', 'mentions somebody')",
                 at="texts-of-pull-requests-do-nothing")),
        ("pr: texts give no commands",
         Instead("name not in ('closes an issue', 'gives a command')",
                 at="texts-of-pull-requests-do-nothing")),
        ("pr: texts skip no checks",
         Instead("name not in ('closes an issue', 'skips checks')",
                 at="texts-of-pull-requests-do-nothing")),
        ("pr: texts have no trailers",
         Instead("name not in ('closes an issue', 'has a trailer')",
                 at="texts-of-pull-requests-do-nothing")),
        ("pr: texts are cleaned before references are ended", Unwrap("lines")),
        ("pr: no commit of a worker is pushed", Always()),
        ("pr: pushed commits are listed with what they do", Replace("effects(text)", "()")),
        ("pr: texts stay in their blocks", Instead("'~~~'")),
        ("pr: titles are one short line", Replace("100", "10 ** 6")),
        ("pr: commits of others stay", Remove()),
        ("pr: squashed parents leave no conflict", Never()),
        ("pr: printed errors are sanitised", Unwrap("output_line")),
    )  # fmt: skip
