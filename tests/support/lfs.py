"""A repository as git-lfs leaves it; git-lfs itself is not needed."""

import hashlib
from pathlib import Path

from tests.support.repository import git, make_repository


def pointer(content: bytes) -> str:
    """Return the pointer that a commit contains for a file with this content."""
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n"


def stored(repo: Path, content: bytes) -> Path:
    """Return the path where git-lfs stores the content."""
    oid = hashlib.sha256(content).hexdigest()
    return repo / ".git" / "lfs" / "objects" / oid[:2] / oid[2:4] / oid


def store(repo: Path, content: bytes) -> None:
    """Write content to git-lfs's storage."""
    place = stored(repo, content)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)


def with_content(place: Path, **files: bytes) -> Path:
    """Create a repository with `NAME.bin` for each name, whose content git-lfs has."""
    repo = make_repository(place)
    (repo / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    for name, content in files.items():
        (repo / f"{name}.bin").write_text(pointer(content))
        store(repo, content)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "large files")
    return repo
