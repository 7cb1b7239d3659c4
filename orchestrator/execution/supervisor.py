"""One container from start to death: its output, its deadline, its limits."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orchestrator.engine.protocol import Container, ContainerState, ExitStatus
from orchestrator.errors import (
    EngineError,
    EngineUnavailableError,
    OrchestratorError,
)
from orchestrator.events import (
    Emit,
    Intervention,
    WorkerStage,
    WorkerStarted,
    WorkerStopping,
)
from orchestrator.execution.cancel import CancelButton
from orchestrator.execution.launch import ContainerLimits
from orchestrator.execution.limits import LimitMeter, mib
from orchestrator.execution.output import WorkerLog
from orchestrator.execution.watchdog import Finding, Watchdog, asking
from orchestrator.results import Noticed, Reason
from orchestrator.state.checkpoints import Checkpoints, Launch
from orchestrator.state.endings import Ending, Stop

TICK = 0.2
"""Seconds between two looks at the clock and the cancel button."""
_AT_ONCE = frozenset({Reason.DISK, Reason.INODES, Reason.LOG_LIMIT, Reason.PIDS})
"""What uses up the machine gets no grace to go on with it."""
_DEATH = 15.0
"""Seconds after SIGKILL by which the engine must have seen the end."""
_LAST = 5.0
"""Seconds at the end for a measurement, and for callbacks, that are under way."""
_MOST_NOTICED = 20
"""What was noticed of a worker that its result has, the latest."""
_ASKED = 1.0
"""Seconds of silence behind a question, for a worker that is stopped to have waited there."""


def attend(
    container: Container,
    terms: ContainerLimits,
    launched: Launch,
    *,
    log: WorkerLog,
    cancel: CancelButton,
    emit: Emit,
    checkpoints: Checkpoints | None = None,
) -> Ending:
    """Watch a container that was started, by us or by another process, until it is dead.

    Args:
        container: The container.
        terms: How long and how much it may.
        launched: How it was started.
        log: Takes its output.
        cancel: Somebody may ask for its end.
        emit: Is told.
        checkpoints: Keep what is noticed on the way, for a process that takes over.

    Raises:
        EngineUnavailableError: The engine went away, and did not come back.
    """
    watch = _Watch(
        container=container, terms=terms, launched=launched, log=log, cancel=cancel, emit=emit,
        checkpoints=checkpoints,
    )  # fmt: skip
    ports = dict(container.ports)
    try:
        watch.found = container.state()
        terms.started(launched.age or 0.0)
        watch.run()
    except OrchestratorError as error:
        watch.error = watch.error or error
    if watch.bug is not None:
        raise watch.bug
    if isinstance(watch.error, EngineUnavailableError):
        # Its end was not seen: whoever resumes the run finds it, or what became of it.
        raise watch.error
    terms.switch.idle(terms.worker_id)
    stopped = watch.stopped or watch.overdue
    if stopped is not None and watch.stopped is None:
        watch.note_question()
    return Ending(
        started_at=watch.found.started_at,
        duration=watch.duration,
        exit_status=watch.exit_status,
        stopped=stopped,
        error=None if watch.error is None else watch.error.message,
        ports=tuple(ports.items()),
        peak_memory=watch.meter.peak_memory,
        limits_hit=tuple(watch.meter.limits_hit),
        interventions=tuple(watch.interventions),
    )


def _beginning(container: Container, terms: ContainerLimits) -> WorkerStage | WorkerStarted:
    number, found = terms.worker_id, container.id
    if terms.stage is not None:
        stage, name = terms.stage, terms.name
        return WorkerStage(worker_id=number, stage=stage, name=name, container=found)
    return WorkerStarted(worker_id=number, container=found, ports=dict(container.ports))


_UNKNOWN = ContainerState(started_at=None, ended_at=None)


@dataclass(kw_only=True)
class _Watch:
    """Watches one running container.

    The thread that calls `run` is the clock: it waits, decides and kills, and does nothing else.
    A second thread reads the output, a third measures and tells. Whatever these wait for, be it a
    large tree, a full disk, the engine or a callback, the deadline is kept.
    """

    container: Container
    terms: ContainerLimits
    launched: Launch
    log: WorkerLog
    cancel: CancelButton
    emit: Emit
    checkpoints: Checkpoints | None
    exit_status: ExitStatus | None = None
    stopped: Stop | None = None
    noticed: Stop | None = None
    error: OrchestratorError | None = None
    bug: BaseException | None = None
    ended_at: float | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _asked: Finding | None = None
    """The question that it waits behind when it is stopped."""
    _noting: threading.Lock = field(default_factory=threading.Lock)
    found: ContainerState = _UNKNOWN
    """How far it had come before we watched."""

    def __post_init__(self) -> None:
        number = self.terms.worker_id
        self.follower = self._thread(self._follow, f"follow-{number}")
        self.looker = self._thread(self._look, f"measure-{number}")
        self.teller = self._thread(self._tell_stopping, f"stopping-{number}")
        self.meter = LimitMeter(
            self.container, self.terms.limits, self.terms.writable, before=self.launched.before
        )
        self.sentry = Watchdog(self.terms.triggers, self.terms.scope)
        earlier = self.checkpoints.noticed() if self.checkpoints else ()
        self.interventions = deque(earlier, maxlen=_MOST_NOTICED)
        # Another process may have started it, a while ago.
        self._started = time.monotonic() - (self.launched.age or 0.0)

    def _thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do a thread's work; what goes wrong in it ends the watch."""
        try:
            work()
        except OrchestratorError as error:
            self.error = self.error or error
        except BaseException as error:  # noqa: BLE001  # raised again by whoever waits for us
            self.bug = self.bug or error

    def _follow(self) -> None:
        try:
            self.emit(_beginning(self.container, self.terms))
            self._read()
        finally:
            self.ended_at = time.monotonic()
            self._ended.set()

    def _look(self) -> None:
        """Measure, tell the latest line, and notice what somebody should look at."""
        while not self._ended.wait(TICK):
            self.meter.look()
            self.log.tell()
            self._notice()

    def _tell_stopping(self) -> None:
        if self._asked is not None and self.terms.stage is None:
            self._note(self._asked)
        reason = self.stopped.reason if self.stopped else None
        self.emit(WorkerStopping(worker_id=self.terms.worker_id, reason=str(reason)))

    def _read(self) -> None:
        """Read to the end, over again whenever the engine hung up and came back."""
        was_over = False
        while self.exit_status is None:
            try:
                for chunk in self.container.logs():
                    self.log.write(chunk)
                self.exit_status = self.container.wait(None)
            except EngineUnavailableError:
                self._find_again()
                was_over = self.container.state().ended_at is not None
        code = self.exit_status.exit_code
        if was_over and code != 0:
            raise EngineError(f"the engine went away under it, and it ended with exit code {code}")

    def _find_again(self) -> None:
        again = self.container.again()
        if again is None:
            raise EngineError("its container is gone: the engine lost it")
        self.container = again
        self.log.restart()

    @property
    def duration(self) -> float:
        """How long it ran, seconds: by the engine's clock if it had ended before we came."""
        if self.found.started_at and self.found.ended_at:
            # Of a task that does next to nothing the engine may write the end down as the earlier.
            return max((self.found.ended_at - self.found.started_at).total_seconds(), 0.0)
        return max((self.ended_at or time.monotonic()) - self._started, 0.0)

    @property
    def overdue(self) -> Stop | None:
        """Whether it ran on after its deadline while nobody was there to stop it."""
        timeout = self.terms.timeout
        if timeout is None or self.duration <= timeout:
            return None
        return Stop(Reason.TIMEOUT, f"it ran past its deadline of {timeout:g} s, unwatched")

    def run(self) -> None:
        """Return when the container is dead."""
        self.follower.start()
        if self.found.ended_at is not None:
            self._ended.wait()
            return
        self.looker.start()
        try:
            self._keep_time()
        finally:
            self._join()

    def _keep_time(self) -> None:
        """Wait for the container's end, and stop it when it is time; measure and tell nothing."""
        deadline = self._started + (self.terms.timeout or math.inf)
        while not self._ended.wait(max(min(TICK, deadline - time.monotonic()), 0)):
            if self.bug is not None or self.error is not None:
                return
            self.stopped = self._reason_to_stop(deadline)
            if self.stopped is not None:
                if time.monotonic() - self.log.heard_at >= _ASKED:
                    self._asked = asking(self.log.signs)
                self._stop()
                return

    def _join(self) -> None:
        """Wait for the other threads, but not for one that hangs in a call of somebody else's."""
        if not self._ended.is_set():
            return  # Whoever called us removes the container, and they end with it.
        until = time.monotonic() + _LAST
        for thread in (self.looker, self.teller):
            if thread.ident is not None:
                thread.join(max(until - time.monotonic(), 0))

    def _reason_to_stop(self, deadline: float) -> Stop | None:
        now, terms, limits = time.monotonic(), self.terms, self.terms.limits
        if now >= deadline:
            return Stop(Reason.TIMEOUT, f"stopped at its deadline of {terms.timeout:g} s")
        if self.cancel.asked:
            return Stop(Reason.CANCELLED, self.cancel.why)
        if self.log.size > limits.log_limit:
            return Stop(Reason.LOG_LIMIT, f"stopped: it printed more than {mib(limits.log_limit)}")
        if limits.idle_timeout and now - self.log.heard_at > limits.idle_timeout:
            return Stop(Reason.IDLE, f"stopped: it printed nothing for {limits.idle_timeout:g} s")
        if terms.budget is not None and (self.log.cost or 0.0) > terms.budget:
            spent = f"${self.log.cost:.4f} of ${terms.budget:.4f}"
            return Stop(Reason.BUDGET, f"stopped: it has spent {spent}")
        if terms.tokens is not None and (self.log.tokens or 0) > terms.tokens:
            taken = f"{self.log.tokens:,} of {terms.tokens:,} tokens"
            return Stop(Reason.BUDGET, f"stopped: it has taken {taken}")
        if (self.log.steps or 0) > terms.max_steps:
            return Stop(Reason.MAX_STEPS, f"stopped: it went beyond {terms.max_steps} steps")
        return self.meter.verdict or self.noticed

    def _notice(self) -> None:
        """Tell what somebody should look at; stop it for that, where that is wished for."""
        stops = self.terms.triggers.on_trigger == "stop"
        number = self.terms.worker_id
        for one in self.sentry.look(self.log.signs, heard_at=self.log.heard_at):
            if stops:
                self.noticed = self.noticed or one.stop
            self._note(one)
            self.emit(
                Intervention(worker_id=number, trigger=one.trigger, detail=one.detail, stops=stops)
            )

    def note_question(self) -> None:
        """Note the question that the output of an unwatched container ends with, if it does."""
        if self.terms.stage is None and (asked := asking(self.log.signs)) is not None:
            self._note(asked)

    def _note(self, found: Finding) -> None:
        """Keep what was found for the result, once."""
        with self._noting:
            if any((one.trigger, one.detail) == (found.trigger, found.detail)
                   for one in self.interventions):  # fmt: skip
                return
            noticed = Noticed(trigger=found.trigger, detail=found.detail, at=datetime.now(UTC))
            self.interventions.append(noticed)
            kept = tuple(self.interventions)
        if self.checkpoints is not None:
            with suppress(OSError):  # a full disk: it is in the result of this process
                self.checkpoints.note_noticed(kept)

    def _stop(self) -> None:
        """SIGTERM, grace, SIGKILL: dead within grace + 1 s whatever the processes do."""
        reason = self.stopped.reason if self.stopped else None
        grace = 0.0 if reason in _AT_ONCE else self.terms.limits.grace
        # In a thread of its own: a callback that hangs must not keep the container alive.
        self.teller.start()
        deadline = time.monotonic() + grace
        if not self.cancel.killed and grace > 0:
            self.container.kill("SIGTERM")
            while time.monotonic() < deadline and not self.cancel.killed:
                if self._ended.wait(min(TICK, max(deadline - time.monotonic(), 0))):
                    return
        self.container.kill("SIGKILL")
        if not self._ended.wait(_DEATH):
            self.error = EngineError(f"the container did not die within {_DEATH:.0f} s of SIGKILL")
