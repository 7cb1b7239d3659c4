"""Paths of the files of one worker in the state directory."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Store:
    """The directory with a worker's files."""

    root: Path

    @property
    def git(self) -> Path:
        """The worker's git directory."""
        return self.root / "git"

    @property
    def pointer(self) -> Path:
        """The file that the worker sees as `.git`."""
        return self.root / "pointer"

    @property
    def upper(self) -> Path:
        """The worker's written files (mode overlay)."""
        return self.root / "upper"

    @property
    def overlay(self) -> Path:
        """The overlay's work directory (mode overlay)."""
        return self.root / "overlay"

    @property
    def copy(self) -> Path:
        """The worker's own checkout (mode bind)."""
        return self.root / "copy"

    @property
    def harvest(self) -> Path:
        """The git directory that the host created for the harvest."""
        return self.root / "harvest"

    @property
    def out(self) -> Path:
        """The directory that the harvest writes its results to."""
        return self.root / "out"

    @property
    def plain(self) -> Path:
        """Temporary git directory in which the host commits ordinary files."""
        return self.root / "plain"

    @property
    def quarantine(self) -> Path:
        """Temporary git directory in which the harvest's output is checked."""
        return self.root / "quarantine"
