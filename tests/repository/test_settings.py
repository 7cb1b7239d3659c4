"""Tests that boolean settings are read as git reads them, however they are written."""

import shutil
from pathlib import Path

import pytest

from orchestrator.repository.checkouts.disarm import give_back, keep_off
from orchestrator.repository.checkouts.worktree import remove_worktree
from orchestrator.repository.commits.plain_commit import takes_as_they_are
from orchestrator.repository.repository import Repository
from orchestrator.repository.settings import find_required_filters, is_partial, is_true
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run

TRUE = ("", " = true", " = TRUE", " = Yes", " = on", " = 1", " = 2", " = -1", " = 0x1", " = 1k")
FALSE = (" =", ' = ""', " = false", " = No", " = off", " = OFF", " = 0", " = 0x0", " = 00")


def write(repo: Path, section: str, name: str, text: str) -> None:
    """Write a setting as a person would, which `git config` cannot."""
    with (repo / ".git" / "config").open("a") as config:
        config.write(f"[{section}]\n\t{name}{text}\n")


@pytest.mark.parametrize("text", [*TRUE, *FALSE])
def test_value_means_what_it_means_for_git(repo: Path, text: str) -> None:
    write(repo, 'filter "crypt"', "clean", " = tr a-z A-Z")
    write(repo, 'filter "crypt"', "required", text)
    write(repo, 'remote "origin"', "promisor", text)
    write(repo, "core", "sparseCheckout", text)
    expected = text in TRUE
    said = git(repo, "config", "--type=bool", "--get", "filter.crypt.required")
    assert said == str(expected).lower()

    repository = Repository(repo)
    configured = repository.git_config

    assert is_true(configured["core.sparsecheckout"]) is expected
    assert find_required_filters(configured) == ({"crypt"} if expected else set())
    assert is_partial(configured) is expected
    assert takes_as_they_are(repository, repository.git, ["a.txt"]) is not expected


def test_value_that_git_refuses_counts_as_true() -> None:
    assert is_true("maybe")


@pytest.mark.parametrize("text", ["", " = yes", " = 2"])
def test_per_worktree_configuration_of_the_user_is_kept(repo: Path, text: str) -> None:
    git(repo, "config", "core.repositoryFormatVersion", "1")
    write(repo, "extensions", "worktreeConfig", text)
    git(repo, "config", "core.hooksPath", ".githooks")
    before = (repo / ".git" / "config").read_bytes()
    git(repo, "worktree", "add", "-q", "-b", "architect/parallel-1", ".architect-parallel-1")
    worktree, repository = repo / ".architect-parallel-1", Repository(repo)

    keep_off(repository, worktree, repo / ".git" / "worktrees" / "-architect-parallel-1")
    remove_worktree(repository, worktree)
    give_back(repository)

    assert (repo / ".git" / "config").read_bytes() == before


@pytest.mark.parametrize("text", ["", " = on", " = 1"])
def test_bare_repository_stays_bare(repo: Path, tmp_path: Path, text: str) -> None:
    bare, worktree = tmp_path / "bare", tmp_path / "tree"
    shutil.copytree(repo / ".git", bare)
    git(bare, "config", "--unset", "core.bare")
    with (bare / "config").open("a") as config:
        config.write(f"[core]\n\tbare{text}\n\thooksPath = .githooks\n")
    git(bare, "worktree", "add", "-q", "-b", "mine", str(worktree))
    repository = Repository(worktree)
    with repository.lock():
        keep_off(repository, worktree, bare / "worktrees" / "tree")

    assert git(bare, "rev-parse", "--is-bare-repository") == "true"
    assert git(worktree, "rev-parse", "--is-bare-repository") == "false"


@pytest.mark.parametrize("text", ["", " = yes", " = 1"])
def test_sparse_worktree_is_copied_as_it_is(
    repo: Path, local_engine: LocalEngine, text: str
) -> None:
    (repo / "away").mkdir()
    (repo / "away" / "b").write_text("b\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "away")
    git(repo, "sparse-checkout", "set", "src")
    file = repo / ".git" / "config.worktree"
    file.write_text(f"[core]\n\tsparseCheckout{text}\n\tsparseCheckoutCone{text}\n")
    assert git(repo, "status", "--porcelain") == ""
    (worker,) = shell_run(repo, local_engine, "ls; git status --porcelain").results
    assert (worker.status, worker.files_modified) == ("success", [])
    assert (Path(worker.log or "") / "stdout.log").read_text().split() == ["a.txt", "src"]
