"""List past runs' workers, with age, owner, and whether removing them would lose work."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from orchestrator.base.errors import GitCommandError, RepositoryError
from orchestrator.base.text.split_lines import split_lines
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.planning import config_of
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.checkouts.worktree import open_worktree
from orchestrator.repository.git.command import Git
from orchestrator.repository.incoming.kept_refs import kept_prefix
from orchestrator.repository.repository import BASES, BRANCHES, DIRECTORIES, Repository
from orchestrator.state.landing_record import commits_after
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_outline import RunOutline, holders_of, is_left, read_outline
from orchestrator.state.run_record import RunRecord, read_record, require_record
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.state.worker.worker_directory import Store
from orchestrator.worker.workspace.copy_untracked import unchanged

BRANCHES_AND_REMOTES = ("refs/heads", "refs/remotes")
_REMOTES = "refs/remotes/"
_HEADS = "refs/heads/"
_TO_THE_SECOND = len("20260101-093000")
_SIGNS_OF_LIFE = ("run.json", "lease", "events.ndjson")


@dataclass(frozen=True)
class RecordedWorker:
    """A worker as the record of its run describes it."""

    directory: RunDirectory
    record: RunOutline
    """The whole record of the worker's run, or only its outline; `plan` reads the rest on demand.
    """
    spec: WorkerSpec

    @property
    def number(self) -> int:
        """The worker's number."""
        return self.spec.worker_id

    @property
    def purge_command(self) -> str:
        """The command that removes the worker without its work."""
        return f"orchestrator parallel-cleanup {self.number} --run {self.directory.run_id} --purge"

    @property
    def path(self) -> Path:
        """Path of the worker's worktree, which may no longer exist."""
        return self.record.top / self.spec.directory

    @property
    def base(self) -> str:
        """The commit that the worker started from: its own base, or else the run's."""
        return self.directory.base_of(self.number) or self.record.base

    def has_made(self, commit: str) -> bool:
        """Return whether a commit differs from the base commit that was recorded for the worker."""
        return commit != self.directory.base_of(self.number)

    def worktree(self) -> Worktree | None:
        """Return the worker's worktree; None if the directory is gone or is something else now."""
        try:
            return self.open_worktree()
        except RepositoryError:
            return None

    def open_worktree(self) -> Worktree | None:
        """Return the worker's worktree; None if nothing is at its path.

        Raises:
            RepositoryError: Something else is there, or the repository was moved or copied.
        """
        if not os.path.lexists(self.path):
            return None
        try:
            return open_worktree(self.path, self.spec.branch, marked=self.spec.is_named)
        except RepositoryError as error:
            way = error.hint or "move it away"
            raise RepositoryError(
                f"{self.path} is no longer the worker's worktree and was left alone: "
                f"{error.message}: {way}",
                key="worktree.foreign",
            ) from error

    def is_half_shown(self, worktree: Worktree) -> bool:
        """Return whether a process died while it created the worktree.

        Always False without `--worktrees end`, which creates worktrees after the workers' end.
        """
        late = self.plan.config.worktrees == "end" and not Checkpoints(self.state).is_shown
        # Git writes the index after the files.
        return late and not (worktree.git_dir / "index").exists()

    @property
    def state(self) -> Path:
        """The worker's state directory."""
        return self.directory.worker(self.number)

    def attempts(self) -> list[tuple[int, Path]]:
        """Return the number and the state directory of each failed attempt that was retried."""
        return self.directory.attempts(self.number)

    @property
    def plan(self) -> RunRecord:
        """Return the whole record of the worker's run."""
        return self.record if isinstance(self.record, RunRecord) else require_record(self.directory)

    @property
    def config(self) -> ParallelConfig:
        """Return the settings of the worker."""
        record = self.plan
        if record.workflow is None or self.spec.name is None:
            return record.config
        return config_of(record.config, record.workflow[self.spec.name], record.programs)

    def is_stranded(self) -> bool:
        """Return whether the run died before the worker's files were committed to its branch."""
        if self.never_ran():
            return False
        store, checkpoints = Store(root=self.state), Checkpoints(self.state)
        wrote = store.upper.is_dir() or store.copy.is_dir()
        # Accepted commits may not be in the worktree yet, even if the store is gone.
        begun = store.git.is_dir() or checkpoints.harvest() is not None
        return wrote and begun and self.directory.result(self.number) is None

    def never_ran(self) -> bool:
        """Return whether no container that could write to the worker's files was ever started."""
        if Checkpoints(self.state).launch() is not None:
            return False
        # A container of the setup starts without an earlier checkpoint.
        return not self.config.project.setup and not self.attempts()

    def copies(self) -> frozenset[str]:
        """Return the untracked files that were copied to the worktree and are unchanged."""
        return unchanged(self.directory.worker(self.number), self.path)

    def is_present(self, refs: frozenset[str]) -> bool:
        """Return whether the worker's worktree exists, or its branch is one of `refs`."""
        return is_left(self.record, self.spec, refs)

    def still_owns_its_number(self, repository: Repository) -> bool:
        """Return whether no later run uses the worker's number, branch or worktree.

        The caller must hold the repository lock.
        """
        since = self.directory.run_id[:_TO_THE_SECOND]
        refs = worker_refs(repository)
        return not any(
            RecordedWorker(run, record, spec).has_taken(self, refs)
            for run in all_runs(repository.state_dir)
            if run.run_id[:_TO_THE_SECOND] >= since and (record := read_outline(run)) is not None
            if record.created_at > self.record.created_at
            for spec in record.workers
        )

    def has_taken(self, other: "RecordedWorker", refs: frozenset[str]) -> bool:
        """Return whether this worker uses the number, branch or worktree of an earlier worker.

        Args:
            other: The worker of the earlier run.
            refs: The existing branches.
        """
        if self.spec.collides(other.spec):
            return True
        return self.number == other.number and self.is_present(refs)

    def age(self) -> float:
        """Return the seconds since the worker's end; for a dead run, since its last write."""
        state = self.directory.worker(self.number)
        result = state / "result.json"
        signs = [self.directory.path / name for name in _SIGNS_OF_LIFE]
        times = list(_times([result])) or list(_times([*signs, *state.glob("*.log")]))
        return time.time() - max(times, default=0.0)


