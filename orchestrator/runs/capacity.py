"""Whether a repository has room for another run: not too many worktrees, and disk enough."""

import shutil
from collections.abc import Iterator

from orchestrator.cleanup.inventory import RecordedWorker, is_clean, is_merged, owners, worktrees
from orchestrator.config.run import ParallelConfig
from orchestrator.errors import ConfigError
from orchestrator.git.command import GitCommandError
from orchestrator.git.repository import Repository
from orchestrator.runs.naming import place_of_worktrees
from orchestrator.workflow.planning import job_count

ROOM = 256 * 1024**2
"""Bytes for records, logs and whatever else a run needs before any worker has written a thing."""
_BLOCK = 4096
_SUBMODULE = b"-"
_MIB = 1024**2
_SINCE = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def check_worktrees(repository: Repository, config: ParallelConfig) -> None:
    """Refuse a run that would start with more worktrees than there may be.

    Workers that wait for a slot have none yet, and do not count.

    Raises:
        ConfigError: Naming those that could go.
    """
    wanted, most = min(job_count(config), config.workers), config.max_worktrees
    taken = worktrees(repository)
    if len(taken) + wanted <= most:
        return
    raised = f"`ORCHESTRATOR_MAX_WORKTREES={len(taken) + wanted}`"
    if wanted > most:
        raise ConfigError(
            f"{wanted} workers would have a worktree each, `max_worktrees` is {most}",
            hint=f"give fewer `--workers`, or raise it: {raised}",
        )
    lines = "".join(f"\n  {line}" for line in _candidates(repository, taken))
    raise ConfigError(
        f"there are {len(taken)} worktrees of workers, {wanted} more would be over "
        f"`max_worktrees`, which is {most}{lines}",
        hint="`orchestrator parallel-cleanup --merged` removes those that are merged and clean; "
        "without `--merged` the others go too, and `orchestrator restore` brings them back",
    )


def _candidates(repository: Repository, taken: frozenset[int]) -> Iterator[str]:
    recorded = owners(repository)
    for number in sorted(taken):
        worker = recorded.get(number)
        if worker is None:
            yield f"worker {number}: no run has a record of it"
        elif worker.directory.is_live():
            yield f"worker {number}: its run is live"
        else:
            age = worker.age()
            yield f"worker {number}: ended {_rounded(age)} ago, {_condition(repository, worker)}"


def _condition(repository: Repository, worker: RecordedWorker) -> str:
    merged = "merged" if is_merged(repository, worker) else "not merged"
    return f"{merged}, {'clean' if is_clean(repository, worker) else 'not clean'}"


def _rounded(seconds: float) -> str:
    seconds = max(seconds, 0.0)
    size, unit = next((entry for entry in _SINCE if seconds >= entry[0]), _SINCE[-1])
    return f"{int(seconds // size)} {unit}"


def check_disk(
    repository: Repository, config: ParallelConfig, *, overlay: bool, copied: int = 0
) -> None:
    """Refuse a run for whose worktrees there is no disk; what workers write is not foreseen.

    Args:
        repository: The repository.
        config: The run.
        overlay: Workers need no copy of their worktree.
        copied: Bytes of untracked files that each worktree gets.

    Raises:
        ConfigError: There is less than the worktrees will take.
    """
    checkout = checkout_size(repository, repository.resolve(config.base))
    if checkout is None:
        return
    jobs = job_count(config)
    copies = 0 if overlay else min(config.workers, jobs)
    needed = (checkout + copied) * (jobs + copies) + _history(repository, config) + ROOM
    places = (repository.top, repository.common_dir, place_of_worktrees(repository, config))
    free = min(shutil.disk_usage(place).free for place in places)
    if needed > free:
        raise ConfigError(
            f"the worktrees of {jobs} workers need about {-(-needed // _MIB)} MiB of disk, "
            f"{repository.top} has {free // _MIB} MiB free",
            hint="`orchestrator parallel-cleanup --merged` removes what earlier runs left",
        )


def checkout_size(repository: Repository, commit: str) -> int | None:
    """Add up what the files of a commit take on a disk; None where git would have to fetch them."""
    total = 0
    try:
        for entry in repository.git.tree(commit, "-l"):
            size = entry.split(None, 4)[3]
            if size == b"BAD":
                return None
            total += 0 if size == _SUBMODULE else -(-int(size) // _BLOCK) * _BLOCK
    except GitCommandError:
        return None
    return total


def _history(repository: Repository, config: ParallelConfig) -> int:
    """Return the most that the copy of the base's objects can take, which a run's workers share."""
    if config.isolation.history == "shallow":
        return 0
    entries = (line.split(": ") for line in repository.git.text("count-objects", "-v").split("\n"))
    return sum(int(value) * 1024 for key, value in entries if key in ("size", "size-pack"))
