"""Run commands on commits, only once for commits with equal files, and store the results."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.safe_open import read_limited
from orchestrator.repository.git.command import Git
from orchestrator.review.judging.check_run import CheckRun, Tester, Watched

MOST_KEPT = 2000
"""Maximum number of results that are stored on disk."""
_LARGEST = 4 * 1024**2


@dataclass(frozen=True, kw_only=True)
class Job:
    """A command to run on the files of a commit."""

    commit: str
    """The commit on whose files the command runs."""
    command: str
    attempt: int = 1
    """1 for the first run of a command; 2 for its repetition, whose result may differ."""
    watched: tuple[Watched, ...] = ()
    """Tests whose failures are looked for in the output."""
    keeps_output: bool = False
    """Whether the command's output and coverage are stored with its result."""
    is_secret: bool = False
    """Whether the commit has hidden files, so that no results of single tests are stored."""


class Evidence:
    """The results of commands on commits, from this process and from earlier processes."""

    def __init__(self, tester: Tester, git: Git, place: Path) -> None:
        """Store the arguments. No command runs yet.

        Args:
            tester: Runs commands on a commit.
            git: Git in a repository with the commits.
            place: Directory of stored results; it is created if it does not exist.
        """
        self._tester = tester
        self._git = git
        self._place = place
        self._known: dict[str, CheckRun] = {}
        self._trees: dict[str, str] = {}

    def collect(self, jobs: Iterable[Job]) -> None:
        """Run the jobs that have no stored result; a job that gives no answer is repeated once."""
        wanted = {self._key(job): job for job in jobs}
        for key in wanted:
            if key not in self._known:
                with suppress(OSError, ValidationError):
                    kept = read_limited(self._place / key, most=_LARGEST)
                    self._known[key] = CheckRun.model_validate_json(kept)
        for _ in range(2):
            groups: dict[tuple[str, tuple[Watched, ...]], list[Job]] = {}
            for key, job in wanted.items():
                if key not in self._known or self._known[key].answer == "none":
                    groups.setdefault((job.commit, job.watched), []).append(job)
            with ThreadPoolExecutor(max(1, min(self._tester.workers, len(groups)))) as pool:
                for _ in pool.map(self._together, groups.values()):
                    pass  # raises what a thread raised

    def of(self, job: Job) -> CheckRun:
        """Return the result of a job that was passed to `collect`."""
        return self._known[self._key(job)]

    def _together(self, jobs: Sequence[Job]) -> None:
        first = jobs[0]
        commands = [job.command for job in jobs]
        results = self._tester.run(first.commit, commands, watched=first.watched)
        for job, result in zip(jobs, results, strict=True):
            dropped: dict[str, object] = {}
            if not job.keeps_output:
                dropped = {"output": "", "coverage": None}
            if job.is_secret:
                dropped["cases"] = None
            key = self._key(job)
            self._known[key] = result.model_copy(update=dropped)
            if result.answer != "none":
                with suppress(OSError):  # full disk: the command only runs again
                    self._place.mkdir(parents=True, exist_ok=True)
                    # protection: results-are-kept-for-judgement-that-is-repeated
                    write_atomically(self._place / key, self._known[key].model_dump_json())
                    kept = sorted(self._place.iterdir(), key=lambda path: path.stat().st_mtime_ns)
                    for path in kept[:-MOST_KEPT]:
                        path.unlink(missing_ok=True)

    def _key(self, job: Job) -> str:
        watched = [test.words for test in job.watched]
        if job.commit not in self._trees:
            self._trees[job.commit] = self._git.text("rev-parse", f"{job.commit}^{{tree}}")
        words = (self._tester.identity, self._trees[job.commit], job.command, job.attempt, watched)
        return hashlib.sha256(json.dumps(words).encode()).hexdigest()
