"""Stored answers of agents that resolve conflicts, so that a repeated merge asks no agent twice."""

import hashlib
import json
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from orchestrator.files.atomic import write_atomically
from orchestrator.landing.conflict import Proposal

_MOST = 200
"""Maximum number of answers that are stored."""
_KNOWN = TypeAdapter(dict[str, Proposal])


class StoredAnswers:
    """Answers of an agent with certain settings to conflicts, stored in a file."""

    def __init__(self, path: Path, identity: str) -> None:
        """Read the stored answers.

        Args:
            path: The file.
            identity: The agent's settings that decide its answer.
        """
        self._path = path
        self._identity = hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._known = _read(path)

    def get(self, commit: str, attempt: int) -> Proposal | None:
        """Return the stored answer, which may be unfinished.

        Args:
            commit: The commit with conflict markers.
            attempt: Number of the attempt.
        """
        return self._known.get(self._key(commit, attempt))

    def put(self, commit: str, attempt: int, proposal: Proposal | None) -> None:
        """Store an answer; None removes the stored answer."""
        key = self._key(commit, attempt)
        self._known.pop(key, None)
        if proposal is not None:
            self._known[key] = proposal
        self._write()

    def forget(self, commit: str) -> None:
        """Remove all answers for a commit."""
        first = self._key(commit, 0).removesuffix("0")
        self._known = {key: one for key, one in self._known.items() if not key.startswith(first)}
        self._write()

    def _key(self, commit: str, attempt: int) -> str:
        return f"{commit}-{self._identity}-{attempt}"

    def _write(self) -> None:
        kept = dict([*self._known.items()][-_MOST:])
        write_atomically(self._path, json.dumps(_KNOWN.dump_python(kept)))


def _read(path: Path) -> dict[str, Proposal]:
    try:
        return _KNOWN.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return {}
