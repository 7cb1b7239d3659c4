"""What the workers of a run share: made before the first, gone after the last."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from orchestrator.caches import find_caches
from orchestrator.checkpoints import Checkpoints
from orchestrator.context import Ground, RunContext, labels
from orchestrator.deadman import LATE, Switch, make_switch
from orchestrator.engine.base import MANAGED, ROLE, RUN, WORKER, ContainerEngine
from orchestrator.errors import EngineUnavailableError, OrchestratorError
from orchestrator.events import Emit, Event, Notice, RunDone, RunStarted, WorkerDone
from orchestrator.execution import Cancel
from orchestrator.leftovers import remove_all
from orchestrator.lfs import find_content
from orchestrator.notification import notification
from orchestrator.notify import Notifier
from orchestrator.pace import Pace
from orchestrator.plan import WorkerSpec
from orchestrator.ports import PortBlocks
from orchestrator.preparation import ready_objects
from orchestrator.record import RunDirectory, RunRecord
from orchestrator.redact import Redactor
from orchestrator.sanitize import one_line
from orchestrator.secret_files import forget
from orchestrator.services import HOLDER_ROLE, SERVICE_ROLE
from orchestrator.sharing import INPUTS_PLACE, Shared
from orchestrator.status_file import StatusFile
from orchestrator.submodules import ready_submodules
from orchestrator.workspace import choose_mode, remove_tree

_TAKING_OVER = 60.0
"""Seconds for us to find the containers that another process left."""
_KEPT = frozenset({"worker", HOLDER_ROLE, SERVICE_ROLE})
"""What goes on while nobody is there."""
HOST_ROLE = "host"
"""The role of the container that closes the host to a run's network."""


@contextmanager
def closing(
    engine: ContainerEngine, directory: RunDirectory, recorder: "Recorder"
) -> Iterator[None]:
    """Remove, at the end, what a run shares, and give up its lease."""
    try:
        yield
    finally:
        if not directory.left_open:
            _clean_up(engine, directory, recorder)
        recorder.close()
        directory.release()


def _clean_up(engine: ContainerEngine, directory: RunDirectory, recorder: "Recorder") -> None:
    for problem in _sweep(engine, directory.run_id):
        # The results stand; what is left is found by its labels.
        recorder(Notice(message=f"not all was removed ({problem})"))
    directory.drop_objects()
    remove_tree(directory.path / INPUTS_PLACE)
    forget(directory.run_id, os.environ)


def announce(recorder: "Recorder", record: RunRecord, notices: Iterable[str]) -> None:
    """Tell that a run begins, or goes on."""
    recorder(
        RunStarted(
            run_id=record.run_id,
            base=record.base,
            workers=record.workers,
            slots=min(record.config.workers, len(record.workers)),
        )
    )
    for notice in notices:
        recorder(Notice(message=notice))


def _sweep(engine: ContainerEngine, run_id: str) -> Iterator[str]:
    """Remove what a run made in the engine; say what stays, and go on."""
    try:
        leftovers = engine.leftovers({MANAGED: "true", RUN: run_id})
    except OrchestratorError as error:
        yield error.message
        return
    yield from (stuck.problem for stuck in remove_all(engine, leftovers))


def share(
    ground: Ground,
    record: RunRecord,
    directory: RunDirectory,
    emit: Emit,
    cancel: Cancel,
    *,
    resumed: bool,
) -> RunContext:
    """Make what all workers need: the base's objects, and a network.

    Raises:
        OrchestratorError: It could not be made.
        OSError: There is no room for it.
    """
    base, isolation = record.base, ground.config.isolation
    switch = _switch(ground, directory, record.workers if resumed else ())
    shallow = ready_objects(ground.repository, directory, base, history=isolation.history)
    submodules = ready_submodules(
        ground.repository, base, directory.objects, history=isolation.history
    )
    content = find_content(ground.repository, base, directory.path / "index")
    kinds = ground.config.project.caches
    caches = find_caches(ground.repository, base, kinds, directory.path, warms=record.warms)
    shared = Shared(
        directory,
        ground.repository,
        ground.redactor,
        workers=record.workers,
        # Workers that are of no workflow are to know nothing of each other.
        title=None if record.workflow is None else record.workflow.name,
    )
    run = RunContext(
        **vars(ground),
        directory=directory,
        base=base,
        run_base=base,
        began=record.created_at,
        objects=directory.objects,
        shallow=shallow,
        submodules=submodules.found,
        content=content,
        caches=caches,
        notices=(*submodules.notices, *content.notices, *caches.notices),
        mode=choose_mode(ground.engine, ground.features, ground.repository, directory.path),
        network="none",
        emit=shared.following(emit),
        cancel=cancel,
        pace=Pace(ground.config.stagger, ground.config.providers, just_started=resumed),
        ports=PortBlocks(directory, ground.repository.common_dir),
        shared=shared,
        switch=switch,
        resumed=resumed,
    )
    configs = [one.config for one in ground.grounds.values()] or [ground.config]
    if not any("open" in config.networks for config in configs):
        return run
    name = f"orchestrator-{directory.run_id}"
    ours = labels(run, None, role="network")
    made = [left.id for left in ground.engine.leftovers(ours) if left.kind == "network"]
    network = made[0] if made else ground.engine.create_network(name, ours)
    return replace(_with_host_closed(run, name, network), network=network)


