"""Remove containers, networks and volumes that finished runs left; continue after failures."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from orchestrator.base.errors import OrchestratorError
from orchestrator.base.machine import process_is_gone
from orchestrator.engine import engine_of_run, installed_engines
from orchestrator.engine.interface.labels import (
    MANAGED,
    PLACE,
    PROCESS,
    REPOSITORY,
    ROLE,
    RUN,
    WORKER,
)
from orchestrator.engine.interface.protocol import ContainerEngine, Leftover
from orchestrator.engine.places.place import RemoteEngine, is_shared
from orchestrator.repository.git_directory import git_dir_named_by
from orchestrator.repository.repository import DIRECTORIES, Repository
from orchestrator.runs.cleanup.report import Cleanup
from orchestrator.sandbox.deadlines.removal import remove_all
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_outline import RunOutline, read_outline
from orchestrator.state.run_record import is_run_id


def find_leftovers(repository: Repository, engine: ContainerEngine) -> dict[str, list[Leftover]]:
    """List the containers, networks and volumes of this repository's runs, by run id.

    Raises:
        EngineError: The engine does not answer.
    """
    found = defaultdict(list)
    labels = {MANAGED: "true", REPOSITORY: str(repository.common_dir)}
    for leftover in engine.leftovers(labels):
        found[leftover.labels.get(RUN, "")].append(leftover)
    return found


@contextmanager
def engine_of(job: Cleanup, run: RunOutline) -> Iterator[None]:
    """Use a run's own engine in the block, if that of the command is another one, or missing."""
    used, mine = run.engine_used, (job.engine, job.leftovers)
    # Who has no Docker may have a cluster.
    kinds = set(installed_engines()) - ({"docker"} if job.engine is None else set())
    if used is None or used.kind not in kinds:
        yield
        return
    with ExitStack() as stack:
        try:
            if used in job.failed:
                raise job.failed[used]
            if job.engine is not None and used not in job.known:
                found = job.engine.check(images=(), runtime=None).id
                job.known[used] = used.is_same(job.engine.name, found)
            if not job.known.get(used):
                job.engine = stack.enter_context(closing(engine_of_run(used)))
                job.leftovers = find_leftovers(job.repository, job.engine)
        except OrchestratorError as error:
            job.engine, job.leftovers, job.failed[used] = None, {}, error
        try:
            yield
        finally:
            job.engine, job.leftovers = mine


def worker_of(leftover: Leftover) -> int | None:
    """Return the number of the worker that an object belongs to; None if it belongs to the run."""
    number = leftover.labels.get(WORKER, "")
    return int(number) if number.isdecimal() else None


def places_with_work(leftovers: Iterable[Leftover]) -> dict[int | None, list[Leftover]]:
    """Return, by worker, the objects that hold files of workers which are not on this machine.

    These are the volumes of a worker's place, or the place itself, if it is a pod.
    """
    # Checks leave nothing that a run needs: they are repeated.
    held = [
        left for left in leftovers if PLACE in left.labels and left.labels.get(ROLE) == "worker"
    ]
    found = defaultdict(list)
    for left in held:
        if left.kind == "volume":
            found[worker_of(left)].append(left)
    in_volumes = frozenset(found)
    for left in held:
        if worker_of(left) not in in_volumes:
            found[worker_of(left)].append(left)
    return found


def remove_stray(job: Cleanup) -> None:
    """Remove engine objects that belong to no recorded run, as after a killed `orchestrator init`.

    If the engine fails before a run's first worker starts, the run removes its directory, but its
    network is left. On an engine that other machines use, an unknown run may be one of theirs, in a
    repository at the same path, and is left alone.
    """
    runs = job.repository.state_dir / "runs"
    # A run creates its directory before any object, so a new run is not mistaken for an old one.
    # protection: objects-of-run-being-created-are-kept
    gone = [name for name in job.leftovers if is_run_id(name) and not (runs / name).exists()]
    if is_shared(job.engine):
        job.others += [f"{name} is not recorded here" for name in gone]
        gone = []
    # protection: objects-of-run-that-lost-engine-are-removed
    found = [left for name in ("", *gone) for left in job.leftovers.get(name, [])]
    found = [left for left in found if PROCESS not in left.labels]
    if job.engine is not None and not is_shared(job.engine):
        found += _of_gone_processes(job.engine, job.repository)
    stuck = [] if job.dry_run or job.engine is None else remove_all(job.engine, found)
    job.removed += len(found) - len(stuck)
    job.problems += [str(leftover) for leftover in stuck]


def _of_gone_processes(engine: ContainerEngine, repository: Repository) -> list[Leftover]:
    """Return what tests left whose processes are gone, of this repository or of none."""
    own, here = str(repository.common_dir), not isinstance(engine, RemoteEngine) or engine.is_here
    found: list[Leftover] = []
    # What cannot be listed was reported when the objects of runs were.
    with suppress(OrchestratorError):
        for left in engine.leftovers({MANAGED: "true"}):
            mark, place = left.labels.get(PROCESS), left.labels.get(REPOSITORY, own)
            # protection: tests-of-killed-processes-are-removed
            if mark is not None and place == own and process_is_gone(mark, here=here):
                found.append(left)
    return found


def find_unrecorded_worktrees(repository: Repository, known: Set[Path]) -> list[str]:
    """Return a message for each worktree at a worker's place that no recorded worker has."""
    return [
        f"{path} is the worktree of no recorded worker and was left alone: move it away"
        for path in sorted(repository.top.glob(f"{DIRECTORIES}*"))
        if path not in known and git_dir_named_by(path) is not None
    ]


def leftover_notices(repository: Repository, engine: ContainerEngine) -> list[str]:
    """Return a notice for each ended run with containers left, with the command to remove them."""
    notices = []
    try:
        found = find_leftovers(repository, engine)
    except OrchestratorError:
        # The caller uses the engine afterwards and gets the error then.
        return []
    for run_id, leftovers in sorted(found.items()):
        containers = any(left.kind == "container" or PLACE in left.labels for left in leftovers)
        run = RunDirectory(repository.state_dir / "runs" / run_id)
        record = read_outline(run)
        if run.other_user is not None or run.is_live():
            continue
        if containers and record is not None:
            died = any(run.result(spec.worker_id) is None for spec in record.workers)
            cleanup = f"`orchestrator parallel-cleanup --run {run_id}`"
            resume = f"`orchestrator resume {run_id}`"
            notices.append(
                f"run {run_id} died and its containers still exist: use {resume} or {cleanup}"
                if died
                else f"run {run_id} ended and left containers behind: remove them with {cleanup}"
            )
    return notices
