"""The user's repository: where it is, what the workers start from, which numbers are free."""

import fcntl
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO

from orchestrator.errors import ConfigError, RepositoryError
from orchestrator.files.safe_open import open_regular
from orchestrator.git.command import SIZE_AND_TIME, Git, GitCommandError, discover
from orchestrator.git.object_packs import shallow_commits
from orchestrator.git.snapshot import snapshot
from orchestrator.text.name_templates import LONGEST_ID

BRANCHES = "refs/heads/architect/parallel-"
DIRECTORIES = ".architect-parallel-"
BACKUPS = "refs/orchestrator/backup/"
ATTEMPTS = "refs/orchestrator/attempts/"
"""`<run>/<N>/<K>`: what worker N had written when its attempt K was given up."""
KEPT = "refs/orchestrator/kept/"
_OF_WORKER = re.compile(r"([^/]+)/([0-9]{1,9})(?:/|$)")
"""`<run>/<N>/...`: commits that worker N left and that its branch does not reach."""
BASES = "refs/orchestrator/base/"
"""`<run>`: the commit that a run made of the checkout, for as long as some of it is left."""
WORKER_MARK = "orchestrator-worker"
"""A file in the git directory of a worktree whose name comes from a template."""
_NAMES = "names"
"""A file of the patterns and branches that templates ever gave, a line each."""
_LONGEST_POINTER = 10_000
_WORKTREE, _BRANCH = "worktree ", "branch "
_NAME, _EMAIL = "orchestrator worker", "worker@orchestrator.invalid"
# Two threads of one process share a file lock, so they need a lock of their own.
_threads = threading.Lock()


_FETCHING = {
    **{f"protocol.{one}.allow": "always" for one in ("https", "http", "ssh", "git")},
    # As a fetch of the user's own: old repositories have mistakes that harm nobody.
    "transfer.fsckObjects": "false",
}
_FOR_FETCH = (
    *("SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GIT_ASKPASS", "SSH_ASKPASS"),
    *("http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"),
)
"""Variables that a fetch of the user's own would have."""


def find_top(root: Path) -> Path:
    """Return the top level of the repository around `root`.

    Raises:
        RepositoryError: There is none.
    """
    return discover(root)[0]


def worker_refs(git: Git, prefix: str, *options: str) -> list[tuple[str, int, str]]:
    """List the refs below a prefix that are named RUN/WORKER or RUN/WORKER/...: run, worker, ref.

    A repository that came with its `.git` may have others there, which are not ours.
    """
    found = git.text("for-each-ref", *options, "--format=%(refname)", prefix).splitlines()
    matches = ((_OF_WORKER.match(ref.removeprefix(prefix)), ref) for ref in found)
    return [(match[1], int(match[2]), ref) for match, ref in matches if match]


