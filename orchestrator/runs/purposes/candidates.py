"""Run candidates for one task, and judge workers by checks in fresh containers."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path

from orchestrator.base.errors import ConfigError, EngineError
from orchestrator.base.events import Emit, ignore
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.results import RunResult, WorkerResult
from orchestrator.base.text.quantities import count
from orchestrator.config.derived import for_checks, with_changes, without_checks
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.engine import engine_of_run
from orchestrator.engine.interface.run_engine import RunEngine
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.check_run import Tester
from orchestrator.review.judging.judge import check_base, judge_run
from orchestrator.review.judging.judge_request import JudgingRules, Rounds
from orchestrator.review.judging.judgement import Judgement, lessons_of
from orchestrator.review.judging.pick import Note, silent
from orchestrator.review.landing.branches import read_branches
from orchestrator.runs.purposes.commit_checks import ContainerTest
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_outline import engine_used

_AT_ONCE = 4
"""Maximum number of commits whose checks run at the same time."""
Receivers = Callable[[], AbstractContextManager[Emit]]
"""Function that returns a new receiver of events for each run of candidates."""


class CandidateJudge:
    """Runs candidates for one task and judges them; another thread can call `cancel`."""

    def __init__(
        self,
        rules: JudgingRules,
        root: Path | str | None = None,
        *,
        config: ParallelConfig | None = None,
        note: Note = silent,
    ) -> None:
        """Store the arguments. Nothing is created yet.

        Args:
            rules: The checks, and how they count.
            root: Any directory in the repository. Default: the current directory.
            config: Settings of the containers in which checks run: image, limits, setup, services.
            note: Receives messages about the progress.

        Raises:
            ConfigError: There is no check.
        """
        if not rules.all_checks:
            raise ConfigError("judging needs a check", key="check.missing")
        self._rules = rules
        self._repository = Repository(Path(root) if root is not None else Path.cwd())
        self._config = for_checks(config or ParallelConfig(tasks=("true",)), rules.all_checks)
        self._note = note
        self._stop: Callable[[bool], None] | None = None
        self._cancelled = False
        self.started: list[str] = []
        """Ids of the runs of candidates that were started."""

    def cancel(self, *, kill: bool = False) -> None:
        """Stop running candidates and checks; the call that waits for them raises an error.

        Args:
            kill: Whether to kill candidates without a grace period.
        """
        self._cancelled = True
        if self._stop is not None:
            self._stop(kill)

    def judge(
        self, run: str | None = None, workers: Sequence[int] = (), *, earlier: Sequence[str] = ()
    ) -> Judgement:
        """Judge workers of a run that ended; no agent starts.

        Args:
            run: The run's id, or the beginning of it. Default: the newest run.
            workers: Numbers of the workers. Default: all.
            earlier: Earlier runs whose workers are candidates for the same task.

        Raises:
            OrchestratorError: No worker can be judged; or, on the base, a check that must fail
                passes or a check gives no result; or `cancel` was called.
        """
        repository = self._repository
        runs = [*(read_branches(repository, run) for run in earlier)]
        runs.append(read_branches(repository, run, workers))
        with self._tester(engine_used(repository.state_dir, runs[-1].run_id)) as tester:
            found = sum(len(run.branches) for run in runs)
            self._note(f"judging {count(found, 'worker')} of run {runs[-1].run_id}")
            return judge_run(repository, runs, self._rules, tester)

    def evaluate(
        self, config: ParallelConfig, rounds: Rounds, receivers: Receivers | None = None
    ) -> Judgement:
        """Run candidates for one task, and judge them.

        Args:
            config: Settings of the run of all candidates, which have the same task.
            rounds: How many candidates run at a time.
            receivers: Returns a receiver of the events of each run.

        Raises:
            OrchestratorError: On the base, a check that must fail passes or a check gives no
                result, and no candidate has started; or `cancel` was called.
        """
        with self._tester() as tester:
            base = self._repository.resolve(config.base)
            check_base(self._repository, base, self._rules, tester)
        runs: list[RunResult] = []
        left = list(rounds_of(config, rounds.first))
        while True:
            current = left.pop(0)
            runs.append(self._run(current, receivers))
            ids = [run.run_id for run in runs]
            judgement = self.judge(ids[-1], earlier=ids[:-1])
            passing = sum(candidate.passes for candidate in judgement.ranking)
            if not left or passing >= rounds.until:
                return judgement
            budget, tokens = rest_of_budgets(current, runs[-1].results)
            if 0 in (budget, tokens):
                self._note("no more candidates: the rest of the budget is too small")
                return judgement
            left = [
                with_changes(round_config, budget_total=budget, tokens_total=tokens)
                for round_config in left
            ]
            if rounds.learn:
                left = [
                    self._with_lessons(round_config, config, judgement) for round_config in left
                ]

    def _with_lessons(
        self, config: ParallelConfig, first: ParallelConfig, judgement: Judgement
    ) -> ParallelConfig:
        """Return the settings of candidates that are told the results of earlier candidates."""
        text = lessons_of(judgement)
        if not text:
            return config
        place = self._repository.state_dir / "lessons.md"
        context = None if first.context is None else self._repository.top / first.context
        own = "" if context is None else context.read_text(encoding="utf-8").rstrip()
        write_atomically(place, f"{own}\n\n{text}\n".lstrip())
        # A task of `shell` is a command, to which no text can be added.
        told = first.tasks if config.agent_cli == "shell" else (f"{first.tasks[0]}\n\n{text}",)
        return with_changes(config, context=str(place), tasks=told)

    @contextmanager
    def _tester(self, used: RunEngine | None = None) -> Iterator[Tester]:
        """Yield an object that runs checks in containers, by the engine of a run."""
        with closing(engine_of_run(used)) as engine:
            image = ParallelRunner(self._config, self._repository.top).plan().image
            test = ContainerTest(self._config, (), self._repository.top, engine)
            with self._cancel_with(lambda _: test.cancel()):
                yield Tester(
                    run=test.run_checks,
                    identity=test.identity(engine.image_id(image) or image),
                    workers=max(1, min(_AT_ONCE, os.cpu_count() or 1)),
                )

    def _run(self, config: ParallelConfig, receivers: Receivers | None) -> RunResult:
        # The checks run once, when the candidates are judged.
        config = without_checks(config)
        with receivers() if receivers else nullcontext(ignore) as emit:
            runner = ParallelRunner(config, self._repository.top, emit=emit)
            try:
                with self._cancel_with(lambda kill: runner.cancel(kill=kill)):
                    result = runner.execute()
            finally:
                self.started += [runner.run_id] if runner.run_id else []
        if self._cancelled:
            raise EngineError(
                "the workers were interrupted before all candidates were ready",
                key="run.interrupted",
                hint=f"to judge the workers as they are: `orchestrator judge {result.run_id}`",
            )
        return result

    @contextmanager
    def _cancel_with(self, stop: Callable[[bool], None]) -> Iterator[None]:
        self._stop = stop
        try:
            if self._cancelled:
                stop(False)
            yield
        finally:
            self._stop = None


def rounds_of(config: ParallelConfig, first: int | None) -> Iterator[ParallelConfig]:
    """Yield the settings of each round of candidates.

    Args:
        config: The settings for all candidates.
        first: Number of candidates of one round; None: all candidates.
    """
    models = [*config.models, *([None] * (config.workers - len(config.models)))]
    size = first or len(models)
    for start in range(0, len(models), size):
        part = models[start : start + size]
        named = tuple(model for model in part if model is not None)
        yield with_changes(config, models=named, workers=min(len(part), config.workers))


def rest_of_budgets(
    config: ParallelConfig, results: Sequence[WorkerResult]
) -> tuple[float | None, int | None]:
    """Return what a round of candidates has left of its budgets in USD and in tokens.

    Args:
        config: The settings of the round.
        results: Its candidates. A candidate that ran and did not say what it used counts as if it
            had used its share.

    Returns:
        For each budget, None without one; 0 if the rest is less than the mean of a candidate.
    """
    ran = [result for result in results if result.started_at is not None or result.attempts > 1]
    costs = [result.cost if result.cost_known else None for result in ran]
    tokens = _rest(config.tokens_total, [result.tokens for result in ran], config.tokens_per_worker)
    rest = _rest(config.budget_total, costs, config.budget_per_worker)
    return rest, None if tokens is None else int(tokens)


def _rest(total: float | None, used: Sequence[float | None], most: float | None) -> float | None:
    if total is None or not used:
        return total
    share = total / len(used)
    share = share if most is None else min(share, most)
    spent = sum(share if amount is None else amount for amount in used)
    rest = total - spent
    return rest if rest > 0 and rest >= spent / len(used) else 0


def evaluate(
    config: ParallelConfig,
    rules: JudgingRules,
    root: Path | str | None = None,
    *,
    rounds: Rounds | None = None,
    emit: Emit | None = None,
) -> Judgement:
    """Run candidates for one task, judge them in fresh containers, and record the judgement.

    Args:
        config: Settings of the candidates; the checks run with the same image, limits and setup.
        rules: The checks, and how they count.
        root: Any directory in the repository. Default: the current directory.
        rounds: How many candidates run at a time. Default: all candidates.
        emit: Receives the events of the candidates, from several threads.

    Raises:
        OrchestratorError: The candidates could not start, or a check that must fail on the base
            passes there.
    """
    judge = CandidateJudge(rules, root, config=config)
    return judge.evaluate(config, rounds or Rounds(), lambda: nullcontext(emit or ignore))


def judge(
    rules: JudgingRules,
    root: Path | str | None = None,
    *,
    run: str | None = None,
    workers: Sequence[int] = (),
    config: ParallelConfig | None = None,
) -> Judgement:
    """Judge workers of a run that ended, and record the judgement; no agent starts.

    Args:
        rules: The checks, and how they count.
        root: Any directory in the repository. Default: the current directory.
        run: The run's id, or the beginning of it. Default: the newest run.
        workers: Numbers of the workers. Default: all.
        config: Settings of the containers in which checks run. Default: settings of agent `shell`.

    Raises:
        OrchestratorError: No worker can be judged, or a check that must fail on the base passes
            there.
    """
    return CandidateJudge(rules, root, config=config).judge(run, workers)
