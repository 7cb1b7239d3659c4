"""Records of merges: one for each merge, which `--undo` reads, and one for a merge in progress.

The record of a merge is a commit under `refs/orchestrator/landed/RUN`. Its parents are the merged
commit, the commit before the merge, and the previous record, so that git keeps all of them.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.base.errors import GitCommandError
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.results import Form
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.incoming.sealed_commits import signature, write_commit
from orchestrator.repository.repository import LANDED, Repository

_UNDER_WAY = "landing.json"
_MOST = 64 * 1024
_BODY = "%B"


class Landed(BaseModel):
    """A completed merge: the branch, and its commits before and after."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    form: Form
    branch: str
    before: str
    after: str
    workers: tuple[int, ...]
    commits: tuple[str, ...] = ()
    """The merged commit of each of the workers; empty in records of older versions."""
    previous: str | None = None
    """Record of the previous merge of the same run."""

    @property
    def ref(self) -> str:
        """Return the ref of the run's latest merge."""
        return f"{LANDED}{self.run_id}"

    def is_undone_from(self, commit: str) -> bool:
        """Return whether the merge can be undone if the branch points at `commit`."""
        return commit == (self.after if self.moves else self.before)

    @property
    def moves(self) -> bool:
        """Return whether the merge moves the branch; with `apply`, only files change."""
        return self.form != "apply"


class UnderWay(BaseModel):
    """A change of a branch and its checkout that has begun and may be incomplete."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["land", "undo"]
    landed: Landed
    checkout: str | None
    """Path of the worktree in which the branch is checked out."""

    @property
    def old(self) -> str:
        """Return the commit from which the files are updated."""
        return self.landed.before if self.kind == "land" else self.landed.after

    @property
    def new(self) -> str:
        """Return the commit to which the files are updated."""
        return self.landed.after if self.kind == "land" else self.landed.before


def note_under_way(repository: Repository, change: UnderWay) -> None:
    """Record a change before it begins, so that another process can complete it."""
    write_atomically(repository.state_dir / _UNDER_WAY, change.model_dump_json())


def read_under_way(repository: Repository) -> UnderWay | None:
    """Return the change that a dead process left incomplete, if any."""
    try:
        return UnderWay.model_validate_json((repository.state_dir / _UNDER_WAY).read_bytes())
    except (OSError, ValidationError):
        return None


def forget_under_way(repository: Repository) -> None:
    """Remove the record of a change that is complete or never began."""
    (repository.state_dir / _UNDER_WAY).unlink(missing_ok=True)


def write_record(repository: Repository, landed: Landed) -> Landed:
    """Record a merge before the branch moves. The caller holds the repository lock.

    Returns:
        The merge, with a link to the previous record.
    """
    held = repository.commit_of(landed.ref)
    landed = landed.model_copy(update={"previous": held})
    parents = [landed.after, landed.before, *([held] if held else [])]
    made = write_commit(
        repository.git, f"{landed.after}^{{tree}}", parents, landed.model_dump_json().encode(),
        signed=signature(repository, datetime.now(UTC)),
    )  # fmt: skip
    _move(repository, landed.ref, made, held)
    return landed


def drop_record(repository: Repository, landed: Landed) -> None:
    """Remove the latest record of a run. The caller holds the repository lock."""
    held = repository.commit_of(landed.ref)
    if held is not None and read_record(repository, held) == landed:
        _move(repository, landed.ref, landed.previous, held)


def _move(repository: Repository, ref: str, new: str | None, old: str | None) -> None:
    absent = "0" * (64 if repository.object_format == "sha256" else 40)
    if new is None:
        repository.git.run("update-ref", "-d", ref, old or absent)
    else:
        repository.git.run("update-ref", ref, new, old or absent)


def read_record(repository: Repository, name: str) -> Landed | None:
    """Return the merge that a record describes; None if the commit is no such record."""
    try:
        said = repository.git.listing(
            "log", "-1", f"--format={_BODY}", "--end-of-options", name, limit=_MOST
        )
        return Landed.model_validate_json(said)
    except (GitCommandError, ValidationError):
        return None


def landings(repository: Repository, branch: str, run_id: str | None) -> list[Landed]:
    """Return the latest merge of each run into a branch, newest first.

    Args:
        repository: The repository.
        branch: The branch.
        run_id: Only the merge of this run.
    """
    form = ("for-each-ref", "--sort=-committerdate", "--format=%(refname)")
    wanted = LANDED if run_id is None else f"{LANDED}{run_id}"
    found = ((ref, read_record(repository, ref)) for ref in
             split_lines(repository.git.text(*form, wanted)))  # fmt: skip
    return [
        landed for ref, landed in found if landed and landed.ref == ref and landed.branch == branch
    ]


def commits_after(repository: Repository, run_id: str, worker: int, commit: str) -> Iterator[str]:
    """Yield the commits of branches into which a worker's commit was merged, newest first.

    A squash or rebase adds other commits with the same changes, which only the record knows.
    """
    name: str | None = f"{LANDED}{run_id}"
    while name is not None and (landed := read_record(repository, name)) is not None:
        if landed.moves and (worker, commit) in zip(landed.workers, landed.commits, strict=False):
            yield landed.after
        name = landed.previous
