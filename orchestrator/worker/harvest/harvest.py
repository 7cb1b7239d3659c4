"""Harvest a worker: pack its changes, verify them, and move its branch to them.

The limits of time and size are in `harvest_request`.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial

from orchestrator.base.errors import (
    EngineError,
    GitCommandError,
    ImageNotFoundError,
    OrchestratorError,
    PlaceLostError,
    UnfinishedError,
)
from orchestrator.base.events import Notice, WorkerHarvesting
from orchestrator.base.files.disk_usage import disk_use
from orchestrator.base.files.remove_tree import remove_tree
from orchestrator.base.results import Reason, Status
from orchestrator.base.threads import meanwhile
from orchestrator.engine.places.place import GIT, TREE, Place
from orchestrator.repository.checkouts.lfs import note_made, take_objects
from orchestrator.repository.incoming.kept_refs import (
    NOTHING,
    Kept,
    Parts,
    import_kept,
    note_of_refs,
)
from orchestrator.repository.incoming.packed_work import Harvested, HarvestRefusedError, read_tip
from orchestrator.repository.incoming.quarantine import import_harvest
from orchestrator.repository.incoming.secret_scan import leak_notes, leaks
from orchestrator.repository.settings import files_without_filter, some_paths
from orchestrator.sandbox.supervision.verdict import Verdict
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.harvest.plain_harvest import pack_plainly
from orchestrator.worker.prepare import ensure_tree
from orchestrator.worker.steps.harvest_request import HarvestRequest
from orchestrator.worker.steps.pack import DEATH, dismiss, pack, start_packing
from orchestrator.worker.steps.place import take_handed
from orchestrator.worker.turns.sessions import take_session
from orchestrator.worker.workspace.mounts import Workspace
from orchestrator.worker.workspace.submodules import keep_patches

_MOST_FILES = 1_000_000


def harvest_worker(
    worker: WorkerContext, workspace: Workspace, place: Place, verdict: Verdict
) -> tuple[Harvested, Verdict]:
    """Commit the worker's files to its branch, even if the worker failed.

    Raises:
        PlaceLostError: The files are gone with their place.
        UnfinishedError: The disk or the engine failed; a resumed run tries again.
    """
    worker.run.emit(WorkerHarvesting(worker_id=worker.number))
    notes = take_handed(workspace, place, limit=worker.config.limits.disk)
    run = worker.run
    request = HarvestRequest(
        repository=run.repository,
        place=place,
        switch=run.switch,
        directory=run.directory,
        spec=worker.spec,
        workspace=workspace,
        base=worker.base,
        shallow=run.shallow,
        limits=worker.config.limits,
        redactor=run.redactor,
        resumed=worker.resumed,
    )
    try:
        # The user may have deleted the worktree during the run; it is the overlay's lower layer.
        workspace = replace(workspace, worktree=ensure_tree(worker, workspace))
        request = replace(request, workspace=workspace)
        harvested = harvest(request)
    except PlaceLostError:
        raise
    except (EngineError, ImageNotFoundError, OSError) as error:
        said = str(error) if isinstance(error, OSError) else error.message
        raise UnfinishedError(
            f"the worker's work could not be collected: {said}", key="work.uncollected"
        ) from error
    except OrchestratorError as error:
        if isinstance(error.__cause__, OSError) and not isinstance(error, HarvestRefusedError):
            raise UnfinishedError(
                f"the worker's work could not be collected: {error.message}", key="work.uncollected"
            ) from error
        harvested = Harvested(workspace.start, (), refused=str(error))
    worker.times.begin("update")
    notes = (*notes, *take_session(worker, workspace, place))
    harvested = replace(harvested, notes=(*harvested.notes, *notes))
    if harvested.refused is not None:
        left_out = take_refused(request)
        verdict = _verdict_of_refusal(verdict, harvested, workspace, left_out)
        harvested = _show_tip(worker, workspace, harvested)
        return _with_leaks(worker, harvested), _check_filters(worker, verdict, harvested.tip)
    with meanwhile(partial(discard_scratch, request, harvested)):
        harvested = _show_tip(worker, workspace, harvested)
    return _with_leaks(worker, harvested), _check_filters(worker, verdict, harvested.tip)


def take_refused(request: HarvestRequest) -> int:
    """Take the files of refused work out of the place, to where the result says they are.

    Returns:
        The number of files that were left out: they are not regular, or too large for the limits.

    Raises:
        UnfinishedError: They could not be taken; a resumed run tries again.
    """
    store, place = request.workspace.store, request.place
    given = disk_use((store.copy, store.git), most_files=_MOST_FILES).size
    try:
        return sum(
            place.take(part, into, limit=given + request.room, partial=True)
            for part, into in ((TREE, store.copy), (GIT, store.git))
        )
    except (EngineError, OSError) as error:
        raise UnfinishedError(
            f"the worker's refused work could not be kept: {error}", key="work.uncollected"
        ) from error


def _check_filters(worker: WorkerContext, verdict: Verdict, tip: str) -> Verdict:
    """Return the verdict; a success becomes `partial` if a required filter did not run."""
    try:
        files = files_without_filter(worker.run.repository, base=worker.base, tip=tip)
    except OrchestratorError as error:
        said = f"files under required filters of git could not be looked for ({error.message})"
    else:
        if not files:
            return verdict
        said = (
            f"required filters of git did not run, so these are in plain text: {some_paths(files)}"
        )
    if verdict.status is not Status.SUCCESS:
        return verdict.with_note(said)
    return Verdict(Status.PARTIAL, Reason.UNFILTERED, said)


def _verdict_of_refusal(
    verdict: Verdict, harvested: Harvested, workspace: Workspace, left_out: int
) -> Verdict:
    """Return the verdict with a message why work was refused, and where the worker's files are."""
    said = f"{harvested.refused}; all files of the worker are kept in {workspace.store.root}"
    if left_out:
        said += f", but for {left_out} that are not regular or do not fit its limits"
    if verdict.status is not Status.SUCCESS:
        return verdict.with_note(said)
    partly = harvested.tip != workspace.start or harvested.kept_refs
    status = Status.PARTIAL if partly else Status.FAILED
    return Verdict(status, Reason.HARVEST_REFUSED, said)


