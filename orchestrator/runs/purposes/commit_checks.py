"""Run the project's checks on a commit in fresh containers, as a run of its own."""

import json
from collections.abc import Sequence
from pathlib import Path

from orchestrator.base.errors import EngineError
from orchestrator.base.events import Event, RunStarted
from orchestrator.base.files.safe_open import open_regular
from orchestrator.base.results import Status, WorkerResult
from orchestrator.base.text.sanitize import output_lines
from orchestrator.config.derived import for_checks, for_commands, with_changes, with_isolation
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.check_run import BLAMELESS, Answer, CheckRun, Watched
from orchestrator.review.judging.coverage_file import MOST_BYTES, read_coverage
from orchestrator.review.judging.failing_tests import MOST_BYTES as MOST_JUNIT
from orchestrator.review.judging.failing_tests import find_failed_tests, read_cases
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import RunDirectory
from orchestrator.worker.workspace.artifacts import ARTIFACTS
from orchestrator.worker.workspace.shared_files import OUT

JUNIT = "junit.xml"
COVERAGE = "coverage"
"""Name of the coverage file that a check may write."""
_LOGS = ("stdout.log", "stderr.log")
_MOST_SEARCHED = 32 * 1024**2
_MOST_OUTPUT = 64 * 1024


class ContainerTest:
    """Runs checks on commits in containers that have no variables, secrets or ports of the user."""

    def __init__(
        self,
        config: ParallelConfig,
        checks: Sequence[str],
        root: Path,
        engine: ContainerEngine,
    ) -> None:
        """Configure the test.

        Args:
            config: Settings of the project: image, limits, setup, services.
            checks: The commands, all of which must succeed.
            root: The repository's top directory.
            engine: The container engine.
        """
        files = {"ORCHESTRATOR_JUNIT": JUNIT, "ORCHESTRATOR_COVERAGE": COVERAGE}
        env = {name: f"{OUT}/{ARTIFACTS}/{file}" for name, file in files.items()}
        self._config = with_isolation(for_checks(config, checks), env=env)
        self._root = root
        self._state_dir = Repository(root).state_dir
        self._engine = engine
        self.runs: list[str] = []
        """Ids of the runs so far."""
        self._runners: list[ParallelRunner] = []
        self._cancelled = False

    def identity(self, image: str) -> str:
        """Return a text that is equal for two tests that run the same checks in the same way."""
        decisive = {"tasks", "limits", "isolation", "project"}
        settings = self._config.model_dump(mode="json", include=decisive)
        return json.dumps([image, settings], sort_keys=True, default=str)

    def __call__(self, commit: str) -> Answer:
        """Run the configured checks on a commit."""
        answers = {check.answer for check in self.run_checks(commit, self._config.tasks)}
        if "none" in answers:
            return "none"
        return "fail" if "fail" in answers else "pass"

    def run_checks(
        self, commit: str, commands: Sequence[str], *, watched: Sequence[Watched] = ()
    ) -> list[CheckRun]:
        """Run commands on a commit, each in its own container, and return their results.

        A command may write a JUnit file to the path in the variable `ORCHESTRATOR_JUNIT`.

        Args:
            commit: The commit.
            commands: The commands.
            watched: Tests whose failures are looked for in the output.

        Raises:
            EngineError: The tests were cancelled.
        """
        config = with_changes(for_commands(self._config, commands), base=commit)
        runner = ParallelRunner(config, self._root, emit=self._note, engine=self._engine)
        self._check_cancelled()
        self._runners.append(runner)
        try:
            result = runner.execute()
        except EngineError:
            return [CheckRun(answer="none") for _ in commands]
        finally:
            self._runners.remove(runner)
        self._check_cancelled()
        directory = RunDirectory(self._state_dir / "runs" / result.run_id)
        found = [_check_run(directory, worker, watched) for worker in result.results]
        # protection: queue-branches-of-checks-are-removed
        cleanup(self._root, engine=self._engine, run_id=result.run_id, purge=True)
        return found

    def cancel(self) -> None:
        """Stop all running tests; a caller that waits for a test gets an EngineError."""
        self._cancelled = True
        for runner in [*self._runners]:
            runner.cancel(kill=True)

    def _check_cancelled(self) -> None:
        if self._cancelled:
            raise EngineError("the checks were interrupted", key="checks.interrupted")

    def _note(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.runs.append(event.run_id)
            RunDirectory(self._state_dir / "runs" / event.run_id).mark_as_test()


def _check_run(
    directory: RunDirectory, result: WorkerResult, watched: Sequence[Watched]
) -> CheckRun:
    place = directory.worker(result.worker_id)
    junit = _beginning(place / ARTIFACTS / JUNIT, MOST_JUNIT)
    coverage = _beginning(place / ARTIFACTS / COVERAGE, MOST_BYTES)
    texts = [_beginning(place / name, _MOST_SEARCHED) for name in _LOGS]
    said = "\n".join(text.decode("utf-8", "replace") for text in texts)
    cases = read_cases(junit) if junit else None
    answer: Answer = "pass" if result.status is Status.SUCCESS else "fail"
    return CheckRun(
        answer="none" if result.reason in BLAMELESS else answer,
        duration=result.duration,
        exit_code=result.exit_code,
        cases=cases,
        coverage=read_coverage(coverage) if coverage else None,
        output=output_lines(texts[0][-_MOST_OUTPUT:].decode("utf-8", "replace")),
        failed=find_failed_tests(said, cases, watched) if watched else (),
    )


def _beginning(path: Path, most: int) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(most)
    except OSError:
        return b""
