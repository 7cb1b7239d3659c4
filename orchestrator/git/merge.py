"""What a task starts from that goes on from others: their commits, merged beside the user's files.

Git merges in a quarantine that has no configuration, no attributes and no files, so that nothing
which a user or a worker wrote can name a program. What comes of it has to keep the rules that a
worker's own commits have to keep; what does not is refused whole, and nothing of it was let in.
"""

import errno
import re
import shutil
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import devnull, fsdecode
from pathlib import Path

from orchestrator.errors import ConfigError, OrchestratorError, RepositoryError
from orchestrator.git.command import (
    FULL,
    UNTRUSTED,
    Git,
    GitCommandError,
    OutputTooLongError,
    make_bare,
    version,
)
from orchestrator.git.quarantine import HarvestRefusedError, accept_pack, check_merged, check_trees
from orchestrator.git.repository import Repository
from orchestrator.text.sanitize import one_line

MINIMUM_VERSION = (2, 38)
"""Of git: the first that merges without a checkout."""
MERGE_TIMEOUT = 120.0
"""Seconds for all merges that one task starts from."""
MOST_FILES = 20
"""Files that a conflict names."""
_MOST_NAMES = 5
"""Tasks that the first line of a commit names."""
_LISTING = 64 * 1024**2
"""Bytes that git may say of a conflict."""
_SEALED = {
    "GIT_CONFIG_GLOBAL": devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    # A delta of a few bytes can stand for gigabytes.
    "GIT_ALLOC_LIMIT": "256m",
}
"""Drivers, filters and renormalization are for whoever merges by hand."""
# To compare each new file with each that is gone takes their product: of a thousand, a second.
_BOUNDED = {"merge.renameLimit": "1000", "core.fsync": "none"}
_SIDE = re.compile(rb"~(?:[0-9a-f]{64}|[0-9a-f]{40})(?:_[0-9]+)?$")
"""What git adds to a name that is a file on one side and a directory on the other."""


@dataclass(frozen=True)
class Tip:
    """What one task came to."""

    task: str
    commit: str


class MergeConflict(OrchestratorError):
    """What some tasks made cannot be put together; nothing of it was."""

    def __init__(
        self, said: str, *, task: str, others: Sequence[str], files: Sequence[str] = ()
    ) -> None:
        """Describe it.

        Args:
            said: What is wrong, for people.
            task: The one that could not be added.
            others: Those it does not go together with.
            files: Which files, as they can be shown; only so many of them.
        """
        super().__init__(said)
        self.task = task
        self.others = tuple(others)
        self.files = tuple(files)


def check_git() -> None:
    """See that this git can merge without a checkout.

    Raises:
        ConfigError: It is too old.
    """
    found = version()
    if found < MINIMUM_VERSION:
        least, ours = (".".join(map(str, one)) for one in (MINIMUM_VERSION, found))
        raise ConfigError(
            f"git {ours} cannot merge what several tasks made into what another starts from",
            hint=f"install git {least} or newer, or let no task depend on more than one",
        )


def integrate(
    repository: Repository, base: str, tips: Sequence[Tip], *, when: datetime, scratch: Path
) -> str:
    """Return the commit that a task starts from: one that reaches all of `tips`, in their order.

    The same again gives the same commit. No ref moves, and no file of the user's is touched.

    Args:
        repository: The repository; new objects go there.
        base: What the run starts from; all tips are on top of it.
        tips: What the tasks came to that it goes on from.
        when: The date of a merge.
        scratch: A directory to be made, and removed again.

    Raises:
        MergeConflict: They cannot be put together.
        ConfigError: This git is too old for it.
        RepositoryError: A tip is not on top of the base, or git failed.
        OSError: There is no room for it.
    """
    tips = _independent(repository, base, tips)
    if len(tips) < 2:
        return tips[0].commit if tips else base
    check_git()
    # What a process that died left.
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        merge = _Merge(repository, base, when, scratch)
        commit = merge.all_of(tips)
        merge.hand_in(commit, tips)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return commit


