"""What was landed: a commit for each landing, which `--undo` reads, and the landing under way.

The record of a landing is a commit under `refs/orchestrator/landed/RUN`, with the landed commit,
the commit before it and the previous record as its parents: so git keeps all of them.
"""

from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.errors import GitCommandError
from orchestrator.files.atomic import write_atomically
from orchestrator.git.repository import LANDED, Repository
from orchestrator.git.sealed_commits import signature, write_commit
from orchestrator.landing.branches import commit_of
from orchestrator.landing.chain import Form

_UNDER_WAY = "landing.json"
_MOST = 64 * 1024
_BODY = "%B"


class Landed(BaseModel):
    """A landing: the branch, and its commits before and after."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    form: Form
    branch: str
    before: str
    after: str
    workers: tuple[int, ...]
    previous: str | None = None
    """Record of the previous landing of the same run."""

    @property
    def ref(self) -> str:
        """The ref of the run's latest landing."""
        return f"{LANDED}{self.run_id}"

    def is_undone_from(self, commit: str) -> bool:
        """Return whether the landing can be taken back while the branch is at a commit."""
        return commit == (self.after if self.moves else self.before)

    @property
    def moves(self) -> bool:
        """Whether the branch moved; `apply` only changes files."""
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
        """The commit that the files were at."""
        return self.landed.before if self.kind == "land" else self.landed.after

    @property
    def new(self) -> str:
        """The commit that the files are brought to."""
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
    """Record a landing, before the branch moves. The caller holds the repository lock.

    Returns:
        The landing with its previous one.
    """
    held = commit_of(repository, landed.ref)
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
    held = commit_of(repository, landed.ref)
    if held is not None and read_record(repository, held) == landed:
        _move(repository, landed.ref, landed.previous, held)


def _move(repository: Repository, ref: str, new: str | None, old: str | None) -> None:
    absent = "0" * (64 if repository.object_format == "sha256" else 40)
    if new is None:
        repository.git.run("update-ref", "-d", ref, old or absent)
    else:
        repository.git.run("update-ref", ref, new, old or absent)


def read_record(repository: Repository, name: str) -> Landed | None:
    """Return the landing that a record describes; None if it is not one of ours."""
    try:
        said = repository.git.listing(
            "log", "-1", f"--format={_BODY}", "--end-of-options", name, limit=_MOST
        )
        return Landed.model_validate_json(said)
    except (GitCommandError, ValidationError):
        return None


def landings(repository: Repository, branch: str, run_id: str | None) -> list[Landed]:
    """Return the latest landing of each run on a branch, newest first.

    Args:
        repository: The repository.
        branch: The branch.
        run_id: Only the landing of this run.
    """
    form = ("for-each-ref", "--sort=-committerdate", "--format=%(refname)")
    wanted = LANDED if run_id is None else f"{LANDED}{run_id}"
    found = ((ref, read_record(repository, ref)) for ref in
             repository.git.text(*form, wanted).splitlines())  # fmt: skip
    return [one for ref, one in found if one and one.ref == ref and one.branch == branch]
