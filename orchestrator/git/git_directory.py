"""Create git directories quickly, and read files of git directories."""

from pathlib import Path


def make_bare(git_dir: Path, *, object_format: str, branch: str = "main") -> None:
    """Create an empty bare repository.

    This is faster than `git init`. Every worker needs three repositories, and creating them with
    `git init` would take as long as all other steps of a worker's start together.

    Args:
        git_dir: Directory to create.
        object_format: `sha1` or `sha256`.
        branch: The branch that HEAD points at.
    """
    for name in ("objects/info", "objects/pack", "refs/heads"):
        (git_dir / name).mkdir(parents=True)
    (git_dir / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    # Written only when needed: some other readers of git directories fail on extensions.
    extra = f"1\n[extensions]\n\tobjectFormat = {object_format}\n"
    version = "0\n" if object_format == "sha1" else extra
    (git_dir / "config").write_text(f"[core]\n\tbare = true\n\trepositoryformatversion = {version}")


def shallow_commits(common_dir: Path) -> frozenset[str]:
    """Return the commits of a shallow clone whose parents are missing."""
    file = common_dir / "shallow"
    return frozenset(file.read_text().split()) if file.exists() else frozenset()
