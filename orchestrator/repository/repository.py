"""The user's git repository: directories, commits, settings, and the names reserved for workers."""

import fcntl
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from orchestrator.base.errors import ConfigError, GitCommandError, RepositoryError
from orchestrator.base.files.atomic import write_atomically
from orchestrator.base.files.owner import owner_elsewhere
from orchestrator.base.files.shared import open_shared
from orchestrator.base.text.name_templates import LONGEST_ID
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.git.command import Git, discover
from orchestrator.repository.git.defaults import SIZE_AND_TIME
from orchestrator.repository.git_directory import git_dir_named_by, shallow_commits
from orchestrator.repository.identity import Identity, identity_settings, resolve_identity
from orchestrator.repository.programs import Use
from orchestrator.repository.ref_names import numbers_in_refs

BRANCHES = "refs/heads/architect/parallel-"
DIRECTORIES = ".architect-parallel-"
BACKUPS = "refs/orchestrator/backup/"
ATTEMPTS = "refs/orchestrator/attempts/"
"""Prefix of the refs `RUN/N/K`, which keep the files of worker N from its failed attempt K."""
KEPT = "refs/orchestrator/kept/"
_OF_WORKER = re.compile(r"([^/]+)/([0-9]{1,9})(?:/|$)")
"""Pattern of the name, without its prefix, of a ref `RUN/N/...` that keeps a commit of worker N."""
LANDED = "refs/orchestrator/landed/"
"""Prefix of the refs `RUN` that record merges of a run's branches, for `orchestrator merge --undo`.
"""
BASES = "refs/orchestrator/base/"
"""Prefix of the refs `RUN` with the snapshot of the checkout that a run started from. The ref is
kept while anything of the run is left.
"""
WORKER_MARK = "orchestrator-worker"
"""File in the git directory of a worktree whose name comes from a template; it marks the worktree
as a worker's.
"""
_NAMES = "names"
"""File that lists all directory patterns and branches ever made from templates, one per line."""
_WORKTREE, _BRANCH = "worktree ", "branch "
_NOBODY = ("orchestrator worker", "worker@orchestrator.invalid")
# A file lock does not exclude two threads of one process, so threads need their own lock.
_threads = threading.Lock()


def find_top(root: Path) -> Path:
    """Return the top level of the repository that contains `root`.

    Raises:
        RepositoryError: `root` is in no repository.
    """
    return discover(root)[0]


def worker_refs(git: Git, prefix: str, *options: str) -> list[tuple[str, int, str]]:
    """List refs named RUN/WORKER or RUN/WORKER/... below a prefix, as (run, worker, ref).

    Refs with other names below the prefix are skipped: a copied repository may bring its own.
    """
    found = split_lines(git.text("for-each-ref", *options, "--format=%(refname)", prefix))
    matches = ((_OF_WORKER.match(ref.removeprefix(prefix)), ref) for ref in found)
    return [(match[1], int(match[2]), ref) for match, ref in matches if match]


