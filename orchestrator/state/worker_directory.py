"""Where the files of one worker lie in the state directory."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Store:
    """A worker's state directory."""

    root: Path

    @property
    def git(self) -> Path:
        """The worker's git directory."""
        return self.root / "git"

    @property
    def pointer(self) -> Path:
        """What the worker sees as `.git`."""
        return self.root / "pointer"

    @property
    def upper(self) -> Path:
        """What the worker wrote (mode overlay)."""
        return self.root / "upper"

    @property
    def overlay(self) -> Path:
        """The overlay's scratch (mode overlay)."""
        return self.root / "overlay"

    @property
    def copy(self) -> Path:
        """The worker's own checkout (mode bind)."""
        return self.root / "copy"

    @property
    def harvest(self) -> Path:
        """The host-made git directory of the harvest."""
        return self.root / "harvest"

    @property
    def out(self) -> Path:
        """What the harvest hands over."""
        return self.root / "out"

    @property
    def quarantine(self) -> Path:
        """Where what the harvest hands over is checked."""
        return self.root / "quarantine"
