"""Create the commits on which candidates are judged, in a quarantine (a separate repository).

No ref points at these commits. They have the files that a candidate committed, with the base
commit's tests and files that control tests (`protected`), and additionally the hidden files
(`hidden`), or tests that must fail (`canary`).
"""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from orchestrator.config.settings.judging import Tests
from orchestrator.repository.git.command import Git
from orchestrator.repository.incoming.sealed_commits import import_commits, signature, write_commit
from orchestrator.repository.repository import Repository
from orchestrator.review.judging.instruments import Instruments

MOST_READ = 16 * 1024**2
"""Maximum number of bytes of the base commit's files that are searched for texts and numbers."""
_LINK = "120000"
_REPOSITORY = "160000"
_FILE = "100644"


@dataclass(frozen=True)
class Entry:
    """A file in a commit."""

    mode: str
    blob: str

    @property
    def is_file(self) -> bool:
        """Return whether the entry is a regular file."""
        return self.mode.startswith("100")


@dataclass(frozen=True)
class Trees:
    """Creates commits from the base and from candidates' commits."""

    repository: Repository
    git: Git
    """Git in a quarantine, a separate repository."""
    place: Path
    """Directory of the quarantine repository."""
    base: str
    began: datetime
    """Start of the judged run, which is the date of the created commits."""
    instruments: Instruments
    lock: threading.Lock = field(default_factory=threading.Lock)

    def entries(self, commit: str) -> dict[str, Entry]:
        """Return the files of a commit by their paths."""
        found = {}
        for row in self.git.tree(commit):
            said, _, path = row.partition(b"\t")
            mode, _, blob = said.decode("ascii").split(" ")
            found[os.fsdecode(path)] = Entry(mode, blob)
        return found

    def text_of_base(self, path: str) -> str | None:
        """Return the text of a file of the base commit; None if it has no such file."""
        entry = self.entries(self.base).get(path)
        if entry is None or not entry.is_file:
            return None
        return b"".join(self.contents([entry.blob])).decode("utf-8", "replace")

    def contents(self, blobs: Iterable[str]) -> Iterator[bytes]:
        """Yield the contents of files, cut off after MOST_READ bytes in total."""
        asked = "".join(f"{blob}\n" for blob in blobs).encode()
        left = MOST_READ
        with self.git.reading("cat-file", "--batch", stdin=asked) as output:
            while left > 0 and len(said := output.readline().split()) == 3:
                size = int(said[2])
                yield output.read(min(size, left))
                left -= size
                output.read(1)

    def changes_to_restore(self, commit: str, tests: Tests) -> dict[str, Entry | None]:
        """Return changes that restore the base's tests and test control files; None removes a file.

        Args:
            commit: The candidate's commit.
            tests: `frozen` also removes new tests; `extend` keeps them; `free` changes nothing.
        """
        if tests == "free":
            return {}
        before, after = self.entries(self.base), self.entries(commit)
        changed = {path: entry for path, entry in before.items() if after.get(path) != entry}
        new = {path: entry for path, entry in after.items() if path not in before}
        # protection: tests-of-base-replace-those-of-candidate
        return {
            **{
                path: entry
                for path, entry in changed.items()
                if entry.mode != _REPOSITORY and self.instruments.is_protected(path)
            },
            **{path: None for path, entry in new.items() if self._is_dropped(path, entry, tests)},
        }

    def with_base_configuration(self, commit: str, candidate: str) -> str:
        """Return `commit` with the base's versions of mixed files, such as `Makefile`.

        Mixed files control tests, among other things.

        Args:
            commit: The commit whose files are replaced.
            candidate: The candidate's commit: only files that it changed are replaced.
        """
        before, after = self.entries(self.base), self.entries(candidate)
        paths = [path for path in {**before, **after} if before.get(path) != after.get(path)]
        mixed = (path for path in paths if self.instruments.kind(path) == "mixed")
        return self.with_changes(commit, {path: before.get(path) for path in mixed})

    def _is_dropped(self, path: str, entry: Entry, tests: Tests) -> bool:
        kind = self.instruments.kind(path)
        if entry.mode == _REPOSITORY or kind not in ("control", "test"):
            return False
        # A link could stand for a directory of tests.
        # protection: new-files-that-control-tests-are-removed
        # protection: new-links-among-tests-are-removed
        return kind == "control" or tests == "frozen" or entry.mode == _LINK

    def with_changes(self, commit: str, changes: Mapping[str, Entry | None]) -> str:
        """Return a commit with changed files; the commit itself if there are no changes."""
        if not changes:
            return commit
        with self.lock:
            index = {"GIT_INDEX_FILE": str(self.place / "index")}
            self.git.run("read-tree", commit, env=index)
            none = "0" * len(self.git.text("hash-object", "--stdin", stdin=b""))
            # Removals come first: a file may replace a directory.
            ordered = sorted(changes.items(), key=lambda change: change[1] is not None)
            rows = (
                (f"{entry.mode} {entry.blob}" if entry else f"0 {none}", os.fsencode(path))
                for path, entry in ordered
            )
            listed = b"".join(b"%b\t%b\0" % (said.encode(), path) for said, path in rows)
            self.git.run("update-index", "-z", "--index-info", stdin=listed, env=index)
            tree = self.git.run("write-tree", env=index).decode().strip()
            message = b"Judged by orchestrator\n"
            signed = signature(self.repository, self.began)
            made = write_commit(self.git, tree, [commit], message, signed=signed)
            import_commits(self.repository, self.git, self.place / "git", made, [self.base, commit])
            return made

    def with_files(self, commit: str, files: Mapping[str, bytes]) -> str:
        """Return a commit with additional files; they replace files with the same paths."""
        changes = {
            path: Entry(_FILE, self.git.text("hash-object", "-w", "--stdin", stdin=data))
            for path, data in files.items()
        }
        return self.with_changes(commit, changes)
