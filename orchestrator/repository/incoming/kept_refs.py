"""Import commits that a worker left outside its branch, and the usable part of refused commits.

The container that packs a worker's commits lists them (see `in_container.kept_commits`); their
names and objects are untrusted. They are checked by the same rules as the branch, and become refs
below `refs/orchestrator/kept/`, which `git push` and `git clone` do not transfer by default.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from orchestrator.base.text.redact import Redactor
from orchestrator.base.text.split_lines import split_lines
from orchestrator.repository.git.command import Git
from orchestrator.repository.incoming.packed_work import HarvestRefusedError, open_handed_over
from orchestrator.repository.incoming.quarantine import (
    HandedOver,
    Origin,
    check_size,
    import_checked,
    refusals,
    unpack,
)
from orchestrator.repository.repository import KEPT, Repository, worker_refs

MOST_REFS = 200
"""Maximum number of refs with additional commits of one worker."""
SEARCH_TIME = 120.0
"""Maximum number of seconds for the search for the usable part of refused commits."""
_MOST_COMMITS = 1024
"""Maximum number of commits in a refused history that are tried."""
_LARGEST_LIST = 1 << 20
_SHOWN = 5
_LONGEST_PART, _MOST_PARTS = 60, 8
_LONGEST_NAME = 200
"""Maximum length of a ref's name in one path component: file names have up to 255 bytes, and git
appends `.lock`.
"""
_OF_ATTEMPT = re.compile(r"attempt-\d+")
"""First path component in the names of refs of a repeated attempt; see `kept_prefix`."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=,-]|\.\.+|^\.|\.$|\.lock$")
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


_KEPT_PACK = "kept.pack"


def kept_prefix(run_id: str, worker_id: int, *, attempt: int) -> str:
    """Return the prefix of the refs with additional commits of one attempt of a worker."""
    again = f"attempt-{attempt}/" if attempt > 1 else ""
    return f"{KEPT}{run_id}/{worker_id}/{again}"


@dataclass(frozen=True)
class Kept:
    """Commits of a worker that were imported in addition to its branch."""

    refs: tuple[str, ...] = ()
    """Full names of the created refs."""
    notes: tuple[str, ...] = ()
    """Messages for the user about commits that could not be kept, and about renamed refs."""
    refused: str | None = None
    """Why commits were refused; None if all were accepted."""


NOTHING = Kept()


def list_kept(repository: Repository) -> list[tuple[str, int, str]]:
    """Return all refs with additional commits of workers, as (run, worker, ref)."""
    return worker_refs(repository.git, KEPT)


def note_of_refs(refs: Sequence[str]) -> tuple[str, ...]:
    """Return a note for the user that names the refs; empty if there are no refs."""
    if not refs:
        return ()
    shown = ", ".join(f"`{ref}`" for ref in refs[:_SHOWN])
    more = f" and {len(refs) - _SHOWN} more" if len(refs) > _SHOWN else ""
    return (f"commits that are not on the worker's branch are kept: {shown}{more}",)


def import_kept(handed: HandedOver, *, prefix: str, redactor: Redactor) -> Kept:
    """Check a worker's commits outside of its branch, and create a ref for each accepted commit.

    Args:
        handed: The files that the packing container handed over.
        prefix: Prefix of the new refs. Existing refs below the prefix are replaced: a process that
            died in the same step left them.
        redactor: Knows the secrets that no name of a ref may contain.

    Raises:
        OSError: The disk is full.
    """
    try:
        listed = _read(handed.out / "kept")
    except HarvestRefusedError as error:
        return Kept(refused=error.message)
    if listed is None:
        return NOTHING
    bundle, rows = listed
    # protection: ref-names-contain-no-secret
    names, renamed = _without_secrets([name for name, _ in rows], redactor)
    wanted = dict(zip(_names(names), (commit for _, commit in rows), strict=False))
    refusals: list[str] = []
    try:
        found = _import_all(handed, bundle, wanted)
    except HarvestRefusedError:
        found, refusals = _import_each(handed, wanted)
    refs = {f"{prefix}{name}": found[name] for name in found}
    repository = handed.repository
    with repository.lock():
        # Two steps, because an old ref's name may be a directory of a new ref's name.
        _drop_old(repository, prefix, refs)
        lines = (f"update {ref} {commit}\n" for ref, commit in refs.items())
        repository.git.run("update-ref", "--stdin", stdin="".join(lines).encode())
    # protection: refused-commits-are-reported
    refused = "commits that are not on the worker's branch were refused" if refusals else None
    return Kept(tuple(refs), (*renamed, *refusals), refused)