def _with_host_closed(run: RunContext, name: str, network: str) -> RunContext:
    """Close the host to the run's network, or say to people that this cannot be had here.

    Raises:
        EngineUnavailableError: The engine does not answer.
    """
    grounds = list(run.grounds.values()) or [run]
    known = [one.egress for one in grounds if one.egress is not None]
    allowed = dict.fromkeys(place for egress in known for place in egress.allowed)
    egress = replace(known[0], allowed=tuple(allowed))
    try:
        run.engine.close_host(f"{name}-host", network, egress, labels(run, None, role=HOST_ROLE))
    except EngineUnavailableError:
        raise
    except OrchestratorError as error:
        notice = (
            "addresses that this machine gets during the run are not closed to its workers "
            f"({error.message})"
        )
        return replace(run, notices=(*run.notices, notice))
    return run


def _switch(ground: Ground, directory: RunDirectory, running: Iterable[WorkerSpec]) -> Switch:
    """Make the switch of a run, and tell it of containers that another process started."""
    switch = make_switch(ground.engine, directory.path)
    for spec in running:
        checkpoints = Checkpoints(directory.worker(spec.worker_id))
        launched = checkpoints.launch()
        if launched is None or checkpoints.ending() is not None:
            continue
        config = ground.grounds.get(spec.name or "", ground).config
        left = None if config.timeout is None else config.timeout - (launched.age or 0.0)
        # What is late already is stopped by us, as soon as it is found.
        late = None if left is None else max(left, _TAKING_OVER) + config.limits.grace + LATE
        switch.running(spec.worker_id, late)
    return switch


def clear_the_way(engine: ContainerEngine, run_id: str) -> None:
    """Remove a dead process's helpers; workers' containers stay, and what they stand beside.

    Raises:
        EngineError: One of them could not be removed.
    """
    found = engine.leftovers({MANAGED: "true", RUN: run_id})
    containers = [left for left in found if left.kind == "container"]
    kept = {left.labels[WORKER] for left in containers if left.labels[ROLE] in _KEPT}
    for left in containers:
        role, number = left.labels[ROLE], left.labels.get(WORKER)
        if role not in _KEPT and not (role == "guard" and number in kept):
            engine.remove(left)


class Recorder:
    """Tells an event, without its secrets, to the run's record and to whoever watches."""

    def __init__(
        self, directory: RunDirectory, emit: Emit, redactor: Redactor, *, notify: str | None = None
    ) -> None:
        self._notifier = Notifier(notify, failed=self._not_notified) if notify else None
        self._directory = directory
        self._emit = emit
        self._redactor = redactor
        self._status = StatusFile(directory)
        self._broken = False

    def __call__(self, event: Event) -> None:
        event = self._redactor.model(event)
        # What is told of a run that is left open is not the end of it.
        if not (self._directory.left_open and isinstance(event, WorkerDone | RunDone)):
            self._directory.log_event(event)
            self._status(event)
        self._tell(event)
        if self._notifier is None:
            return
        is_open = self._directory.left_open
        message = notification(self._directory.run_id, event, is_open=is_open)
        if message is not None:
            self._notifier.tell(message)

    def _tell(self, event: Event) -> None:
        """Tell whoever watches; one that raises is told nothing more, and the run goes on."""
        if self._broken:
            return
        try:
            self._emit(event)
        except Exception as error:  # noqa: BLE001 - the caller's own code
            self._broken = True
            said = one_line(f"{type(error).__name__}: {error}")
            message = f"the callback `emit` raised {said}: it is told nothing more of this run"
            self._directory.log_event(Notice(message=self._redactor.text(message)))

    def close(self) -> None:
        """Wait a moment for the last that is to be told."""
        if self._notifier is not None:
            self._notifier.close()

    def _not_notified(self, problem: str) -> None:
        self(Notice(message=f"a notification did not arrive ({problem})"))
