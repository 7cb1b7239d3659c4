"""Paths of one worker's files in its state directory."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Store:
    """The state directory of one worker, and the paths in it."""

    root: Path

    @property
    def git(self) -> Path:
        """Return the worker's own git directory."""
        return self.root / "git"

    @property
    def pointer(self) -> Path:
        """Return the file that the worker sees as `.git` in its worktree."""
        return self.root / "pointer"

    @property
    def upper(self) -> Path:
        """Return the directory with the files that the worker wrote, if an overlay is used."""
        return self.root / "upper"

    @property
    def overlay(self) -> Path:
        """Return the overlay's internal work directory."""
        return self.root / "overlay"

    @property
    def copy(self) -> Path:
        """Return the directory of the worker's own checkout, if overlays cannot be used."""
        return self.root / "copy"

    @property
    def harvest(self) -> Path:
        """Return the git directory, prepared by the host, that is used to pack the commits."""
        return self.root / "harvest"

    @property
    def out(self) -> Path:
        """Return the directory that receives the worker's packed commits."""
        return self.root / "out"

    @property
    def plain(self) -> Path:
        """Return the temporary git directory in which the host itself commits a worker's files."""
        return self.root / "plain"

    @property
    def quarantine(self) -> Path:
        """Return the temporary git directory in which the worker's packed commits are checked."""
        return self.root / "quarantine"