def _show_tip(worker: WorkerContext, workspace: Workspace, harvested: Harvested) -> Harvested:
    """Check out the harvested commit in the worker's worktree; record problems in the result."""
    run = worker.run
    if workspace.is_shared:
        return harvested
    try:
        workspace.worktree.update(
            run.repository, base=workspace.start, tip=harvested.tip, again=worker.resumed
        )
    except OrchestratorError as error:
        note = f"the worktree could not be updated to the branch: {error.message}"
        return replace(harvested, notes=(*harvested.notes, note))
    return harvested


def discard_scratch(request: HarvestRequest, harvested: Harvested) -> None:
    """Remove temporary files after a harvest, and files of the worker that its branch also has.

    A special file removed from an overlay leaves a device of root's in the overlay's work
    directory. An ordinary user cannot remove the device, but mounting the overlay again clears it.
    """
    scratch = request.workspace.store.overlay
    if scratch.exists():
        remove_tree(scratch)
    if scratch.exists():
        with suppress(OrchestratorError, TimeoutError):
            container = start_packing(request, idle=True)
            try:
                container.wait(DEATH)
            finally:
                container.remove()
    request.workspace.discard_scratch()
    request.workspace.forget_committed(request.repository, harvested.tip)


def _with_leaks(worker: WorkerContext, harvested: Harvested) -> Harvested:
    run = worker.run
    try:
        tips = (harvested.tip, *harvested.kept_refs)
        found = leaks(run.repository, run.redactor, base=worker.base, tips=tips)
    except OrchestratorError as error:
        # The work is accepted already: a failed search must not discard it.
        notes: tuple[str, ...] = (
            f"the worker's commits were not searched for secrets ({error.message})",
        )
    else:
        notes = leak_notes(found, worker.spec.branch)
    for note in notes:
        run.emit(Notice(message=note))
    return replace(harvested, notes=(*harvested.notes, *notes))


