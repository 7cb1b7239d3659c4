"""Let in the commits that a worker left beside its branch, and what can be kept of a refused one.

The harvest's container names these commits (see `git_states`); names and objects are hostile.
They are checked by the rules of a harvest and become refs below `refs/orchestrator/kept/`, which no
`git push` or `git clone` takes along by itself.
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

from orchestrator.git.command import Git
from orchestrator.git.quarantine import (
    HarvestRefusedError,
    Origin,
    check_size,
    import_checked,
    open_handed_over,
    refusals,
    unpack,
)
from orchestrator.git.repository import KEPT, Repository, worker_refs
from orchestrator.text.redact import Redactor

MOST_REFS = 200
"""Kept refs of one worker."""
SEARCH_TIME = 120.0
"""Seconds for finding out what of a refused harvest can be kept."""
_MOST_COMMITS = 1024
"""Commits of a refused history that are tried."""
_LARGEST_LIST = 1 << 20
_SHOWN = 5
_LONGEST_PART, _MOST_PARTS = 60, 8
_LONGEST_NAME = 200
"""Characters of a name without folders: a file system takes 255 bytes, and git adds `.lock`."""
_OF_ATTEMPT = re.compile(r"attempt-\d+")
"""What the names of a later attempt begin with; see `kept_prefix`."""
_PACK = ("pack-objects", "-q", "--revs", "--stdout")
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=,-]|\.\.+|^\.|\.$|\.lock$")
_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True)
class Kept:
    """What was kept beside a worker's branch."""

    refs: tuple[str, ...] = ()
    """Full names of refs."""
    notes: tuple[str, ...] = ()
    """What could not be kept, and what has another name, for people."""
    refused: str | None = None
    """Why not all of it was let in."""


NOTHING = Kept()


def kept_prefix(run_id: str, worker_id: int, *, attempt: int) -> str:
    """Return what the kept refs of one attempt of a worker begin with."""
    again = f"attempt-{attempt}/" if attempt > 1 else ""
    return f"{KEPT}{run_id}/{worker_id}/{again}"


def list_kept(repository: Repository) -> list[tuple[str, int, str]]:
    """List every kept ref: its run, its worker's number, its name."""
    return worker_refs(repository.git, KEPT)


def told(refs: Sequence[str]) -> tuple[str, ...]:
    """Return a note for people that names kept refs, or none where there are none."""
    if not refs:
        return ()
    shown = ", ".join(f"`{ref}`" for ref in refs[:_SHOWN])
    more = f" and {len(refs) - _SHOWN} more" if len(refs) > _SHOWN else ""
    return (f"commits that its branch does not have are kept: {shown}{more}",)


def import_kept(
    repository: Repository,
    *,
    out: Path,
    quarantine: Path,
    origin: Origin,
    prefix: str,
    redactor: Redactor,
) -> Kept:
    """Check the commits beside a worker's branch and make a ref for each that may be kept.

    Args:
        repository: Where they go.
        out: The directory with `kept` and `kept.pack`, if there is anything to keep.
        quarantine: A directory to be made, and removed again.
        origin: What the worker started from.
        prefix: What the refs begin with. Refs below it are replaced: a process left them that died
            over the same harvest.
        redactor: Knows the secrets that no name of a ref may contain.

    Raises:
        OSError: There is no room for it.
    """
    try:
        listed = _read(out / "kept")
    except HarvestRefusedError as error:
        return Kept(refused=error.message)
    if listed is None:
        return NOTHING
    bundle, rows = listed
    names, renamed = _without_secrets([name for name, _ in rows], redactor)
    wanted = dict(zip(_names(names), (commit for _, commit in rows), strict=False))
    refusals: list[str] = []
    try:
        found = _import_all(repository, out / "kept.pack", quarantine, origin, bundle, wanted)
    except HarvestRefusedError:
        found, refusals = _import_each(repository, out / "kept.pack", quarantine, origin, wanted)
    refs = {f"{prefix}{name}": found[name] for name in found}
    _write_refs(repository, prefix, refs)
    refused = "commits beside its branch were refused" if refusals else None
    return Kept(tuple(refs), (*renamed, *refusals), refused)