def base_ref(record: RunRecord) -> str | None:
    """Return the ref of the snapshot that a run started from; None without a snapshot."""
    return f"{BASES}{record.run_id}" if record.config.include_uncommitted else None


def _times(files: list[Path]) -> Iterator[float]:
    for file in files:
        with suppress(OSError):
            yield file.stat().st_mtime


def owners(repository: Repository) -> dict[int, RecordedWorker]:
    """Return, for each number, the newest worker with a branch or worktree, or else the newest."""
    recorded = [
        (run, record) for run in all_runs(repository.state_dir) if (record := read_outline(run))
    ]
    # Sorted by time, because run ids of the same second sort randomly.
    recorded.sort(key=lambda entry: entry[1].created_at)
    entries = [(run, record, spec) for run, record in recorded for spec in record.workers]
    found = holders_of(entries, worker_refs(repository))
    return {number: RecordedWorker(*found[number]) for number in sorted(found)}


def worker_refs(repository: Repository) -> frozenset[str]:
    """Return the full names of all local branches, such as `refs/heads/main`."""
    listing = ("for-each-ref", "--format=%(refname)", "refs/heads")
    return frozenset(split_lines(repository.git.text(*listing)))


def find_named_workers(repository: Repository) -> Iterator[RecordedWorker]:
    """Yield workers with names from templates whose worktree or branch exists or will be created.

    A worktree or branch will be created if the run is live and the worker has no result.
    """
    if not repository.has_noted_names:
        return
    refs = worker_refs(repository)
    for run in all_runs(repository.state_dir):
        record = read_outline(run)
        for spec in record.workers if record else ():
            if record is None or not spec.is_named:
                continue
            worker = RecordedWorker(run, record, spec)
            if worker.is_present(refs) or (run.is_live() and run.result(spec.worker_id) is None):
                yield worker


