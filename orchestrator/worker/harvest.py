"""Bring a worker's work home: packed in a container, checked on the host, put on its branch."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

from orchestrator.errors import (
    EngineError,
    ImageNotFoundError,
    OrchestratorError,
    UnfinishedError,
)
from orchestrator.events import Notice, WorkerHarvesting
from orchestrator.execution.verdict import Verdict
from orchestrator.files.remove_tree import remove_tree
from orchestrator.git.kept_refs import NOTHING, Kept, Parts, import_kept, kept_prefix, told
from orchestrator.git.lfs import note_made, take_objects
from orchestrator.git.quarantine import (
    Harvested,
    HarvestRefusedError,
    Origin,
    import_harvest,
    read_tip,
)
from orchestrator.git.secret_scan import leak_notes, leaks
from orchestrator.git.worktree import ensure_worktree
from orchestrator.results import Reason, Status
from orchestrator.state.checkpoints import Checkpoints
from orchestrator.threads import meanwhile
from orchestrator.worker.container_specs import harvest_container, harvest_room
from orchestrator.worker.context import RunContext
from orchestrator.worker.pack import DEATH, dismiss, pack
from orchestrator.worker_spec import WorkerSpec
from orchestrator.workspace.mounts import Workspace
from orchestrator.workspace.submodules import keep_patches


def harvest_worker(
    run: RunContext,
    spec: WorkerSpec,
    workspace: Workspace,
    verdict: Verdict,
    checkpoints: Checkpoints,
) -> tuple[Harvested, Verdict]:
    """Commit what the worker wrote on its branch; also when it failed.

    Raises:
        UnfinishedError: The machine failed, not the work: all is left for whoever resumes the run.
    """
    run.emit(WorkerHarvesting(worker_id=spec.worker_id))
    try:
        # Somebody may have deleted it while the worker ran; it is what the worker's files lie upon.
        workspace = replace(workspace, worktree=ensure_worktree(run.repository, spec))
        harvested = harvest(run, spec, workspace, checkpoints)
    except (EngineError, ImageNotFoundError, OSError) as error:
        said = str(error) if isinstance(error, OSError) else error.message
        raise UnfinishedError(f"its work could not be brought home: {said}") from error
    except OrchestratorError as error:
        harvested = Harvested(workspace.start, (), refused=str(error))
    if harvested.refused is not None:
        verdict = _of_refused(verdict, harvested, workspace)
        harvested = _shown(run, workspace, harvested)
        return _with_leaks(run, spec, harvested), verdict
    with meanwhile(partial(discard_scratch, run, spec, workspace)):
        harvested = _shown(run, workspace, harvested)
    return _with_leaks(run, spec, harvested), verdict


def _of_refused(verdict: Verdict, harvested: Harvested, workspace: Workspace) -> Verdict:
    """Say that not all of the work is on its branch, and where the rest is."""
    said = f"{harvested.refused}; all that it wrote is kept in {workspace.store.root}"
    if verdict.status is not Status.SUCCESS:
        return verdict.with_note(said)
    partly = harvested.tip != workspace.start or harvested.kept_refs
    status = Status.PARTIAL if partly else Status.FAILED
    return Verdict(status, Reason.HARVEST_REFUSED, said)


def _shown(run: RunContext, workspace: Workspace, harvested: Harvested) -> Harvested:
    """Bring the worktree that the user sees to what was let in."""
    try:
        workspace.worktree.update(
            run.repository, base=workspace.start, tip=harvested.tip, again=run.resumed
        )
    except OrchestratorError as error:
        note = f"the worktree was changed meanwhile and is not updated ({error.message})"
        return replace(harvested, notes=(*harvested.notes, note))
    return harvested


def discard_scratch(run: RunContext, spec: WorkerSpec, workspace: Workspace) -> None:
    """Remove what a finished harvest needs no more, also what only the kernel can remove.

    A special file that was taken out of an overlay leaves a device of root's in its scratch. An
    ordinary user cannot remove that, and a mount of the overlay clears it away.
    """
    scratch = workspace.store.overlay
    if scratch.exists():
        remove_tree(scratch)
    if scratch.exists():
        with suppress(OrchestratorError, TimeoutError):
            again = replace(harvest_container(run, spec, workspace), command=("true",))
            container = run.engine.start(again)
            try:
                container.wait(DEATH)
            finally:
                container.remove()
    workspace.discard_scratch()


def _with_leaks(run: RunContext, spec: WorkerSpec, harvested: Harvested) -> Harvested:
    try:
        tips = (harvested.tip, *harvested.kept_refs)
        found = leaks(run.repository, run.redactor, base=run.base, tips=tips)
    except OrchestratorError as error:
        # The work is in: a warning that cannot be given must not take it away again.
        notes: tuple[str, ...] = (f"it was not searched for secrets ({error.message})",)
    else:
        notes = leak_notes(found, spec.branch)
    for note in notes:
        run.emit(Notice(message=note))
    return replace(harvested, notes=(*harvested.notes, *notes))


def harvest(
    run: RunContext, spec: WorkerSpec, workspace: Workspace, checkpoints: Checkpoints
) -> Harvested:
    """Pack in a container without network, check on the host, move the branch.

    Where a rule is broken, what keeps the rules is let in; `refused` says why that is not all.
    However it ends, the worktree is the caller's again.

    Raises:
        OrchestratorError: Nothing was let in; the worker's files are still where it wrote them.
    """
    known = checkpoints.harvested()
    reclaim_worktree = partial(workspace.reclaim_worktree, run.repository, again=run.resumed)
    if known is not None or workspace.is_untouched():
        reclaim_worktree()
        if known is not None:
            _land(run, spec, workspace, known)
            return known
        untouched = Harvested(workspace.start, ())
        checkpoints.note_harvested(untouched)
        return untouched
    kept = NOTHING
    try:
        container = pack(run, spec, workspace)
    except HarvestRefusedError as error:
        refusal = error
    except BaseException:
        reclaim_worktree()
        raise
    else:
        # Nobody is left who looks at the files. Git reads those again whose owner changes, which
        # takes as long as the checks do.
        with meanwhile(partial(dismiss, container)), meanwhile(reclaim_worktree):
            kept = _keep(run, spec, workspace)
            try:
                return _accept(run, spec, workspace, checkpoints, kept)
            except HarvestRefusedError as error:
                refusal = error
    return _accept_rest(run, spec, workspace, checkpoints, kept, refusal)


def _keep(run: RunContext, spec: WorkerSpec, workspace: Workspace) -> Kept:
    """Let in the commits that the worker's branch does not reach."""
    attempt = len(run.directory.attempts(spec.worker_id)) + 1
    return import_kept(
        run.repository,
        out=workspace.store.out,
        quarantine=workspace.store.root / "quarantine",
        origin=_origin(run, workspace),
        prefix=kept_prefix(run.directory.run_id, spec.worker_id, attempt=attempt),
        redactor=run.redactor,
    )


