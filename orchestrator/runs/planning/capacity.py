"""Check that a repository may have more worktrees, and that the disk has room for them."""

import shutil
from collections.abc import Iterator

from orchestrator.base.errors import ConfigError, GitCommandError
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.planning import job_count
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import is_clean, is_merged, owners, worktrees
from orchestrator.runs.planning.naming import place_of_worktrees

ROOM = 256 * 1024**2
"""Number of free bytes that a run needs for its own files, such as records and logs."""
_BLOCK = 4096
_SUBMODULE = b"-"
_MIB = 1024**2
_SINCE = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def check_worktrees(repository: Repository, config: ParallelConfig) -> None:
    """Check that existing worktrees and those of a run's first workers are within `max_worktrees`.

    Workers that wait for a free slot have no worktree yet, and do not count.

    Raises:
        ConfigError: The limit would be exceeded; the message lists worktrees that could be removed.
    """
    if config.worktrees == "none":
        return
    wanted, most = min(job_count(config), config.workers), config.max_worktrees
    taken = worktrees(repository)
    if len(taken) + wanted <= most:
        return
    raised = f"`ORCHESTRATOR_MAX_WORKTREES={len(taken) + wanted}`"
    if wanted > most:
        raise ConfigError(
            f"{wanted} workers would need a worktree each, but `max_worktrees` is {most}",
            key="worktrees.exhausted",
            hint=f"use fewer `--workers`, or raise the limit: {raised}",
        )
    lines = "".join(f"\n  {line}" for line in _candidates(repository, taken))
    raise ConfigError(
        f"there are {len(taken)} worktrees of workers; {wanted} more would exceed "
        f"`max_worktrees`, which is {most}{lines}",
        key="worktrees.exhausted",
        hint="`orchestrator parallel-cleanup --merged` removes merged, clean worktrees; "
        "without `--merged` it removes the other worktrees too, and `orchestrator restore` "
        "restores them",
    )


def _candidates(repository: Repository, taken: frozenset[int]) -> Iterator[str]:
    recorded = owners(repository)
    for number in sorted(taken):
        worker = recorded.get(number)
        if worker is None:
            yield f"worker {number}: not in the record of any run"
        elif (user := worker.directory.other_user) is not None:
            yield f"worker {number}: its run belongs to {user}"
        elif worker.directory.is_live():
            yield f"worker {number}: its run is live"
        else:
            merged = "merged" if is_merged(repository, worker) else "not merged"
            clean = "clean" if is_clean(repository, worker) else "not clean"
            yield f"worker {number}: ended {round_age(worker.age())} ago, {merged}, {clean}"


def round_age(seconds: float) -> str:
    """Return an age in its largest whole unit, such as `2 d`."""
    seconds = max(seconds, 0.0)
    size, unit = next((entry for entry in _SINCE if seconds >= entry[0]), _SINCE[-1])
    return f"{int(seconds // size)} {unit}"


def check_disk(
    repository: Repository, config: ParallelConfig, *, overlay: bool, copied: int = 0
) -> None:
    """Check that a run's worktrees fit on the disk; files that workers write are not predicted.

    Args:
        repository: The repository.
        config: The run's configuration.
        overlay: Whether workers use an overlay file system, and so need no copy of the files.
        copied: Bytes of untracked files copied into each worktree.

    Raises:
        ConfigError: Less disk space is free than the worktrees will take.
    """
    checkout = checkout_size(repository, repository.resolve(config.base))
    if checkout is None:
        return
    jobs = job_count(config)
    shown = 0 if config.worktrees == "none" else jobs
    shared = config.worktrees != "start"
    # Untracked files cannot be added to a shared checkout.
    copies = 0 if overlay and not (shared and copied) else min(config.workers, jobs)
    history = 0
    if config.isolation.history != "shallow":
        # An upper limit for git objects that are copied once for all workers.
        counts = repository.git.text("count-objects", "-v").split("\n")
        sizes = dict(line.split(": ") for line in counts)
        history = sum(int(sizes.get(key, 0)) * 1024 for key in ("size", "size-pack"))
    needed = (checkout + copied) * (shown + copies + shared) + history + ROOM
    places = (repository.top, repository.common_dir, place_of_worktrees(repository, config))
    fullest = min(places, key=lambda place: shutil.disk_usage(place).free)
    free = shutil.disk_usage(fullest).free
    if needed > free:
        raise ConfigError(
            f"the worktrees of {jobs} workers need about {-(-needed // _MIB)} MiB of "
            f"disk, but {fullest} has {free // _MIB} MiB free",
            key="disk.insufficient",
            hint="remove the leftovers of earlier runs with `orchestrator parallel-cleanup "
            "--merged`",
        )


def checkout_size(repository: Repository, commit: str) -> int | None:
    """Return the size of a commit's files on disk; None if git would have to download files."""
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
