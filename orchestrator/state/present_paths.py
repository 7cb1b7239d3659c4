"""Correct the paths in recorded results, if the repository was moved or copied since."""

import os
from pathlib import Path

from orchestrator.base.results import RunResult, WorkerResult


def worker_result_in(run: Path, result: WorkerResult) -> WorkerResult:
    """Return a worker's result with the present paths of its logs and its worktree."""
    recorded = Path(result.log).parent if result.log else run
    if recorded == run or recorded.name != run.name:
        return result

    def present(path: str) -> str:
        return os.path.normpath(run / os.path.relpath(path, recorded))

    worktree = result.worktree_path
    # A checkout outside of the repository's directory did not move with it.
    if worktree and (os.path.lexists(present(worktree)) or not os.path.lexists(worktree)):
        worktree = present(worktree)
    checks = [check.model_copy(update={"log": present(check.log)}) for check in result.checks]
    log = present(str(result.log))
    return result.model_copy(update={"worktree_path": worktree, "log": log, "checks": checks})


def run_result_in(run: Path, result: RunResult) -> RunResult:
    """Return a run's result with the present paths, as `worker_result_in` does."""
    return result.model_copy(
        update={"results": [worker_result_in(run, worker) for worker in result.results]}
    )
