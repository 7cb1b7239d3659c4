"""The worktree that the user sees: made from the base, brought to the checked result."""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from orchestrator.errors import RepositoryError
from orchestrator.git.command import UNTRUSTED, Git, GitCommandError
from orchestrator.git.disarm import keep_off
from orchestrator.git.repository import WORKER_MARK, Repository
from orchestrator.worker_spec import WorkerSpec

CHECKOUT_TIMEOUT = 120.0
"""Seconds for writing a worker's files: patterns in `.gitattributes` can be slow without end."""
# The index has every file of the user's.
_LIMITS = replace(UNTRUSTED, memory=2 * 1024**3)
HALF_MADE = ".half-made-"
"""Comes before the number of what was put aside."""


@dataclass(frozen=True)
class Worktree:
    """`.architect-parallel-N`. No worker can write to it."""

    path: Path
    branch: str
    git_dir: Path
    """Its own git directory, in the repository's `worktrees`."""

    def unlock(self) -> None:
        """Remove the lock of a git of ours that was killed."""
        (self.git_dir / "index.lock").unlink(missing_ok=True)

    def refresh(self, repository: Repository, *, again: bool = False) -> None:
        """Tell the index that files are as it has them, whoever owns them by now.

        Args:
            repository: The repository.
            again: A process that died may have begun with it.

        Raises:
            GitCommandError: The user's own git holds the lock.
        """
        if again:
            self.unlock()
        # Not with -q: it hides that the user's own git holds the lock, which is to be waited for.
        self._git(repository).succeeds("update-index", "--refresh")

    def _git(self, repository: Repository) -> Git:
        return Git(self.git_dir, work_tree=self.path, config=repository.without_filters())

    def update(self, repository: Repository, *, base: str, tip: str, again: bool = False) -> None:
        """Bring files and index, just refreshed, from `base` to `tip`, which is its branch's.

        Args:
            repository: The repository.
            base: Where it was.
            tip: Where it is to be.
            again: A process that died may have begun with it.

        Raises:
            GitCommandError: The user changed a file that differs; nothing was overwritten.
            RepositoryError: A worker's attributes would take git for ever; it was ended.
        """
        if tip == base:
            return
        git = self._git(repository).within(_LIMITS)
        if again:
            self._take_in(git, base=base, tip=tip)
        self._check_out(git, base, tip)

    def _check_out(self, git: Git, base: str, tip: str) -> None:
        try:
            git.run("read-tree", "-m", "-u", base, tip, timeout=CHECKOUT_TIMEOUT)
        except GitCommandError:
            raise
        except RepositoryError:
            self.unlock()
            raise

    def _take_in(self, git: Git, *, base: str, tip: str) -> None:
        """Tell the index of files that are as in `tip`: a git that was killed wrote them."""
        raw = ("diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", "--diff-filter=d")
        fields = git.run(*raw, base, tip).split(b"\0")
        # `:old_mode new_mode old new status`, NUL, path, NUL.
        written = dict(zip(fields[1::2], (line.split(b" ") for line in fields[::2]), strict=False))
        unlike = self._unlike(git, tip)
        for path in unlike & written.keys():
            self._drop_if_cut_short(git, path, written[path][3].decode())
        lines = (
            b"%b %b\t%b\0" % (mode, blob, path)
            for path, (_, mode, _, blob, _) in written.items()
            if path not in unlike
        )
        git.run("update-index", "--add", "-z", "--index-info", stdin=b"".join(lines))

    def _unlike(self, git: Git, tip: str) -> frozenset[bytes]:
        """Name the files of `tip` that are not as it has them."""
        index = self.git_dir / "index.take-in"
        env = {"GIT_INDEX_FILE": str(index)}
        try:
            git.run("read-tree", tip, env=env)
            git.run("update-index", "-q", "--refresh", env=env, timeout=CHECKOUT_TIMEOUT)
            return frozenset(git.run("diff-files", "-z", "--name-only", env=env).split(b"\0"))
        finally:
            index.unlink(missing_ok=True)

    def _drop_if_cut_short(self, git: Git, path: bytes, blob: str) -> None:
        """Remove a file that git had begun to write."""
        file = self.path / os.fsdecode(path)
        if file.is_symlink() or not file.is_file() or file.parent.resolve() != file.parent:
            return
        begun, whole = file.read_bytes(), git.run("cat-file", "blob", blob)
        if len(begun) < len(whole) and whole.startswith(begun):
            file.unlink()


