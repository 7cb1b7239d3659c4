"""Record the hosts that a worker reached through its gateway, and those that were refused."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.engine.protocol import Container
from orchestrator.errors import EngineUnavailableError, OrchestratorError
from orchestrator.events import Emit, Notice
from orchestrator.gateway.hosts import MOST_HOSTS
from orchestrator.gateway.log import (
    NetworkRecord,
    count_records,
    learned_entries,
    read_log,
    read_records,
    refused_entries,
)
from orchestrator.results import NetworkCounts
from orchestrator.text.redact import Redactor

NETWORK_LOG = "network.ndjson"
_LARGEST = 16 * 1024**2
"""Maximum size in bytes of one worker's network log."""
_SHOWN = 10
"""Maximum number of hosts that a notice names."""


@dataclass(frozen=True, kw_only=True)
class NetworkLog:
    """The log of one worker's network connections."""

    directory: Path
    """The worker's state directory."""
    worker_id: int
    emit: Emit
    redactor: Redactor

    def add(self, container: Container) -> None:
        """Append the log of a container's gateway, and report refused hosts to the user.

        The container has ended. A worker does not fail because its log cannot be read or written.

        Raises:
            EngineUnavailableError: The engine does not answer.
        """
        try:
            printed = container.network_log()
        except EngineUnavailableError:
            raise
        except OrchestratorError as error:
            self._report(f"worker {self.worker_id}: there is no network log ({error.message})")
            return
        if printed is None:
            return
        records = list(read_log(printed))
        try:
            self._append(records)
        except OSError as error:
            said = f"the network log is incomplete ({error.strerror})"
            self._report(f"worker {self.worker_id}: {said}")
        self._list("was refused hosts that are not on its allow-list", refused_entries(records))
        self._list(
            "reached hosts that are not on its allow-list", learned_entries(records), MOST_HOSTS
        )

    def counts(self) -> NetworkCounts | None:
        """Return the log's sums; None if no container of the worker had a gateway."""
        path = self.directory / NETWORK_LOG
        try:
            return count_records(read_records(path)) if path.exists() else None
        except OSError as error:
            said = f"the network log cannot be read ({error.strerror})"
            self._report(f"worker {self.worker_id}: {said}")
            return None

    def _append(self, records: list[NetworkRecord]) -> None:
        with (self.directory / NETWORK_LOG).open("a", encoding="utf-8") as file:
            for record in records:
                if file.tell() > _LARGEST:
                    return
                file.write(self.redactor.text(record.model_dump_json()) + "\n")

    def _list(self, what: str, entries: list[str], most: int = _SHOWN) -> None:
        if entries:
            options = " ".join(f"--allow {entry}" for entry in entries[:most])
            more = f" and {len(entries) - most} more" if len(entries) > most else ""
            self._report(f"worker {self.worker_id} {what}: `{options}`{more}")

    def _report(self, message: str) -> None:
        self.emit(Notice(message=self.redactor.text(message)))
