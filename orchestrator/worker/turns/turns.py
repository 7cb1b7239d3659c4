"""Turns of a worker: the prompt with which it continues, and what came of each turn."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from orchestrator.agents.output.search import text_tail
from orchestrator.base.events import Notice
from orchestrator.base.results import Turn, WorkerResult
from orchestrator.base.text.log_end import end_of_log
from orchestrator.base.text.quoting import code_block
from orchestrator.base.text.redact import Redactor
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.settings.project import Check
from orchestrator.repository.commits.changes import patch
from orchestrator.sandbox.supervision.output import stage_log
from orchestrator.state.run_directory import RunDirectory
from orchestrator.state.worker.checkpoints import Checkpoints
from orchestrator.state.worker.turns import (
    CurrentTurn,
    drop_turn,
    is_queued,
    take_message,
    turn_after,
)
from orchestrator.worker.context import RunContext, WorkerContext, for_worker
from orchestrator.worker.turns.sessions import how_continued, session_of

_MOST_OF_TASK = 10_000
"""Maximum number of characters of the task, and of each earlier message, in a prompt."""
_MOST_OF_PROMPT = 110 * 1024
"""Maximum size of a prompt in bytes; Linux limits an argument of a program to 128 KiB."""
_MOST_OF_CHECK = 8 * 1024
"""Number of characters at the end of a failed check's output that are sent back."""
_MOST_READ = 1024**2
_MOST_CHECKS = 10
_STORY = """\
You worked on the task below before, in this directory. It has your changes, and perhaps later ones
of the user. Continue with the new message, which is at the end.
"""


def in_turn(worker: WorkerContext) -> WorkerContext:
    """Return a worker with the settings, session and prompt of its present turn and attempt."""
    fresh = for_worker(worker.run, worker.spec)
    if fresh.turn is None:
        return replace(worker, session=session_of(worker))
    worker = replace(
        worker,
        turn=fresh.turn,
        settings=fresh.settings,
        spec=worker.spec.model_copy(
            update={"model": fresh.spec.model, "message": fresh.spec.message}
        ),
    )
    worker, begun_by = replace(worker, session=session_of(worker)), fresh.turn.begun_by
    # What others wrote is no command: the worker's own command gets it as a variable.
    # protection: output-of-checks-is-no-command
    is_quoted = begun_by.quotes or begun_by.cause == "checks"
    repeats = is_quoted and how_continued(worker) == "command"
    prompt = worker.spec.prompt if repeats else _prompt(worker, fresh.turn)
    return replace(worker, spec=worker.spec.model_copy(update={"rendered": prompt}))


def own_turns(worker: WorkerContext, result: WorkerResult) -> list[Turn]:
    """Return the turn of one attempt's result; an empty list in the worker's first turn."""
    turn = worker.turn
    if turn is None:
        return []
    made = _turn_of(result)
    begun = {"message": turn.begun_by.message, "cause": turn.begun_by.cause}
    more = {"number": turn.number, "continued": how_continued(worker)}
    return [made.model_copy(update={**begun, **more})]


def all_turns(attempts: Sequence[WorkerResult]) -> list[Turn]:
    """Return the turns of a worker by the results of all its attempts; empty if it had only one."""
    if not any(attempt.turns for attempt in attempts):
        return []
    turns = [attempt.turns[-1] if attempt.turns else _turn_of(attempt) for attempt in attempts]
    return [_sum_up(list(same)) for _, same in groupby(turns, key=lambda turn: turn.number)]


def _turn_of(result: WorkerResult) -> Turn:
    return Turn(
        status=result.status,
        reason=result.reason,
        summary=result.summary,
        steps=result.steps,
        cost=result.cost,
        cost_known=result.cost_known,
        tokens=result.tokens,
        duration=result.duration,
        commit=result.commit,
    )


def _sum_up(turns: list[Turn]) -> Turn:
    """Return the attempts of one turn as one turn."""
    tokens = [turn.tokens for turn in turns if turn.tokens is not None]
    return turns[-1].model_copy(
        update={
            "attempts": len(turns),
            "cost": sum(turn.cost for turn in turns),
            "cost_known": any(turn.cost_known for turn in turns),
            "tokens": sum(tokens) if tokens else None,
        }
    )