def _independent(repository: Repository, base: str, tips: Sequence[Tip]) -> list[Tip]:
    """Return those tips that neither the base nor another one reaches."""
    by_commit = {tip.commit: tip for tip in reversed(tips)}
    commits = [base, *(tip.commit for tip in tips)]
    found = repository.git.text("merge-base", "--independent", *commits).split()
    kept = [tip for tip in tips if tip.commit in found and by_commit[tip.commit] is tip]
    kept = [tip for tip in kept if tip.commit != base]
    for tip in kept if not _all_reach(repository, base, kept) else ():
        if not repository.git.succeeds("merge-base", "--is-ancestor", base, tip.commit):
            raise RepositoryError(
                f"what `{one_line(tip.task)}` made ({tip.commit[:12]}) has no history in common "
                f"with what the run starts from ({base[:12]})",
                hint="its branch was moved, or the history between them is cut off",
            )
    return kept


def _all_reach(repository: Repository, base: str, tips: Sequence[Tip]) -> bool:
    commits = (tip.commit for tip in tips)
    try:
        return repository.git.text("merge-base", "--octopus", base, *commits) == base
    except GitCommandError as error:
        if error.returncode != 1:
            raise
        return False


class _Merge:
    """Puts tips together in a quarantine."""

    def __init__(self, repository: Repository, base: str, when: datetime, scratch: Path) -> None:
        self._repository = repository
        self._base = base
        self._scratch = scratch
        self._git = _make_quarantine(repository, scratch)
        self._signed = _signature(repository, when)
        self._deadline = time.monotonic() + MERGE_TIMEOUT

    def all_of(self, tips: Sequence[Tip]) -> str:
        """Return a commit with all tips as its parents, merged one after the other.

        Raises:
            MergeConflict: One cannot be added.
        """
        merged, tree = tips[0].commit, ""
        for number, tip in enumerate(tips[1:], start=1):
            before = tips[:number]
            tree = self._with(merged, tip, before)
            if number < len(tips) - 1:
                # Where the next one meets those before; nobody will ever see it.
                merged = self._commit(tree, [merged, tip.commit], b"between")
        return self._commit(tree, [tip.commit for tip in tips], _message(tips))

    def _with(self, merged: str, tip: Tip, before: Sequence[Tip]) -> str:
        try:
            said = self._git.listing(
                "merge-tree", "--write-tree", "--name-only", "-z", merged, tip.commit,
                limit=_LISTING, answers=(0, 1),
                timeout=max(0.1, self._deadline - time.monotonic()),
            )  # fmt: skip
        except OutputTooLongError as error:
            raise _refused(tip, before, error.message) from error
        except GitCommandError as error:
            if error.returncode == -signal.SIGKILL:
                slow = f"it took longer than {MERGE_TIMEOUT:.0f} s"
                raise _refused(tip, before, slow) from error
            raise _of_git(error, tip, before) from error
        tree, _, conflicts = said.partition(b"\0")
        if conflicts:
            raise self._conflict(tip, before, _paths(conflicts))
        return tree.decode()

    def _commit(self, tree: str, parents: Iterable[str], message: bytes) -> str:
        words = (word for parent in parents for word in ("-p", parent))
        command = ("commit-tree", tree, *words, "-F", "-")
        return self._git.run(*command, stdin=message, env=self._signed).decode().strip()

    def _conflict(self, tip: Tip, before: Sequence[Tip], paths: list[bytes]) -> MergeConflict:
        shown = [one_line(fsdecode(path)) for path in paths[:MOST_FILES]]
        others = self._who_touched(paths[:MOST_FILES], before)
        where = ", ".join(f"`{name}`" for name in shown) or "the same files"
        more = f" and {len(paths) - len(shown)} more" if len(paths) > len(shown) else ""
        said = f"{_both(tip, others)} cannot be merged: both changed {where}{more}"
        return MergeConflict(
            said, task=tip.task, others=[other.task for other in others], files=shown
        )

    def _who_touched(self, paths: Sequence[bytes], before: Sequence[Tip]) -> Sequence[Tip]:
        """Return the workers that touched each of some files last; all where none seems to have."""
        open_paths, found = {fsdecode(path) for path in paths}, []
        for tip in reversed(before):
            touched = {path for path in open_paths if self._touches(tip, path)}
            if touched:
                found.append(tip)
                open_paths -= touched
            if not open_paths:
                break
        return found[::-1] or before

    def _touches(self, tip: Tip, path: str) -> bool:
        diff = ("diff-tree", "-r", "--quiet", "--no-renames", "--ignore-submodules=none")
        where = f":(top,literal){path}"
        return not self._git.succeeds(*diff, self._base, tip.commit, "--", where)

    def hand_in(self, commit: str, tips: Sequence[Tip]) -> None:
        """Check a merge as if a worker had made it, and bring its objects to the repository."""
        last, before = tips[-1], tips[:-1]
        try:
            check_trees(self._git, base=self._base, tip=commit, repository=self._repository)
            self._check_names(commit, tips)
            self._pack(commit, tips)
            with self._repository.lock():
                accept_pack(self._repository, self._scratch / "git")
        except (HarvestRefusedError, OutputTooLongError) as error:
            raise _refused(last, before, error.message) from error
        except GitCommandError as error:
            raise _of_git(error, last, before) from error

    def _check_names(self, commit: str, tips: Sequence[Tip]) -> None:
        """Refuse names that differ in case alone where no task by itself has them."""
        before = self._trees([self._base, *(tip.commit for tip in tips)])
        check_merged(self._git, before=before, merged=self._trees([commit]))

    def _trees(self, commits: Iterable[str]) -> list[str]:
        names = "".join(f"{commit}^{{tree}}\n" for commit in commits)
        asked = ("cat-file", "--batch-check=%(objectname)")
        return self._git.text(*asked, stdin=names.encode()).split()

    def _pack(self, commit: str, tips: Sequence[Tip]) -> None:
        wanted = "".join(f"{line}\n" for line in (commit, *(f"^{tip.commit}" for tip in tips)))
        name = self._scratch / "git" / "objects" / "pack" / "pack"
        made = self._git.text("pack-objects", "-q", "--revs", str(name), stdin=wanted.encode())
        # What git refuses when it is half in, as two texts that are harmful together, would stay.
        self._git.run("index-pack", "--strict", "--threads=1", f"{name}-{made}.pack")


