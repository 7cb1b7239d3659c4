"""Tests that commits are by the user whom git would name."""

from pathlib import Path

import pytest

from orchestrator.repository.repository import Repository
from tests.support.landing import branch, merge
from tests.support.merges import World
from tests.support.repository import git

FALLBACK = ("orchestrator worker", "worker@orchestrator.invalid")
BOTH = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@x",
    "GIT_COMMITTER_NAME": "C", "GIT_COMMITTER_EMAIL": "c@x",
}  # fmt: skip


@pytest.mark.parametrize(
    ("variables", "settings", "author", "committer"),
    [
        ({}, {}, FALLBACK, FALLBACK),
        ({}, {"user.name": "U", "user.email": "u@x"}, ("U", "u@x"), ("U", "u@x")),
        (BOTH, {}, ("A", "a@x"), ("C", "c@x")),
        (BOTH, {"user.name": "U", "user.email": "u@x"}, ("A", "a@x"), ("C", "c@x")),
        ({"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@x"}, {}, ("A", "a@x"), ("A", "a@x")),
        ({"EMAIL": "e@x"}, {"user.name": "U"}, ("U", "e@x"), ("U", "e@x")),
        ({}, {"user.name": "U", "user.email": "u@x", "author.email": "a@x"}, ("U", "a@x"),
         ("U", "u@x")),
        ({"GIT_AUTHOR_NAME": "A\n<b>", "GIT_AUTHOR_EMAIL": "a@x"}, {}, ("Ab", "a@x"),
         ("Ab", "a@x")),
    ],
)  # fmt: skip
def test_identity_is_what_git_resolves(
    repo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    settings: dict[str, str],
    author: tuple[str, str],
    committer: tuple[str, str],
) -> None:
    git(repo, "config", "--remove-section", "user")
    monkeypatch.setenv("HOME", str(tmp_path))
    for key in (*BOTH, "EMAIL"):
        monkeypatch.delenv(key, raising=False)
    for key, value in variables.items():
        monkeypatch.setenv(key, value)
    for key, value in settings.items():
        git(repo, "config", key, value)

    world = World(repo, tmp_path)
    with monkeypatch.context() as own:
        for key, value in BOTH.items():
            own.setenv(key, value)
        work = branch(world, 1, {"new": "n\n"})
    merge(world, work)

    said = git(repo, "log", "-1", "--format=%an%n%ae%n%cn%n%ce").splitlines()
    assert (tuple(said[:2]), tuple(said[2:])) == (author, committer)
    assert Repository(repo).identity() == author
