"""Remove what finished runs left, without losing work.

Of a live run, only workers are removed that have ended and that the caller names. Uncommitted or
unmerged work of a worker is first kept as a backup, from which `restore` recreates worktree and
branch. The lease of each ended run is held during the run's cleanup, so that no one can resume the
run meanwhile.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from orchestrator.base.errors import ConfigError, OrchestratorError, RepositoryError
from orchestrator.base.text.quantities import count
from orchestrator.base.text.split_lines import split_lines
from orchestrator.engine.interface.protocol import ContainerEngine, Leftover
from orchestrator.repository.checkouts.disarm import give_back
from orchestrator.repository.incoming.kept_refs import list_kept
from orchestrator.repository.incoming.packed_work import HarvestRefusedError
from orchestrator.repository.objects.shared_packs import remove_packs
from orchestrator.repository.repository import LANDED, Repository
from orchestrator.runs.cleanup.backups import backup_ref, list_attempts, list_backups, work_to_keep
from orchestrator.runs.cleanup.inventory import (
    RecordedWorker,
    Wanted,
    base_ref,
    is_refused,
    kept_of,
    owners,
    worker_refs,
)
from orchestrator.runs.cleanup.orphans import (
    engine_of,
    find_leftovers,
    find_unrecorded_worktrees,
    places_with_work,
    remove_stray,
    worker_of,
)
from orchestrator.runs.cleanup.report import CleanedWorker, Cleanup, CleanupReport
from orchestrator.runs.cleanup.retention import (
    conclude,
    drop_files,
    drop_scratch,
    drop_worktree,
    is_unfinished,
)
from orchestrator.sandbox.deadlines.removal import remove_all
from orchestrator.state.judgements import drop_results
from orchestrator.state.record.history import find_run
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_outline import RunOutline, read_outline
from orchestrator.state.run_record import read_record
from orchestrator.state.secret_files import forget
from orchestrator.worker.workspace.shared_checkout import prune_checkouts


def cleanup(
    root: Path,
    *,
    engine: ContainerEngine | None,
    wanted: Wanted | None = None,
    run_id: str | None = None,
    purge: bool = False,
    dry_run: bool = False,
) -> CleanupReport:
    """Remove worktrees, branches and Docker objects of finished runs.

    Args:
        root: Any directory in the repository.
        engine: The engine; None to leave its objects alone.
        wanted: Conditions for workers. Default: all workers.
        run_id: Id of the only run to clean up. Default: all runs.
        purge: Remove backups too, including old backups, and the work of failed attempts.
        dry_run: Report the actions without performing them.

    Raises:
        RepositoryError: There is no repository.
        ConfigError: There is no such run or worker.
    """
    repository = Repository(root)
    runs = list(all_runs(repository.state_dir))
    if run_id is not None:
        runs = [find_run(runs, run_id)]
    backups = [*list_backups(repository), *list_attempts(repository), *list_kept(repository)]
    job = Cleanup(
        repository=repository,
        engine=engine,
        wanted=wanted or Wanted(),
        purge=purge,
        dry_run=dry_run,
        owners=owners(repository),
        refs=worker_refs(repository),
        backups=backups if purge else [],
    )
    _check_numbers(runs, job.wanted.workers)
    if engine is not None:
        try:
            job.leftovers = find_leftovers(repository, engine)
        except OrchestratorError as error:
            job.problems.append(error.message)
            job.engine = None
    for run in runs:
        _clean_run(job, run)
    if run_id is None and job.wanted == Wanted():
        remove_stray(job)
        known = {worker.path for worker in job.owners.values()}
        job.problems += find_unrecorded_worktrees(repository, known)
        if purge:
            _purge_landings(job, runs)
            if number := drop_results(repository, dry_run=dry_run):
                job.purged.append(f"results of judgements ({count(number, 'check')})")
        if not dry_run:
            _remove_shared(job)
    if not dry_run:
        with _noting(job), repository.lock():
            give_back(repository)
    return job.report()


@contextmanager
def _noting(job: Cleanup) -> Iterator[None]:
    try:
        yield
    except RepositoryError as error:
        job.problems.append(error.message)


def _check_numbers(runs: Iterable[RunDirectory], workers: tuple[int, ...]) -> None:
    if not workers:
        return
    records = [record for run in runs if (record := read_outline(run)) is not None]
    known = sorted({spec.worker_id for record in records for spec in record.workers})
    missing = [str(number) for number in workers if number not in known]
    if missing:
        raise ConfigError(
            f"there is no worker {', '.join(missing)}",
            key="worker.unknown",
            hint=f"workers of past runs: {', '.join(map(str, known)) or 'none'}",
        )


def _clean_run(job: Cleanup, run: RunDirectory) -> None:
    # protection: users-cleanups-name-runs-of-others
    if (user := run.other_user) is not None:
        if _concerns(job, read_outline(run)):
            job.others.append(f"{run.run_id} of {user} cannot be read")
        return
    record = read_record(run)
    if record is None:
        # A run that is being created has no record and no lease for a moment; its creator holds
        # the repository lock.
        with job.repository.lock():
            record = read_record(run)
            if record is None:
                if (run.path / "run.json").exists() or job.wanted != Wanted() or job.dry_run:
                    return
                with run.hold() as held:
                    if held:
                        run.remove()
                return
    workers = [RecordedWorker(run, record, spec) for spec in record.workers]
    with run.hold() as held:
        # protection: live-runs-are-left-alone
        if held:
            with engine_of(job, record):
                _clean_workers(job, run, workers)
        elif _concerns(job, record):
            _clean_ended(job, run, workers)


def _clean_ended(job: Cleanup, run: RunDirectory, workers: list[RecordedWorker]) -> None:
    """Remove the named workers of a live run that have ended; its process needs everything else."""
    # Imported here because it imports most of what runs a worker, and few cleanups need it.
    from orchestrator.worker.turns.turns import awaits_turn

    named = [worker for worker in workers if worker.number in job.wanted.workers]
    # protection: only-ended-workers-of-live-runs-are-removed
    going = [worker for worker in named if run.result(worker.number) is not None]
    # protection: worker-with-message-is-left-alone
    going = [worker for worker in going if not awaits_turn(run, worker.number)]
    # protection: work-of-live-runs-is-not-purged
    if job.purge:
        # Other tasks may start from it.
        going = []
    if not going or len(going) < len(named):
        job.live.append(run.run_id)
    for worker in going:
        owned = job.owners[worker.number].directory.path == run.path
        present = owned and worker.is_present(job.refs)
        if present and job.wanted.includes(job.repository, worker, present=True):
            job.cleaned.append(_clean(job, worker, occupied=False))
            if not (job.dry_run or job.cleaned[-1].problem):
                job.freed += drop_files(worker, refused_too=False)


def _concerns(job: Cleanup, outline: RunOutline | None) -> bool:
    """Return whether a run has one of the wanted workers, as far as this is known."""
    numbers = {spec.worker_id for spec in outline.workers} if outline else set()
    return not job.wanted.workers or not numbers.isdisjoint(job.wanted.workers)


def _clean_workers(job: Cleanup, run: RunDirectory, workers: list[RecordedWorker]) -> None:
    if job.engine is None and any(run.result(worker.number) is None for worker in workers):
        job.unchecked.append(run.run_id)
    owned = {number for number, owner in job.owners.items() if owner.directory.path == run.path}
    present = {
        worker.number
        for worker in workers
        if worker.number in owned and worker.is_present(job.refs)
    }
    chosen = {
        worker.number
        for worker in workers
        if job.wanted.includes(job.repository, worker, present=worker.number in present)
    }
    used = workers[0].record.engine_used if workers else None
    # A worker that is gone already was named when it was removed.
    waiting = (worker.number for worker in workers if worker.is_stranded())
    if used and used in job.failed and chosen & present.union(waiting):
        job.unreached[f"`{used.kind}` at `{used.address}`: {job.failed[used]}"].append(run.run_id)
    # protection: work-in-volumes-is-kept
    held = {} if job.purge else places_with_work(job.leftovers.get(run.run_id, ()))
    stranded = {w.number for w in workers if w.number in held and w.is_stranded()} & chosen
    for number in stranded - present:
        chosen.discard(number)
        where = f"worker {number} of dead run {run.run_id}: its work is only in the engine"
        job.problems.append(f"{where}; `orchestrator resume {run.run_id}` collects it")
    places = [left for number in stranded & present for left in held[number]]
    for worker in workers:
        if worker.number in present - chosen and job.wanted.reaches(worker):
            with _noting(job):
                worker.open_worktree()
    occupied = _remove_leftovers(job, run, chosen, keep=places)
    going = [worker for worker in workers if worker.number in present & chosen]
    cleaned = [_clean(job, worker, occupied=worker.number in occupied) for worker in going]
    job.cleaned += cleaned
    done = {worker.worker_id for worker in cleaned if worker.problem is None}
    if places:
        _remove_leftovers(job, run, stranded & done)
    purged = {worker.number for worker in workers if job.purge and job.wanted.reaches(worker)}
    _purge(job, run, purged)
    if job.dry_run:
        return
    present -= done
    keep = base_ref(workers[0].plan) if workers else None
    if keep is not None and not present:
        job.repository.git.run("update-ref", "-d", keep)
    contained = job.engine is None or bool(occupied)
    if not contained and not is_unfinished(workers, present):
        # A run that can be resumed still needs its secret inputs.
        forget(run.run_id, os.environ)
    refused_too = set() if contained else purged
    job.freed += drop_scratch(workers, present=present, refused_too=refused_too)


def _remove_leftovers(
    job: Cleanup, run: RunDirectory, chosen: set[int], *, keep: Sequence[Leftover] = ()
) -> set[int | None]:
    """Remove engine objects of the chosen workers; return workers with containers left.

    Args:
        job: The cleanup.
        run: The run.
        chosen: Numbers of the workers.
        keep: Objects that stay, because the work in them has still to be collected.
    """
    # protection: engine-objects-of-other-runs-are-kept
    found = job.leftovers.get(run.run_id, [])
    if job.engine is None:
        return set()
    going = [left for left in found if worker_of(left) in chosen and left not in keep]
    staying = [left for left in found if worker_of(left) not in {*chosen, None}]
    if chosen and not (staying or keep):
        going += [left for left in found if worker_of(left) is None]
    stuck = [] if job.dry_run else remove_all(job.engine, going)
    job.removed += len(going) - len(stuck)
    job.problems += [f"{leftover} (run {run.run_id})" for leftover in stuck]
    left_over = [*staying, *(entry.leftover for entry in stuck)]
    job.leftovers[run.run_id] = [left for left in found if left in left_over or left not in going]
    return {worker_of(left) for left in left_over if left.kind == "container"}


def _remove_shared(job: Cleanup) -> None:
    """Remove the checkouts and packs that runs share, but no checkout that a run uses now."""
    checkouts = partial(prune_checkouts, job.repository, keep=0)
    for remove in (checkouts, partial(remove_packs, job.repository.state_dir)):
        try:
            job.freed += remove()
        except (OrchestratorError, OSError) as error:
            job.problems.append(getattr(error, "message", str(error)))


def _clean(job: Cleanup, worker: RecordedWorker, *, occupied: bool) -> CleanedWorker:
    result = CleanedWorker(
        run_id=worker.directory.run_id,
        worker_id=worker.number,
        branch=worker.spec.branch,
        worktree=str(worker.path),
    )
    try:
        if worker.is_stranded() and not job.purge:
            note = _recover(job, worker, occupied=occupied)
            result = result.model_copy(update={"note": note})
        elif is_refused(worker):
            verb = "is removed together with" if job.purge else "is kept in"
            place = worker.directory.worker(worker.number)
            result = result.model_copy(update={"note": f"refused work {verb} {place}"})
        repository = job.repository
        with repository.lock():
            if not worker.still_owns_its_number(repository):
                raise RepositoryError(
                    "another run now uses the worker's number", key="worker.reused"
                )
            # protection: directory-that-is-no-worktree-is-kept
            worker.open_worktree()
            tip = repository.commit_of(worker.spec.ref)
            kept = None if job.purge else work_to_keep(repository, worker, tip)
            backup = backup_ref(repository, worker, kept) if kept else None
            if not job.dry_run:
                if kept and backup:
                    # protection: unmerged-work-is-backed-up
                    repository.git.run("update-ref", backup, kept)
                drop_worktree(repository, worker, tip)
                conclude(repository, worker, tip)
    except (OrchestratorError, OSError) as error:
        return result.model_copy(update={"problem": str(error)})
    refs = () if job.purge else kept_of(job.repository, worker)
    return result.model_copy(update={"backup": backup, "kept_refs": refs})


def _recover(job: Cleanup, worker: RecordedWorker, *, occupied: bool) -> str:
    """Commit a dead run's worker's files to the worker's branch; return a note for the report."""
    if job.engine is None:
        # An engine that was not asked, because that of the command is missing, may have the work.
        tried = worker.record.engine_used in job.failed
        gone = f"; if it is gone for good, `{worker.purge_command}` removes its work and backups"
        raise RepositoryError(
            "the run ended unexpectedly, and its engine, from which its work is recovered first, "
            "cannot be used",
            key="recovery.no-engine",
            hint=f"start the engine, then repeat this command{gone if tried else ''}",
        )
    # protection: container-is-removed-before-its-files-are-read
    if occupied:
        raise RepositoryError(
            "the run ended unexpectedly, and the worker's container could not be removed",
            key="recovery.container-left",
            hint="remove it with `docker rm -f`, then repeat this command, which recovers the work",
        )
    if job.dry_run:
        return "the run died; its work would be committed before the removal"
    # Imported here because it imports most of what runs a worker, and few cleanups need it.
    from orchestrator.runs.cleanup.recovery import salvage

    try:
        notes = salvage(worker, job.repository, job.engine)
    except HarvestRefusedError as error:
        kept = worker.directory.worker(worker.number)
        return f"the run died; its work was refused ({error.message}) and is kept in {kept}"
    return "; ".join(("the run died; its work was committed before the removal", *notes))


def _purge_landings(job: Cleanup, runs: Iterable[RunDirectory]) -> None:
    """Remove the records of `orchestrator merge`, which keep the commits before each merge."""
    listed = job.repository.git.text("for-each-ref", "--format=%(refname)", LANDED)
    wanted = {f"{LANDED}{run.run_id}" for run in runs if run.other_user is None}
    for ref in (ref for ref in split_lines(listed) if ref in wanted):
        job.purged.append(ref)
        if not job.dry_run:
            job.repository.git.run("update-ref", "-d", ref)


def _purge(job: Cleanup, run: RunDirectory, numbers: set[int]) -> None:
    for run_id, number, ref in job.backups:
        is_chosen = run_id == run.run_id and number in numbers
        if is_chosen and job.wanted.allows_purge(job.repository, run_id, number, ref):
            job.purged.append(ref)
            if not job.dry_run:
                job.repository.git.run("update-ref", "-d", ref)
