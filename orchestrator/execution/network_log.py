"""Write down what a worker reached through its gateway, and what it was refused."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.engine.protocol import Container
from orchestrator.errors import EngineUnavailableError, OrchestratorError
from orchestrator.events import Emit, Notice
from orchestrator.gateway.log import NetworkRecord, read_log, refused_entries
from orchestrator.text.redact import Redactor

NETWORK_LOG = "network.ndjson"
_LARGEST = 16 * 1024**2
"""Bytes of the log of one worker."""
_SHOWN = 10
"""Hosts that a notice names."""


@dataclass(frozen=True, kw_only=True)
class NetworkLog:
    """The network log of one worker."""

    directory: Path
    """The worker's state directory."""
    worker_id: int
    emit: Emit
    redactor: Redactor

    def add(self, container: Container) -> None:
        """Append the log of a container's gateway, and report the hosts that were refused.

        The container has ended. A log that cannot be read or written is no failure of the worker.

        Raises:
            EngineUnavailableError: The engine does not answer.
        """
        try:
            records = list(read_log(container.network_log()))
        except EngineUnavailableError:
            raise
        except OrchestratorError as error:
            self._report(f"worker {self.worker_id}: no network log ({error.message})")
            return
        if not records:
            return
        with suppress(OSError):
            self._append(records)
        refused = refused_entries(records)
        if refused:
            options = " ".join(f"--allow {entry}" for entry in refused[:_SHOWN])
            more = f" and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
            who = f"worker {self.worker_id} was refused hosts that are not on its list"
            self._report(f"{who}: `{options}`{more}")

    def _append(self, records: list[NetworkRecord]) -> None:
        with (self.directory / NETWORK_LOG).open("a", encoding="utf-8") as file:
            for record in records:
                if file.tell() > _LARGEST:
                    return
                file.write(self.redactor.text(record.model_dump_json()) + "\n")

    def _report(self, message: str) -> None:
        self.emit(Notice(message=self.redactor.text(message)))