def add_worktree(repository: Repository, spec: WorkerSpec) -> Worktree:
    """Check the worker's branch out beside the user's files. To be called with the lock held.

    Raises:
        RepositoryError: The directory exists, or git failed.
    """
    path = repository.top / spec.directory
    if spec.worktree_dir is not None:
        make_parent(path)
    # Files as git stores them: inside, where no filter of the user's can run, they are the same.
    git = Git(repository.git_dir, work_tree=repository.top, config=repository.without_filters())
    git.run("worktree", "add", "--quiet", str(path), spec.branch)
    worktree = open_worktree(path, spec.branch)
    if spec.is_named:
        (worktree.git_dir / WORKER_MARK).touch()
    keep_off(repository, path, worktree.git_dir)
    return worktree


def make_parent(path: Path) -> None:
    """Create the directories that a worktree's directory is to be in.

    Raises:
        RepositoryError: They could not be created, or a symbolic link leads elsewhere.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        elsewhere = path.parent.resolve(strict=True) != path.parent
    except OSError as error:
        raise RepositoryError(f"cannot create {path.parent}: {error.strerror}") from error
    if elsewhere or os.path.lexists(path):
        what = "exists already" if not elsewhere else "is reached through a symbolic link"
        raise RepositoryError(f"{path} {what}: no worktree was made there")


def open_worktree(path: Path, branch: str, *, marked: bool = False) -> Worktree:
    """Find the git directory of a worktree.

    Args:
        path: The worktree.
        branch: Its branch.
        marked: Whether it was made for a worker whose names come from templates: what the user has
            made in its place since is not taken for it.

    Raises:
        RepositoryError: `path` is not a worktree any more.
    """
    try:
        pointer = (path / ".git").read_text().strip()
    except OSError as error:
        raise RepositoryError(f"not a worktree: {path}") from error
    # The leading dot of the name becomes `-` there, and numbers are added: git is asked.
    git_dir = Path(pointer.removeprefix("gitdir: "))
    if marked and not (git_dir / WORKER_MARK).exists():
        raise RepositoryError(f"not a worker's worktree any more: {path}")
    return Worktree(path=path, branch=branch, git_dir=git_dir)


def ensure_worktree(repository: Repository, spec: WorkerSpec) -> Worktree:
    """Open a worker's worktree, or make it again where somebody deleted it meanwhile.

    Raises:
        RepositoryError: It is there, and not a worktree any more.
    """
    path = repository.top / spec.directory
    if os.path.lexists(path):
        return open_worktree(path, spec.branch, marked=spec.is_named)
    with repository.lock():
        with suppress(GitCommandError):  # git may have forgotten it, too
            remove_worktree(repository, path)
        return add_worktree(repository, spec)


def put_aside(repository: Repository, spec: WorkerSpec, directory: Path) -> None:
    """Undo the making of a worktree that was cut short. To be called with the lock held.

    Its directory is not deleted, for nobody knows what else is in it by now, but moved, beside the
    rest of what was half made.

    Args:
        repository: The repository.
        spec: Whose worktree it is.
        directory: The worker's half-made state directory; it gets another name.

    Raises:
        OSError: It could not be moved.
        GitCommandError: Git still knows the worktree.
    """
    aside = next(
        path
        for number in count(1)
        if not (path := directory.with_name(f"{directory.name}{HALF_MADE}{number}")).exists()
    )
    clear_place(repository, spec, directory)
    directory.rename(aside)


def clear_place(repository: Repository, spec: WorkerSpec, into: Path) -> None:
    """Move what is in a worktree's place elsewhere. To be called with the lock held.

    Raises:
        OSError: It could not be moved.
        GitCommandError: Git still knows the worktree.
    """
    path = repository.top / spec.directory
    if path.exists():
        shutil.move(path, into / path.name)
    listed = repository.git.run("worktree", "list", "--porcelain", "-z").split(b"\0")
    if b"worktree " + os.fsencode(path) in listed:
        # Twice: git locks a worktree until it is complete.
        repository.git.run("worktree", "remove", "--force", "--force", str(path))


def remove_worktree(repository: Repository, path: Path) -> None:
    """Remove a worktree and what git knows of it. To be called with the lock held.

    Raises:
        GitCommandError: It could not be removed.
    """
    remove = ("worktree", "remove", "--force")
    try:
        repository.git.run(*remove, str(path))
    except GitCommandError as error:
        # Git's own lock, of a `worktree add` that was killed; a lock of the user's stands.
        if "lock reason: initializing" not in error.stderr:
            raise
        repository.git.run(*remove, "--force", str(path))