def _make_quarantine(repository: Repository, scratch: Path) -> Git:
    """Make a repository that reads the user's objects, and nothing else of theirs."""
    git_dir, files = scratch / "git", scratch / "files"
    make_bare(git_dir, object_format=repository.object_format)
    (git_dir / "objects" / "info" / "alternates").write_text(f"{repository.objects_dir}\n")
    cut = repository.shallow_commits()
    if cut:
        (git_dir / "shallow").write_text("".join(f"{commit}\n" for commit in sorted(cut)))
    # Git looks for attributes among the files, or, where there are none, where it was started.
    files.mkdir()
    return Git(git_dir, work_tree=files, config=_BOUNDED, env=_SEALED, limits=UNTRUSTED)


def _signature(repository: Repository, when: datetime) -> dict[str, str]:
    name, email = repository.identity()
    values = {"NAME": name, "EMAIL": email, "DATE": f"@{int(when.timestamp())} +0000"}
    return {f"GIT_{who}_{key}": v for who in ("AUTHOR", "COMMITTER") for key, v in values.items()}


def _message(tips: Sequence[Tip]) -> bytes:
    names = [f"`{one_line(tip.task)}`" for tip in tips]
    if len(names) <= _MOST_NAMES:
        return f"architect: merge of {', '.join(names[:-1])} and {names[-1]}\n".encode()
    listed = "\n".join(f"- {name}" for name in names)
    return f"architect: merge of {len(names)} tasks\n\n{listed}\n".encode()


def _paths(said: bytes) -> list[bytes]:
    """Read the names of files in what git says of a conflict.

    Names, an empty one, and messages: how many names, those names, what it is, what it is in words.
    """
    words = said.split(b"\0")
    end = words.index(b"")
    found, at = words[:end], end + 1
    while at < len(words) and words[at].isdigit():
        names = words[at + 1 : at + 1 + int(words[at])]
        at += 1 + len(names)
        if words[at].startswith(b"CONFLICT"):
            found += names
        at += 2
    return sorted({_SIDE.sub(b"", name) for name in found})


def _both(tip: Tip, others: Sequence[Tip]) -> str:
    names = [f"`{one_line(other.task)}`" for other in others[:_MOST_NAMES]]
    more = [f"{len(others) - len(names)} more"] if len(others) > len(names) else []
    return f"`{one_line(tip.task)}` and what {', '.join([*names, *more])} made"


def _refused(tip: Tip, before: Sequence[Tip], why: str) -> MergeConflict:
    said = f"{_both(tip, before)} cannot be put together: {one_line(why)}"
    return MergeConflict(said, task=tip.task, others=[other.task for other in before])


def _of_git(error: GitCommandError, tip: Tip, before: Sequence[Tip]) -> Exception:
    """Tell a full disk from work that git refuses."""
    if FULL in error.stderr:
        return OSError(errno.ENOSPC, FULL)
    return _refused(tip, before, error.message)
