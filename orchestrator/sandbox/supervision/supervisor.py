"""Supervise one container from start to end: its output, its deadline, its limits."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orchestrator.base.errors import EngineError, EngineUnavailableError, OrchestratorError
from orchestrator.base.events import Emit, Intervention, WorkerStage, WorkerStarted, WorkerStopping
from orchestrator.base.machine import uptime
from orchestrator.base.results import Noticed, Reason
from orchestrator.base.text.quantities import money, size
from orchestrator.engine.interface.counters import Counters
from orchestrator.engine.interface.protocol import Container, ContainerState, ExitStatus
from orchestrator.sandbox.supervision.cancel import CancelButton
from orchestrator.sandbox.supervision.launch import ContainerLimits, RunningContainer
from orchestrator.sandbox.supervision.limits import LimitMeter, limits_hit, lost_network
from orchestrator.sandbox.supervision.output import Output
from orchestrator.sandbox.supervision.watchdog import Finding, Watchdog, asking
from orchestrator.state.worker.checkpoints import Checkpoints, Launch
from orchestrator.state.worker.endings import Ending, Stop

TICK = 0.2
"""Seconds between two checks of the clock and of requests to stop."""
_PAUSED = 2.0
"""Seconds without a check of the clock, after which this process counts as having been stopped."""
_AT_ONCE = frozenset({Reason.DISK, Reason.INODES, Reason.LOG_LIMIT, Reason.PIDS})
"""Reasons to kill a container without a grace period, because it would exhaust the machine."""
REFRESH = 30.0  # seconds between two updates of the files that a place has copies of
_DEATH = 15.0
"""Maximum number of seconds after SIGKILL until the engine must report the container's end."""
_LAST = 5.0
"""Maximum number of seconds to wait, after the container's end, for running measurements and
callbacks.
"""
_MOST_NOTICED = 20
"""Maximum number of alerts in a worker's result; older alerts are dropped."""
_LATEST_END = 2.0
"""Maximum number of seconds between the end of a container's output and its own end, after which
its output is read again.
"""
_ASKED = 1.0
"""Minimum seconds of silence after a question, for a stopped worker to count as waiting for an
answer.
"""


def attend(
    running: RunningContainer,
    *,
    log: Output,
    cancel: CancelButton,
    emit: Emit,
    checkpoints: Checkpoints | None = None,
) -> Ending:
    """Watch a container, started by this or another process, and return how it ended.

    Args:
        running: The container.
        log: Receives its output.
        cancel: Request to end the container.
        emit: Receives events.
        checkpoints: Records findings, for a process that resumes the run.

    Raises:
        EngineUnavailableError: The engine cannot be reached any more.
    """
    container, terms, launched = running.container, running.limits, running.launched
    watch = _Watch(
        container=container, terms=terms, launched=launched, log=log, cancel=cancel, emit=emit,
        checkpoints=checkpoints,
    )  # fmt: skip
    ports = dict(container.ports)
    try:
        if running.is_new:
            watch.found = ContainerState(started_at=datetime.now(UTC), ended_at=None)
        else:
            watch.found = container.state()
        terms.after_start(launched.age or 0.0)
        watch.run()
    except OrchestratorError as error:
        watch.error = watch.error or error
    if watch.bug is not None:
        raise watch.bug
    if isinstance(watch.error, EngineUnavailableError):
        # The container's end was not observed; the process that resumes the run will find it.
        raise watch.error
    terms.switch.idle(terms.worker_id)
    stopped = watch.stopped or watch.overdue or terms.stopped_by_place(watch.exit_status)
    counters = _NOT_COUNTED if watch.exit_status is None else watch.exit_status.counters
    if stopped is not None and watch.stopped is None:
        watch.note_question()
        if stopped.reason is Reason.PIDS:
            watch.meter.limits_hit.append("pids")
    return Ending(
        started_at=watch.found.started_at,
        duration=watch.duration,
        exit_status=watch.exit_status,
        stopped=stopped,
        error=None if watch.error is None else watch.error.message,
        ports=tuple(ports.items()),
        cpu_time=counters.cpu_time,
        peak_memory=counters.peak_memory,
        uncounted=counters.missing,
        limits_hit=limits_hit(watch.meter.limits_hit, counters),
        interventions=tuple(watch.interventions),
        stopping=watch.stopping,
        lost_network=None if watch.error else lost_network(watch.container),
    )


