"""Step one of a harvest: a container without network commits and packs what a worker wrote."""

import errno
import threading
import time
from contextlib import suppress

from orchestrator.engine.protocol import Container
from orchestrator.errors import EngineError, EngineUnavailableError, OrchestratorError
from orchestrator.execution.dead_man_switch import LATE
from orchestrator.files.disk_usage import disk_use
from orchestrator.git.command import FULL
from orchestrator.git.quarantine import HarvestRefusedError
from orchestrator.text.redact import Redactor
from orchestrator.text.sanitize import one_line
from orchestrator.worker.container_specs import harvest_container
from orchestrator.worker.harvest_request import HarvestRequest
from orchestrator.workspace.mounts import Workspace

HARVEST_TIMEOUT = 300.0
"""Seconds for committing and packing what a worker wrote."""
DEATH = 30.0
"""Seconds after its output's end by which a container must have ended."""
MEASURE = 0.5
"""Seconds between two looks at what a harvest has written."""
_MOST_FILES = 1_000_000
_KILLED = 137
"""Exit code of a container that somebody killed; where we did, it is late, and told apart."""


def pack(request: HarvestRequest, *, onto: str | None = None) -> Container:
    """Pack in a container and return it. It has ended, and is to be dismissed.

    Args:
        request: The harvest.
        onto: A commit that the files alone are put on top of, without the worker's own commits.

    Raises:
        HarvestRefusedError: What the worker wrote cannot be packed.
        OSError: There is no room for it.
        EngineError: The engine failed.
    """
    try:
        return _packed(request, onto)
    except EngineUnavailableError:
        raise
    except EngineError:
        # Another program removed the container; nothing of it is half done.
        return _packed(request, onto)


def dismiss(container: Container) -> None:
    """Remove it; one that stays is met again at the end of the run."""
    with suppress(OrchestratorError):
        container.remove()


def _packed(request: HarvestRequest, onto: str | None) -> Container:
    worker_id, switch = request.spec.worker_id, request.switch
    request.workspace.clear_harvest()
    switch.starting(worker_id, HARVEST_TIMEOUT + LATE)
    container = request.engine.start(harvest_container(request, onto=onto))
    try:
        switch.running(worker_id, HARVEST_TIMEOUT + LATE)
        said = _last_words(container, request.workspace, room=3 * request.room)
        switch.idle(worker_id)
        if not request.workspace.is_packed():
            raise _failure(request.redactor, container, said)
    except BaseException:
        container.remove()
        raise
    return container


def _last_words(container: Container, workspace: Workspace, *, room: int) -> bytes:
    """Wait for the end of what the harvest says, and give that.

    Raises:
        HarvestRefusedError: It took too long, or wrote more than `room` bytes, and was ended.
    """
    ended = threading.Event()
    refusals: list[str] = []
    watch = threading.Thread(target=_watch, args=(container, workspace, room, ended, refusals))
    watch.start()
    try:
        said = b""
        for chunk in container.logs():
            said = (said + chunk.data)[-4000:]
    finally:
        ended.set()
        watch.join()
    if refusals:
        raise HarvestRefusedError(refusals[0])
    return said


def _watch(
    container: Container,
    workspace: Workspace,
    room: int,
    ended: threading.Event,
    refusals: list[str],
) -> None:
    """End a harvest that takes too long or writes too much, and say why."""
    deadline = time.monotonic() + HARVEST_TIMEOUT
    while not ended.wait(min(MEASURE, max(0.0, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            refusals.append(f"the harvest took longer than {HARVEST_TIMEOUT:.0f} s")
        else:
            places = (workspace.store.out, workspace.store.harvest)
            size = disk_use(places, most_files=_MOST_FILES, seconds=MEASURE).size
            if size <= room:
                continue
            refusals.append(
                f"the harvest wrote {size >> 20} MiB; {room >> 20} MiB fit the disk limit"
            )
        _kill(container)
        return


def _kill(container: Container) -> None:
    # Whoever waits for the container's end is told of an engine that does not answer.
    with suppress(OrchestratorError):
        container.kill("SIGKILL")


def _failure(redactor: Redactor, container: Container, said: bytes) -> Exception:
    try:
        status = container.wait(DEATH)
    except TimeoutError:
        return EngineError("the harvest's container did not end")
    if status.exit_code == _KILLED and not status.oom_killed:
        return EngineError("the harvest's container was killed")
    last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if FULL in last:
        return OSError(errno.ENOSPC, FULL)
    return HarvestRefusedError(f"the harvest failed: {one_line(redactor.text(last))}")