class Repository:
    """A repository of the user's that workers branch off."""

    def __init__(self, root: Path) -> None:
        """Find it around `root`.

        Raises:
            RepositoryError: There is none.
            ConfigError: `root` is inside a worker's own worktree.
        """
        self.top, self.git_dir, self.common_dir = discover(root.absolute())
        if self.top.name.startswith(DIRECTORIES):
            raise ConfigError(
                f"{self.top} is a worker's worktree",
                hint=f"run from the repository itself: {self.top.parent}",
            )
        if (self.git_dir / WORKER_MARK).exists():
            raise ConfigError(
                f"{self.top} is a worker's worktree",
                hint=f"run from the repository itself, whose git directory is {self.common_dir}",
            )
        self.git = Git(self.git_dir, work_tree=self.top)

    @property
    def state_dir(self) -> Path:
        """Where this product keeps its records: outside everyone's working tree."""
        return self.common_dir / "orchestrator"

    @property
    def objects_dir(self) -> Path:
        """The object database."""
        return self.common_dir / "objects"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold off every other orchestrator, thread or process, that changes this repository."""
        with _threads, self._lock_file() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # If we are killed, it is held until our last git has ended.
            os.set_inheritable(file.fileno(), True)
            yield

    def _lock_file(self) -> IO[str]:
        try:
            self.state_dir.mkdir(parents=True, exist_ok=True)
            return (self.state_dir / "lock").open("w")
        except OSError as error:
            raise RepositoryError(
                f"cannot write to {self.state_dir}: {error.strerror}",
                hint="runs keep their records there: it must be a directory of yours",
            ) from error

    def resolve(self, revision: str) -> str:
        """Return the commit that `revision` names.

        Raises:
            RepositoryError: There is none.
        """
        try:
            # In two steps: what follows `:/` is all text that is searched for.
            found = self.git.text("rev-parse", "--verify", "--quiet", "--end-of-options", revision)
            if found.startswith("^"):
                raise GitCommandError(("rev-parse",), 1, "a commit that is left out is no base")
            return self.git.text("rev-parse", "--verify", "--quiet", f"{found}^{{commit}}")
        except GitCommandError as error:
            if revision == "HEAD":
                raise RepositoryError(
                    f"the repository at {self.top} has no commit yet",
                    hint="workers start from a commit: make one with `git commit`",
                ) from error
            raise RepositoryError(
                f"no such commit: `{revision}`", hint="`--base` takes a branch, tag or commit"
            ) from error

    def fetch(self, base: str) -> None:
        """Fetch from the remote that a base is a branch of.

        Args:
            base: Such as `origin/main`.

        Raises:
            ConfigError: The base is of no remote.
            RepositoryError: Git could not fetch.
        """
        name = base.removeprefix("refs/remotes/")
        remotes = [
            one for one in self.git.text("remote").splitlines() if name.startswith(f"{one}/")
        ]
        if not remotes:
            raise ConfigError(
                f"`--fetch`: `{base}` is no branch of a remote",
                hint="as in `--base origin/main --fetch`",
            )
        env = {key: os.environ[key] for key in _FOR_FETCH if key in os.environ}
        git = Git(self.git_dir, work_tree=self.top, config=_FETCHING, env=env)
        git.run("fetch", "--quiet", "--no-recurse-submodules", "--", max(remotes, key=len))

    def is_dirty(self) -> bool:
        """Return whether the checkout differs from its HEAD, untracked files included."""
        status = self.git.run("status", "--porcelain", "-z", "--untracked-files=normal")
        entries = (entry for entry in status.split(b"\0") if entry)
        reserved = self.reserved()
        return any(not is_reserved(os.fsdecode(entry[3:]), reserved) for entry in entries)

    def snapshot(self, *, parent: str, message: str, scratch: Path) -> str:
        """Commit the checkout as it stands, touching neither its index nor any ref.

        Args:
            parent: The commit it goes on top of.
            message: The commit's message.
            scratch: A file that may be written and removed.

        Returns:
            The new commit, or `parent` when nothing differs.
        """
        return snapshot(
            self.git_dir, self.top, parent=parent, message=message, scratch=scratch,
            identity=self.identity(), excluded=self.nested(),
        )  # fmt: skip

    def nested(self) -> tuple[str, ...]:
        """Name the untracked directories of the checkout that are repositories of their own."""
        listing = ("ls-files", "-z", "--others", "--exclude-standard")
        names = (os.fsdecode(name) for name in self.git.run(*listing).split(b"\0"))
        folders = (name.rstrip("/") for name in names if name.endswith("/"))
        return tuple(name for name in folders if os.path.lexists(self.top / name / ".git"))

    def identity(self) -> tuple[str, str]:
        """Return the name and e-mail that commits are made with."""
        found = self.configured
        return found.get("user.name") or _NAME, found.get("user.email") or _EMAIL

    @cached_property
    def configured(self) -> dict[str, str]:
        """Every setting that the user's own git knows here; of several the one that counts."""
        # All at once, as of the first look: a git process for each key and worker adds up.
        answer = self.git.run("config", "--list", "--show-scope", "-z")
        fields = answer.decode("utf-8", "surrogateescape").split("\0")
        pairs = zip(fields[::2], fields[1::2], strict=False)
        # What we say on the command line is not the user's.
        entries = (entry.partition("\n") for scope, entry in pairs if scope != "command")
        return {key: value for key, _, value in entries}

    def settings(self, keys: Sequence[str]) -> dict[str, str]:
        """Return those of `keys`, in small letters, that the user has configured."""
        return {key: self.configured[key] for key in keys if key in self.configured}

    def without_filters(self) -> dict[str, str]:
        """Return settings that switch the configured clean and smudge drivers off.

        A driver may be a program in the tree, which a worker has rewritten: what it committed is
        written out, and read back, as it is.
        """
        off = filters_off(self.configured)
        if (self.common_dir / "lfs").is_dir():
            # Content lies in the place of pointers: their size and time say that it is the same.
            off |= SIZE_AND_TIME
        return off

    @cached_property
    def object_format(self) -> str:
        """`sha1` or `sha256`."""
        return self.git.text("rev-parse", "--show-object-format")

    def shallow_commits(self) -> frozenset[str]:
        """Return the commits whose parents are not there."""
        return shallow_commits(self.common_dir)

    def note_names(self, patterns: Iterable[str], branches: Iterable[str]) -> None:
        """Write down names that templates give, for as long as the repository exists.

        To be called with the lock held, before anything has such a name.

        Args:
            patterns: Directories of worktrees, from the top or absolute, with `*` for what differs.
            branches: Names of branches.
        """
        known = self._noted()
        wanted = [*(f"{_WORKTREE}{one}" for one in patterns), *(f"{_BRANCH}{b}" for b in branches)]
        new = [line for line in dict.fromkeys(wanted) if line not in known]
        if new:
            _append(self.state_dir / _NAMES, new)

    @property
    def has_noted_names(self) -> bool:
        """Whether templates ever gave a name here."""
        return (self.state_dir / _NAMES).exists()

    def worktree_patterns(self) -> tuple[str, ...]:
        """List where workers' worktrees are, or were, with `*` for what differs between them."""
        noted = (line for line in self._noted() if line.startswith(_WORKTREE))
        return (f"{DIRECTORIES}*", *(line.removeprefix(_WORKTREE) for line in noted))

    def worker_branches(self) -> frozenset[str]:
        """Return the refs of branches that templates ever named."""
        noted = (line for line in self._noted() if line.startswith(_BRANCH))
        return frozenset(f"refs/heads/{line.removeprefix(_BRANCH)}" for line in noted)

    def reserved(self) -> tuple[str, ...]:
        """List names at the top of a tree that no worker may add: workers' worktrees are there.

        Returns:
            Names; one that ends with `*` is all names that begin with the rest.
        """
        inside = (one for one in self.worktree_patterns() if not one.startswith("/"))
        firsts = (one.partition("/")[0].partition("*") for one in inside)
        return tuple(dict.fromkeys(name + star for name, star, _ in firsts))

    def longest_worktree(self) -> int:
        """Return the most bytes that the path of a worker's worktree can have."""
        default, *named = self.worktree_patterns()
        paths = (self.top / one for one in named)
        lengths = (len(os.fsencode(p)) + str(p).count("*") * (LONGEST_ID - 1) for p in paths)
        return max([len(os.fsencode(self.top / default)) + 1, *lengths])

    def _noted(self) -> tuple[str, ...]:
        try:
            return tuple((self.state_dir / _NAMES).read_text().splitlines())
        except (FileNotFoundError, NotADirectoryError):
            # A state directory that is a file is reported by the first write to it.
            return ()

    def exclude_worktrees(self) -> None:
        """Keep the worktrees out of `git status`, in the file that nobody commits."""
        path = self.common_dir / "info" / "exclude"
        text = path.read_text(errors="surrogateescape") if path.exists() else ""
        inside = (one for one in self.worktree_patterns() if not one.startswith("/"))
        missing = [line for one in inside if (line := f"/{one}") not in text.splitlines()]
        if not missing:
            return
        path.parent.mkdir(exist_ok=True)
        separator = "" if not text or text.endswith("\n") else "\n"
        with path.open("a") as file:
            file.write(separator + "".join(f"{line}\n" for line in missing))

    def free_block(self, count: int, *, taken: frozenset[int] = frozenset()) -> int:
        """Return the first of the lowest block of numbers without directory or branch.

        To be called with the lock held, and followed by `claim`.

        Args:
            count: How many.
            taken: Numbers in use by a run that goes on.
        """
        used = taken | self._used_numbers()
        candidates = range(1, max(used, default=0) + 2)
        return next(n for n in candidates if used.isdisjoint(range(n, n + count)))

    def claim(self, branches: Iterable[str], base: str, *, keep: str | None = None) -> None:
        """Make the workers' branches, all or none: this is what reserves their numbers.

        Args:
            branches: Their names.
            base: Where they start.
            keep: A ref that is to hold `base`, too.

        Raises:
            ConfigError: A branch of the user's is in the way.
        """
        commands = "".join(f"create refs/heads/{branch} {base}\n" for branch in branches)
        if keep is not None:
            commands += f"update {keep} {base}\n"
        try:
            self.git.run("update-ref", "--stdin", stdin=commands.encode())
        except GitCommandError as error:
            if "refs/heads/architect'" in error.stderr:
                raise ConfigError(
                    "a branch named `architect` is in the way of `architect/parallel-N`",
                    hint="rename it: `git branch -m architect OTHER`",
                ) from error
            raise

    def drop_branch(self, branch: str, *, at: str) -> None:
        """Delete a branch that is still at `at`.

        Raises:
            GitCommandError: It is somewhere else.
        """
        self.git.run("update-ref", "-d", f"refs/heads/{branch}", at)

    def _used_numbers(self) -> frozenset[int]:
        refs = self.git.text("for-each-ref", "--format=%(refname)", "refs/heads/architect")
        # A branch `architect/parallel-1/x` is in the way of `architect/parallel-1` too.
        suffixes = [ref.removeprefix(BRANCHES).partition("/")[0] for ref in refs.splitlines()]
        paths = self.top.glob(f"{DIRECTORIES}*")
        suffixes += [path.name.removeprefix(DIRECTORIES) for path in paths]
        return frozenset(int(suffix) for suffix in suffixes if suffix.isdecimal())

    def move_branch(self, branch: str, *, new: str, old: str) -> None:
        """Move one branch from `old` to `new`, and nothing else.

        Raises:
            GitCommandError: It is not at `old` any more.
        """
        self.git.run("update-ref", f"refs/heads/{branch}", new, old)


