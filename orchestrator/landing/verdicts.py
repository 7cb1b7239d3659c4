"""Verdicts of checks on trees, kept so that a merge that is repeated runs no check twice."""

import hashlib
import json
from pathlib import Path
from typing import get_args

from orchestrator.files.atomic import write_atomically
from orchestrator.git.command import Git
from orchestrator.landing.queue import Answer

_MOST = 1000
"""Maximum number of verdicts that are kept."""


class StoredVerdicts:
    """Verdicts in a file, of one set of checks, image and limits."""

    def __init__(self, path: Path, git: Git, identity: str) -> None:
        """Read the file.

        Args:
            path: The file.
            git: Git in a repository with the tested commits.
            identity: The commands of the checks, with everything else that decides their result.
        """
        self._path = path
        self._git = git
        self._identity = identity
        self._known = _read(path)

    def get(self, *commits: str) -> Answer | None:
        """Return the stored verdict on a commit, or on the pair of commits of a proof."""
        return self._known.get(self._key(commits))

    def put(self, answer: Answer | None, *commits: str) -> None:
        """Remember a verdict, or forget it."""
        key = self._key(commits)
        self._known.pop(key, None)
        if answer is not None:
            self._known[key] = answer
        kept = dict([*self._known.items()][-_MOST:])
        write_atomically(self._path, json.dumps(kept))

    def _key(self, commits: tuple[str, ...]) -> str:
        trees = [self._git.text("rev-parse", f"{commit}^{{tree}}") for commit in commits]
        return hashlib.sha256("\0".join([self._identity, *trees]).encode()).hexdigest()


def _read(path: Path) -> dict[str, Answer]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(key): value for key, value in found.items() if value in get_args(Answer)}
