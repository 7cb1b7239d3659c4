"""Write and update the files and the index of a worker's worktree, or of a shared checkout."""

import os
import shutil
import stat
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from orchestrator.base.errors import GitCommandError, RepositoryError
from orchestrator.base.files.change_owner import change_owner
from orchestrator.base.files.owner import owner_elsewhere
from orchestrator.repository.git.command import Git
from orchestrator.repository.git.defaults import SIZE_AND_TIME
from orchestrator.repository.git.limits import UNTRUSTED
from orchestrator.repository.repository import Repository

CHECKOUT_TIMEOUT = 120.0
"""Timeout in seconds for writing a worker's files, because patterns in `.gitattributes` can make
git arbitrarily slow.
"""
# A checkout needs more memory than other commands: the index lists every file of the user.
_LIMITS = replace(UNTRUSTED, memory=2 * 1024**3)
_SPARSE = ("core.sparsecheckout", "core.sparsecheckoutcone")
_ACCEPTING = {
    **SIZE_AND_TIME,
    "core.ignoreStat": "true",
    # Preloading marks unchanged files as done, and their stat data would not be recorded.
    "core.preloadIndex": "false",
}
_NOBODY = (65534, 65534)
"""uid and gid of the user without any rights, which every Linux system has."""


@cache
def can_own() -> bool:
    """Return whether this process may let git create files that belong to another user.

    The answer is the same for every user, so git is started once and not for each worker.
    """
    try:
        Git(None, owner=_NOBODY).run("version")
    except RepositoryError:
        # The caller is not root, `setpriv` (of util-linux) is missing, or a container lacks the
        # capabilities.
        return False
    return True


