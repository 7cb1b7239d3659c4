"""Open the places of a worker: one for an attempt, and one for the checks of its commit.

Everything that runs in a place is described here, before the first step starts.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from orchestrator.broker.repositories import GIT_FILE
from orchestrator.config.company import BUNDLE
from orchestrator.engine.host_place import HostPlace
from orchestrator.engine.place import Part, Place, PlaceSpec, Step
from orchestrator.engine.spec import BindMount
from orchestrator.errors import OrchestratorError
from orchestrator.state import secret_files
from orchestrator.state.checkpoints import Checkpoints
from orchestrator.worker.container_specs import (
    GIT_SETTINGS,
    Job,
    agent_step,
    job_step,
    setup_job,
    teardown_job,
)
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.pack import harvest_step
from orchestrator.worker.services import service_steps
from orchestrator.workspace.artifacts import Handover
from orchestrator.workspace.layout import AGENT_STEP, part_of
from orchestrator.workspace.mounts import Workspace

CA_FILE = "ca-bundle.crt"
"""Name of the file with certificate authorities in a run's directory."""


def open_place(worker: WorkerContext, workspace: Workspace) -> Place:
    """Open the place of an attempt, or open it again after another process has died.

    Raises:
        OSError: A file of the worker is missing.
    """
    run, project = worker.run, worker.config.project
    steps, jobs = [agent_step(worker, workspace)], []
    if project.setup:
        jobs.append(setup_job(worker.settings))
        steps.append(job_step(worker, workspace, jobs[-1]))
    last = AGENT_STEP
    if project.teardown:
        jobs.append(teardown_job(worker.settings))
        steps.append(job_step(worker, workspace, jobs[-1], after=last))
        last = jobs[-1].name
    labels = worker.labels(role="harvest")
    packing = harvest_step(worker.name, labels, workspace, worker.config.limits, worker.cpus)
    names = [step.name for step in (*steps, packing)]
    parts = (*workspace.parts(names), *_files(worker, steps, jobs))
    spec = PlaceSpec(
        name=worker.name,
        labels=worker.labels(role="worker"),
        parts=parts,
        steps=(*service_steps(worker), *steps, replace(packing, after=last)),
    )
    earlier = (Checkpoints(path).launch() for _, path in worker.attempts() if run.resumed)
    since = None
    if worker.config.triggers.paths and workspace.mode == "bind":
        # The host wrote this index after the checkout; the worker cannot change it.
        since = (workspace.store.harvest / "index").stat().st_mtime_ns
    containers = {launched.container for launched in earlier if launched}
    place = HostPlace(run.engine, spec, earlier=containers, since=since)
    place.put(spec.parts)
    return place


def close_place(worker: WorkerContext, workspace: Workspace, place: Place) -> Handover:
    """Collect what the worker handed over, and give up its place: its work is on the branch.

    The run's process removes a place that could not be removed here.
    """
    try:
        for mount in workspace.shared:
            if isinstance(mount, BindMount) and not mount.read_only:
                limit = worker.config.limits.disk
                place.take(part_of(mount.target), mount.source, limit=limit)
    except (OrchestratorError, OSError) as error:
        said = f"the worker's artifacts and findings could not be collected ({error})"
        return Handover(notes=(said,))
    handed = worker.run.shared.collect(worker.spec)
    with suppress(OrchestratorError):
        place.release()
    return handed


def open_check_place(
    worker: WorkerContext, workspace: Workspace, jobs: Sequence[Job], findings: Part
) -> Place:
    """Open the place in which checks run.

    Args:
        worker: The worker.
        workspace: A fresh checkout of its commit.
        jobs: The checks, and the setup for them.
        findings: The directory to which a check may write its findings.
    """
    steps = [job_step(worker, workspace, job) for job in jobs]
    names = [step.name for step in steps]
    spec = PlaceSpec(
        name=f"{worker.name}-checks",
        labels=worker.labels(role="check"),
        parts=(*workspace.parts(names), findings, *_files(worker, steps, jobs)),
        steps=tuple(steps),
    )
    place = HostPlace(worker.run.engine, spec)
    place.put(spec.parts)
    return place


def _files(worker: WorkerContext, steps: Sequence[Step], jobs: Sequence[Job]) -> Iterator[Part]:
    """Yield what steps get besides the worktree: secrets, git's settings for the broker, a CA.

    Secrets and git's settings are only there while a step runs: they are written when it is
    ordered.
    """
    run, keys, company = worker.run, worker.keys, worker.settings.company
    every = frozenset(step.name for step in steps)
    secrets = run.request.secrets.place(run.directory.run_id, worker.number)
    if secrets is not None:
        # protection: secrets-mounted-read-only
        mount = BindMount(source=secrets, target=secret_files.TARGET, read_only=True)
        # protection: no-secrets-for-found-files-commands
        trusted = every - {job.name for job in jobs if job.closed}
        yield Part(name="secrets", mount=mount, seen_by=trusted, in_memory=True)
    if keys is not None and keys.repositories:
        source = worker.directory / GIT_FILE
        mount = BindMount(source=source, target=GIT_SETTINGS, read_only=True)
        linked = frozenset(step.name for step in steps if step.spec.link is not None)
        yield Part(name="git-settings", mount=mount, seen_by=linked, in_memory=True)
    if company.ca is not None:
        mount = BindMount(source=run.directory.path / CA_FILE, target=BUNDLE, read_only=True)
        yield Part(name="authorities", mount=mount, seen_by=every)
