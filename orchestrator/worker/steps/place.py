"""Open the places of a worker: one for an attempt, and one for the checks of its commit.

Everything that runs in a place is described here, before the first step starts.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import IPv4Network

from orchestrator.base.errors import (
    EngineError,
    EngineUnavailableError,
    OrchestratorError,
    PlaceLostError,
    UnsupportedError,
)
from orchestrator.base.events import WorkerWaiting
from orchestrator.base.files.atomic import write_private
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.network_access import Access, stage_access
from orchestrator.config.settings.company import BUNDLE
from orchestrator.config.settings.container import CLUSTERS, GATEWAYS
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.engine.interface.spec import CLOSED, BindMount, Egress
from orchestrator.engine.places.host_place import HostPlace
from orchestrator.engine.places.place import TREE, Part, Place, PlaceEngine, PlaceSpec, Step, Waiter
from orchestrator.network.broker.repositories import GIT_FILE
from orchestrator.network.gateway.allowed_host import DOCKER_HOST
from orchestrator.repository.commits.changes import blobs
from orchestrator.repository.incoming.packed_work import Harvested
from orchestrator.repository.repository import Repository
from orchestrator.state import secret_files
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.worker.context import RunContext, WorkerContext
from orchestrator.worker.steps.container_specs import (
    GIT_SETTINGS,
    Job,
    agent_step,
    job_step,
    setup_job,
    teardown_job,
)
from orchestrator.worker.steps.dotenv import dotenv_step
from orchestrator.worker.steps.harvest_request import message_of
from orchestrator.worker.steps.pack import harvest_step, packing, packing_env
from orchestrator.worker.steps.services import service_steps
from orchestrator.worker.workspace.artifacts import Handover
from orchestrator.worker.workspace.layout import AGENT_STEP, part_of
from orchestrator.worker.workspace.mounts import Workspace

_MOST_LISTED = 100_000
_LISTING = 10.0
_SHOWN = 5
UNSEEN = "because the engine cannot use the files of this machine, and gets copies"
LOCAL = "`unset DOCKER_HOST DOCKER_CONTEXT`, or `docker context use default`"
CA_FILE = "ca-bundle.crt"
"""Name of the file with certificate authorities in a run's directory."""


def check_transfer(
    engine: ContainerEngine, features: EngineFeatures, config: ParallelConfig
) -> None:
    """Check that nothing needs mounts if files are sent to the engine as streams.

    Raises:
        UnsupportedError: A setting needs mounts, or the engine has no volumes for streams.
    """
    if features.transfer != "streams":
        return
    if not isinstance(engine, PlaceEngine):
        raise UnsupportedError(
            f"the engine `{engine.name}` cannot take files as streams",
            key="transfer.unsupported",
            hint="use `--transfer auto`",
        )
    isolation, project = config.isolation, config.project
    if isolation.ports and not features.ports:
        raise UnsupportedError(
            "the engine publishes ports on its own machine, and none is forwarded with TLS",
            key="engine.ports-elsewhere",
            hint="reach it by ssh: `DOCKER_HOST=ssh://USER@HOST`; or leave out `ports`",
        )
    used = {
        # Where nothing can be mounted, they start empty.
        "`caches`": project.caches and isolation.transfer == "streams",
        "`runtime`": isolation.runtime and isolation.engine not in CLUSTERS,
        "`enforce: ro`": config.triggers.enforce == "ro",
    }
    # protection: streams-refuse-what-they-cannot-do
    if refused := sorted(name for name, is_used in used.items() if is_used):
        why, hint = "with `transfer: streams`", "use `--transfer mounts`"
        if isolation.transfer == "auto":
            why, hint = UNSEEN, f"leave it out, or use an engine of this machine: {LOCAL}"
        raise UnsupportedError(
            f"{why}, workers cannot have {', '.join(refused)}",
            key="transfer.unsupported",
            hint=hint,
        )


