"""Tests that git never runs or fetches anything that a repository's configuration names."""

import os
import struct
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.base.errors import GitCommandError, RepositoryError
from orchestrator.repository.commits.changes import changes
from orchestrator.repository.git.command import Git, discover
from orchestrator.repository.programs import Use
from orchestrator.repository.repository import Repository
from tests.support.repository import git, make_repository


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """Return a file that is created if a configured program runs."""
    return tmp_path / "MARK"


def ours(repo: Path, **rest: Path) -> Git:
    return Git(repo / ".git", work_tree=repo, **rest)


def _hook(repo: Path, command: str) -> None:
    hook = repo / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{command}\n")
    hook.chmod(0o755)


def _fsmonitor(repo: Path, command: str) -> None:
    git(repo, "config", "core.fsmonitor", f"{command}; false")


def _external_diff(repo: Path, command: str) -> None:
    git(repo, "config", "diff.external", command)
    (repo / "a.txt").write_text("changed\n")


def _attributes(repo: Path, command: str) -> None:
    (repo.parent / "attributes").write_text("* filter=evil\n")
    git(repo, "config", "core.attributesFile", str(repo.parent / "attributes"))
    git(repo, "config", "filter.evil.clean", f"{command}; cat")
    (repo / "a.txt").write_text("changed\n")


def _submodule(repo: Path, command: str) -> None:
    inner = make_repository(repo / "inner")
    git(repo, "-c", "advice.addEmbeddedRepo=false", "add", "inner")
    # The orchestrator's git settings do not disable filters of a submodule.
    git(inner, "config", "filter.evil.clean", f"{command}; cat")
    (inner / ".gitattributes").write_text("* filter=evil\n")
    (inner / "a.txt").write_text("b\n")


def _alternate(repo: Path, command: str) -> None:
    other = make_repository(repo.parent / "other")
    (repo / ".git" / "objects" / "info" / "alternates").write_text(f"{other}/.git/objects\n")
    git(repo, "config", "core.alternateRefsCommand", f"{command}; true")
    make_repository(repo.parent / "source")
    git(repo.parent / "source", "commit", "-q", "--allow-empty", "-m", "new")


def _signature(repo: Path, command: str) -> None:
    program = repo.parent / "sign"
    program.write_text(f"#!/bin/sh\n{command}; exit 1\n")
    program.chmod(0o755)
    git(repo, "config", "commit.gpgSign", "true")
    git(repo, "config", "gpg.program", str(program))


def _promise(repo: Path, command: str) -> None:
    """A partial clone, in which git fetches missing objects on demand."""
    git(repo, "config", "core.repositoryFormatVersion", "1")
    git(repo, "config", "extensions.partialClone", "origin")
    git(repo, "remote", "add", "origin", str(repo))
    git(repo, "config", "remote.origin.promisor", "true")
    git(repo, "config", "remote.origin.uploadpack", f"{command}; false")


