"""Choose a candidate of a judgement, and merge it."""

from collections.abc import Callable

from orchestrator.base.errors import ConfigError
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.judgement import Candidate, Judgement
from orchestrator.review.landing.branches import RunBranches, read_branches
from orchestrator.review.landing.merge import Wish, merge_branches
from orchestrator.review.landing.merged import Merged

Note = Callable[[str], None]
"""Function that receives messages about the progress, each of one line."""


def silent(_: str) -> None:
    """Ignore a note."""


def candidate_of(judgement: Judgement, number: int | None = None) -> Candidate | None:
    """Return the candidate with a number; by default the clearly best candidate, if any.

    Raises:
        ConfigError: The worker with this number was not judged.
    """
    wanted = judgement.picked if number is None else number
    found = next(
        (candidate for candidate in judgement.ranking if candidate.worker_id == wanted), None
    )
    if found is None and number is not None:
        raise ConfigError(
            f"worker {number} of run {judgement.run_id} was not judged", key="worker.unjudged"
        )
    return found


def read_judged_branch(
    repository: Repository, judgement: Judgement, chosen: Candidate
) -> RunBranches:
    """Return the branch of a candidate.

    Raises:
        ConfigError: The branch has moved since the judgement.
    """
    branches = read_branches(repository, chosen.run_id, [chosen.worker_id])
    # protection: branch-that-moved-since-it-was-judged-is-not-picked
    if branches.branches[0].commit != chosen.commit:
        raise ConfigError(
            f"the branch of worker {chosen.worker_id} has moved since it was judged",
            key="branch.moved",
            hint=f"judge the run again: `orchestrator judge {judgement.run_id}`",
        )
    return branches


def merge_candidate(
    repository: Repository,
    judgement: Judgement,
    chosen: Candidate,
    wish: Wish,
    note: Note = silent,
) -> Merged:
    """Merge a candidate, if its branch has not moved since the judgement.

    Args:
        repository: The user's repository.
        judgement: The judgement of the candidate.
        chosen: The candidate.
        wish: How the branch is merged.
        note: Receives a message if the merge changes tests.

    Raises:
        ConfigError: The branch has moved since the judgement.
        OrchestratorError: The branch cannot be merged.
    """
    branches = read_judged_branch(repository, judgement, chosen)
    if chosen.protected != chosen.commit and judgement.tests != "free":
        note(
            f"worker {chosen.worker_id} changed tests, but was judged with the base's tests; "
            "the changes of tests are merged too: review them"
        )
    return merge_branches(repository, branches, wish)
