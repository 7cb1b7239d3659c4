"""Format the events of a run as lines of text."""

from orchestrator.base.events import (
    Intervention,
    ProviderPaused,
    RunStarted,
    SlotsChanged,
    TurnStarted,
    WorkerConnected,
    WorkerRetrying,
    WorkerStage,
    WorkerStageDone,
    WorkerStarted,
    WorkerStopping,
    WorkerWaiting,
)
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.base.text.quantities import count, duration, money
from orchestrator.base.text.sanitize import one_line
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.faces.cli.output.formats import name_of


def notice_line(message: str) -> str:
    """Return the line for a notice."""
    return f"note: {one_line(message, limit=1000)}"


def run_line(event: RunStarted) -> str:
    """Return the line for the start of a run."""
    workers = count(len(event.workers), "worker")
    queue = f", {event.slots} at the same time" if event.slots < len(event.workers) else ""
    return f"run {event.run_id}: {workers}{queue}, base {event.base[:12]}"


def start_line(number: int, spec: WorkerSpec | None, *, running: int) -> str:
    """Return the line for the start of a worker; `running` is the number of running workers."""
    if spec is None:
        return f"worker {number} started"
    model = f" ({one_line(spec.model)})" if spec.model else ""
    what = f"{one_line(spec.task, limit=100)}{model}"
    if spec.name is None:
        return f"worker {number} started: {what}"
    return f"Started: {name_of(number, spec.name)} - {what} (running: {running})"


def port_lines(event: WorkerStarted, name: str | None) -> list[str]:
    """Return a line for each published port of a worker, with its address on this machine."""
    return [
        f"{name_of(event.worker_id, name)}: http://127.0.0.1:{host} -> {inside}"
        for inside, host in sorted(event.ports.items())
    ]


def again_line(event: WorkerRetrying | TurnStarted, name: str | None) -> str:
    """Return the line for a failed attempt that will be repeated, or for the next turn."""
    who, failed = name_of(event.worker_id, name), event.attempt - 1
    if isinstance(event, TurnStarted):
        is_sent = event.cause == "checks"
        what = "failed checks are sent back" if is_sent else one_line(event.message, limit=100)
        return f"{who}, turn {event.turn}: {what}"
    if event.reason == Reason.RATE_LIMITED and not event.counted:
        return f"{who} is rate-limited by its provider; attempt {event.attempt} waits"
    when = f"attempt {event.attempt} in {duration(event.delay)}"
    return f"{who} failed its attempt {failed} ({one_line(event.reason)}), {when}"


def refusal_line(event: WorkerConnected, name: str | None) -> str:
    """Return the line for a connection of a worker that its gateway refused."""
    port = "" if event.port is None else f":{event.port}"
    host = one_line(event.host) or "a host without a name"
    return f"{name_of(event.worker_id, name)} was refused {host}{port} ({event.refused})"


def alert_line(
    event: Intervention | ProviderPaused | SlotsChanged | WorkerWaiting, name: str | None
) -> str:
    """Return the line for an alert, a waiting worker, or a provider's changed limits.

    Args:
        event: The event.
        name: Name of the worker in a workflow, if the event concerns a worker.
    """
    match event:
        case Intervention():
            return f"! {name_of(event.worker_id, name)}: {one_line(event.detail, limit=400)}"
        case ProviderPaused():
            said = "reported by the provider" if event.known else "estimated"
            provider, rest = one_line(event.provider, limit=60), duration(event.seconds)
            return (
                f"provider `{provider}` refuses further requests: no worker starts for {rest} "
                f"({said})"
            )
        case WorkerWaiting():
            return f"{name_of(event.worker_id, name)} waits: {one_line(event.reason, limit=400)}"
        case SlotsChanged():
            provider = one_line(event.provider, limit=60)
            return f"provider `{provider}`: {event.slots} of {event.most} workers at the same time"


def stage_line(event: WorkerStage, name: str | None) -> str:
    """Return the line for the start of setup, teardown or a check of a worker."""
    which = f" `{one_line(event.name, limit=100)}`" if event.name else ""
    return f"{name_of(event.worker_id, name)}: {event.stage}{which}"


def stage_lines(event: WorkerStageDone, name: str | None) -> list[str]:
    """Return the line for a setup, teardown or check that failed; no line if it succeeded."""
    if event.problem is None:
        return []
    said = one_line(event.problem, limit=400)
    return [f"{name_of(event.worker_id, name)}: {event.stage} failed: {said}"]


def stopping_line(event: WorkerStopping, name: str | None) -> str:
    """Return the line for a worker that is being stopped."""
    return f"{name_of(event.worker_id, name)} is being stopped: {one_line(event.reason)}"


def is_consequence(result: WorkerResult) -> bool:
    """Return whether a task did not run, for a reason that other tasks' results show already.

    False if a conflict kept the task from running: no other result shows the conflict.
    """
    return result.never_ran and result.reason is not Reason.CONFLICT


def explanation(result: WorkerResult) -> str:
    """Return a worker's message as the end of a line; empty if it only repeats the reason."""
    if not result.message or result.message == result.reason:
        return ""
    return f": {one_line(result.message)}"


def done_line(result: WorkerResult) -> str:
    """Return the output line that reports the end of a worker."""
    who, took = name_of(result.worker_id, result.name), duration(result.duration)
    if is_consequence(result):
        return f"- {who} skipped{explanation(result)}"
    if result.status is Status.SUCCESS:
        cost = f", {money(result.cost)}" if result.cost_known else ""
        files = count(result.file_count, "file")
        how = result.outcome if result.name is None else "completed"
        return f"✓ {who} {how} in {took}: {files}{cost}"
    return f"✗ {who} {result.outcome} after {took}{explanation(result)}"
