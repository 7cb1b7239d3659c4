"""A repository with a submodule that has a submodule of its own."""

from pathlib import Path

from tests.support.repository import git, make_repository

LOCAL = ("-c", "protocol.file.allow=always")


def with_submodules(place: Path) -> Path:
    """Create `place` with the submodule `vendor/lib`, which has `deep`; both are checked out."""
    sources = place.parent / f"sources of {place.name}"
    sources.mkdir(parents=True)
    deep, lib = make_repository(sources / "deep"), make_repository(sources / "lib")
    _add(lib, deep, "deep")
    repo = make_repository(place)
    _add(repo, lib, "vendor/lib")
    git(repo, *LOCAL, "submodule", "--quiet", "update", "--init", "--recursive")
    return repo


def _add(repo: Path, source: Path, path: str) -> None:
    git(repo, *LOCAL, "submodule", "--quiet", "add", "--name", f"the {path}", str(source), path)
    git(repo, "commit", "-qam", f"add {path}")