def _read(path: Path) -> tuple[str, list[tuple[str, str]]] | None:
    """Read a worker's list of commits to keep; return None if there is no such file.

    Returns a commit that has all listed commits as parents, and (ref name, commit) of each.
    """
    if not os.path.lexists(path):
        return None
    with open_handed_over(path) as file:
        text = file.read(_LARGEST_LIST)
    try:
        listed = json.loads(text)
        bundle, rows = str(listed["bundle"]), [(str(n), str(c)) for n, c in listed["refs"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HarvestRefusedError(
            "the list of the worker's commits outside of its branch is unreadable",
            key="kept-refs.unreadable",
        ) from error
    # protection: listed-refs-must-be-object-ids
    if not all(_OBJECT_ID.fullmatch(name) for name in (bundle, *(commit for _, commit in rows))):
        raise HarvestRefusedError(
            "the list of the worker's commits outside of its branch has an entry that is no id",
            key="kept-refs.unreadable",
        )
    return bundle, rows


def _without_secrets(names: Sequence[str], redactor: Redactor) -> tuple[list[str], tuple[str, ...]]:
    """Replace each name that contains a secret by `renamed/N`; return all names, and a note."""
    held = [redactor.names_in(name.encode("utf-8", "surrogatepass")) for name in names]
    secrets = sorted({secret for found in held for secret in found})
    if not secrets:
        return list(names), ()
    number = count(1)
    safe = [f"renamed/{next(number)}" if h else n for n, h in zip(names, held, strict=True)]
    values = ", ".join(f"`{secret}`" for secret in secrets)
    more = " and so on" if sum(map(bool, held)) > 1 else ""
    note = (
        f"names of the worker's refs contained the value of {values}; "
        f"the refs are kept as `renamed/1`{more}"
    )
    return safe, (note,)


def _names(raw: Sequence[str]) -> Iterator[str]:
    """Convert ref names to unique names that git, all file systems and all terminals accept."""
    taken: set[str] = set()
    folders: set[str] = set()
    for text in raw[:MOST_REFS]:
        # protection: ref-names-are-sanitised
        # protection: length-of-ref-names-limited
        parts = [_UNSAFE.sub("_", part[:_LONGEST_PART]) or "_" for part in text.split("/")]
        if _OF_ATTEMPT.fullmatch(parts[0].lower()):
            # The name must not look like the prefix of a later attempt, whose refs replace all
            # below it.
            parts[0] = f"_{parts[0]}"
        plain = name = "/".join(parts[:_MOST_PARTS])
        number = 1
        above = set(_folders(name.lower()))
        # protection: ref-names-differ-in-more-than-case
        # protection: ref-name-cannot-be-prefix-of-another-ref
        while name.lower() in taken | folders or not taken.isdisjoint(above):
            number += 1
            # Flattened, because a folder in the name may equal another ref's name, which git
            # forbids.
            name = f"{plain.replace('/', '_')[:_LONGEST_NAME]}-{number}"
            above = set(_folders(name.lower()))
        taken.add(name.lower())
        folders |= above
        yield name


def _folders(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _import_all(handed: HandedOver, bundle: str, wanted: dict[str, str]) -> dict[str, str]:
    """Import all commits together, return `wanted`; if one breaks a rule, all are refused."""
    origin, deadline = handed.origin, time.monotonic() + SEARCH_TIME
    # A process that died may have left a quarantine of this name.
    shutil.rmtree(handed.quarantine, ignore_errors=True)
    try:
        with refusals():
            git = import_checked(
                handed.repository, handed.out / _KEPT_PACK, handed.quarantine, origin, bundle
            )
            parents = git.text("rev-list", "--parents", "--no-walk", bundle).split()[1:]
            # protection: only-packed-commits-are-kept
            if not set(parents).issuperset(wanted.values()):
                raise HarvestRefusedError(
                    "the worker's list of commits to keep names commits that are not in its pack "
                    "of git objects",
                    key="kept-refs.unknown-commit",
                )
            for commit in wanted.values():
                # Each commit is compared with the base separately, which adds up when they share a
                # wide tree.
                if time.monotonic() > deadline:
                    raise HarvestRefusedError(
                        "no time was left to check all of the worker's commits",
                        key="kept-refs.timeout",
                    )
                # protection: checked-out-size-of-kept-commits-limited
                check_size(git, base=origin.base, tip=commit, room=origin.room)
    finally:
        shutil.rmtree(handed.quarantine, ignore_errors=True)
    return wanted


def _import_each(handed: HandedOver, wanted: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Import commits one by one; return the imported commits by name, and notes on refusals."""
    found: dict[str, str] = {}
    notes = []
    try:
        origin = replace(handed.origin, on_top=False)
        pack = handed.out / _KEPT_PACK
        with Parts(handed.repository, pack, handed.quarantine, origin) as parts:
            for name, commit in wanted.items():
                refusal = parts.let_in(commit)
                last = commit if refusal is None else parts.last_good(commit)
                if last is not None:
                    found[name] = last
                if refusal is not None:
                    what = f"only its ancestor {last[:12]} is kept" if last else "nothing is kept"
                    notes.append(f"the commit of `{name}` was refused ({refusal}); {what}")
    except HarvestRefusedError as error:
        notes.append(
            f"{len(wanted)} commits that are not on the worker's branch were refused: "
            f"{error.message}"
        )
    return found, notes


class Parts:
    """Imports the acceptable commits of a pack that was refused as a whole.

    The pack's objects are unpacked, unchecked, in a quarantine (a separate repository). Each commit
    is packed again from there, and checked as if the worker had handed over nothing else.
    """

    def __init__(
        self, repository: Repository, pack: Path, quarantine: Path, origin: Origin
    ) -> None:
        """Store the arguments; nothing is unpacked before `__enter__`.

        Args:
            repository: The user's repository.
            pack: The refused pack.
            quarantine: Temporary directory to create and remove, with two paths beside it.
            origin: The commit and the objects that the worker started from.
        """
        self._repository = repository
        self._pack = pack
        self._quarantine = quarantine
        self._unchecked = quarantine.with_name(f"{quarantine.name}-unchecked")
        self._part = quarantine.with_name(f"{quarantine.name}-part")
        self._origin = origin
        self._deadline = time.monotonic() + SEARCH_TIME

    def __enter__(self) -> "Parts":
        """Unpack the refused pack without checks.

        Raises:
            HarvestRefusedError: Git cannot read the pack.
        """
        shutil.rmtree(self._unchecked, ignore_errors=True)
        try:
            with refusals():
                self._git: Git = unpack(self._repository, self._pack, self._unchecked, self._origin)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the temporary directories."""
        shutil.rmtree(self._unchecked, ignore_errors=True)
        shutil.rmtree(self._quarantine, ignore_errors=True)
        self._part.unlink(missing_ok=True)

    def let_in(self, commit: str) -> str | None:
        """Import a commit with all objects that it reaches; return why it was refused, or None.

        Raises:
            OSError: The disk is full.
        """
        if time.monotonic() > self._deadline:
            return "no time was left to check the commit"
        shutil.rmtree(self._quarantine, ignore_errors=True)
        wanted = f"{commit}\n^{self._origin.base}\n".encode()
        try:
            with refusals():
                with self._part.open("wb") as file:
                    self._git.run(
                        "pack-objects", "-q", "--revs", "--stdout", stdin=wanted, stdout=file
                    )
                import_checked(self._repository, self._part, self._quarantine, self._origin, commit)
        except HarvestRefusedError as error:
            return error.message
        return None

    def last_good(self, commit: str) -> str | None:
        """Import the last acceptable commit before a refused one; return it, or None if none.

        Raises:
            OSError: The disk is full.
        """
        # Of merges, only the first parents are followed; the chain begins with the oldest commit.
        form = ("rev-list", "--first-parent", f"--max-count={_MOST_COMMITS}")
        try:
            with refusals():
                found = self._git.text(*form, commit, f"^{self._origin.base}").split()
        except HarvestRefusedError:
            return None
        chain = found[:0:-1]
        good, bad = -1, len(chain)
        # Binary search: if a commit is refused, so is every descendant, whose history contains it.
        while bad - good > 1:
            middle = (good + bad) // 2
            # protection: last-acceptable-commit-is-kept
            if self.let_in(chain[middle]) is None:
                good = middle
            else:
                bad = middle
        return chain[good] if good >= 0 else None


def _drop_old(repository: Repository, prefix: str, refs: dict[str, str]) -> None:
    """Remove the refs below `prefix` that are not in `refs`: a process that died created them."""
    old = split_lines(repository.git.text("for-each-ref", "--format=%(refname)", prefix))
    lines = (f"delete {name}\n" for name in old if name not in refs)
    repository.git.run("update-ref", "--stdin", stdin="".join(lines).encode())
