"""Merge the best candidate of a judged run, for commands and for Python programs."""

from pathlib import Path

from orchestrator.base.results import Form
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.judgement import Judgement
from orchestrator.review.judging.pick import Note, candidate_of, merge_candidate, silent
from orchestrator.review.judging.store import latest_judgement
from orchestrator.review.landing.merge import Wish
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.review.landing.merged import Merged


class PickedJudgement(Judgement):
    """Output of a command with `--pick auto`: the judgement, and the best candidate's merge."""

    merged: Merged | None = None
    """How the best candidate was merged; null if it was not merged."""

    @property
    def exit_code(self) -> int:
        """Return 0 if the best candidate was merged, 2 if no candidate is clearly best, else 1."""
        is_left = self.merged is not None and bool(self.merged.left)
        return 1 if is_left else super().exit_code


def merge_best(repository: Repository, judgement: Judgement, note: Note = silent) -> Merged | None:
    """Merge the candidate that is clearly the best; return None if no candidate is."""
    chosen = candidate_of(judgement)
    if chosen is None:
        return None
    return merge_candidate(repository, judgement, chosen, Wish(named=True), note)


def with_merge(judgement: Judgement, merged: Merged | None) -> PickedJudgement:
    """Return a judgement with the merge of its best candidate."""
    return PickedJudgement(**dict(judgement), merged=merged)


def compare(root: Path | str | None = None, *, run: str | None = None) -> Judgement:
    """Return the latest judgement of a run, without running anything.

    Args:
        root: Any directory in the repository. Default: the current directory.
        run: The run's id, or the beginning of it. Default: the newest run that was judged.

    Raises:
        ConfigError: There is no such run, or it was not judged.
    """
    return latest_judgement(_repository(root).state_dir, run)


def pick(
    root: Path | str | None = None,
    *,
    run: str | None = None,
    worker: int | None = None,
    form: Form = "merge",
    into: str | None = None,
) -> Merged | None:
    """Merge the best worker of a judged run; return None if no worker is clearly the best.

    Args:
        root: Any directory in the repository. Default: the current directory.
        run: The run's id, or the beginning of it. Default: the newest run that was judged.
        worker: Number of the worker to merge, even if it is not the best. Default: the best.
        form: `merge`, `squash`, `rebase` or `apply`.
        into: The branch to merge into. Default: the branch that is checked out.

    Raises:
        OrchestratorError: The run was not judged, or the branch cannot be merged.
    """
    repository = _repository(root)
    judgement = latest_judgement(repository.state_dir, run)
    chosen = candidate_of(judgement, worker)
    if chosen is None:
        return None
    request = MergeRequest(form=form, into=into)
    wish = Wish(request=request, named=True, overrules_judgement=worker is not None)
    return merge_candidate(repository, judgement, chosen, wish)


def _repository(root: Path | str | None) -> Repository:
    return Repository(Path(root) if root is not None else Path.cwd())