def _read(path: Path) -> tuple[str, list[tuple[str, str]]] | None:
    """Return the commit that stands for all, and names with commits; None without a list."""
    if not os.path.lexists(path):
        return None
    with open_handed_over(path) as file:
        text = file.read(_LARGEST_LIST)
    try:
        listed = json.loads(text)
        bundle, rows = str(listed["bundle"]), [(str(n), str(c)) for n, c in listed["refs"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HarvestRefusedError("the list of what is to be kept cannot be read") from error
    if not all(_OBJECT_ID.fullmatch(name) for name in (bundle, *(commit for _, commit in rows))):
        raise HarvestRefusedError("the list of what is to be kept names no commits")
    return bundle, rows


def _without_secrets(names: Sequence[str], redactor: Redactor) -> tuple[list[str], tuple[str, ...]]:
    """Number the names that contain a secret, and return a note that says so."""
    held = [redactor.names_in(name.encode("utf-8", "surrogatepass")) for name in names]
    secrets = sorted({secret for found in held for secret in found})
    if not secrets:
        return list(names), ()
    number = count(1)
    safe = [f"renamed/{next(number)}" if h else n for n, h in zip(names, held, strict=True)]
    values = ", ".join(f"`{secret}`" for secret in secrets)
    more = " and so on" if sum(map(bool, held)) > 1 else ""
    note = f"names of refs contained the value of {values}; they are kept as `renamed/1`{more}"
    return safe, (note,)


def _names(raw: Sequence[str]) -> Iterator[str]:
    """Make names that git, any file system and any terminal take; no two are alike."""
    taken: set[str] = set()
    folders: set[str] = set()
    for text in raw[:MOST_REFS]:
        parts = [_UNSAFE.sub("_", part[:_LONGEST_PART]) or "_" for part in text.split("/")]
        if _OF_ATTEMPT.fullmatch(parts[0].lower()):
            # The refs of a later attempt replace all that stand there.
            parts[0] = f"_{parts[0]}"
        plain = name = "/".join(parts[:_MOST_PARTS])
        number = 1
        while _is_taken(name.lower(), taken, folders):
            number += 1
            # Without folders: one that is another name already would stay in the way.
            name = f"{plain.replace('/', '_')[:_LONGEST_NAME]}-{number}"
        taken.add(name.lower())
        folders.update(_folders(name.lower()))
        yield name


def _is_taken(name: str, taken: set[str], folders: set[str]) -> bool:
    return name in taken or name in folders or not taken.isdisjoint(_folders(name))


def _folders(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _import_all(
    repository: Repository, pack: Path, quarantine: Path, origin: Origin, bundle: str,
    wanted: dict[str, str],
) -> dict[str, str]:  # fmt: skip
    """Let all of it in at once, which is refused whole."""
    deadline = time.monotonic() + SEARCH_TIME
    try:
        with refusals():
            git = import_checked(repository, pack, quarantine, origin, bundle)
            parents = git.text("rev-list", "--parents", "--no-walk", bundle).split()[1:]
            if not set(parents).issuperset(wanted.values()):
                raise HarvestRefusedError("the list of what is to be kept is not what was packed")
            for commit in wanted.values():
                # Each is compared with the base anew, and all may share one wide tree.
                if time.monotonic() > deadline:
                    raise HarvestRefusedError("there was no time left to check all of it")
                check_size(git, base=origin.base, tip=commit, room=origin.room)
    finally:
        shutil.rmtree(quarantine, ignore_errors=True)
    return wanted


def _import_each(
    repository: Repository, pack: Path, quarantine: Path, origin: Origin, wanted: dict[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Let in what keeps the rules, one commit after the other."""
    found: dict[str, str] = {}
    notes = []
    try:
        with Parts(repository, pack, quarantine, replace(origin, on_top=False)) as parts:
            for name, commit in wanted.items():
                refusal = parts.let_in(commit)
                last = commit if refusal is None else parts.last_good(commit)
                if last is not None:
                    found[name] = last
                if refusal is not None:
                    what = f"only its ancestor {last[:12]} is kept" if last else "no ref has it"
                    notes.append(f"`{name}` was refused ({refusal}); {what}")
    except HarvestRefusedError as error:
        notes.append(f"{len(wanted)} commits beside its branch were refused: {error.message}")
    return found, notes


class Parts:
    """A pack that was refused, and what of it keeps the rules.

    Its objects lie in a quarantine, unchecked. What may be good is packed anew from there, and
    checked as if nothing else had been handed over.
    """

    def __init__(
        self, repository: Repository, pack: Path, quarantine: Path, origin: Origin
    ) -> None:
        """Do nothing yet.

        Args:
            repository: Where good parts go.
            pack: What was refused.
            quarantine: A directory to be made, and removed again; so is one beside it.
            origin: What the worker started from.
        """
        self._repository = repository
        self._pack = pack
        self._quarantine = quarantine
        self._unchecked = quarantine.with_name(f"{quarantine.name}-unchecked")
        self._part = quarantine.with_name(f"{quarantine.name}-part")
        self._origin = origin
        self._deadline = time.monotonic() + SEARCH_TIME

    def __enter__(self) -> "Parts":
        """Unpack it.

        Raises:
            HarvestRefusedError: It is no pack that git can read.
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
        """Remove what was unpacked."""
        shutil.rmtree(self._unchecked, ignore_errors=True)
        shutil.rmtree(self._quarantine, ignore_errors=True)
        self._part.unlink(missing_ok=True)

    def let_in(self, commit: str) -> str | None:
        """Let a commit in, with what it reaches; return why it was refused, or None.

        Raises:
            OSError: There is no room for it.
        """
        if time.monotonic() > self._deadline:
            return "there was no time left to check it"
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
        """Let in and return the last commit before a refused one that keeps the rules, if any.

        Raises:
            OSError: There is no room for it.
        """
        chain = self._before(commit)
        good, bad = -1, len(chain)
        # A commit that is refused is so in the history of all that come after it.
        while bad - good > 1:
            middle = (good + bad) // 2
            if self.let_in(chain[middle]) is None:
                good = middle
            else:
                bad = middle
        return chain[good] if good >= 0 else None

    def _before(self, commit: str) -> list[str]:
        """List the commits before one, the oldest first."""
        form = ("rev-list", "--first-parent", f"--max-count={_MOST_COMMITS}")
        try:
            with refusals():
                found = self._git.text(*form, commit, f"^{self._origin.base}").split()
        except HarvestRefusedError:
            return []
        return found[:0:-1]


def _write_refs(repository: Repository, prefix: str, refs: dict[str, str]) -> None:
    with repository.lock():
        # Not in one transaction: an old name may be a directory of a new one.
        _drop_old(repository, prefix, refs)
        lines = (f"update {name} {commit}\n" for name, commit in refs.items())
        repository.git.run("update-ref", "--stdin", stdin="".join(lines).encode())


def _drop_old(repository: Repository, prefix: str, refs: dict[str, str]) -> None:
    """Remove the refs that a process left which died during the same harvest.

    The harvest is not recorded yet: whatever these refs named is harvested again.
    """
    old = repository.git.text("for-each-ref", "--format=%(refname)", prefix).splitlines()
    lines = (f"delete {name}\n" for name in old if name not in refs)
    repository.git.run("update-ref", "--stdin", stdin="".join(lines).encode())
