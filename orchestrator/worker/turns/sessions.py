"""The session of an agent program: how it is given to an attempt, and kept afterwards."""

import re
from contextlib import suppress
from dataclasses import replace
from typing import Literal
from uuid import NAMESPACE_OID, uuid5

from orchestrator.agents.base import SESSION, AgentOutput, Session, SessionAgent
from orchestrator.base.errors import EngineError, EngineUnavailableError
from orchestrator.base.results import Status, WorkerResult
from orchestrator.engine.places.place import Place
from orchestrator.sandbox.supervision.output import log_files
from orchestrator.worker.context import WorkerContext
from orchestrator.worker.workspace.layout import SESSION_PART
from orchestrator.worker.workspace.mounts import Workspace
from orchestrator.worker.workspace.session_files import (
    MOST_BYTES,
    UnkeptSessionError,
    discard_session,
    keep_session,
    kept_session,
    make_session,
)

Continued = Literal["session", "new_session", "prompt", "command"]
_MOST_TAKEN = 4 * MOST_BYTES
"""Maximum size in bytes of everything beside a session, from which its files are then chosen."""
_LOST = "session.lost"


def session_of(worker: WorkerContext) -> Session | None:
    """Return the session of the present attempt; None if none is kept."""
    agent, turn = worker.agent, worker.turn
    if not worker.config.sessions or not isinstance(agent, SessionAgent):
        return None
    files = agent.session_files
    kept = None if turn is None else kept_session(turn.before)
    # protection: lost-session-is-not-continued-again
    if kept is not None and re.fullmatch(files.id, kept.id) and not _was_lost(worker):
        return Session(id=kept.id, continued=True)
    if not files.chosen:
        return Session()
    # The same id in every process that carries on with the attempt.
    name = f"{worker.run.directory.run_id}/{worker.ledger}"
    return Session(id=str(uuid5(NAMESPACE_OID, name)))


def with_session(worker: WorkerContext, workspace: Workspace) -> Workspace:
    """Return the worker's files with the directory of its session, which is created if missing.

    Raises:
        OSError: The disk is full.
    """
    session = worker.session
    if session is None:
        return workspace
    before = worker.turn.before if worker.turn is not None and session.continued else None
    mount = make_session(worker.directory, workspace.user, SESSION, before=before)
    return replace(workspace, session=mount)


def take_session(worker: WorkerContext, workspace: Workspace, place: Place) -> tuple[str, ...]:
    """Keep the session of an attempt that has ended; return notes about problems.

    Raises:
        EngineUnavailableError: The engine cannot be reached; a resumed run tries again.
    """
    agent, mount, session = worker.agent, workspace.session, worker.session
    if mount is None or session is None or not isinstance(agent, SessionAgent):
        return ()
    said = reported_session(worker)
    name, files = session.id or said, agent.session_files
    try:
        place.take(SESSION_PART, mount.source, limit=_MOST_TAKEN)
        # protection: session-is-kept-by-its-checked-id
        if name is None or said not in (None, name) or not re.fullmatch(files.id, name):
            discard_session(worker.directory)
            return ()
        keep_session(worker.directory, name, files.kept, worker.run.redactor)
    except EngineUnavailableError:
        raise
    except UnkeptSessionError as error:
        return (f"the agent's session was not kept: {error}",)
    except (EngineError, OSError) as error:
        with suppress(OSError):
            discard_session(worker.directory)
        return (f"the agent's session could not be kept ({error})",)
    return ()


def reported_session(worker: WorkerContext) -> str | None:
    """Return the id of the session that the program reported; None if it did not."""
    agent, (stdout, stderr) = worker.agent, log_files(worker.directory)
    if not isinstance(agent, SessionAgent) or not stdout.exists():
        return None
    return agent.session_id(AgentOutput(stdout=stdout, stderr=stderr))


def how_continued(worker: WorkerContext) -> Continued:
    """Return how the worker continues in its present turn."""
    if worker.agent.name == "shell":
        return "command"
    session = worker.session
    if session is None or not session.continued:
        return "prompt"
    said = reported_session(worker)
    # protection: new-session-is-told
    return "session" if said in (None, session.id) else "new_session"


def _was_lost(worker: WorkerContext) -> bool:
    """Return whether an earlier attempt of the turn could not open the session."""
    turn = worker.turn
    first = 1 if turn is None else turn.first_attempt
    return any((path / _LOST).exists() for number, path in worker.attempts() if number >= first)


def note_lost_session(worker: WorkerContext) -> None:
    """Record that the program could not open its session, so that the turn goes on without."""
    (worker.directory / _LOST).touch()


def has_lost_session(worker: WorkerContext, result: WorkerResult) -> bool:
    """Return whether the program could not open its session, and so did nothing."""
    session = worker.session
    if session is None or not session.continued:
        return False
    did_nothing = result.status is Status.FAILED and not result.steps and not result.cost
    return did_nothing and result.exit_code is not None and reported_session(worker) is None
