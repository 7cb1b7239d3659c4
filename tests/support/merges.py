"""Commits of several tasks, and their merge."""

import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.repository.commits.task_merge import MergeConflict, Tip, integrate
from orchestrator.repository.repository import Repository
from tests.support.repository import git

Content = str | bytes | tuple[str, str] | None
"""Text, or mode and text, of a file (commit of a submodule); None deletes the file."""
WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NUMBERS = "".join(f"{number}\n" for number in range(30))


class World:
    """A repository, and commits that are not in its checkout."""

    def __init__(self, repo: Path, scratch: Path) -> None:
        self.repo = repo
        self.scratch = scratch
        self.base = git(repo, "rev-parse", "HEAD")

    def commit(self, files: Mapping[str, Content], *parents: str) -> str:
        """Commit files on top of a commit; by default, the base."""
        parents = parents or (self.base,)
        env = {**os.environ, "GIT_INDEX_FILE": str(self.scratch / "index")}

        def run(*words: str, said: bytes = b"") -> str:
            done = subprocess.run(
                ["git", *words], cwd=self.repo, env=env, input=said, capture_output=True, check=True
            )
            return done.stdout.decode().strip()

        run("read-tree", parents[0])
        for path, content in files.items():
            mode, data = content if isinstance(content, tuple) else ("100644", content)
            if data is None:
                run("rm", "-q", "-r", "-f", "--cached", path)
                continue
            raw = data.encode() if isinstance(data, str) else data
            named = mode == "160000"
            blob = str(data) if named else run("hash-object", "-w", "--stdin", said=raw)
            run("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}")
        tree = run("write-tree")
        words = (word for parent in parents for word in ("-p", parent))
        return run("commit-tree", tree, *words, "-m", "work")

    def merged(self, *commits: str) -> str:
        """Merge the commits of the tasks `a`, `b`, ..."""
        tips = [Tip(chr(ord("a") + number), commit) for number, commit in enumerate(commits)]
        return self.integrate(tips)

    def integrate(self, tips: list[Tip]) -> str:
        return integrate(
            Repository(self.repo), self.base, tips, when=WHEN, scratch=self.scratch / "merge"
        )

    def refused(self, *commits: str) -> MergeConflict:
        """Check that commits cannot be merged, and that nothing of them is left."""
        before = self.objects()
        with pytest.raises(MergeConflict) as caught:
            self.merged(*commits)
        assert self.objects() == before
        assert not (self.scratch / "merge").exists()
        return caught.value

    def objects(self) -> str:
        return git(self.repo, "cat-file", "--batch-all-objects", "--batch-check")

    def show(self, commit: str, path: str) -> str:
        return git(self.repo, "show", f"{commit}:{path}")
