"""Find out which branches of a run can be merged with each other and with the user's commit.

Everything is computed in a quarantine: no file, index, ref or object of the repository changes.
"""

import tempfile
from collections.abc import Sequence
from itertools import combinations, islice
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from orchestrator.base.text.sanitize import one_line
from orchestrator.repository.commits.changes import paths_with_status
from orchestrator.repository.commits.merge_tree import merge_pairs, quarantine, require_git
from orchestrator.repository.repository import Repository
from orchestrator.review.landing.branches import Branch
from orchestrator.review.landing.conflict import Kind, kind_of

MERGE_TIMEOUT = 120.0
"""Maximum number of seconds for merging all pairs of branches."""
MOST_FILES = 1000
"""Maximum number of files that are listed for one pair of branches."""
MOST_CHANGES = 10_000
"""Maximum number of one worker's changed files that are compared with those of other workers."""
_BASE = 0
"""Number that stands for the user's commit in a pair; workers are numbered from 1."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Pair(_Part):
    """Whether the commits of two workers, or the user's commit and a worker's, can be merged."""

    a: int
    """Number of a worker; 0 for the commit into which the branches would be merged."""
    b: int
    """Number of a worker, with which `a` is merged."""
    kind: Kind
    """`clean`, or the most serious kind of conflict; `semantic` if git can merge the two commits,
    but the checks fail on the merge; `unknown` if git failed to try the merge."""
    files: tuple[str, ...] = ()
    """The conflicting files; if `kind` is `clean` or `semantic`, the files that both commits
    changed. At most 1000.
    """
    conflicts: tuple[str, ...] = ()
    """Git's names for all conflicts of the two commits, such as `contents` or `modify/delete`."""

    @property
    def is_clean(self) -> bool:
        """Return whether the two commits can be merged."""
        return self.kind == "clean"


class WorkerChanges(_Part):
    """The changes of one worker."""

    worker_id: int
    name: str | None
    """Id of the worker's task in a workflow; null without a workflow."""
    task: str
    commit: str
    """The worker's commit."""
    files: dict[str, str]
    """Git's letter for each changed path: `A` added, `M` modified, `D` deleted, `T` other type. At
    most 10,000 paths.
    """


class Conflicts(_Part):
    """The output of `orchestrator conflicts --json`."""

    run_id: str
    base: str
    """The commit into which the branches would be merged."""
    workers: tuple[int, ...]
    """Numbers of the workers whose branches were compared."""
    changes: tuple[WorkerChanges, ...]
    pairs: tuple[Pair, ...]
    """Every pair of workers, and each worker with `base` (as `a: 0`)."""
    failing: tuple[int, ...] = ()
    """Workers whose own commits fail the checks, so that no pair with them was tested."""

    @property
    def conflicting(self) -> tuple[Pair, ...]:
        """Return the pairs that cannot be merged."""
        return tuple(pair for pair in self.pairs if not pair.is_clean)


def find_conflicts(
    repository: Repository, branches: Sequence[Branch], *, run_id: str, base: str
) -> Conflicts:
    """Try to merge every pair of branches, and each branch with `base`; return the conflicts.

    Args:
        repository: The user's repository.
        branches: The branches; those without a change are compared too.
        run_id: The run of the branches.
        base: The commit that the branches would be merged into.

    Raises:
        ConfigError: The installed git is too old.
        RepositoryError: Git failed.
    """
    require_git("to merge without a checkout", "merge the branches by hand")
    by_number = {branch.worker_id: branch for branch in branches}
    places = [*((_BASE, number) for number in by_number), *combinations(by_number, 2)]
    commits = {number: branch.commit for number, branch in by_number.items()} | {_BASE: base}
    wanted = [(commits[a], commits[b]) for a, b in places]
    with (
        tempfile.TemporaryDirectory(prefix="orchestrator-") as directory,
        quarantine(repository, Path(directory) / "merges") as git,
    ):
        merges = merge_pairs(git, wanted, timeout=MERGE_TIMEOUT)
    changes = {
        n: _changes(repository, branch.base, branch.commit) for n, branch in by_number.items()
    }
    # What differs between each worker's start and `base`.
    ours = {
        number: {} if branch.base == base else _changes(repository, branch.base, base)
        for number, branch in by_number.items()
    }
    pairs = []
    for (a, b), merged in zip(places, merges, strict=True):
        if merged is None:
            pair = Pair(a=a, b=b, kind="unknown")
        elif merged.paths:
            files = tuple(path_text(path) for path in merged.paths[:MOST_FILES])
            pair = Pair(a=a, b=b, kind=kind_of(merged.kinds), files=files, conflicts=merged.kinds)
        else:
            both = sorted((ours[b] if a == _BASE else changes[a]).keys() & changes[b].keys())
            pair = Pair(a=a, b=b, kind="clean", files=tuple(both[:MOST_FILES]))
        pairs.append(pair)
    return Conflicts(
        run_id=run_id,
        base=base,
        workers=tuple(by_number),
        changes=tuple(
            WorkerChanges(
                worker_id=branch.worker_id,
                name=branch.title,
                task=one_line(branch.task),
                commit=branch.commit,
                files=changes[branch.worker_id],
            )
            for branch in branches
        ),
        pairs=tuple(pairs),
    )


def _changes(repository: Repository, base: str, tip: str) -> dict[str, str]:
    rows = islice(paths_with_status(repository, base=base, tip=tip), MOST_CHANGES)
    return {path: letter for letter, path in rows}


def path_text(path: bytes) -> str:
    """Return a path of git as text; bytes that are not UTF-8 become backslash escapes."""
    return path.decode("utf-8", "backslashreplace")