def message_about_checks(
    checks: Sequence[Check], result: WorkerResult, directory: Path, redactor: Redactor
) -> str | None:
    """Return the message that sends the output of failed checks back to the agent; None if none.

    Args:
        checks: The checks of the project, which do not include tests that are hidden from workers.
        result: The result of the worker.
        directory: The worker's state directory, with the logs of the checks.
        redactor: Knows the secrets.
    """
    done = list(zip(result.checks, checks, strict=False))
    failed = [number for number, (check, _) in enumerate(done, start=1) if not check.passed]
    parts = [
        f"{len(failed)} of {len(done)} checks of your commit failed. Fix the causes. The checks "
        "are repeated afterwards, in a fresh checkout of your new commit."
    ]
    for number in failed[:_MOST_CHECKS]:
        check, asked = done[number - 1]
        with suppress(OSError):
            said = end_of_log(
                text_tail(stage_log(directory, f"check-{number}"), _MOST_READ), limit=_MOST_OF_CHECK
            )
            parts += [
                f"{one_line(check.name)}: {one_line(check.message or 'failed')}",
                f"Command:\n{code_block(redactor.text(asked.run), limit=4000)}",
                f"The end of its output:\n{code_block(said or '(none)', limit=_MOST_OF_CHECK)}",
            ]
    return "\n\n".join(parts) if failed else None


def _prompt(worker: WorkerContext, turn: CurrentTurn) -> str:
    """Return the text for the program: the message alone, or with what happened before."""
    message = turn.begun_by.message
    if how_continued(worker) != "prompt":
        return message
    before = [path for number, path in worker.attempts() if number < turn.first_attempt]
    results = [Checkpoints(path).attempt_result() for path in before]
    known = [result for result in results if result is not None]
    texts = dict.fromkeys(filter(None, (t.message for r in known for t in r.turns)))
    earlier = [text for text in texts if text != message]
    parts = [_STORY, f"The task:\n{code_block(worker.spec.task, limit=_MOST_OF_TASK)}"]
    parts += [f"A later message:\n{code_block(text, limit=2000)}" for text in earlier[-5:]]
    if known and known[-1].summary:
        said = code_block(known[-1].summary, limit=_MOST_OF_TASK)
        parts.append(f"The end of your last message:\n{said}")
    end = f"The new message:\n\n{message}"
    used = sum(len(part.encode("utf-8", "replace")) + 200 for part in (*parts, end))
    room = max(0, _MOST_OF_PROMPT - used) // 3
    repository = worker.run.repository
    tip = repository.resolve(worker.spec.ref)
    if tip != worker.base and room:
        # An invalid byte becomes a character of three bytes.
        data = patch(repository, base=worker.base, tip=tip, limit=room + 1)
        diff = code_block(worker.run.redactor.data(data).decode("utf-8", "replace"), limit=room)
        parts.append(f"The changes since the task began, as `git diff` shows them:\n{diff}")
    return "\n\n".join((*parts, end))


def awaits_turn(directory: RunDirectory, worker_id: int) -> bool:
    """Return whether a worker that has ended has a message that was not delivered."""
    if is_queued(directory, worker_id):
        return True
    place = directory.worker(worker_id)
    return turn_after(place) is not None and Checkpoints(place).attempt_result() is not None


def deliver(run: RunContext, worker_id: int) -> bool:
    """Let the message that waits for a worker begin the next turn; return whether it does.

    A message with the value of a secret is dropped, because records keep messages.
    """
    place = run.directory.worker(worker_id)
    if not take_message(run.directory, worker_id):
        return False
    turn = turn_after(place)
    # protection: delivered-message-with-secret-dropped
    if turn is not None and run.redactor.text(turn.message) != turn.message:
        drop_turn(place)
        said = f"the message to worker {worker_id} contains the value of a secret: it was dropped"
        run.emit(Notice(message=said))
        return False
    return True


def reopen(run: RunContext, worker_id: int) -> WorkerResult | None:
    """Deliver a message to a worker that has ended; it then has no result until that turn's end.

    Returns:
        The result of the turn before; None if there is no message that can be delivered, or the
        worker has not ended.
    """
    directory, place = run.directory, run.directory.worker(worker_id)
    result = directory.result(worker_id)
    if result is None or not awaits_turn(directory, worker_id):
        return None
    if is_queued(directory, worker_id):
        checkpoints = Checkpoints(place)
        try:
            checkpoints.note_given_up(checkpoints.last_result() or result)
        except OSError:
            # Full disk: the message waits, and the other workers go on.
            return None
        if not deliver(run, worker_id):
            checkpoints.forget_given_up()
            return None
    (directory.path / "result.json").unlink(missing_ok=True)
    (place / "result.json").unlink()
    return result
