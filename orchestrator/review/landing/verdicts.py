"""Stored results of checks on commits, so that a repeated merge runs no check twice."""

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import get_args

from orchestrator.base.files.atomic import write_atomically
from orchestrator.repository.git.command import Git
from orchestrator.review.landing.queue import Answer

_MOST = 1000
"""Maximum number of results that are stored."""


class StoredVerdicts:
    """Results of one set of checks, with one image and one set of limits, stored in a file."""

    def __init__(self, path: Path, git: Git, identity: str) -> None:
        """Read the stored results.

        Args:
            path: The file.
            git: Git in a repository with the tested commits.
            identity: The commands of the checks, with everything else that decides their result.
        """
        self._path = path
        self._git = git
        self._identity = identity
        self._known: dict[str, Answer] = {}
        with suppress(OSError, ValueError):
            found = json.loads(path.read_bytes())
            if isinstance(found, dict):
                answers = get_args(Answer)
                self._known = {str(key): said for key, said in found.items() if said in answers}
        self._trees: dict[str, str] = {}

    def get(self, *commits: str) -> Answer | None:
        """Return the stored result of a commit or of a proof (two commits); None if not stored."""
        return self._known.get(self._key(commits))

    def put(self, answer: Answer | None, *commits: str) -> None:
        """Store a result; None removes the stored result."""
        key = self._key(commits)
        self._known.pop(key, None)
        if answer is not None:
            self._known[key] = answer
        self._write()

    def _write(self) -> None:
        kept = dict([*self._known.items()][-_MOST:])
        write_atomically(self._path, json.dumps(kept))

    @property
    def is_unstable(self) -> bool:
        """Return whether the checks gave different results for the same commit."""
        return self._known.get(self._unstable) == "fail"

    def note_unstable(self) -> None:
        """Record that the checks gave different results for the same commit."""
        self._known[self._unstable] = "fail"
        self._write()

    @property
    def _unstable(self) -> str:
        return hashlib.sha256(f"{self._identity}\0unstable".encode()).hexdigest()

    def _key(self, commits: tuple[str, ...]) -> str:
        for commit in {*commits} - self._trees.keys():
            self._trees[commit] = self._git.text("rev-parse", f"{commit}^{{tree}}")
        trees = [self._trees[commit] for commit in commits]
        return hashlib.sha256("\0".join([self._identity, *trees]).encode()).hexdigest()