def worktrees(repository: Repository) -> frozenset[int]:
    """Return the numbers of workers whose worktrees exist or will be created by a live run."""
    names = (path.name.removeprefix(DIRECTORIES) for path in repository.top.glob(f"{DIRECTORIES}*"))
    found = {int(name) for name in names if name.isdecimal()}
    found |= {worker.number for worker in find_named_workers(repository) if worker.path.exists()}
    for run in all_runs(repository.state_dir):
        record = read_record(run) if run.is_live() else None
        if record is not None and record.config.worktrees == "none":
            continue
        for spec in record.workers if record else ():
            if run.result(spec.worker_id) is None:
                found.add(spec.worker_id)
    return frozenset(found)


def head_of(repository: Repository, worktree: Worktree) -> str | None:
    """Return the HEAD commit of a worktree, which need not be on the worker's branch."""
    return repository.commit_of(f"worktrees/{worktree.git_dir.name}/HEAD")


def is_reached(repository: Repository, commit: str, *places: str) -> bool:
    """Return whether a ref below `places` reaches `commit`, not counting workers' branches.

    Remote-tracking branches to which a worker's branch was pushed do not count either.
    """
    listing = ("for-each-ref", f"--contains={commit}", "--format=%(refname)", *places)
    refs = split_lines(repository.git.text(*listing))
    named = repository.worker_branches()
    # protection: workers-branches-do-not-count-as-merged
    others = {ref for ref in refs if not (ref.startswith(BRANCHES) or ref in named)}
    # protection: pushed-branches-do-not-count-as-merged
    return bool(others and others - remote_refs_of_workers(repository))


def remote_refs_of_workers(repository: Repository) -> frozenset[str]:
    """Return the remote-tracking refs of workers' branches, by name or by push configuration."""
    own = repository.worker_branches()
    form = "--format=%(refname)%00%(upstream)%00%(push)"
    heads = repository.git.text("for-each-ref", form, _HEADS).split("\n")
    listed = (line.split("\0") for line in heads)
    workers = (ends for ref, *ends in listed if ref.startswith(BRANCHES) or ref in own)
    configured = {ref for ends in workers for ref in ends if ref.startswith(_REMOTES)}
    remotes = split_lines(repository.git.text("for-each-ref", "--format=%(refname)", _REMOTES))
    default = f"/{BRANCHES.removeprefix(_HEADS)}"
    ends = tuple(f"/{ref.removeprefix(_HEADS)}" for ref in own)
    named = {ref for ref in remotes if default in ref or ref.endswith(ends)}
    return frozenset(configured | named)


def is_merged(repository: Repository, worker: RecordedWorker) -> bool:
    """Return whether all of a worker's commits are in another branch, local or remote."""
    # protection: unharvested-work-does-not-count-as-merged
    if worker.is_stranded():
        return False
    worktree = worker.worktree()
    head = head_of(repository, worktree) if worktree else None
    tips = {repository.commit_of(worker.spec.ref), head} - {None}
    made = (tip for tip in tips if tip and worker.has_made(tip))
    of = (worker.directory.run_id, worker.number)
    return all(is_merged_commit(repository, *of, tip) for tip in made)


def is_merged_commit(repository: Repository, run_id: str, number: int, commit: str) -> bool:
    """Return whether another branch has a worker's commit, or its changes as other commits."""
    if is_reached(repository, commit, *BRANCHES_AND_REMOTES):
        return True
    landed = commits_after(repository, run_id, number, commit)
    return any(is_reached(repository, commit, *BRANCHES_AND_REMOTES) for commit in landed)


