"""Commit and pack a worker's files in a container without network: the first step of a harvest."""

import signal
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace

from orchestrator.base.errors import EngineError, EngineUnavailableError, OrchestratorError
from orchestrator.base.files.bundle import bundle
from orchestrator.base.text.quantities import size
from orchestrator.base.text.redact import Redactor
from orchestrator.base.text.sanitize import output_line
from orchestrator.config.settings.container import Limits
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.protocol import Container
from orchestrator.engine.interface.spec import ContainerSpec, TmpfsMount
from orchestrator.engine.places.place import Place, Start, Step, StepLimits
from orchestrator.repository.git.failures import disk_full
from orchestrator.repository.incoming.packed_work import HarvestRefusedError
from orchestrator.repository.repository import Repository
from orchestrator.sandbox.deadlines.dead_man_switch import LATE
from orchestrator.sandbox.supervision.launch import removed_on_error
from orchestrator.worker.in_container.host_git import RESERVED, ROOM
from orchestrator.worker.steps.harvest_request import HARVEST_TIMEOUT, HarvestRequest, room
from orchestrator.worker.workspace.layout import (
    HARVEST,
    HARVEST_STEP,
    OBJECTS,
    OUT,
    PACKED,
    PACKING,
    STORE,
    WORKSPACE,
)
from orchestrator.worker.workspace.mounts import Workspace

DEATH = 30.0
"""Maximum number of seconds between the end of a container's output and its own end."""
MEASURE = 0.5
"""Seconds between two measurements of the files that are being packed."""
_PROGRAM = "orchestrator.worker.in_container.pack_work"
_MOST_FILES = 1_000_000
_ENDED = frozenset(
    128 + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
)
"""Exit codes of a container that was ended by a signal from outside, for example by SIGTERM when
the Docker daemon stops.
"""
_TMP = "/tmp"  # noqa: S108  # the container's own
_HARVEST_MEMORY = 1024**3
_HARVEST_TMP = 64 * 1024**2


def pack(request: HarvestRequest, *, onto: str | None = None) -> Container:
    """Commit and pack a worker's files in a container, and return the container, which has ended.

    Args:
        request: The harvest.
        onto: A commit on which only the files are committed, without the worker's own commits.

    Raises:
        HarvestRefusedError: The worker's files cannot be packed.
        OSError: The disk is full.
        EngineError: The engine failed.
    """
    try:
        return _pack_once(request, onto)
    except EngineUnavailableError:
        raise
    except EngineError:
        # Another program removed the container; packing may be repeated.
        return _pack_once(request, onto)


def dismiss(container: Container | None) -> None:
    """Remove a packing container, if any; if this fails, it is removed at the end of the run."""
    if container is None:
        return
    with suppress(OrchestratorError):
        container.remove()


def _pack_once(request: HarvestRequest, onto: str | None) -> Container:
    worker_id, switch, workspace = request.spec.worker_id, request.switch, request.workspace
    workspace.clear_harvest()
    workspace.complete_harvest()
    switch.starting(worker_id, HARVEST_TIMEOUT + LATE)
    container = start_packing(request, *([onto] if onto else []))
    with removed_on_error(container):
        switch.running(worker_id, HARVEST_TIMEOUT + LATE)
        said = _wait_for_end(container, request.place, room=3 * request.room)
        switch.idle(worker_id)
        request.place.take(PACKED, workspace.store.out, limit=3 * request.room)
        if not workspace.is_packed():
            raise _failure(request.redactor, container, said)
    return container


def _wait_for_end(container: Container, place: Place, *, room: int) -> bytes:
    """Wait until packing has ended, and return the end of the container's output.

    Raises:
        HarvestRefusedError: Packing took too long, or wrote more than `room` bytes, and was killed.
    """
    ended = threading.Event()
    refusals: list[str] = []
    said: Future[bytes] = Future()
    # What answers in the place may be hostile, and never end: neither thread is waited for.
    listener = threading.Thread(target=_listen, args=(container, ended, said), daemon=True)
    watch = threading.Thread(
        target=_watch, args=(container, place, room, ended, refusals), daemon=True
    )
    listener.start()
    watch.start()
    try:
        ended.wait(HARVEST_TIMEOUT + 2 * DEATH)
    finally:
        ended.set()
        watch.join(DEATH)
    last = said.result() if said.done() else b""
    if not said.done() and not refusals:
        refusals.append("the container that packs the worker's work does not end")
    if refusals:
        raise HarvestRefusedError(refusals[0], key="work.refused")
    return last