@dataclass(frozen=True)
class Worktree:
    """A worker's worktree on the host, and its git directory; no worker can write to either."""

    path: Path
    branch: str
    git_dir: Path
    """The worktree's own git directory, below `worktrees` in the repository's git directory."""

    def unlock(self) -> None:
        """Remove the lock file of the index that a killed git process left behind."""
        (self.git_dir / "index.lock").unlink(missing_ok=True)

    def refresh(self, repository: Repository, *, again: bool = False) -> None:
        """Refresh owner, size and time of files in the index, with `git update-index --refresh`.

        Args:
            repository: The repository.
            again: Whether a process that died may have started the same refresh.

        Raises:
            GitCommandError: A git command of the user holds the lock of the index.
        """
        if again:
            self.unlock()
        # Without `-q`, git reports that the user's own git holds the lock, and the caller waits.
        self._git(repository).succeeds("update-index", "--refresh")
        self._give_index()

    def _git(self, repository: Repository) -> Git:
        owner, config = owner_elsewhere(self.path), repository.comparing()
        return Git(self.git_dir, work_tree=self.path, config=config, owner=owner)

    def _give_index(self, creator: tuple[int, int] = (0, 0)) -> None:
        """As root, give a new index to the owner of its git directory, whose own git reads it."""
        if os.geteuid() != 0:
            return
        place = os.open(self.git_dir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # A directory of another user may have a link in place of the index.
            index = os.open("index", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
            with os.fdopen(index, "rb"):
                user, info = os.fstat(place), os.fstat(index)
                if stat.S_ISREG(info.st_mode) and info.st_nlink == 1 and info.st_uid == creator[0]:
                    os.fchown(index, user.st_uid, user.st_gid)
        except FileNotFoundError:
            pass
        finally:
            os.close(place)

    def write_files(
        self, repository: Repository, commit: str, *, owner: tuple[int, int] | None
    ) -> None:
        """Write the files of a commit into the empty worktree.

        Args:
            repository: The repository.
            commit: The commit.
            owner: uid and gid of the files. None: the caller's, or for root those of the worktree's
                top directory. This directory and its `.git` keep their owner: otherwise git would
                not trust the worktree.

        Raises:
            RepositoryError: Git failed.
        """
        wanted = owner or owner_elsewhere(self.path)
        creator = wanted if wanted is not None and can_own() else None
        config = {**repository.comparing(), **repository.settings(_SPARSE)}
        git = Git(self.git_dir, work_tree=self.path, config=config, owner=creator)
        git.run("read-tree", "--reset", "-u", commit)
        # protection: index-of-worktree-belongs-to-caller
        self._give_index(creator or (0, 0))
        if owner is not None and creator is None:
            change_owner(self.path, owner, keep=self.path)
            self.accept_owner(repository)

    def accept_owner(self, repository: Repository) -> None:
        """Record in the index that the owner of the files has changed, without reading the files.

        `git update-index --refresh` would read all files. Files whose size and time have changed
        too are left for git to compare.

        Raises:
            RepositoryError: Git failed.
        """
        try:
            lock = self._lock_index()
        except FileExistsError:
            # A git command of the user is changing the index; later commands read the files
            # again.
            return
        try:
            config = {**repository.comparing(), **_ACCEPTING}
            git = Git(self.git_dir, work_tree=self.path, index=lock, config=config)
            paths = git.run("ls-files", "-z")
            # With `core.ignoreStat`, the first option records the stat data of files that git finds
            # unchanged, and marks them `assume-unchanged`, which the second option undoes.
            refresh = ("update-index", "--really-refresh")
            # protection: no-file-is-assumed-unchanged
            git.succeeds(*refresh, "--no-assume-unchanged", "-z", "--stdin", stdin=paths)
            lock.replace(self.git_dir / "index")
            self._give_index()
        except BaseException:
            lock.unlink(missing_ok=True)
            raise

    @retry(
        retry=retry_if_exception_type(FileExistsError),
        stop=stop_after_attempt(6),
        wait=wait_exponential(multiplier=0.1, max=2),
        reraise=True,
    )
    def _lock_index(self) -> Path:
        """Copy the index to its lock file, which only one process can create at a time.

        Raises:
            FileExistsError: A git command of the user is changing the index.
        """
        index, lock = self.git_dir / "index", self.git_dir / "index.lock"
        # protection: index-locked-by-users-git-is-left-alone
        with lock.open("xb") as copy, index.open("rb") as current:
            shutil.copyfileobj(current, copy)
        # Git compares the content of files that are as young as the index.
        # protection: files-as-new-as-index-are-compared
        shutil.copystat(index, lock)
        return lock

    def update(self, repository: Repository, *, base: str, tip: str, again: bool = False) -> None:
        """Bring files and index from the commit `base` to `tip`, the new commit of the branch.

        Args:
            repository: The repository.
            base: The commit that the files are at.
            tip: The commit that the files are updated to.
            again: Whether a process that died may have started the same update.

        Raises:
            GitCommandError: The user changed a file that differs between `base` and `tip`; nothing
                was overwritten.
            RepositoryError: Git was killed after `CHECKOUT_TIMEOUT`, perhaps because patterns in a
                worker's `.gitattributes` made git slow.
        """
        if tip == base:
            return
        git = self._git(repository).within(_LIMITS)
        if again:
            self._take_in(git, base=base, tip=tip)
        # protection: users-changes-are-not-overwritten
        merge = ("read-tree", "-m", "-u", base, tip)
        try:
            try:
                git.run(*merge, timeout=CHECKOUT_TIMEOUT)
            except GitCommandError:
                # A file that was only touched counts as changed until git has compared it.
                git.succeeds("update-index", "-q", "--refresh")
                git.run(*merge, timeout=CHECKOUT_TIMEOUT)
        except RepositoryError as error:
            if not isinstance(error, GitCommandError):
                self.unlock()
            raise
        self._give_index()

    def _take_in(self, git: Git, *, base: str, tip: str) -> None:
        """Add to the index the files that a killed git process wrote with the content of `tip`."""
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
        """Return the files of the commit `tip` that have other content in the worktree."""
        index = self.git_dir / "index.take-in"
        env = {"GIT_INDEX_FILE": str(index)}
        try:
            git.run("read-tree", tip, env=env)
            git.run("update-index", "-q", "--refresh", env=env, timeout=CHECKOUT_TIMEOUT)
            return frozenset(git.run("diff-files", "-z", "--name-only", env=env).split(b"\0"))
        finally:
            index.unlink(missing_ok=True)

    def _drop_if_cut_short(self, git: Git, path: bytes, blob: str) -> None:
        """Remove a file of which a killed git process wrote only a part."""
        file = self.path / os.fsdecode(path)
        if file.is_symlink() or not file.is_file() or file.parent.resolve() != file.parent:
            return
        begun, whole = file.read_bytes(), git.run("cat-file", "blob", blob)
        if len(begun) < len(whole) and whole.startswith(begun):
            file.unlink()
