"""Repositories in every layout of git, each with a branch `main` of two commits."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.repository import git, make_repository
from tests.support.submodules import LOCAL

HOOKS = ".githooks"
_RELATIVE = """#!/bin/sh
# Behaves as git 2.48 with worktree.useRelativePaths: pointers of new worktrees are relative.
"{git}" "$@" || exit
case " $* " in *" worktree add "*) ;; *) exit 0 ;; esac
common=$("{git}" rev-parse --path-format=absolute --git-common-dir)
for pointer in "$common"/worktrees/*/gitdir
do
    read -r file < "$pointer"
    case $file in /*) ;; *) continue ;; esac
    from=${{pointer%/gitdir}} tree=${{file%/.git}}
    printf 'gitdir: %s\\n' "$(realpath -m --relative-to="$tree" "$from")" > "$file"
    realpath -m --relative-to="$from" "$file" > "$pointer"
done
"""


def relative_git(place: Path) -> Path:
    """Create a directory with a `git` that writes relative pointers; it is to be first in PATH."""
    place.mkdir(parents=True)
    program = place / "git"
    program.write_text(_RELATIVE.format(git=shutil.which("git")))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return place


def _plain(place: Path) -> Path:
    return make_repository(place / "repo")


def _linked(place: Path) -> Path:
    git(_plain(place), "worktree", "add", "-q", "-b", "topic", str(place / "linked"))
    return place / "linked"


def _bare(place: Path) -> Path:
    git(place, "clone", "-q", "--bare", str(make_repository(place / "source")), "repo.git")
    _user(place / "repo.git")
    git(place / "repo.git", "worktree", "add", "-q", str(place / "tree"), "main")
    git(place / "repo.git", "worktree", "add", "-q", "-b", "topic", str(place / "other"))
    return place / "tree"


def _separate(place: Path) -> Path:
    repo = make_repository(place / "repo")
    git(repo, "init", "-q", "--separate-git-dir", str(place / "git.dir"))
    return repo


def _separate_linked(place: Path) -> Path:
    git(_separate(place), "worktree", "add", "-q", "-b", "topic", str(place / "linked"))
    return place / "linked"


def _configured(place: Path) -> Path:
    """Return a repository whose git directory says where the files are, as a submodule's does."""
    repo = _plain(place)
    git(repo, "config", "core.worktree", str(repo))
    return repo


def _submodule(place: Path) -> Path:
    outer, inner = make_repository(place / "outer"), make_repository(place / "inner")
    git(outer, *LOCAL, "submodule", "--quiet", "add", str(inner), "lib")
    _user(outer / "lib")
    return outer / "lib"


def _submodule_linked(place: Path) -> Path:
    git(_submodule(place), "worktree", "add", "-q", "-b", "topic", str(place / "linked"))
    return place / "linked"


def _shallow(place: Path) -> Path:
    source = make_repository(place / "source")
    git(place, "clone", "-q", "--depth", "1", f"file://{source}", "repo")
    _user(place / "repo")
    return place / "repo"


def _partial(place: Path) -> Path:
    source = make_repository(place / "source")
    git(source, "config", "uploadpack.allowFilter", "true")
    # A file of an old commit, which a partial clone lacks.
    (source / "a.txt").write_text("newer\n")
    git(source, "commit", "-qam", "third")
    git(place, "clone", "-q", "--filter=blob:none", f"file://{source}", "repo")
    _user(place / "repo")
    return place / "repo"


def _sha256(place: Path) -> Path:
    source = make_repository(place / "source")
    git(place, "init", "-q", "-b", "main", "--object-format=sha256", "repo")
    repo = place / "repo"
    _user(repo)
    for path in ("a.txt", "src"):
        shutil.move(source / path, repo / path)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "first")
    return repo


def _detached(place: Path) -> Path:
    repo = _plain(place)
    git(repo, "checkout", "-q", "--detach")
    return repo


def _mid_merge(place: Path) -> Path:
    repo = _plain(place)
    git(repo, "checkout", "-qb", "other")
    (repo / "a.txt").write_text("other\n")
    git(repo, "commit", "-qam", "other")
    git(repo, "checkout", "-q", "main")
    (repo / "a.txt").write_text("main\n")
    git(repo, "commit", "-qam", "main")
    subprocess.run(["git", "merge", "-q", "other"], cwd=repo, check=False, capture_output=True)
    return repo


def _user(repo: Path) -> None:
    git(repo, "config", "user.name", "user")
    git(repo, "config", "user.email", "user@example.org")


LAYOUTS: Mapping[str, Callable[[Path], Path]] = {
    "plain": _plain, "linked": _linked, "bare": _bare, "separate": _separate,
    "separate-linked": _separate_linked, "configured": _configured, "submodule": _submodule,
    "submodule-linked": _submodule_linked, "relative": _linked, "shallow": _shallow,
    "partial": _partial, "sha256": _sha256, "detached": _detached, "mid-merge": _mid_merge,
}  # fmt: skip
"""Functions that create a repository below a directory, and return the worktree of the user."""


def state_of(tree: Path) -> dict[str, object]:
    """Return what a command of ours must not change for a user who works in any worktree.

    The worktrees of workers, their branches, and our own refs are left out.
    """
    refs = git(tree, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    ours = ("refs/heads/architect/", "refs/orchestrator/")
    common = Path(git(tree, "rev-parse", "--path-format=absolute", "--git-common-dir"))
    # A clean checkout has no file `index` that differs from HEAD; its bytes may be refreshed.
    return {
        "config": sorted(git(tree, "config", "--list", "--local").splitlines()),
        "hooks": sorted((path.name, path.read_bytes()) for path in (common / "hooks").glob("*")),
        "refs": [ref for ref in refs if not ref.startswith(ours)],
        "trees": {str(path): worktree_state(path) for path in user_worktrees(tree)},
    }


def user_worktrees(tree: Path) -> list[Path]:
    """Return the given worktree and all others of the user that exist."""
    listed = git(tree, "worktree", "list", "--porcelain").splitlines()
    paths = (Path(line.removeprefix("worktree ")) for line in listed if line[:9] == "worktree ")
    others = (path for path in paths if (path / ".git").exists())
    return sorted({tree, *(one for one in others if not one.name.startswith(".architect"))})


def worktree_state(tree: Path) -> tuple[str, ...]:
    """Return what git says about a worktree, and its index."""
    return (
        git(tree, "rev-parse", "--is-inside-work-tree", "--symbolic-full-name", "HEAD"),
        git(tree, "rev-parse", "HEAD"),
        git(tree, "--no-optional-locks", "status", "--porcelain"),
        git(tree, "ls-files", "--stage"),
    )


def path_with(place: Path) -> str:
    """Return the variable PATH with another directory first."""
    return f"{place}{os.pathsep}{os.environ['PATH']}"
