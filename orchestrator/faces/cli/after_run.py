"""What follows a run that has just ended: the merge of its branches, or of its best worker."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from orchestrator.base.errors import ConfigError
from orchestrator.base.results import RunResult
from orchestrator.base.text.sanitize import one_line
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.faces.cli.check_settings import require_checks
from orchestrator.faces.cli.output.judgement_table import judgement_text
from orchestrator.faces.cli.output.merge_text import SOME_LEFT, show_merged
from orchestrator.faces.cli.output.messages import show, tell
from orchestrator.faces.cli.run_options import RunOptions, check_pick
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.judge_request import JudgingRules
from orchestrator.review.judging.pick import silent
from orchestrator.review.landing.land import check_ahead
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.review.landing.merged import Merged
from orchestrator.runs.purposes.candidates import CandidateJudge
from orchestrator.runs.purposes.merging import Merger
from orchestrator.runs.purposes.picking import PickedJudgement, merge_best, with_merge

Options = TypeVar("Options", bound=RunOptions)
_WAYS = ("merge", "queue")


def with_next_step(config: ParallelConfig, run: Options) -> Options:
    """Return the options with the step that follows the run.

    Args:
        config: The settings of the run.
        run: The options, one of which asks for such a step.

    Raises:
        ConfigError: The step is impossible for this run.
    """
    if run.pick is not None and run.land is not None:
        raise ConfigError("`--pick` and `--land` cannot be used together", key="option.conflict")
    repository = Repository(Path.cwd())
    if run.pick is not None:
        check_pick(run.pick)
        return replace(run, next_step=PickBest(repository, config, quiet=run.quiet))
    return replace(run, next_step=LandRun(repository, config, run.land or "", quiet=run.quiet))


@dataclass(frozen=True, kw_only=True)
class LandedRun:
    """The merge of a run's branches."""

    merged: Merged

    def exit_code_after(self, code: int) -> int:
        """Return the run's code; if it is 0, 1 if a worker that succeeded was not merged.

        The run's code says whether failed workers matter, so that no landing hides a failure.
        """
        is_left = any(left.reason != "failed" for left in self.merged.left)
        return code or (SOME_LEFT if is_left else 0)

    @property
    def values(self) -> Mapping[str, object]:
        """Return the additional keys of the run's JSON object, with their values."""
        return {"landing": self.merged.model_dump(mode="json")}


class LandRun:
    """Merges the branches of a run into the branch that is checked out."""

    def __init__(
        self, repository: Repository, config: ParallelConfig, how: str, *, quiet: bool
    ) -> None:
        """Check the settings before the run starts; with `queue`, the run's checks test the merge.

        Raises:
            ConfigError: `how` is neither `merge` nor `queue`, or there are no checks for a queue.
            OrchestratorError: Nothing can be merged into the branch that is checked out.
        """
        if how not in _WAYS:
            raise ConfigError(
                f"option `--land` is `{one_line(how)}`: must be one of {', '.join(_WAYS)}",
                key="option.invalid",
            )
        checks = require_checks(config, "`--land queue`") if how == "queue" else ()
        check_ahead(repository)
        note = silent if quiet else tell
        self._merger = Merger(repository.top, config=config, note=note)
        self._request = MergeRequest(checks=checks, on_conflict="skip")

    def cancel(self, *, kill: bool = False) -> None:
        """Stop the checks, so that nothing is merged."""
        self._merger.cancel(kill=kill)

    def __call__(self, result: RunResult, *, show_text: bool) -> LandedRun:
        """Merge the branches of a run.

        Args:
            result: The result of the run.
            show_text: Whether to print what was merged.

        Raises:
            OrchestratorError: Nothing could be merged, or the checks were interrupted.
        """
        merged = self._merger.merge(self._request, result.run_id)
        if show_text:
            show("")
            show_merged(merged)
        return LandedRun(merged=merged)


@dataclass(frozen=True, kw_only=True)
class Picked:
    """The judgement of a run, with the merge of its best worker."""

    judgement: PickedJudgement

    def exit_code_after(self, code: int) -> int:
        """Return 0 if a worker was merged, whatever the others did.

        Otherwise return the run's code; if it is 0, 2 if the judgement is undecided, else 1.
        """
        return self.judgement.exit_code and (code or self.judgement.exit_code)

    @property
    def merged(self) -> Merged | None:
        """Return how the best worker was merged; None if none was merged."""
        return self.judgement.merged

    @property
    def values(self) -> Mapping[str, object]:
        """Return the additional keys of the run's JSON object, with their values."""
        return {"judgement": self.judgement.model_dump(mode="json")}


class PickBest:
    """Judges the workers of a run by the checks of its settings, and merges the best one."""

    def __init__(self, repository: Repository, config: ParallelConfig, *, quiet: bool) -> None:
        """Check that the workers of the run are candidates for one task.

        Raises:
            ConfigError: There are several tasks, or no checks.
            OrchestratorError: Nothing can be merged into the branch that is checked out.
        """
        number = len({*config.tasks})
        if number > 1:
            raise ConfigError(
                f"`--pick` chooses between workers with the same task, and there are {number} "
                "tasks",
                key="pick.tasks-differ",
                hint="without `--pick`: `orchestrator merge --queue` merges work on several tasks",
            )
        checks = require_checks(config, "`--pick`")
        check_ahead(repository)
        rules = JudgingRules(checks=checks, instruments=config.judge.instruments)
        note = silent if quiet else tell
        self._repository = repository
        self._judge = CandidateJudge(rules, repository.top, config=config, note=note)

    def cancel(self, *, kill: bool = False) -> None:
        """Stop the checks, so that nothing is merged."""
        self._judge.cancel(kill=kill)

    def __call__(self, result: RunResult, *, show_text: bool) -> Picked:
        """Judge the workers of a run, and merge the best one.

        Args:
            result: The result of the run.
            show_text: Whether to print the judgement and the merge.

        Raises:
            OrchestratorError: The workers cannot be judged or merged, or the judgement was
                interrupted.
        """
        judgement = self._judge.judge(result.run_id)
        if show_text:
            show(f"\n{judgement_text(judgement)}")
        merged = merge_best(self._repository, judgement, tell)
        if show_text and merged is not None:
            show_merged(merged)
        return Picked(judgement=with_merge(judgement, merged))