def _accept_rest(
    run: RunContext,
    spec: WorkerSpec,
    workspace: Workspace,
    checkpoints: Checkpoints,
    kept: Kept,
    refusal: HarvestRefusedError,
) -> Harvested:
    """Let in what keeps the rules: the last commit that does, and the files on top of it."""
    good = _last_good(run, workspace) or workspace.start
    workspace.hand_over()
    try:
        dismiss(pack(run, spec, workspace, onto=good))
        return _accept(run, spec, workspace, checkpoints, kept, refused=refusal.message)
    except HarvestRefusedError:
        harvested = Harvested(good, _notes(kept), kept.refs, refusal.message)
    finally:
        workspace.reclaim_worktree(run.repository, again=run.resumed)
    checkpoints.note_harvested(_redacted(run, harvested))
    _land(run, spec, workspace, harvested)
    return harvested


def _last_good(run: RunContext, workspace: Workspace) -> str | None:
    """Let in the last commit before the refused one that keeps the rules, if there is any."""
    out, quarantine = workspace.store.out, workspace.store.root / "quarantine"
    try:
        tip = read_tip(out)
        with Parts(run.repository, out / "pack", quarantine, _origin(run, workspace)) as parts:
            return parts.last_good(tip)
    except HarvestRefusedError:
        return None


def _notes(kept: Kept) -> tuple[str, ...]:
    return (*told(kept.refs), *kept.notes)


def _origin(run: RunContext, workspace: Workspace) -> Origin:
    return Origin(
        base=run.base,
        start=workspace.start,
        objects=run.objects,
        shallow=run.shallow,
        room=harvest_room(run.config.limits),
    )


def _accept(
    run: RunContext,
    spec: WorkerSpec,
    workspace: Workspace,
    checkpoints: Checkpoints,
    kept: Kept,
    *,
    refused: str | None = None,
) -> Harvested:
    patches = keep_patches(workspace.store.root, workspace.store.out)

    def note(harvested: Harvested) -> None:
        taken = take_objects(
            run.repository, workspace.store.out, room=harvest_room(run.config.limits)
        )
        note_made(taken, workspace.store.root)
        checkpoints.note_harvested(_redacted(run, harvested))

    return import_harvest(
        run.repository,
        out=workspace.store.out,
        quarantine=workspace.store.root / "quarantine",
        branch=spec.branch,
        origin=_origin(run, workspace),
        note=note,
        notes=(*_notes(kept), *patches),
        kept_refs=kept.refs,
        refused="; ".join(filter(None, (refused, kept.refused))) or None,
    )


def _redacted(run: RunContext, harvested: Harvested) -> Harvested:
    """Remove secrets from the texts, which name files and refs of the worker."""
    refused = harvested.refused and run.redactor.text(harvested.refused)
    notes = tuple(run.redactor.text(note) for note in harvested.notes)
    return replace(harvested, notes=notes, refused=refused)


def _land(run: RunContext, spec: WorkerSpec, workspace: Workspace, harvested: Harvested) -> None:
    """Move the branch to what was let in, unless whoever let it in did so before it died."""
    if run.repository.resolve(f"refs/heads/{spec.branch}") != harvested.tip:
        with run.repository.lock():
            run.repository.move_branch(spec.branch, new=harvested.tip, old=workspace.start)
