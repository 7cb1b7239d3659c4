"""Choose the numbers of a run's workers, and the names of their worktrees and branches.

Conflicts with existing worktrees and branches are found here, before anything is created.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.errors import ConfigError, GitCommandError
from orchestrator.base.text.name_templates import (
    BRANCH,
    WORKTREE_DIR,
    has_number,
    leads_outside,
    literal_directory,
    pattern,
    render,
)
from orchestrator.base.text.sanitize import is_text, one_line
from orchestrator.base.text.split_lines import split_lines
from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.planning import job_count
from orchestrator.repository.checkouts.worktree_list import all_worktrees
from orchestrator.repository.ref_names import other_meanings
from orchestrator.repository.repository import Repository, is_reserved
from orchestrator.runs.cleanup.inventory import RecordedWorker, find_named_workers
from orchestrator.state.run_outline import live_numbers

_HEADS = "refs/heads/"
_NAME_MAX = 255
_LONGEST_PATH = 1024
_GIT_DIRECTORY = ("HEAD", "objects", "refs")
_SPECIAL = re.compile(r"[A-Z_]+|[0-9a-f]{40}|[0-9a-f]{64}")
"""Names that git does not accept for a branch, such as `FETCH_HEAD` or the id of a commit."""
_HINT = "choose another `worktree_dir` or `branch`; with `{n}` in it, the next free number is used"


@dataclass(frozen=True)
class _Conflict:
    """A name that a worker would get, and the existing branch or path that prevents the name."""

    number: int
    message: str
    movable: bool
    """Whether another worker number would avoid the conflict."""


def name_workers(
    repository: Repository,
    config: ParallelConfig,
    base: str,
    plan: Callable[[int], tuple[WorkerSpec, ...]],
) -> tuple[WorkerSpec, ...]:
    """Plan the workers of a run with the lowest numbers whose branches and worktrees do not exist.

    Args:
        repository: The repository.
        config: The settings of the run.
        base: The commit that the run starts from.
        plan: Returns the workers for a given first number.

    Raises: ConfigError: A name has a conflict that no other number avoids.
    """
    claimed = list(find_named_workers(repository))
    # protection: number-is-used-by-one-worker-only
    taken = live_numbers(repository.state_dir) | {worker.number for worker in claimed}
    names = _Names(repository, config, base, claimed)
    while True:
        first = repository.free_block(job_count(config), taken=taken)
        workers = tuple(names.name_worker(spec) for spec in plan(first))
        conflicts = list(names.conflicts(workers))
        for conflict in conflicts:
            if not conflict.movable:
                raise ConfigError(conflict.message, key="names.conflict", hint=_HINT)
        if not conflicts:
            return workers
        taken |= {conflict.number for conflict in conflicts}


def note_names(
    repository: Repository, workers: Sequence[WorkerSpec], config: ParallelConfig
) -> None:
    """Record the names of workers before they are used. The caller holds the repository lock."""
    directory = config.worktree_dir
    if leads_outside(directory):
        fixed = _absolute(repository, literal_directory(directory)).resolve()
        directory = str(fixed / directory.removeprefix(literal_directory(directory)).lstrip("/"))
    patterns = [] if config.worktree_dir == WORKTREE_DIR else [pattern(directory)]
    branches = [spec.branch_name for spec in workers if spec.branch_name is not None]
    repository.note_names(patterns, branches)


def place_of_worktrees(repository: Repository, config: ParallelConfig) -> Path:
    """Return the existing directory in or below which the worktrees will be created."""
    return _existing(_absolute(repository, literal_directory(config.worktree_dir)))


def _absolute(repository: Repository, directory: str) -> Path:
    """Return an absolute path, with `~` and `..` resolved but not symbolic links."""
    try:
        path = repository.top / Path(directory).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"`worktree_dir`: {error}", key="worktree-dir.invalid", hint="use an absolute path"
        ) from error
    return Path(os.path.normpath(path))


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if os.path.lexists(parent))


class _Names:
    """The name templates of a run, and the existing names with which they may conflict."""

    def __init__(
        self,
        repository: Repository,
        config: ParallelConfig,
        base: str,
        claimed: Sequence[RecordedWorker],
    ) -> None:
        self._repository = repository
        self._worktree_dir, self._branch = config.worktree_dir, config.branch
        self._base = base
        self._claimed = claimed
        self._places: frozenset[Path] = frozenset()
        self._refs: frozenset[str] = frozenset()
        if self._worktree_dir != WORKTREE_DIR:
            self._check_top()
        if self._worktree_dir != WORKTREE_DIR or self._branch != BRANCH:
            found = all_worktrees(repository)
            self._places = frozenset(tree.path for tree in found if tree.path is not None)
            # A branch without a commit is no ref yet.
            unborn = (head for tree in found if (head := tree.head) is not None)
            refs = split_lines(repository.git.text("for-each-ref", "--format=%(refname)"))
            self._refs = frozenset([*refs, *unborn, *(worker.spec.ref for worker in claimed)])

    def name_worker(self, spec: WorkerSpec) -> WorkerSpec:
        """Return a worker's specification with its worktree and branch names."""
        number, task_id = spec.worker_id, spec.name
        update: dict[str, str] = {}
        if self._worktree_dir != WORKTREE_DIR:
            update["worktree_dir"] = self._resolve(
                render(self._worktree_dir, number=number, task_id=task_id)
            )
        if self._branch != BRANCH:
            update["branch_name"] = render(self._branch, number=number, task_id=task_id)
        return spec.model_copy(update=update)

    def conflicts(self, workers: Sequence[WorkerSpec]) -> Iterator[_Conflict]:
        """Yield the conflicts between the workers' names and existing names."""
        seen: dict[str, int] = {}
        for spec in workers:
            for name in (spec.branch_name, spec.worktree_dir):
                # Some file systems are case-insensitive.
                other = seen.setdefault(f"{name}".casefold(), spec.worker_id)
                if name is not None and other != spec.worker_id:
                    message = (
                        f"workers {other} and {spec.worker_id} would both have the name `{name}`"
                    )
                    yield _Conflict(spec.worker_id, message, movable=False)
            if spec.branch_name is not None:
                yield from self._of_branch(spec.worker_id, spec.branch_name)
            if spec.worktree_dir is not None:
                yield from self._of_directory(spec)

    def _check_top(self) -> None:
        """Check that worktrees are not created in a directory that has tracked files."""
        if leads_outside(self._worktree_dir):
            return
        first, star, _ = pattern(self._worktree_dir).partition("/")[0].partition("*")
        listed = self._repository.git.run("ls-tree", "-z", "--name-only", self._base).split(b"\0")
        for name in map(os.fsdecode, listed):
            # protection: worktree-in-directory-with-tracked-files-refused
            if name and is_reserved(name, [first + star]):
                raise ConfigError(
                    f"`worktree_dir`: the repository has files in `{one_line(name)}`",
                    key="worktree-dir.tracked",
                    hint="use a directory without tracked files, such as `.worktrees/{n}`",
                )

    def _resolve(self, directory: str) -> str:
        """Return a worktree's path: relative to the repository's top, or absolute outside of it."""
        if not leads_outside(directory):
            return directory
        wanted = _absolute(self._repository, directory)
        path = wanted.parent.resolve() / wanted.name
        if set(",:\\") & set(str(path)) or not is_text(str(path)) or not str(path).isprintable():
            raise ConfigError(
                f"`worktree_dir`: containers cannot mount `{one_line(str(path))}`",
                key="worktree-dir.unmountable",
                hint="use a path without `,`, `:`, `\\` and control characters",
            )
        if path.is_relative_to(self._repository.top.resolve()):
            raise ConfigError(
                f"`worktree_dir`: the absolute path {path} is in the repository",
                key="worktree-dir.in-repository",
                hint="use a path relative to the repository's top, such as `.worktrees/{n}`",
            )
        return str(path)

    def _of_branch(self, number: int, name: str) -> Iterator[_Conflict]:
        movable = has_number(self._branch)
        ref = f"{_HEADS}{name}"
        try:
            right = self._repository.git.text("check-ref-format", "--branch", name) == name
        except GitCommandError:
            right = False
        # protection: invalid-branch-names-refused
        if not right or _SPECIAL.fullmatch(name):
            yield _Conflict(number, f"`{name}` is not a valid branch name", movable=False)
            return
        folded = {other.casefold(): other for other in self._refs}
        # protection: branch-with-name-of-tag-refused
        for other in (folded.get(meaning.casefold()) for meaning in (ref, *other_meanings(name))):
            if other is not None:
                yield _Conflict(number, _in_use("branch", name, other), movable)
        for other in self._refs:
            if other.startswith(f"{ref}/"):
                yield _Conflict(number, _in_use("branch", name, other), movable)
            elif ref.startswith(f"{other}/"):
                yield _Conflict(number, _in_use("branch", name, other), movable=False)

    def _of_directory(self, spec: WorkerSpec) -> Iterator[_Conflict]:
        number, movable = spec.worker_id, has_number(self._worktree_dir)
        path = self._repository.top / spec.directory
        # protection: existing-paths-are-not-overwritten
        if os.path.lexists(path):
            message = f"{path} already exists: no worktree can be created there"
            yield _Conflict(number, message, movable)
        others = {worker.path: worker.number for worker in self._claimed}
        for other in {*others, *self._places} - {self._repository.top}:
            if other == path:
                yield _Conflict(number, _in_use("worktree", str(path), str(other)), movable)
            elif other.is_relative_to(path) or path.is_relative_to(other):
                message = f"{path} cannot be a worktree: {other} is a worktree"
                yield _Conflict(number, message, movable=False)
        problem = self._problem(path)
        if problem is not None:
            message = f"{path} cannot be a worktree: {problem}"
            yield _Conflict(number, message, movable=False)

    def _problem(self, path: Path) -> str | None:
        """Return why no worktree can be created at a path; None if a worktree can."""
        top = self._repository.top
        inside = path.is_relative_to(top)
        # A case-insensitive file system finds `.GIT`, too. Templates can contain neither.
        if any(part.lower() == ".git" for part in path.relative_to(top if inside else "/").parts):
            return "the path is inside a git directory"
        if path.is_relative_to(self._repository.common_dir.resolve()):
            return f"{self._repository.common_dir} is a git directory"
        if len(os.fsencode(path.name)) > _NAME_MAX or len(os.fsencode(path)) > _LONGEST_PATH:
            return "the path is too long"
        parents = path.parents[: len(path.relative_to(top).parts) - 1] if inside else path.parents
        problems = (_obstacle(parent, may_be_link=not inside) for parent in parents)
        problem, ground = next(filter(None, problems), None), _existing(path.parent)
        if problem is None and not ground.is_dir():
            return f"{ground} is not a directory"
        if problem is None and not os.access(ground, os.W_OK | os.X_OK):
            return f"nothing can be created in {ground}"
        return problem


def _obstacle(directory: Path, *, may_be_link: bool) -> str | None:
    """Return why no worktree can be created below a directory; None if a worktree can."""
    # protection: worktree-paths-do-not-follow-links-of-repository
    if directory.is_symlink() and not may_be_link:
        return f"{directory} is a symbolic link"
    # protection: worktree-in-another-repository-refused
    if os.path.lexists(directory / ".git"):
        return f"{directory} is another worktree or repository"
    if all(os.path.lexists(directory / name) for name in _GIT_DIRECTORY):
        return f"{directory} is a git directory"
    return None


def _in_use(what: str, name: str, other: str) -> str:
    return f"the {what} `{name}` cannot be created: `{one_line(other)}` exists"
