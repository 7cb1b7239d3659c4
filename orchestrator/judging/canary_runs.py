"""Run checks with tests that must fail, on the base commit and on candidates' commits."""

from collections.abc import Iterable, Mapping, Sequence

from orchestrator.judging.canary import Canary, make_canaries
from orchestrator.judging.check_run import Answer, CheckRun
from orchestrator.judging.evidence import Evidence, Job
from orchestrator.judging.trees import Trees


def canaries_of_base(trees: Trees, commands: Sequence[str]) -> dict[str, Canary]:
    """Return, for each command, the base commit's test files with appended tests that must fail."""
    kind, entries = trees.instruments.kind, trees.entries(trees.base)
    tests = [path for path, one in entries.items() if one.is_file and kind(path) == "test"]

    def read(path: str) -> bytes:
        return b"".join(trees.contents([entries[path].blob]))

    return make_canaries(commands, tests, read)


class CanaryRuns:
    """Runs checks on commits with added tests that must fail; a check must report each failure."""

    def __init__(
        self,
        trees: Trees,
        evidence: Evidence,
        canaries: Mapping[str, Canary],
        *,
        is_secret: bool = False,
    ) -> None:
        """Store the tests that must fail, by check. No check runs yet.

        If `is_secret`, the tests are in hidden files, and no output of the checks is stored.
        """
        self._trees = trees
        self._evidence = evidence
        self._canaries = canaries
        self._is_secret = is_secret
        self._expected: dict[str, tuple[int, ...]] = {}
        self._with_canaries: dict[tuple[str, str], str] = {}

    def calibrate(self, base: str) -> None:
        """Run the checks on `base` with failing tests; keep the checks that report failures."""
        jobs = {one: self._job(base, one) for one in self._canaries}
        self._evidence.collect(jobs.values())
        seen = {one: self._evidence.of(job) for one, job in jobs.items()}
        self._expected = {
            one: run.canaries for one, run in seen.items() if run.answer == "fail" and run.canaries
        }

    @property
    def commands(self) -> frozenset[str]:
        """Return the checks that report, on the base commit, tests which must fail."""
        return frozenset(self._expected)

    def collect(self, commits: Iterable[str]) -> None:
        """Run the checks on commits of candidates, with added tests that must fail."""
        self._evidence.collect(
            self._job(commit, command) for commit in commits for command in self._expected
        )

    def commit(self, commit: str, command: str) -> str:
        """Return a copy of `commit` to which the tests that must fail are added."""
        canary = self._canaries[command]
        key = commit, canary.names[0]
        if key not in self._with_canaries:
            self._with_canaries[key] = self._trees.with_files(commit, dict(canary.files))
        return self._with_canaries[key]

    def result(self, commit: str, command: str) -> CheckRun:
        """Return the result of a check that `collect` ran on a commit with failing tests added."""
        return self._evidence.of(self._job(commit, command))

    def is_forged(self, commit: str, command: str) -> bool:
        """Return whether a check reports added failing tests on the base, but not on `commit`."""
        if command not in self._expected:
            return False
        seen = self.result(commit, command)
        if seen.answer == "none":
            return False
        return seen.answer == "pass" or not {*self._expected[command]} <= {*seen.canaries}

    def has_no_result(self, commit: str, command: str) -> bool:
        """Return whether a check gave no result on a commit with added tests that must fail."""
        return command in self._expected and self.result(commit, command).answer == "none"

    def answer(self, commit: str) -> Answer:
        """Return `fail` if a check hides failing tests, `none` if one has no result, or `pass`."""
        if any(self.is_forged(commit, command) for command in self.commands):
            return "fail"
        return "none" if any(self.has_no_result(commit, one) for one in self.commands) else "pass"

    def _job(self, commit: str, command: str) -> Job:
        return Job(
            commit=commit,
            command=command,
            on=self.commit(commit, command),
            canary=self._canaries[command].names,
            is_secret=self._is_secret,
        )
