"""Choose a candidate by the judgement of its run, and merge it."""

from collections.abc import Callable
from pathlib import Path

from orchestrator.errors import ConfigError
from orchestrator.git.repository import Repository
from orchestrator.judging.judgement import Candidate, Judgement
from orchestrator.judging.store import latest_judgement
from orchestrator.landing.branches import read_branches
from orchestrator.landing.merge import Wish, merge_branches
from orchestrator.landing.merged import Form, Merged

Note = Callable[[str], None]
"""Function that is told about the progress, in one line."""


class PickedJudgement(Judgement):
    """The output of a command with `--pick auto`: the judgement, and the merge of the best."""

    merged: Merged | None = None
    """How the best candidate was merged; null if it was not merged."""


def silent(_: str) -> None:
    """Ignore a note."""


def candidate_of(judgement: Judgement, number: int | None = None) -> Candidate | None:
    """Return a candidate by its number, or else the one that is clearly the best, if any.

    Raises:
        ConfigError: The worker with this number was not judged.
    """
    wanted = judgement.pick if number is None else number
    found = next((one for one in judgement.candidates if one.worker_id == wanted), None)
    if found is None and number is not None:
        raise ConfigError(f"worker {number} of run {judgement.run_id} was not judged")
    return found


def merge_candidate(
    repository: Repository,
    judgement: Judgement,
    chosen: Candidate,
    wish: Wish,
    note: Note = silent,
) -> Merged:
    """Merge a candidate, if its branch is still where it was when it was judged.

    Args:
        repository: The user's repository.
        judgement: The judgement of the candidate.
        chosen: The candidate.
        wish: How the branch is merged.
        note: Is told if the merge changes tests.

    Raises:
        ConfigError: The branch has moved since.
        OrchestratorError: The branch cannot be merged.
    """
    branches = read_branches(repository, chosen.run_id, [chosen.worker_id])
    if branches.branches[0].commit != chosen.commit:
        raise ConfigError(
            f"the branch of worker {chosen.worker_id} has moved since it was judged",
            hint=f"judge the run again: `orchestrator judge {judgement.run_id}`",
        )
    if chosen.protected != chosen.commit and judgement.tests != "free":
        note(
            f"worker {chosen.worker_id} changed tests, and was judged with those of the base; "
            "the changes are merged: review them"
        )
    return merge_branches(repository, branches, wish)


def merge_best(repository: Repository, judgement: Judgement, note: Note = silent) -> Merged | None:
    """Merge the candidate that is clearly the best; return None if there is none."""
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
        worker: Number of the worker to merge, whether it is the best or not.
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
    return merge_candidate(repository, judgement, chosen, Wish(form=form, into=into, named=True))


def _repository(root: Path | str | None) -> Repository:
    return Repository(Path(root) if root is not None else Path.cwd())