def is_reserved(path: str, reserved: Sequence[str]) -> bool:
    """Check whether a path is where workers' worktrees are; see `Repository.reserved`."""
    first = path.partition("/")[0]
    return any(
        first.startswith(name[:-1]) if name.endswith("*") else first == name for name in reserved
    )


def is_a_workers(path: Path) -> bool:
    """Check whether a directory is the worktree of a worker."""
    if path.name.startswith(DIRECTORIES):
        return True
    try:
        with open_regular(path / ".git") as file:
            pointer = os.fsdecode(file.read(_LONGEST_POINTER)).strip()
        return pointer.startswith("gitdir: ") and (Path(pointer[8:]) / WORKER_MARK).exists()
    except (OSError, ValueError):
        return False


def _append(path: Path, lines: Iterable[str]) -> None:
    """Add lines to a file of ours; all of them are there, or none."""
    text = path.read_text() if path.exists() else ""
    made = path.with_name(f"{path.name}.{os.getpid()}")
    made.write_text(text + "".join(f"{line}\n" for line in lines))
    made.replace(path)


def filters_off(configured: Iterable[str]) -> dict[str, str]:
    """Return settings that switch off every driver that some settings' names tell of."""
    keys = (key for key in configured if key.startswith("filter."))
    drivers = {key.partition(".")[2].rpartition(".")[0] for key in keys}
    off = {"smudge": "", "clean": "", "process": "", "required": "false"}
    return {f"filter.{driver}.{key}": value for driver in drivers for key, value in off.items()}