def harvest(request: HarvestRequest) -> Harvested:
    """Pack the worker's files in a container without network, check them, and move the branch.

    If the work breaks a rule, its acceptable part is imported, and `refused` of the result says why
    the other part was not. In any case the caller owns the worktree again.

    Raises:
        OrchestratorError: Nothing was accepted; the worker's files are still in its state
            directory.
    """
    workspace, known = request.workspace, request.checkpoints.harvest()
    reclaim_worktree = partial(
        workspace.reclaim_worktree, request.repository, again=request.resumed
    )
    if known is not None or workspace.is_untouched():
        reclaim_worktree()
        if known is not None:
            # A dead process recorded the commit, and may have moved the branch.
            if request.repository.resolve(request.spec.ref) != known.tip:
                _move_branch(request, known.tip)
            return known
        untouched = Harvested(workspace.start, ())
        _land(request, untouched)
        return untouched
    kept = NOTHING
    try:
        container = None if pack_plainly(request) else pack(request)
    except HarvestRefusedError as error:
        refusal = error
    except BaseException:
        reclaim_worktree()
        raise
    else:
        # No container uses the files any more. After a change of owner, git reads the files again,
        # which takes as long as the checks; so both run in parallel.
        with meanwhile(partial(dismiss, container)), meanwhile(reclaim_worktree):
            kept = import_kept(
                request.handover, prefix=request.kept_prefix, redactor=request.redactor
            )
            try:
                harvested = _accept(request, kept)
            except HarvestRefusedError as error:
                refusal = error
            else:
                if container is None:
                    workspace.forget_written()
                return harvested
    return _accept_rest(request, kept, refusal)


def _accept_rest(request: HarvestRequest, kept: Kept, refusal: HarvestRefusedError) -> Harvested:
    """Import the acceptable part of refused work: the last good commit, plus the files."""
    workspace = request.workspace
    good = _last_good(request) or workspace.start
    workspace.hand_over()
    try:
        dismiss(pack(request, onto=good))
        return _accept(request, kept, refused=refusal.message)
    except HarvestRefusedError:
        harvested = Harvested(good, _notes(kept), kept.refs, refusal.message)
    finally:
        workspace.reclaim_worktree(request.repository, again=request.resumed)
    _land(request, harvested)
    return harvested


def _last_good(request: HarvestRequest) -> str | None:
    """Import the last acceptable commit before the refused one; return it, or None if none."""
    store = request.workspace.store
    try:
        tip = read_tip(store.out)
        with Parts(
            request.repository, store.out / "pack", store.quarantine, request.origin
        ) as parts:
            return parts.last_good(tip)
    except HarvestRefusedError:
        return None


def _notes(kept: Kept) -> tuple[str, ...]:
    return (*note_of_refs(kept.refs), *kept.notes)


def _accept(request: HarvestRequest, kept: Kept, *, refused: str | None = None) -> Harvested:
    """Check the packed commits, import them, and move the branch."""
    store = request.workspace.store
    patches = keep_patches(store.root, store.out)
    imported = import_harvest(request.handover)
    taken = take_objects(request.repository, store.out, room=request.room)
    note_made(taken, store.root)
    harvested = Harvested(
        tip=imported.tip,
        notes=(*imported.notes, *_notes(kept), *patches),
        kept_refs=kept.refs,
        refused="; ".join(filter(None, (refused, kept.refused))) or None,
    )
    _land(request, harvested)
    return harvested


def _land(request: HarvestRequest, harvested: Harvested) -> None:
    """Record the result of the harvest, then move the branch to the accepted commit."""
    redactor = request.redactor
    # Messages contain names of files and refs, which may be secrets.
    clean = replace(
        harvested,
        notes=tuple(redactor.text(note) for note in harvested.notes),
        refused=harvested.refused and redactor.text(harvested.refused),
    )
    request.checkpoints.note_harvested(clean)
    if harvested.tip != request.workspace.start:
        _move_branch(request, harvested.tip)


def _move_branch(request: HarvestRequest, tip: str) -> None:
    """Move the worker's branch, unless the user has moved it since the worker started.

    Raises:
        UnfinishedError: The branch is where it was, but git could not write it: the disk is full.
        GitCommandError: The user moved or removed the branch.
    """
    repository, branch, start = request.repository, request.spec.branch, request.workspace.start
    with repository.lock():
        try:
            # protection: branch-moves-only-from-its-base
            repository.move_branch(branch, new=tip, old=start)
        except GitCommandError as error:
            tip_of = ("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}")
            if repository.git.run(*tip_of).decode().strip() != start:
                raise
            raise UnfinishedError(error.message, key="work.uncollected") from error