def _beginning(container: Container, terms: ContainerLimits) -> WorkerStage | WorkerStarted:
    number, found = terms.worker_id, container.id
    if terms.stage is not None:
        stage, name = terms.stage, terms.name
        return WorkerStage(worker_id=number, stage=stage, name=name, container=found)
    return WorkerStarted(worker_id=number, container=found, ports=dict(container.ports))


_UNKNOWN = ContainerState(started_at=None, ended_at=None)
_NOT_COUNTED = Counters(missing="the container's end was not observed")


@dataclass(kw_only=True)
class _Watch:
    """Watches one container until it has ended.

    The thread that calls `run` enforces the limits: it only waits, decides and kills. A second
    thread reads the output, a third measures and emits events. When these threads block, on a large
    tree, a full disk, the engine or a callback, the deadline is still enforced.
    """

    container: Container
    terms: ContainerLimits
    launched: Launch
    log: Output
    cancel: CancelButton
    emit: Emit
    checkpoints: Checkpoints | None
    exit_status: ExitStatus | None = None
    stopped: Stop | None = None
    noticed: Stop | None = None
    error: OrchestratorError | None = None
    bug: BaseException | None = None
    ended_at: float | None = None
    stop_sent_at: float | None = None
    """Time at which the first signal was sent to the container, since the machine's boot."""
    _ended: threading.Event = field(default_factory=threading.Event)
    _asked: Finding | None = None
    """The unanswered question at the end of the output when the worker was stopped; else None."""
    _noting: threading.Lock = field(default_factory=threading.Lock)
    found: ContainerState = _UNKNOWN
    """The container's state before the watch started."""

    def __post_init__(self) -> None:
        number = self.terms.worker_id
        self.follower = self._thread(self._follow, f"follow-{number}")
        self.looker = self._thread(self._look, f"measure-{number}")
        self.teller = self._thread(self._tell_stopping, f"stopping-{number}")
        self.meter = LimitMeter(
            self.container, self.terms.limits, self.terms.disk_use, before=self.launched.before
        )
        self.watchdog = Watchdog(self.terms.triggers, self.terms.scope)
        earlier = self.checkpoints.alerts() if self.checkpoints else ()
        self.interventions = deque(earlier, maxlen=_MOST_NOTICED)
        # Another process may have started the container a while ago. Time asleep counts.
        self._started = uptime() - (self.launched.age or 0.0)
        self._listening = time.monotonic()
        """Time since which output would be heard (monotonic clock)."""

    def _thread(self, work: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=self._run_guarded, args=(work,), name=name, daemon=True)

    def _run_guarded(self, work: Callable[[], None]) -> None:
        """Run the function of a thread; an exception in the function ends the watch."""
        try:
            work()
        except OrchestratorError as error:
            self.error = self.error or error
        except BaseException as error:  # noqa: BLE001  # raised again by the thread that waits for this one
            self.bug = self.bug or error

    def _follow(self) -> None:
        try:
            self.emit(_beginning(self.container, self.terms))
            self._read()
        finally:
            self.ended_at = uptime()
            self._ended.set()

    def _look(self) -> None:
        """Measure the container, emit its latest line and report alerts, until it has ended."""
        refresh_at = time.monotonic() + REFRESH
        while not self._ended.wait(TICK):
            self.meter.look()
            self.log.tell()
            if time.monotonic() >= refresh_at:
                self.terms.refresh()
                refresh_at = time.monotonic() + REFRESH
            stops = self.terms.triggers.on_trigger == "stop"
            number = self.terms.worker_id
            for finding in self.watchdog.look(self.log.signs, heard_at=self._heard_at):
                if stops:
                    self.noticed = self.noticed or finding.stop
                self._note(finding)
                trigger, detail = finding.trigger, finding.detail
                self.emit(
                    Intervention(worker_id=number, trigger=trigger, detail=detail, stops=stops)
                )

    def _tell_stopping(self) -> None:
        if self._asked is not None and self.terms.stage is None:
            # protection: question-at-deadline-is-reported
            self._note(self._asked)
        reason = self.stopped.reason if self.stopped else None
        self.emit(WorkerStopping(worker_id=self.terms.worker_id, reason=str(reason)))

    def _read(self) -> None:
        """Read the output until the container ends, reconnecting if the engine was unreachable."""
        was_over = False
        while self.exit_status is None:
            try:
                for chunk in self.container.logs():
                    self.log.write(chunk)
                over_at = time.monotonic()
                status = self.container.wait(None)
                if time.monotonic() > over_at + _LATEST_END:
                    self._read_again()
                self.exit_status = status
            except EngineUnavailableError:
                self._find_again()
                was_over = self.container.state().ended_at is not None
        with suppress(EngineError):
            self.found = self.container.state()
        code = self.exit_status.exit_code
        if was_over and code != 0 and self._code_on_record() != code:
            raise EngineError(
                "the engine was not reachable for a time, and the container ended with exit "
                f"code {code}",
                key="container.unobserved",
            )

    def _read_again(self) -> None:
        """Read the output of a container that ended long after its output, which may be cut."""
        with suppress(EngineError):
            # The engine may have kept what it did not send.
            self._find_again()
            for chunk in self.container.logs():
                self.log.write(chunk)

    def _code_on_record(self) -> int | None:
        end = self.terms.end_on_record()
        return None if end is None else end.exit_code

    def _find_again(self) -> None:
        again = self.container.again()
        if again is None:
            raise EngineError(
                "the worker's container no longer exists: another program removed it",
                key="container.removed",
            )
        self.container = again
        self.log.restart()

    @property
    def _heard_at(self) -> float:
        """Return the time since which the container is silent: not before its start."""
        return max(self.log.heard_at, self._listening)

    @property
    def duration(self) -> float:
        """Return the seconds that the container ran, by the engine's clock if its end is known."""
        if self.found.started_at and self.found.ended_at:
            # For a very short task the engine may record an end before the start.
            return max((self.found.ended_at - self.found.started_at).total_seconds(), 0.0)
        return max((self.ended_at or uptime()) - self._started, 0.0)

    @property
    def stopping(self) -> float:
        """Return the seconds from the first signal to the container's end."""
        if self.stop_sent_at is None:
            return 0.0
        return max((self.ended_at or uptime()) - self.stop_sent_at, 0.0)

    @property
    def overdue(self) -> Stop | None:
        """Return the stop that is due if the container passed its deadline while unwatched."""
        timeout = self.terms.timeout
        if timeout is None or self.duration <= timeout:
            return None
        return Stop(
            Reason.TIMEOUT,
            f"the worker ran past its deadline of {timeout:g} s while no process watched it",
        )

    def run(self) -> None:
        """Watch the container until it has ended."""
        self.follower.start()
        if self.found.ended_at is not None:
            self._ended.wait()
            return
        # protection: deadline-does-not-wait-for-measurements
        self.looker.start()
        try:
            self._keep_time()
        finally:
            self._join()

    def _keep_time(self) -> None:
        """Wait for the container's end, or stop it at a limit. No other code may block here."""
        deadline = self._started + (self.terms.timeout or math.inf)
        looked_at = time.monotonic()
        while not self._ended.wait(max(min(TICK, deadline - uptime()), 0)):
            if time.monotonic() - looked_at > _PAUSED:
                # This process was stopped: output may be waiting that was not read.
                self._listening = time.monotonic()
            looked_at = time.monotonic()
            if self.bug is not None or self.error is not None:
                return
            self.stopped = self._reason_to_stop(deadline)
            if self.stopped is not None:
                if time.monotonic() - self._heard_at >= _ASKED:
                    self._asked = asking(self.log.signs)
                self._stop()
                return

    def _join(self) -> None:
        """Wait at most `_LAST` seconds for the other threads, which may hang in a callback."""
        if not self._ended.is_set():
            return  # The caller removes the container, which ends the threads.
        until = time.monotonic() + _LAST
        for thread in (self.looker, self.teller):
            if thread.ident is not None:
                thread.join(max(until - time.monotonic(), 0))

    def _reason_to_stop(self, deadline: float) -> Stop | None:
        terms, limits = self.terms, self.terms.limits
        # protection: deadline
        if uptime() >= deadline:
            return Stop(Reason.TIMEOUT, f"stopped at its deadline of {terms.timeout:g} s")
        if self.cancel.stop_asked:
            return Stop(Reason.CANCELLED, self.cancel.why)
        # protection: log-limit
        if self.log.size > limits.log_limit:
            return Stop(
                Reason.LOG_LIMIT, f"stopped: the worker printed more than {size(limits.log_limit)}"
            )
        # protection: silent-workers-are-stopped
        if limits.idle_timeout and time.monotonic() - self._heard_at > limits.idle_timeout:
            return Stop(
                Reason.IDLE, f"stopped: the worker printed nothing for {limits.idle_timeout:g} s"
            )
        # protection: budget
        if terms.budget is not None and (self.log.cost or 0.0) > terms.budget:
            spent = f"{money(self.log.cost or 0.0)} of {money(terms.budget)}"
            return Stop(Reason.BUDGET, f"stopped: the worker has spent {spent}")
        if terms.tokens is not None and (self.log.tokens or 0) > terms.tokens:
            taken = f"{self.log.tokens:,} of {terms.tokens:,} tokens"
            return Stop(Reason.BUDGET, f"stopped: the worker has used {taken}")
        if (self.log.steps or 0) > terms.max_steps:
            return Stop(Reason.MAX_STEPS, f"stopped: the worker exceeded {terms.max_steps} steps")
        return self.meter.verdict or self.noticed

    def note_question(self) -> None:
        """Record the question at the end of the output of a container that ended unsupervised."""
        if self.terms.stage is None and (asked := asking(self.log.signs)) is not None:
            self._note(asked)

    def _note(self, found: Finding) -> None:
        """Record an alert, to be shown in the worker's result, unless it was recorded before."""
        with self._noting:
            if any((noticed.trigger, noticed.detail) == (found.trigger, found.detail)
                   for noticed in self.interventions):  # fmt: skip
                return
            noticed = Noticed(trigger=found.trigger, detail=found.detail, at=datetime.now(UTC))
            self.interventions.append(noticed)
            kept = tuple(self.interventions)
        if self.checkpoints is not None:
            # If the disk is full, the finding is lost only for a process that resumes the run.
            with suppress(OSError):
                self.checkpoints.note_noticed(kept)

    def _stop(self) -> None:
        """Send SIGTERM, and SIGKILL if the container still runs after the grace period."""
        reason = self.stopped.reason if self.stopped else None
        grace = 0.0 if reason in _AT_ONCE else self.terms.limits.grace
        # In a separate thread, so that a callback that hangs does not keep the container alive.
        # protection: deadline-does-not-wait-for-callbacks
        self.teller.start()
        self.stop_sent_at = uptime()
        deadline = self.stop_sent_at + grace
        if not self.cancel.kill_asked and grace > 0:
            self.container.kill("SIGTERM")
            while uptime() < deadline and not self.cancel.kill_asked:
                if self._ended.wait(min(TICK, max(deadline - uptime(), 0))):
                    return
        # protection: sigkill-after-grace
        self.container.kill("SIGKILL")
        if not self._ended.wait(_DEATH):
            self.error = EngineError(
                f"the worker's container still runs {_DEATH:.0f} s after SIGKILL",
                key="container.unkillable",
            )