def _listen(container: Container, ended: threading.Event, said: Future[bytes]) -> None:
    """Read the output until it or the wait for it ends, and give back its last part."""
    last = b""
    try:
        for chunk in container.logs():
            last = (last + chunk.data)[-4000:]
            if ended.is_set():
                return
        said.set_result(last)
    except Exception as error:  # noqa: BLE001  # the waiting thread raises it
        said.set_exception(error)
    finally:
        ended.set()


def _watch(
    container: Container,
    place: Place,
    room: int,
    ended: threading.Event,
    refusals: list[str],
) -> None:
    """Kill the packing container if it takes too long or writes too much, and record the reason.

    The wait for its end is over some seconds after that, whatever is still read.
    """
    deadline = time.monotonic() + HARVEST_TIMEOUT
    while not ended.wait(min(MEASURE, max(0.0, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            refusals.append(f"packing the worker's work took longer than {HARVEST_TIMEOUT:.0f} s")
        else:
            try:
                use = place.usage((PACKED, PACKING), most_files=_MOST_FILES, seconds=MEASURE)
            except EngineError:
                continue  # the thread that reads the container's output gets the same error
            written = use.size
            # protection: written-data-of-harvest-is-measured
            if ended.is_set() or written <= room:
                continue
            refusals.append(
                f"packing the work took {size(written)}; the disk limit allows {size(room)}"
            )
        # The thread that reads the container's output gets the engine's error.
        with suppress(OrchestratorError):
            container.kill("SIGKILL")
        ended.wait(DEATH)
        ended.set()
        return


def _failure(redactor: Redactor, container: Container, said: bytes) -> Exception:
    try:
        status = container.wait(DEATH)
    except TimeoutError:
        return EngineError(
            f"the container that packs worker files did not end in {DEATH:g} s",
            key="packing.timeout",
        )
    # protection: packing-that-somebody-ended-is-repeated
    if status.exit_code in _ENDED and not status.oom_killed:
        return EngineError("the container that packs worker files was killed", key="packing.killed")
    last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
    why = output_line(redactor.text(last))
    if status.oom_killed:
        why = "it needed more memory than its limit"
    refused = HarvestRefusedError(f"packing the worker's work failed: {why}", key="work.unpacked")
    return disk_full(last) or refused


def start_packing(request: HarvestRequest, *onto: str, idle: bool = False) -> Container:
    """Start the container that commits and packs an ended worker's files.

    Args:
        request: The harvest.
        onto: A commit on which only the files are committed, without the worker's own commits.
        idle: Whether the container only mounts the files, and does nothing.

    Raises:
        EngineError: The engine failed; nothing is left behind.
    """
    workspace = request.workspace
    # Where the files are may have changed: the user may have deleted the worktree.
    request.place.put(tuple(workspace.parts([HARVEST_STEP])))
    start = packing(
        workspace, request.spec.branch, request.base, request.message,
        packing_env(request.repository, request.limits),
    )  # fmt: skip
    command = ("true",) if idle else (*start.command, *onto)
    container = request.place.order(HARVEST_STEP, replace(start, command=command))
    with removed_on_error(container):
        container.start()
    return container


def packing(
    workspace: Workspace, branch: str, base: str, message: str, env: Mapping[str, str]
) -> Start:
    """Return what the packing container gets.

    Args:
        workspace: The worker's files.
        branch: The worker's branch.
        base: The commit that the worker started from.
        message: Message of the commit with its uncommitted files.
        env: The variables that `packing_env` returned.
    """
    paths = (WORKSPACE, STORE, HARVEST, OBJECTS, OUT, workspace.written)
    # protection: program-imports-only-its-own-modules
    program = ("python3", "-I", "-S", "-c", bundle(_PROGRAM), *paths, base, branch, message)
    return Start(command=program, env=env)


def packing_env(repository: Repository, limits: Limits) -> dict[str, str]:
    """Return the variables of the packing container."""
    return {ROOM: str(room(limits)), RESERVED: "/".join(repository.worktree_names())}


def harvest_step(
    name: str, labels: Mapping[str, str], workspace: Workspace, limits: Limits, cpus: float
) -> Step:
    """Return the step that commits and packs the files of an ended worker, without network."""
    spec = ContainerSpec(
        name=f"{name}-harvest",
        image=BASE_IMAGE,
        command=(),
        user=workspace.user_text,
        workdir="/",
        labels=labels,
        mounts=(TmpfsMount(target=_TMP, size=_HARVEST_TMP),),
        cpus=cpus,
        memory=max(limits.memory, _HARVEST_MEMORY),
        open_files=limits.open_files,
    )
    most = StepLimits(timeout=HARVEST_TIMEOUT, disk=3 * room(limits), limited=(PACKED, PACKING))
    return Step(name=HARVEST_STEP, spec=spec, limits=most)
