"""A harvest written by hand, and its import through the quarantine."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.repository.incoming.packed_work import Harvested, HarvestRefusedError
from orchestrator.repository.incoming.quarantine import HandedOver, Origin, import_harvest
from orchestrator.repository.repository import Repository
from orchestrator.worker.workspace.private_git import base_objects
from tests.support.repository import git

BRANCH = "architect/parallel-1"


class Handover:
    """A repository with a worker's branch, the worker's clone, and a harvest of the worker."""

    def __init__(self, repo: Path, tmp_path: Path) -> None:
        self.repo = repo
        self.out = tmp_path / "out"
        self.out.mkdir()
        self.base = git(repo, "rev-parse", "HEAD")
        self.repository = Repository(repo)
        self.repository.claim([BRANCH], self.base)
        objects = tmp_path / "objects"
        shallow = base_objects(self.repository, self.base, objects, history="full")
        self.origin = Origin(base=self.base, objects=objects, shallow=shallow)
        self.quarantine = tmp_path / "quarantine"
        self.clone = tmp_path / "clone"
        git(tmp_path, "clone", "-q", str(repo), str(self.clone))
        git(self.clone, "config", "user.name", "w")
        git(self.clone, "config", "user.email", "w@example.org")
        self.refs = git(repo, "for-each-ref")

    def feed(self, text: str | bytes, *arguments: str) -> str:
        """Run git in the worker's clone with input."""
        data = text if isinstance(text, bytes) else text.encode()
        done = subprocess.run(
            ["git", *arguments], cwd=self.clone, input=data, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def commit_tree(self, tree: str, *parents: str) -> str:
        words = [word for parent in parents for word in ("-p", parent)]
        return self.feed("crafted", "commit-tree", tree, *words)

    def commit_files(self, **files: str) -> str:
        for name, text in files.items():
            (self.clone / name).write_text(text)
        git(self.clone, "add", "-A")
        git(self.clone, "commit", "-qm", "work")
        return git(self.clone, "rev-parse", "HEAD")

    def hand_over(self, tip: str, objects: str | None = None) -> str:
        """Write pack and tip; `objects` packs other objects than those of base..tip."""
        arguments = ("pack-objects", "-q", "--stdout", *([] if objects else ["--revs", "--thin"]))
        with (self.out / "pack").open("wb") as pack:
            subprocess.run(
                ["git", *arguments],
                cwd=self.clone,
                input=(objects or f"{tip}\n^{self.base}\n").encode(),
                stdout=pack,
                check=True,
            )
        (self.out / "tip").write_text(tip)
        return tip

    def bring_in(self) -> Harvested:
        """Import the harvest, and move the branch to it."""
        handed = HandedOver(
            repository=self.repository,
            out=self.out,
            quarantine=self.quarantine,
            origin=self.origin,
        )
        harvested = import_harvest(handed)
        git(self.repo, "update-ref", f"refs/heads/{BRANCH}", harvested.tip)
        return harvested

    def refused(self, said: str) -> None:
        """Check that the harvest is refused, and that nothing was imported."""
        with pytest.raises(HarvestRefusedError, match=said):
            self.bring_in()
        assert git(self.repo, "for-each-ref") == self.refs
        assert not self.quarantine.exists()

    def has(self, object_id: str) -> bool:
        done = subprocess.run(["git", "cat-file", "-e", object_id], cwd=self.repo, check=False)
        return done.returncode == 0


def object_id(handover: Handover, name: str) -> bytes:
    return git(handover.clone, "rev-parse", name).encode()
