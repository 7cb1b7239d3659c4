"""What happens in a run, said in lines."""

from orchestrator.cli.formats import count, duration, explanation, money, outcome
from orchestrator.events import (
    Intervention,
    RunStarted,
    WorkerRetrying,
    WorkerStage,
    WorkerStageDone,
    WorkerStarted,
)
from orchestrator.plan import WorkerSpec
from orchestrator.results import Status, WorkerResult
from orchestrator.sanitize import one_line


def notice_line(message: str) -> str:
    """Give a notice as a line."""
    return f"note: {one_line(message, limit=1000)}"


def run_line(event: RunStarted) -> str:
    """Say what starts."""
    workers = count(len(event.workers), "worker")
    queue = f", {event.slots} at one time" if event.slots < len(event.workers) else ""
    return f"run {event.run_id}: {workers}{queue}, base {event.base[:12]}"


def started_line(number: int, spec: WorkerSpec | None) -> str:
    """Say which worker started, with what."""
    if spec is None:
        return f"worker {number} started"
    model = f" ({one_line(spec.model)})" if spec.model else ""
    return f"worker {number} started: {one_line(spec.task, limit=100)}{model}"


def port_lines(event: WorkerStarted) -> list[str]:
    """Say where a worker's ports can be reached."""
    return [
        f"worker {event.worker_id}: http://127.0.0.1:{host} -> {inside}"
        for inside, host in sorted(event.ports.items())
    ]


def retry_line(event: WorkerRetrying) -> str:
    """Say that a worker is started again."""
    number, failed = event.worker_id, event.attempt - 1
    when = f"attempt {event.attempt} in {duration(event.delay)}"
    return f"worker {number} failed its attempt {failed} ({one_line(event.reason)}), {when}"


def stage_line(event: WorkerStage) -> str:
    """Say what runs around a worker's agent."""
    name = f" `{one_line(event.name, limit=100)}`" if event.name else ""
    return f"worker {event.worker_id}: {event.stage}{name}"


def stage_lines(event: WorkerStageDone) -> list[str]:
    """Say what went wrong around a worker's agent, if anything did."""
    if event.problem is None:
        return []
    said = one_line(event.problem, limit=400)
    return [f"worker {event.worker_id}: {event.stage} failed: {said}"]


def intervention_line(event: Intervention) -> str:
    """Say why somebody should look at a worker."""
    return f"! worker {event.worker_id}: {one_line(event.detail, limit=400)}"


def done_line(result: WorkerResult) -> str:
    """Say how a worker ended."""
    took = duration(result.duration)
    if result.status is Status.SUCCESS:
        cost = f", {money(result.cost)}" if result.cost_known else ""
        files = count(len(result.files_modified), "file")
        return f"✓ worker {result.worker_id} {outcome(result)} in {took}: {files}{cost}"
    return f"✗ worker {result.worker_id} {outcome(result)} after {took}{explanation(result)}"