def _recursion(repo: Path, command: str) -> None:
    inner = make_repository(repo.parent / "inner")
    git(repo, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(repo, "commit", "-qm", "submodule")
    git(repo, "update-index", "--cacheinfo", f"160000,{git(inner, 'rev-parse', 'HEAD~1')},sub")
    git(repo, "commit", "-qm", "its first commit")
    git(repo / "sub", "checkout", "-q", "HEAD~1")
    git(repo / "sub", "config", "filter.evil.smudge", f"{command}; cat")
    inside = git(repo / "sub", "rev-parse", "--absolute-git-dir")
    (Path(inside) / "info" / "attributes").write_text("* filter=evil\n")
    git(repo, "config", "submodule.recurse", "true")


@pytest.mark.parametrize(
    ("tempt", "arguments"),
    [
        (_hook, ("update-ref", "refs/heads/new", "HEAD")),
        (_fsmonitor, ("status",)),
        (_external_diff, ("diff",)),
        (_attributes, ("add", "-A")),
        (_submodule, ("status",)),
        (_alternate, ("fetch", "../source", "main")),
        (_signature, ("commit", "--allow-empty", "-m", "x")),
        (_promise, ("cat-file", "-t", "1" * 40)),
        (_recursion, ("read-tree", "--reset", "-u", "HEAD~1")),
    ],
)
def test_no_configured_program_runs(
    repo: Path, mark: Path, tempt: Callable[[Path, str], None], arguments: tuple[str, ...]
) -> None:
    tempt(repo, f"touch '{mark}'")
    with suppress(GitCommandError):  # a disabled external diff is an error
        ours(repo).run(*arguments)
    assert not mark.exists()
    # Control: the user's git runs the program.
    subprocess.run(["git", *arguments], cwd=repo, check=False, capture_output=True)
    assert mark.exists()


@pytest.mark.parametrize("key", ["core.pager", "pager.log"])
def test_no_pager_runs_on_a_terminal(repo: Path, mark: Path, key: str) -> None:
    git(repo, "config", key, f"touch '{mark}'; cat")
    ends = os.openpty()
    try:
        with os.fdopen(ends[1], "wb", closefd=False) as terminal:
            ours(repo).run("log", "-1", stdout=terminal)
            assert not mark.exists()
            # Control: the user's git runs the pager.
            subprocess.run(["git", "log", "-1"], cwd=repo, stdout=terminal, check=True)
            assert mark.exists()
    finally:
        for end in ends:
            os.close(end)


def test_signatures_are_not_verified(repo: Path, mark: Path) -> None:
    program = repo.parent / "gpg"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\n")
    program.chmod(0o755)
    git(repo, "config", "log.showSignature", "true")
    git(repo, "config", "gpg.program", str(program))
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n forged\n -----END PGP SIGNATURE-----\n"
    head, _, message = git(repo, "cat-file", "commit", "HEAD").partition("\n\n")
    forged = subprocess.run(
        ["git", "hash-object", "-w", "-t", "commit", "--stdin"],
        cwd=repo, input=f"{head}\n{signature}\n{message}\n", text=True, stdout=subprocess.PIPE,
        check=True,
    ).stdout.strip()  # fmt: skip
    assert ours(repo).text("log", "-1", "--format=%H", forged) == forged
    assert not mark.exists()
    git(repo, "log", "-1", "--format=%H", forged)
    assert mark.exists()


def test_git_does_not_prompt_for_credentials(repo: Path) -> None:
    with pytest.raises(GitCommandError, match="terminal prompts disabled"):
        ours(repo).run("credential", "fill", stdin=b"protocol=https\nhost=localhost\n\n")


def test_embedded_bare_repository_is_not_discovered(repo: Path) -> None:
    """A git directory in the tree as ordinary files, with a hostile configuration."""
    inner = repo / "data"
    git(repo, "init", "--quiet", "--bare", str(inner))
    for key, value in (("core.bare", "false"), ("core.worktree", str(repo))):
        git(repo, "config", "--file", str(inner / "config"), key, value)
    assert git(inner, "rev-parse", "--git-dir") == str(inner)
    with pytest.raises(RepositoryError):
        discover(inner)


def test_lfs_content_is_not_downloaded(repo: Path) -> None:
    """A filter stands for that of git-lfs, which reads a variable."""
    # The machine may have a filter `lfs`.
    git(repo, "config", "filter.pointer.smudge", "printenv GIT_LFS_SKIP_SMUDGE; cat")
    (repo / ".git" / "info" / "attributes").write_text("a.txt filter=pointer\n")
    (repo / "a.txt").unlink()
    ours(repo).within(None, use=Use.ADD).run("checkout-index", "a.txt")
    assert (repo / "a.txt").read_text() == "1\na\n"


def test_attributes_of_the_user_convert_no_file(repo: Path, home: Path) -> None:
    """What a worker gets does not depend on files beside the repository."""
    (home / "attributes").write_text("* text eol=crlf\n")
    git(repo, "config", "core.attributesFile", str(home / "attributes"))
    (repo / "a.txt").unlink()
    ours(repo).run("checkout-index", "a.txt")
    assert (repo / "a.txt").read_bytes() == b"a\n"


def test_memory_for_a_large_file_is_bounded(repo: Path, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(129 << 20)
    blob = ours(repo).text("hash-object", "-w", str(large))
    with (tmp_path / "pack").open("wb+") as pack:
        ours(repo).run("pack-objects", "-q", "--stdout", stdin=blob.encode(), stdout=pack)
        pack.seek(0)
        # Git fails if it allocates more than this at once.
        ours(repo).run("index-pack", "--stdin", stdin=pack, env={"GIT_ALLOC_LIMIT": "100m"})


def test_commit_graph_is_ignored(repo: Path) -> None:
    """A damaged commit graph could make an unmerged branch count as merged."""
    git(repo, "commit-graph", "write", "--reachable")
    graph = repo / ".git" / "objects" / "info" / "commit-graph"
    tree = bytes.fromhex(git(repo, "rev-parse", "HEAD^{tree}"))
    before, found, after = graph.read_bytes().partition(tree)
    graph.chmod(0o600)
    graph.write_bytes(before + found + struct.pack(">I", 0x70000000) + after[4:])
    assert git(repo, "rev-list", "--count", "HEAD") == "1"
    assert ours(repo).text("rev-list", "--count", "HEAD") == "2"


@pytest.mark.parametrize(
    "url", ["https://localhost:1/x", "ssh://localhost:1/x", "git://localhost/"]
)
def test_unsafe_transports_are_refused(repo: Path, url: str) -> None:
    with pytest.raises(GitCommandError, match=r"transport '\w+' not allowed"):
        ours(repo).run("fetch", url)


def test_replace_refs_are_ignored(repo: Path) -> None:
    head = git(repo, "rev-parse", "HEAD")
    git(repo, "replace", head, git(repo, "rev-parse", "HEAD~1"))
    assert git(repo, "ls-tree", "--name-only", "HEAD") == "a.txt"
    assert ours(repo).text("ls-tree", "--name-only", head) == "a.txt\nsrc"


def test_fetched_objects_are_checked(repo: Path, tmp_path: Path) -> None:
    source = make_repository(tmp_path / "source")
    blob = git(source, "rev-parse", "HEAD:a.txt")
    raw = b"100644 .git\0" + bytes.fromhex(blob)
    tree = subprocess.run(
        ["git", "hash-object", "-w", "-t", "tree", "--literally", "--stdin"],
        cwd=source, input=raw, capture_output=True, check=True,
    )  # fmt: skip
    commit = git(source, "commit-tree", tree.stdout.decode().strip(), "-m", "evil")
    git(source, "update-ref", "refs/heads/evil", commit)
    with pytest.raises(GitCommandError, match="hasDotgit"):
        ours(repo).run("fetch", "../source", "evil")


def test_status_does_not_write_the_index(repo: Path) -> None:
    index = repo / ".git" / "index"
    os.utime(repo / "a.txt", (1, 1))
    before = index.read_bytes()
    ours(repo).run("status")
    assert index.read_bytes() == before
    git(repo, "status")
    assert index.read_bytes() != before


def test_fetch_runs_no_maintenance(repo: Path, tmp_path: Path) -> None:
    settings = {"fetch.writeCommitGraph": "true", "gc.autoPackLimit": "1", "gc.autoDetach": "false"}
    # Git of today otherwise combines packs only when there are many.
    settings |= {"fetch.unpackLimit": "1", "maintenance.strategy": "gc"}
    for name, value in settings.items():
        git(repo, "config", name, value)
    git(repo, "repack", "-qd")
    source = make_repository(tmp_path / "source")
    git(source, "commit", "-q", "--allow-empty", "-m", "new")
    ours(repo).run("fetch", "../source", "main")
    objects = repo / ".git" / "objects"
    assert not (objects / "info" / "commit-graphs").exists()
    assert len(list(objects.glob("pack/*.pack"))) == 2
    git(repo, "fetch", "../source", "main:new")
    assert len(list(objects.glob("pack/*.pack"))) == 1


def test_git_variables_of_the_caller_are_ignored(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'core.bare=true'")
    assert ours(repo).text("status", "--porcelain") == ""


def test_moved_submodule_is_a_change(repo: Path) -> None:
    """Submodules are ignored when files are read, but not when commits are compared."""
    first, base = git(repo, "rev-parse", "HEAD~1", "HEAD").splitlines()
    (repo / ".gitmodules").write_text('[submodule "v"]\n\tpath = vendored\n\tignore = all\n')
    git(repo, "add", ".gitmodules")
    for commit in (first, base):
        git(repo, "update-index", "--add", "--cacheinfo", f"160000,{commit},vendored")
        git(repo, "commit", "-qm", "submodule")
    base = git(repo, "rev-parse", "HEAD~1")
    found = changes(Repository(repo), base=base, tip=git(repo, "rev-parse", "HEAD"))
    assert found.files == ("vendored",)