def is_pushed(repository: Repository, worker: RecordedWorker) -> bool:
    """Return whether a remote has all commits of a worker, as far as the repository knows."""
    worktree = worker.worktree()
    head = head_of(repository, worktree) if worktree else None
    made = {repository.commit_of(worker.spec.ref), head} - {None, worker.base}
    home = all(is_on_a_remote(repository, tip) for tip in made if tip)
    return home and not worker.is_stranded()


def is_on_a_remote(repository: Repository, commit: str) -> bool:
    """Return whether a remote-tracking ref reaches a commit."""
    listing = ("for-each-ref", f"--contains={commit}", "--format=%(refname)", _REMOTES)
    return bool(repository.git.text(*listing))


def kept_of(repository: Repository, worker: RecordedWorker) -> tuple[str, ...]:
    """Return the refs that keep commits which a worker made outside of its branch."""
    place = kept_prefix(worker.directory.run_id, worker.number, attempt=1)
    return tuple(split_lines(repository.git.text("for-each-ref", "--format=%(refname)", place)))


def is_refused(worker: RecordedWorker) -> bool:
    """Return whether a worker's work was refused and is only in the state directory."""
    if worker.never_ran():
        return False
    store = Store(root=worker.directory.worker(worker.number))
    wrote = store.upper.is_dir() or store.copy.is_dir()
    return wrote and store.git.is_dir() and worker.directory.result(worker.number) is not None


def is_clean(repository: Repository, worker: RecordedWorker) -> bool:
    """Return whether a worker's worktree is gone or has no changes but unchanged copies."""
    worktree = worker.worktree()
    if worktree is None:
        return not worker.path.exists()
    git = Git(worktree.git_dir, work_tree=worktree.path, config=repository.comparing())
    copies = worker.copies()
    which = "all" if copies else "normal"
    try:
        status = git.run("status", "--porcelain", "-z", f"--untracked-files={which}")
        entries = (os.fsdecode(entry) for entry in status.split(b"\0") if entry)
        return all(entry.startswith("?? ") and entry[3:] in copies for entry in entries)
    except GitCommandError:
        return False


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Selects workers to remove: those that meet all given conditions."""

    workers: tuple[int, ...] = ()
    """Only workers with these numbers. Default: all workers."""
    merged: bool = False
    """Only workers whose branch is merged and whose worktree has no uncommitted changes."""
    pushed: bool = False
    """Only workers whose commits a remote has, without uncommitted changes; with `merged`, either
    condition is enough.
    """
    older_than: timedelta | None = None
    """Only workers that ended at least this long ago."""

    def includes(self, repository: Repository, worker: RecordedWorker, *, present: bool) -> bool:
        """Return whether the worker should be removed.

        Args:
            repository: The repository.
            worker: The worker.
            present: Whether the worker has a worktree or a branch.
        """
        if not self.reaches(worker):
            return False
        if not (self.merged or self.pushed):
            return True
        if not present:
            return not worker.is_stranded()
        is_elsewhere = (self.merged and is_merged(repository, worker)) or (
            self.pushed and is_pushed(repository, worker)
        )
        # protection: worktree-with-uncommitted-work-is-not-clean
        return is_elsewhere and is_clean(repository, worker)

    def allows_purge(self, repository: Repository, run_id: str, number: int, ref: str) -> bool:
        """Return whether the conditions `merged` and `pushed` allow the removal of a backup."""
        if not (self.merged or self.pushed):
            return True
        commit = repository.resolve(ref)
        if self.merged and is_merged_commit(repository, run_id, number, commit):
            return True
        return self.pushed and is_on_a_remote(repository, ref)

    def reaches(self, worker: RecordedWorker) -> bool:
        """Return whether the worker has one of the wanted numbers and is old enough."""
        if self.workers and worker.number not in self.workers:
            return False
        return self.older_than is None or worker.age() >= self.older_than.total_seconds()