class Repository:
    """The user's repository from which workers branch off."""

    def __init__(self, root: Path) -> None:
        """Find the repository that contains `root`.

        Raises:
            RepositoryError: `root` is in no repository.
            ConfigError: `root` is inside a worker's worktree.
        """
        self.top, self.git_dir, self.common_dir = discover(root.absolute())
        problem = f"{self.top} is a worker's worktree"
        way = "run the command in the repository itself"
        if self.top.name.startswith(DIRECTORIES):
            hint = f"{way}: {self.top.parent}"
            raise ConfigError(problem, key="repository.worktree", hint=hint)
        # protection: run-in-workers-worktree-refused
        if (self.git_dir / WORKER_MARK).exists():
            hint = f"{way}, whose git directory is {self.common_dir}"
            raise ConfigError(problem, key="repository.worktree", hint=hint)
        # protection: users-roots-git-writes-as-owner-of-repository
        self.owner = owner_elsewhere(self.common_dir)
        self.git = Git(self.git_dir, work_tree=self.top, owner=self.owner)

    @property
    def state_dir(self) -> Path:
        """Return the directory with the orchestrator's records, outside of every working tree."""
        return self.common_dir / "orchestrator"

    @property
    def objects_dir(self) -> Path:
        """Return the repository's object directory."""
        return self.common_dir / "objects"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock that keeps other orchestrator processes from changing this repository."""
        with _threads:
            try:
                lock = open_shared(self.state_dir / "lock")
            except OSError as error:
                raise RepositoryError(
                    f"cannot write to {self.state_dir}: {error.strerror}",
                    key="state.unwritable",
                    hint="make the directory writable for you: runs store their records in it",
                ) from error
            with os.fdopen(lock, "r") as file:
                # protection: repository-lock
                fcntl.flock(file, fcntl.LOCK_EX)
                # If this process is killed, the lock is held until the last git command it started
                # has ended.
                os.set_inheritable(file.fileno(), True)
                yield

    def commit_of(self, name: str) -> str | None:
        """Return the commit that a ref or an id names; None if there is no such commit."""
        with suppress(GitCommandError):
            return self._rev_parse(f"{name}^{{commit}}")
        return None

    def resolve(self, revision: str) -> str:
        """Return the commit that `revision` names.

        Raises:
            RepositoryError: No commit has this name.
        """
        try:
            # What follows a colon is a path or search text: `^{commit}` cannot be appended.
            named = ":" not in revision
            found = self._rev_parse(f"{revision}^{{commit}}" if named else revision)
            if found.startswith("^"):
                raise GitCommandError(
                    ("rev-parse",), 1, "an excluded commit (`^COMMIT`) cannot be a base"
                )
            return found if named else self._rev_parse(f"{found}^{{commit}}")
        except GitCommandError as error:
            if revision == "HEAD":
                raise RepositoryError(
                    f"the repository at {self.top} has no commit yet",
                    key="repository.empty",
                    hint="workers start from a commit: create a commit with `git commit`",
                ) from error
            raise RepositoryError(
                f"no such commit: `{revision}`",
                key="commit.unknown",
                hint="`--base` takes a branch, tag or commit",
            ) from error

    def _rev_parse(self, revision: str) -> str:
        # protection: revisions-are-not-parsed-as-options
        return self.git.text("rev-parse", "--verify", "--quiet", "--end-of-options", revision)

    def fetch(self, base: str) -> None:
        """Fetch from the remote of a remote-tracking branch, such as `origin/main`.

        Raises:
            ConfigError: No remote has such a branch.
            RepositoryError: Git could not fetch.
        """
        name = base.removeprefix("refs/remotes/")
        names = self.git.text("remote").split()
        remotes = [remote for remote in names if name.startswith(f"{remote}/")]
        if not remotes:
            raise ConfigError(
                f"`--fetch`: `{base}` is not a branch of a remote",
                key="base.not-remote",
                hint="example: `--base origin/main --fetch`",
            )
        git = Git(self.git_dir, work_tree=self.top, use=Use.REMOTES, owner=self.owner)
        git.run("fetch", "--quiet", "--no-recurse-submodules", "--", max(remotes, key=len))

    def is_dirty(self) -> bool:
        """Return whether the checkout has uncommitted changes or untracked files."""
        git = self.git.within(None, use=Use.STATUS)
        status = git.run("status", "--porcelain", "-z", "--untracked-files=normal")
        entries = (entry for entry in status.split(b"\0") if entry)
        reserved = self.worktree_names()
        return any(not is_reserved(os.fsdecode(entry[3:]), reserved) for entry in entries)

    def repositories_inside(self) -> tuple[str, ...]:
        """Return untracked directories in the checkout that are git repositories themselves."""
        listing = ("ls-files", "-z", "--others", "--exclude-standard")
        names = (os.fsdecode(name) for name in self.git.run(*listing).split(b"\0"))
        folders = (name.rstrip("/") for name in names if name.endswith("/"))
        return tuple(name for name in folders if os.path.lexists(self.top / name / ".git"))

    def identity(self) -> tuple[str, str]:
        """Return the name and the e-mail address of the author of new commits."""
        return self._identities[0]

    def committer(self) -> tuple[str, str]:
        """Return the name and the e-mail address of the committer of new commits."""
        return self._identities[1]

    @cached_property
    def _identities(self) -> tuple[Identity, Identity]:
        git = self.git.within(None, identity_settings(self.git_config))
        author, committer = (resolve_identity(git.run, who) for who in ("AUTHOR", "COMMITTER"))
        return author or committer or _NOBODY, committer or author or _NOBODY

    @property
    def git_config(self) -> Mapping[str, str]:
        """Return the user's effective git settings for this repository."""
        return self.git.settings()

    def settings(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the user's values of the given settings (names in lower case), if they are set."""
        return {key: self.git_config[key] for key in keys if key in self.git_config}

    def comparing(self) -> Mapping[str, str]:
        """Return settings with which git compares a worker's files with an index."""
        # Files hold content in place of LFS pointers; git compares only their size and time.
        return SIZE_AND_TIME if (self.common_dir / "lfs").is_dir() else {}

    @cached_property
    def object_format(self) -> str:
        """Return the hash algorithm of the repository's objects: `sha1` or `sha256`."""
        return self.git.text("rev-parse", "--show-object-format")

    def shallow_commits(self) -> frozenset[str]:
        """Return the commits of a shallow clone whose parents are missing."""
        return shallow_commits(self.common_dir)

    def note_names(self, patterns: Iterable[str], branches: Iterable[str]) -> None:
        """Record directory patterns and branch names that were made from templates, permanently.

        The caller holds the repository lock and calls this before it creates anything with such a
        name.

        Args:
            patterns: Paths of worktrees, absolute or relative to the repository's top directory,
                with `*` for the variable part.
            branches: Names of branches.
        """
        known = self._read_names()
        wanted = [f"{_WORKTREE}{pattern}" for pattern in patterns]
        wanted += [f"{_BRANCH}{branch}" for branch in branches]
        new = [line for line in dict.fromkeys(wanted) if line not in known]
        if new:
            text = "".join(f"{line}\n" for line in (*known, *new))
            write_atomically(self.state_dir / _NAMES, text)

    @property
    def has_noted_names(self) -> bool:
        """Return whether worktrees or branches were ever named by a template in this repository."""
        return (self.state_dir / _NAMES).exists()

    def worktree_patterns(self) -> tuple[str, ...]:
        """Return patterns for the paths of all present and former worktrees of workers."""
        noted = (line for line in self._read_names() if line.startswith(_WORKTREE))
        return (f"{DIRECTORIES}*", *(line.removeprefix(_WORKTREE) for line in noted))

    def worker_branches(self) -> frozenset[str]:
        """Return the refs of all branches that were ever named by templates."""
        noted = (line for line in self._read_names() if line.startswith(_BRANCH))
        return frozenset(f"refs/heads/{line.removeprefix(_BRANCH)}" for line in noted)

    def worktree_names(self) -> tuple[str, ...]:
        """Return names at the top of a tree that workers may not use, because worktrees have them.

        Returns:
            The names. A name that ends with `*` stands for all names with that prefix.
        """
        inside = (pattern for pattern in self.worktree_patterns() if not pattern.startswith("/"))
        firsts = (pattern.partition("/")[0].partition("*") for pattern in inside)
        return tuple(dict.fromkeys(name + star for name, star, _ in firsts))

    def longest_worktree(self) -> int:
        """Return the maximum length in bytes that the path of a worker's worktree can have."""
        default, *named = self.worktree_patterns()
        paths = (self.top / name for name in named)
        lengths = (len(os.fsencode(p)) + str(p).count("*") * (LONGEST_ID - 1) for p in paths)
        return max([len(os.fsencode(self.top / default)) + 1, *lengths])

    def _read_names(self) -> tuple[str, ...]:
        try:
            return tuple(split_lines((self.state_dir / _NAMES).read_text()))
        except (FileNotFoundError, NotADirectoryError):
            # If the state directory is a file, the first write to it reports the error.
            return ()

    def exclude_worktrees(self) -> None:
        """Hide the worktrees from `git status`, in the local file `info/exclude`."""
        path = self.common_dir / "info" / "exclude"
        text = path.read_text(errors="surrogateescape") if path.exists() else ""
        inside = (pattern for pattern in self.worktree_patterns() if not pattern.startswith("/"))
        missing = [line for pattern in inside if (line := f"/{pattern}") not in split_lines(text)]
        if not missing:
            return
        path.parent.mkdir(exist_ok=True)
        separator = "" if not text or text.endswith("\n") else "\n"
        with path.open("a") as file:
            file.write(separator + "".join(f"{line}\n" for line in missing))

    def free_block(self, count: int, *, taken: frozenset[int] = frozenset()) -> int:
        """Return the first number of the lowest free block of worker numbers.

        A number is free if it has no worktree directory, and no ref has the name of its branch. The
        caller holds the repository lock and calls `claim` before it releases the lock.

        Args:
            count: Length of the block.
            taken: Numbers in use by a run that continues.
        """
        paths = self.top.glob(f"{DIRECTORIES}*")
        suffixes = [path.name.removeprefix(DIRECTORIES) for path in paths]
        refs = self.git.text("for-each-ref", "--format=%(refname)")
        used = taken | numbers_in_refs(refs)
        used |= {int(suffix) for suffix in suffixes if suffix.isdecimal()}
        candidates = range(1, max(used, default=0) + 2)
        return next(n for n in candidates if used.isdisjoint(range(n, n + count)))

    def claim(self, branches: Iterable[str], base: str, *, keep: str | None = None) -> None:
        """Create the branches of a run's workers, all or none, which reserves the workers' numbers.

        Args:
            branches: Names of the branches.
            base: Commit that the branches point at.
            keep: Another ref to set to `base`.

        Raises:
            ConfigError: A branch of the user is in the way.
        """
        # protection: existing-branches-are-not-reused
        commands = "".join(f"create refs/heads/{branch} {base}\n" for branch in branches)
        if keep is not None:
            commands += f"update {keep} {base}\n"
        try:
            self.git.run("update-ref", "--stdin", stdin=commands.encode())
        except GitCommandError as error:
            if "refs/heads/architect'" in error.stderr:
                raise ConfigError(
                    "a branch named `architect` is in the way of `architect/parallel-N`",
                    key="branch.obstruction",
                    hint="rename the branch: `git branch -m architect OTHER`",
                ) from error
            raise

    def drop_branch(self, branch: str, *, at: str) -> None:
        """Delete a branch if it still points at `at`.

        Raises:
            GitCommandError: The branch points elsewhere.
        """
        # protection: branch-is-deleted-only-at-its-expected-commit
        self.git.run("update-ref", "-d", f"refs/heads/{branch}", at)

    def move_branch(self, branch: str, *, new: str, old: str) -> None:
        """Move a branch from the commit `old` to `new`, without changing HEAD or files.

        Raises:
            GitCommandError: The branch no longer points at `old`.
        """
        # protection: branch-moves-only-from-its-expected-commit
        self.git.run("update-ref", f"refs/heads/{branch}", new, old)


def is_reserved(path: str, reserved: Sequence[str]) -> bool:
    """Return whether a path is reserved for workers' worktrees: see `Repository.worktree_names`."""
    first = path.partition("/")[0]
    return any(
        first.startswith(name[:-1]) if name.endswith("*") else first == name for name in reserved
    )


def is_worker_worktree(path: Path) -> bool:
    """Return whether a directory is a worker's worktree."""
    if path.name.startswith(DIRECTORIES):
        return True
    git_dir = git_dir_named_by(path)
    return git_dir is not None and (git_dir / WORKER_MARK).exists()
