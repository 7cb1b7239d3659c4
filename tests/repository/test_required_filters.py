"""Tests of files that a required filter, such as encryption, would have changed."""

from pathlib import Path

import pytest

from orchestrator.base.results import Reason
from orchestrator.faces.cli.app import run
from orchestrator.repository.repository import Repository
from orchestrator.repository.settings import find_required_filters
from orchestrator.review.landing.branches import read_branches
from orchestrator.review.landing.merge import Wish, merge_branches
from orchestrator.review.landing.merge_request import MergeRequest
from orchestrator.runs.runner import ParallelRunner
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import configured, shell_run


@pytest.fixture
def secret(repo: Path) -> Path:
    """Return a repository in which files below `secret` are encrypted on their way in."""
    git(repo, "config", "filter.crypt.clean", "tr a-z A-Z")
    git(repo, "config", "filter.crypt.smudge", "tr A-Z a-z")
    git(repo, "config", "filter.crypt.required", "true")
    (repo / ".gitattributes").write_text("secret/** filter=crypt\n*.lfs filter=lfs\n")
    (repo / "secret").mkdir()
    (repo / "secret" / "old").write_text("old\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "secret")
    assert git(repo, "show", "HEAD:secret/old") == "OLD"
    return repo


@pytest.mark.parametrize(
    ("task", "files"),
    [
        ("echo x > secret/new", ["secret/new"]),
        ("echo x >> secret/old", ["secret/old"]),
        ("echo '* -filter' > secret/.gitattributes; echo x > secret/new",
         ["secret/.gitattributes", "secret/new"]),
        ("echo 'more filter=crypt' >> .gitattributes; echo x > more", ["more"]),
        ("git mv a.txt secret/a.txt", []),
        ("rm secret/old", []),
        ("echo x > secret/new; git add .; git commit -qm 1; git rm -q secret/new; "
         "git commit -qm 2; echo y > y",
         ["secret/new"]),
        ("git checkout -qb side; echo x > secret/new; git add .; git commit -qm 1; "
         "git checkout -q -; git merge -q --no-ff -s ours side -m 2; echo y > y", ["secret/new"]),
        ("echo x > z; git add .; git commit -qm 1", []),
        ("echo x > plain", []),
        ("echo x > big.lfs", []),
    ],
)  # fmt: skip
def test_work_under_a_required_filter_is_partial_and_left_out(
    secret: Path, local_engine: LocalEngine, task: str, files: list[str]
) -> None:
    (result,) = shell_run(secret, local_engine, task).results
    repository = Repository(secret)
    branches = read_branches(repository, None, [1])

    merged = merge_branches(
        repository, branches, Wish(named=True, request=MergeRequest(dry_run=True))
    )

    if not files:
        assert (result.status, merged.landed) == ("success", (1,))
        return
    assert (result.status, result.reason) == ("partial", Reason.UNFILTERED)
    assert all(f"`{path}`" in (result.message or "") for path in files)
    assert [(one.reason, list(one.files)) for one in merged.left] == [("unfiltered", files)]
    told = merge_branches(
        repository, branches, Wish(named=True, request=MergeRequest(unfiltered=True, dry_run=True))
    )
    assert told.landed == (1,)


@pytest.mark.parametrize("options", [["--as", "squash"], ["--dry-run"], []])
def test_option_merges_the_work_of_a_named_worker(
    secret: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    shell_run(secret, local_engine, "echo x > secret/new")
    monkeypatch.chdir(secret)
    assert run(["merge", "1", *options]) == 1
    assert run(["merge", "1", "--unfiltered", *options]) == 0
    there = git(secret, "ls-tree", "-r", "--name-only", "main").split()
    assert ("secret/new" in there) is (options != ["--dry-run"])


def test_run_names_the_filter_at_its_start(secret: Path, local_engine: LocalEngine) -> None:
    plan = ParallelRunner(configured("true"), secret, engine=local_engine).plan()
    assert any("`crypt`" in notice for notice in plan.notices)


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({"filter.a.required": "true", "filter.a.clean": "x"}, {"a"}),
        ({"filter.a.b.required": "2", "filter.a.b.process": "x"}, {"a.b"}),
        ({"filter.a.required": "", "filter.a.clean": "x"}, set()),
        ({"filter.a.required": "false", "filter.a.clean": "x"}, set()),
        ({"filter.a.required": "true", "filter.a.smudge": "x"}, set()),
        ({"filter.lfs.required": "true", "filter.lfs.clean": "x"}, set()),
    ],
)
def test_required_filters(settings: dict[str, str], found: set[str]) -> None:
    assert find_required_filters(settings) == found


CONVERTED = {
    "a.u16": ("working-tree-encoding=UTF-16LE", b"h\0i\0\n\0", "hi"),
    "a.id": ("ident", b"$Id: 0123 $\n", "$Id$"),
    "a.crlf": ("text eol=crlf", b"x\r\n", "x"),
    "a.auto": ("text=auto", b"x\r\n", "x"),
}
"""Files, each with the attributes of its pattern, the bytes of the worker, and the stored text."""


@pytest.mark.parametrize("place", [".gitattributes", ".git/info/attributes"])
def test_files_are_stored_as_git_add_in_the_worktree_would_store_them(
    repo: Path, local_engine: LocalEngine, place: str
) -> None:
    rules = (f"*.{name[2:]} {rule}\n" for name, (rule, _, _) in CONVERTED.items())
    (repo / place).write_text("".join(rules))
    git(repo, "add", ".")
    git(repo, "commit", "-q", "--allow-empty", "-m", "rules")
    octal = {
        name: "".join(f"\\{byte:03o}" for byte in data) for name, (_, data, _) in CONVERTED.items()
    }

    shell_run(
        repo, local_engine, ";".join(f"printf '{text}' > {name}" for name, text in octal.items())
    )

    for name, (_, _, stored) in CONVERTED.items():
        assert git(repo, "show", f"architect/parallel-1:{name}") == stored
    assert git(repo / ".architect-parallel-1", "status", "--porcelain") == ""
