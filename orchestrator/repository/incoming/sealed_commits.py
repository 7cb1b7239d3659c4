"""Create commits in a quarantine, check them like a worker's commits, and import them."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from orchestrator.repository.git.command import Git
from orchestrator.repository.incoming.quarantine import accept_pack, check_merged
from orchestrator.repository.repository import Repository


def signature(repository: Repository, when: datetime) -> dict[str, str]:
    """Return the environment variables that make the user the author of a commit with this date."""
    identities = {"AUTHOR": repository.identity(), "COMMITTER": repository.committer()}
    date = f"@{int(when.timestamp())} +0000"
    return {
        f"GIT_{who}_{key}": value
        for who, (name, email) in identities.items()
        for key, value in {"NAME": name, "EMAIL": email, "DATE": date}.items()
    }


def write_commit(
    git: Git, tree: str, parents: Iterable[str], message: bytes, *, signed: Mapping[str, str]
) -> str:
    """Create a commit in a quarantine and return its id; no ref moves."""
    words = (word for parent in parents for word in ("-p", parent))
    command = ("commit-tree", tree, *words, "-F", "-")
    return git.run(*command, stdin=message, env=signed).decode().strip()


def check_names(git: Git, commit: str, before: Iterable[str]) -> None:
    """Refuse names that differ only in upper and lower case, unless a commit of `before` has them.

    Raises:
        HarvestRefusedError: The commit has such names.
    """
    check_merged(git, before=_trees(git, before), merged=_trees(git, [commit]))


def _trees(git: Git, commits: Iterable[str]) -> list[str]:
    names = "".join(f"{commit}^{{tree}}\n" for commit in commits)
    asked = ("cat-file", "--batch-check=%(objectname)")
    return git.text(*asked, stdin=names.encode()).split()


def import_commits(
    repository: Repository, git: Git, git_dir: Path, commit: str, known: Iterable[str]
) -> None:
    """Import a commit from a quarantine into the repository; no ref moves.

    Args:
        repository: The user's repository.
        git: Git in the quarantine.
        git_dir: The quarantine's git directory.
        commit: The commit, which obeys the rules for workers' commits.
        known: Commits that the repository has.

    Raises:
        GitCommandError: An object breaks one of git's rules, or the disk is full.
    """
    wanted = "".join(f"{line}\n" for line in (commit, *(f"^{tip}" for tip in known)))
    name = git_dir / "objects" / "pack" / "pack"
    for earlier in name.parent.iterdir():
        # The objects of an earlier import are still there as loose files.
        earlier.unlink()
    made = git.text("pack-objects", "-q", "--revs", str(name), stdin=wanted.encode())
    # Checked before the import. When git refuses the pack during the import, parts of it would
    # stay.
    # protection: merge-is-checked-before-import
    git.run("index-pack", "--strict", "--threads=1", f"{name}-{made}.pack")
    # protection: import-holds-repository-lock
    with repository.lock():
        accept_pack(repository, git_dir)