def check_place_network(
    engine: ContainerEngine,
    features: EngineFeatures,
    config: ParallelConfig,
    egress: Mapping[Access, Egress],
) -> None:
    """Check that a worker needs no more than one network for its place, which nothing changes.

    Raises:
        UnsupportedError: The engine has no other networks, and the worker needs one.
    """
    if features.networks:
        return
    isolation, access = config.isolation, stage_access(config)
    used = {
        "`network: allowlist` or `learn`": GATEWAYS & config.networks,
        "`keys: broker`": isolation.keys == "broker" and not features.addresses,
    }
    # protection: engine-without-networks-refuses-what-needs-one
    if refused := sorted(name for name, is_used in used.items() if is_used):
        raise UnsupportedError(
            f"with the engine `{engine.name}`, workers cannot have {', '.join(refused)} yet",
            key="engine.unsupported",
            hint="use `--network none` with `--keys broker` for models, or `--network open`; "
            "or use an engine of this machine",
        )
    stages = {"task": access.task.network}
    stages |= {"setup": access.setup.network} if config.project.setup else {}
    stages |= {"teardown": access.teardown.network} if config.project.teardown else {}
    # protection: steps-of-one-place-have-one-network
    if len({*stages.values()}) > 1:
        named = ", ".join(f"`{network}` for {stage}" for stage, network in stages.items())
        raise UnsupportedError(
            f"with the engine `{engine.name}`, setup, task and teardown have one network, not "
            f"{named}",
            key="engine.one-network",
            hint=f"give setup the task's network, with `--setup-network {access.task.network}`; or "
            "trust the commands of the repository's file, with `--config FILE`",
        )
    places = [place for found in egress.values() for place in found.allowed]
    # protection: private-addresses-cannot-be-opened-by-policy
    if refused := sorted({str(place) for place, _ in places if _is_closed(place)}):
        raise UnsupportedError(
            f"with the engine `{engine.name}`, workers cannot reach {', '.join(refused)}: the "
            "cluster's network policy closes private networks",
            key="engine.private-address",
            hint="remove `--allow` and base URLs of private addresses; or use an engine of this "
            "machine",
        )


def _is_closed(place: str) -> bool:
    """Return whether a destination, or a part of it, is closed unless it is allowed."""
    if place == DOCKER_HOST:
        return True
    return any(IPv4Network(place).overlaps(IPv4Network(closed)) for closed in CLOSED)


def open_run_place(run: RunContext, wanted: PlaceSpec) -> Place:
    """Open a place that needs nothing but its specification.

    Raises:
        EngineError: The place could not be created, or its files could not be sent.
        OSError: A file of the place is missing.
    """
    waiter = Waiter(has_left=lambda: run.cancel.stop_asked)
    return _place(run, wanted, waiter) or HostPlace(run.engine, wanted)


def _place(
    run: RunContext, wanted: PlaceSpec, waiter: Waiter, *, again: bool = True
) -> Place | None:
    """Open a place with volumes, and send it its files; None if files are mounted.

    Args:
        run: The run.
        wanted: The place.
        waiter: Waits for room.
        again: Whether a place that another process opened is used. If not, it is removed.

    Raises:
        EngineError: The place could not be created.
    """
    if not run.streams or not isinstance(run.engine, PlaceEngine):
        return None
    place = run.engine.open_place(wanted, waiter=waiter)
    if run.resumed and not again:
        place.remove()
        place = run.engine.open_place(wanted, waiter=waiter)
    place.put(wanted.parts)
    return place


