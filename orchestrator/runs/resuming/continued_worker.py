"""Continue one worker of a run with a message, whether the run is live or has ended."""

import threading

from orchestrator.agents.base import Agent
from orchestrator.base.errors import ConfigError, RunDiedError
from orchestrator.base.events import Emit
from orchestrator.base.results import RunResult, WorkerResult, sum_up
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.runs.resuming.continuing import Message, check_ended_worker, leave_message
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.run_record import require_record
from orchestrator.state.worker.turns import is_queued, number_of, withdraw_message

_TICK = 0.1
"""Seconds between two checks whether the run's process has delivered a message."""


class ContinuedWorker:
    """A worker that gets a message: from the process of its live run, or from this process."""

    def __init__(
        self,
        directory: RunDirectory,
        message: Message,
        *,
        emit: Emit | None = None,
        engine: ContainerEngine | None = None,
        agent: Agent | None = None,
    ) -> None:
        """Store the arguments. Nothing is changed before `execute`.

        Args:
            directory: The directory of the worker's run.
            message: The message.
            emit: Receives events of this process, from several threads.
            engine: The container engine. Default: Docker.
            agent: Adapter of the agent program. Default: the adapter that the run's record names.
        """
        self._directory = directory
        self._message = message
        self._cancelled = threading.Event()
        self._resumed = ResumedRun(directory, emit=emit, engine=engine, agent=agent)
        self._resumed.message = message

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._directory.run_id

    def cancel(self, *, kill: bool = False) -> None:
        """Stop the worker if this process runs it; else withdraw the message."""
        self._cancelled.set()
        self._resumed.cancel(kill=kill)

    def execute(self) -> RunResult:
        """Continue the worker, and return the run's result with this worker alone.

        Raises:
            OrchestratorError: The worker cannot continue, or did not.
        """
        waited = self._wait_in_line() if self._directory.is_live() else None
        if waited is None:
            result = self._resumed.execute()
            number = self._message.worker_id
            waited = next(found for found in result.results if found.worker_id == number)
        if number_of(self._directory, waited.worker_id, self._message.turn) is None:
            raise ConfigError(
                f"worker {waited.worker_id} did not continue: "
                f"{waited.message or 'its run did not deliver the message'}",
                key="message.undelivered",
            )
        record = require_record(self._directory)
        return sum_up(
            [waited],
            run_id=self.run_id,
            base=record.base,
            engine=record.engine,
            duration=waited.duration,
        )

    def _wait_in_line(self) -> WorkerResult | None:
        """Leave the message to the run's process; return the worker's result after its turn.

        Returns:
            None if the run ended and did not deliver the message.
        """
        directory, number, turn = self._directory, self._message.worker_id, self._message.turn
        self._join_line()
        while True:
            was_live = directory.is_live()
            waits = is_queued(directory, number, turn)
            result = None if waits else self._result()
            if result is not None:
                return result
            if waits and not was_live and withdraw_message(directory, number, turn):
                return None
            if not waits and not was_live:
                raise RunDiedError(
                    f"the process of run {self.run_id} died in the turn of worker {number}",
                    key="run.died",
                    hint=f"resume the run: `orchestrator resume {self.run_id}`",
                )
            if self._cancelled.wait(_TICK):
                withdrawn = withdraw_message(directory, number, turn)
                told = "was withdrawn" if withdrawn else "had been delivered already"
                raise ConfigError(
                    f"interrupted: the message to worker {number} {told}", key="message.withdrawn"
                )

    def _join_line(self) -> None:
        """Leave the message.

        Raises:
            ConfigError: Another message waits, or the worker has ended and cannot continue.
        """
        directory, number, turn = self._directory, self._message.worker_id, self._message.turn
        result = directory.result(number)
        check_ended_worker(directory, require_record(directory), self._message)
        leave_message(directory, self._message)
        if turn.now and result is None:
            directory.ask_to_end_turn(number)
            if not is_queued(directory, number, turn):
                # The turn ended by itself, and the message was delivered a moment ago.
                directory.forget_stop(number)

    def _result(self) -> WorkerResult | None:
        """Return the worker's result, if the turn of the message has ended or could not begin."""
        directory, number = self._directory, self._message.worker_id
        own = number_of(directory, number, self._message.turn)
        result = directory.result(number)
        if result is None or own is None:
            return result
        return result if result.turns and result.turns[-1].number >= own else None
