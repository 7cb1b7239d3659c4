"""Ask the process of a live run to stop workers, for commands and the web view."""

from collections.abc import Sequence

from orchestrator.base.errors import ConfigError
from orchestrator.state.record.history import RunHistory


def request_stop(history: RunHistory, workers: Sequence[int], *, kill: bool = False) -> list[int]:
    """Ask a run's process to stop workers, and return the workers that have not ended yet.

    Args:
        history: The run.
        workers: Numbers of the workers.
        kill: Whether the workers are killed at once, without the grace period.

    Raises:
        ConfigError: The run has no such worker, or has ended.
        RunDiedError: The run's process died.
    """
    unknown = [str(number) for number in workers if number not in history.workers]
    if unknown:
        known = ", ".join(str(number) for number in history.workers)
        raise ConfigError(
            f"run {history.run_id} has no worker {', '.join(unknown)}",
            key="worker.unknown",
            hint=f"workers of the run: {known}",
        )
    if not history.directory.is_live():
        history.result()  # raises an error if the run's process died
        raise ConfigError(
            f"run {history.run_id} has ended",
            key="run.ended",
            hint="`orchestrator ls` lists the runs",
        )
    running = [number for number in workers if history.directory.result(number) is None]
    for number in running:
        history.directory.ask_to_stop(number, kill=kill)
    return running