def open_place(worker: WorkerContext, workspace: Workspace) -> Place:
    """Open the place of an attempt, or open it again after another process has died.

    Raises:
        PlaceLostError: The place is gone.
        EngineUnavailableError: A place in which work may be cannot be opened.
        EngineError: The place could not be created, or its files could not be sent.
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
    last_step = _packing_step(worker, workspace, after=last)
    names = [step.name for step in (*steps, last_step)]
    parts = [*workspace.parts(names), *_files(worker, steps, jobs)]
    if project.dotenv and run.streams:
        step, part = dotenv_step(worker, workspace)
        steps.append(step)
        parts.append(part)
    spec = PlaceSpec(
        name=worker.place_name,
        labels=worker.labels(role="worker"),
        parts=tuple(parts),
        steps=(*service_steps(worker), *steps, last_step),
        # The first order may have to wait until all services are ready.
        start_within=PlaceSpec.start_within
        + sum(each.health_timeout for each in project.services.values()),
    )
    # Accepted work is not needed in a place any more, and files that a new place needs are gone.
    known = worker.checkpoints.harvest()
    if known is None or known.refused is not None:
        try:
            place = _place(run, spec, _waiter(worker))
        except PlaceLostError:
            raise
        except EngineError as error:
            if worker.checkpoints.launch() is None:
                raise
            raise EngineUnavailableError(
                f"the worker's place cannot be used: {error.message}", key="place.unusable"
            ) from error
        if place is not None:
            return place
    earlier = (Checkpoints(path).launch() for _, path in worker.attempts() if run.resumed)
    since = None
    if worker.config.triggers.paths and workspace.mode == "bind":
        # The host wrote this index after the checkout; the worker cannot change it.
        since = (workspace.store.harvest / "index").stat().st_mtime_ns
    containers = {launched.container for launched in earlier if launched}
    return HostPlace(run.engine, spec, earlier=containers, since=since)


def _waiter(worker: WorkerContext) -> Waiter:
    def tell(why: str) -> None:
        worker.run.emit(WorkerWaiting(worker_id=worker.number, cause="machine", reason=why))

    return Waiter(has_left=lambda: worker.cancel.stop_asked, tell=tell)


def take_handed(workspace: Workspace, place: Place, *, limit: int) -> tuple[str, ...]:
    """Take the files that a worker hands over out of its place; return notes about problems.

    Args:
        workspace: The worker's files.
        place: Its place.
        limit: Maximum size in bytes of the files of each part.

    Raises:
        EngineUnavailableError: The engine cannot be reached; a resumed run tries again.
    """
    left_out = 0
    try:
        for mount in workspace.shared:
            if isinstance(mount, BindMount) and not mount.read_only:
                part = part_of(mount.target)
                left_out += place.take(part, mount.source, limit=limit, partial=True)
    except EngineUnavailableError:
        raise
    except (EngineError, OSError) as error:
        return (f"the worker's artifacts and findings could not be taken ({error})",)
    what = (
        "of the worker's artifacts and findings were not regular or did not fit, and were left out"
    )
    return (f"{left_out} {what}",) if left_out else ()


def close_place(worker: WorkerContext, place: Place, harvested: Harvested) -> Handover:
    """Collect what the worker handed over, and give up its place: its work is on the branch.

    The run's process removes a place that could not be removed here, at the end of the run. Refused
    work stays in its place until then.
    """
    handed = worker.run.shared.collect(worker.spec)
    if harvested.refused is not None:
        return handed
    ours = worker.config.project.dotenv
    notes = left_behind(worker.run.repository, place, harvested.tip, ours=ours)
    with suppress(OrchestratorError):
        place.release()
    return replace(handed, notes=(*handed.notes, *notes))


def left_behind(
    repository: Repository, place: Place, tip: str, *, ours: str | None
) -> tuple[str, ...]:
    """Return a note about files that a worker wrote and that its commit does not have.

    There is none if the place's files are on this machine, where they are kept.

    Args:
        repository: The user's repository.
        place: The worker's place.
        tip: The commit.
        ours: Path of a file in the worktree that this program wrote; None for no file.
    """
    if isinstance(place, HostPlace):
        return ()
    try:
        changed = sorted(place.changed(TREE, most=_MOST_LISTED, seconds=_LISTING))
        kept = {path for path, _ in blobs(repository, base=None, tip=tip)}
    except OrchestratorError as error:
        return (f"files that are not in the commit were left in the engine ({error.message})",)
    left = [path for path in changed if path not in kept and path != ours]
    if not left:
        return ()
    shown = ", ".join(f"`{one_line(path, limit=100)}`" for path in left[:_SHOWN])
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    return (f"these files are not in the commit and were not kept: {shown}{more}",)


def _packing_step(worker: WorkerContext, workspace: Workspace, *, after: str) -> Step:
    """Return the step that packs the worker's work, with all that it needs without a client."""
    limits = worker.config.limits
    labels = worker.labels(role="harvest")
    step = harvest_step(worker.name, labels, workspace, limits, worker.cpus)
    env = packing_env(worker.run.repository, limits)
    message = message_of(worker.spec, worker.run.redactor)
    start = packing(workspace, worker.spec.branch, worker.base, message, env)
    return replace(step, spec=replace(step.spec, command=start.command, env=env), after=after)


def open_check_place(
    worker: WorkerContext, workspace: Workspace, jobs: Sequence[Job], *, again: bool = False
) -> Place:
    """Open the place in which checks run.

    Args:
        worker: The worker.
        workspace: A fresh checkout of its commit.
        jobs: The checks, and the setup for them.
        again: Whether the first place of the checks was lost.

    Raises:
        EngineError: The place could not be created, or its files could not be sent.
        OSError: A file of the worker is missing.
    """
    steps = [job_step(worker, workspace, job) for job in jobs]
    names = [step.name for step in steps]
    spec = PlaceSpec(
        name=f"{worker.place_name}-checks{'-again' if again else ''}",
        labels=worker.labels(role="check"),
        parts=(
            *workspace.parts(names),
            *(part for job in jobs for part in job.parts),
            *_files(worker, steps, jobs),
        ),
        steps=tuple(steps),
    )
    # Another process had another checkout of the commit.
    place = _place(worker.run, spec, _waiter(worker), again=False)
    return place or HostPlace(worker.run.engine, spec)


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
        if not source.exists():
            # A pod has to know from the start that this is a file; its content comes with an order.
            write_private(source, b"")
        mount = BindMount(source=source, target=GIT_SETTINGS, read_only=True)
        linked = frozenset(step.name for step in steps if step.spec.link is not None)
        yield Part(name="git-settings", mount=mount, seen_by=linked, in_memory=True)
    if company.ca is not None:
        mount = BindMount(source=run.directory.path / CA_FILE, target=BUNDLE, read_only=True)
        yield Part(name="authorities", mount=mount, seen_by=every)
