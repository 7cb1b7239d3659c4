"""Tests that git runs no program of a worker's tree, and still runs other programs."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.base.worker_spec import WorkerSpec
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.checkouts.disarm import give_back, keep_off
from orchestrator.repository.checkouts.worktree import add_worktree, check_out, remove_worktree
from orchestrator.repository.repository import Repository
from tests.support.errors import raises
from tests.support.repository import git, make_repository


def worktree_of(repo: Path) -> Worktree:
    repository = Repository(repo)
    spec = WorkerSpec(worker_id=1, task="x", model=None)
    with repository.lock():
        repository.claim([spec.branch], git(repo, "rev-parse", "HEAD"))
        worktree = add_worktree(repository, spec)
    check_out(repository, worktree, "HEAD")
    return worktree


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


@pytest.mark.parametrize(
    ("key", "value", "harmless"),
    [
        ("core.hooksPath", ".githooks/", "/dev/null"),
        ("core.hooksPath", "src", "/dev/null"),
        ("core.fsmonitor", "./watch", "false"),
        ("filter.nb.clean", "python src/app.py", ""),
        ("filter.a.b.smudge", "sh -c 'cat | tools/later.sh'", ""),
        ("diff.nb.textconv", "tools/later.sh", "cat"),
        ("merge.nb.driver", "./merge %A %O %B", "false"),
        ("filter.nb.process", "python a.txt", ""),
        ("filter.nb.clean", "$(git rev-parse --show-toplevel)/tools/clean.sh", ""),
        ("diff.nb.textconv", "`git rev-parse --show-toplevel`/tools/x.sh", "cat"),
        ("core.editor", "tools/edit.sh", "vi"),
        ("sequence.editor", "./edit", "vi"),
        ("core.pager", "tools/pager.sh", "cat"),
        ("pager.diff", "./pager", "false"),
        ("gpg.program", "tools/sign.sh", "gpg"),
        ("gpg.x509.program", "tools/sign.sh", "gpgsm"),
        ("gpg.ssh.program", "tools/sign.sh", "ssh-keygen"),
        ("interactive.diffFilter", "tools/filter.sh", "cat"),
        ("core.sshCommand", "tools/ssh.sh -v", "ssh"),
        ("core.askPass", "tools/ask.sh", "false"),
        ("credential.helper", "!./helper", ""),
        ("credential.https://localhost.helper", "!./helper", ""),
        ("lfs.extension.mine.clean", "tools/filter.sh", "cat"),
        ("submodule.mine.update", "!tools/update.sh", "checkout"),
        ("trailer.sign.cmd", "tools/trailer.sh", "true"),
    ],
)
def test_program_of_the_tree_is_switched_off(
    repo: Path, key: str, value: str, harmless: str
) -> None:
    git(repo, "config", key, value)

    path = worktree_of(repo).path

    assert git(path, "config", "--get", key) == harmless
    assert git(repo, "config", "--get", key) == value


@pytest.mark.parametrize("key", ["diff.external", "diff.top.command"])
def test_diff_works_without_the_program_of_the_tree(repo: Path, key: str) -> None:
    git(repo, "config", key, "tools/diff.sh")
    path = worktree_of(repo).path
    (path / "tools").mkdir()
    (path / "tools" / "diff.sh").write_text("#!/bin/sh\necho PWNED\n")
    (path / "tools" / "diff.sh").chmod(0o755)
    (path / ".gitattributes").write_text("* diff=top\n")
    (path / "a.txt").write_text("different\n")

    said = git(path, "diff", "a.txt")

    assert "+different" in said
    assert "PWNED" not in said


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("core.hooksPath", "/opt/hooks"),
        ("core.editor", "code --wait"),
        ("core.pager", "less -R"),
        ("credential.helper", "store"),
        ("diff.external", "/usr/bin/difft"),
        ("gpg.program", "/usr/bin/gpg2"),
        ("core.hooksPath", "~/hooks"),
        ("filter.lfs.clean", "git-lfs clean -- %f"),
        ("filter.nb.clean", "nbstripout"),
        ("alias.run", "!./src/app.py"),
    ],
)
def test_other_programs_are_kept_and_nothing_is_written(repo: Path, key: str, value: str) -> None:
    git(repo, "config", key, value)
    before = (repo / ".git" / "config").read_bytes()

    worktree = worktree_of(repo)

    assert git(worktree.path, "config", "--get", key) == value
    assert (repo / ".git" / "config").read_bytes() == before
    assert not (worktree.git_dir / "config.worktree").exists()


def test_switched_off_filter_is_not_required(repo: Path) -> None:
    git(repo, "config", "filter.nb.clean", "./tools/clean.sh")
    git(repo, "config", "filter.nb.required", "true")

    path = worktree_of(repo).path
    (path / ".gitattributes").write_text("* filter=nb\n")
    git(path, "add", "-A")

    assert git(path, "diff", "--cached", "--name-only") == ".gitattributes"


def test_settings_of_the_users_gitconfig_are_switched_off(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[core]\n\thooksPath = .husky\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)

    path = worktree_of(repo).path

    assert git(path, "config", "--get", "core.hooksPath") == "/dev/null"


def test_configured_worktree_of_the_repository_is_kept(repo: Path) -> None:
    git(repo, "config", "core.hooksPath", ".githooks")
    git(repo, "config", "core.worktree", str(repo))

    path = worktree_of(repo).path

    assert git(path, "rev-parse", "--show-toplevel") == str(path)
    assert git(repo, "rev-parse", "--show-toplevel") == str(repo)


def test_extension_is_enabled_once(repo: Path) -> None:
    git(repo, "config", "core.hooksPath", ".githooks")
    worktree = worktree_of(repo)
    config = (repo / ".git" / "config").read_bytes()

    keep_off(Repository(repo), worktree.path, worktree.git_dir)

    assert (repo / ".git" / "config").read_bytes() == config


def test_configuration_is_given_back_with_the_last_worktree(repo: Path) -> None:
    git(repo, "config", "core.hooksPath", ".githooks")
    git(repo, "config", "core.worktree", str(repo))
    before = sorted(git(repo, "config", "--list", "--local").splitlines())
    worktree, repository = worktree_of(repo), Repository(repo)

    give_back(repository)
    assert git(worktree.path, "config", "--get", "core.hooksPath") == "/dev/null"

    remove_worktree(repository, worktree.path)
    give_back(repository)
    assert sorted(git(repo, "config", "--list", "--local").splitlines()) == before
    assert not (repo / ".git" / "config.worktree").exists()


@pytest.mark.parametrize("user", ["enabled it before", "uses it since"])
def test_configuration_that_the_user_needs_is_kept(repo: Path, user: str) -> None:
    git(repo, "config", "core.hooksPath", ".githooks")
    if user == "enabled it before":
        git(repo, "config", "extensions.worktreeConfig", "true")
    worktree, repository = worktree_of(repo), Repository(repo)
    if user == "uses it since":
        git(repo, "config", "--worktree", "user.name", "only here")

    remove_worktree(repository, worktree.path)
    give_back(repository)

    assert git(repo, "config", "--get", "extensions.worktreeConfig") == "true"


def test_configuration_that_another_command_changes_is_left_alone(repo: Path) -> None:
    git(repo, "config", "core.hooksPath", ".githooks")
    (repo / ".git" / "config.lock").touch()
    before = (repo / ".git" / "config").read_bytes()

    with raises("git.locked"):
        worktree_of(repo)

    assert (repo / ".git" / "config").read_bytes() == before
    assert (repo / ".git" / "config.lock").exists()


def test_repository_whose_worktrees_count_as_bare_names_the_command_that_repairs_it(
    tmp_path: Path,
) -> None:
    """An earlier version enabled per-worktree settings and left `core.bare` for all worktrees."""
    bare, tree = tmp_path / "b a r e.git", tmp_path / "tree"
    git(tmp_path, "clone", "-q", "--bare", str(make_repository(tmp_path / "from")), str(bare))
    git(bare, "worktree", "add", "-q", str(tree))
    git(bare, "config", "extensions.worktreeConfig", "true")

    with raises("repository.bare", "`core.bare`") as caught:
        Repository(tree)
    for place in (bare, bare / "worktrees" / "tree"):
        with raises("repository.bare"):
            Repository(place)

    _, command, _ = str(caught.value.hint).split("`")
    subprocess.run(["sh", "-c", command], check=True, cwd="/")
    assert Repository(tree).top == tree
    assert git(bare, "rev-parse", "--is-bare-repository") == "true"
