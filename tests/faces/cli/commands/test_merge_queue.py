"""Tests of `merge --queue`, whose checks run in real containers."""

import json
from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from tests.support.errors import reports
from tests.support.repository import git


@pytest.fixture(autouse=True)
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)


@pytest.mark.docker
def test_queue_lands_what_passes_and_leaves_no_branch_behind(
    repo: Path, capsys: pytest.CaptureFixture
) -> None:
    tasks = ("echo one > one", "echo two > two; rm a.txt", "echo three > three")
    words = [word for task in tasks for word in ("--task", task)]
    shell = ["--agent-cli", "shell", "--quiet", "--network", "none"]
    assert run(["parallel", *shell, *words]) == 0
    refs = git(repo, "for-each-ref", "--format=%(refname)", "refs/heads")
    capsys.readouterr()

    assert run(["merge", "--queue", "--json", "--check", "test -e a.txt", "--check", "true"]) == 1

    shown = capsys.readouterr()
    merged = json.loads(shown.out)
    assert merged["landed"] == [1, 3]
    assert [(left["worker_id"], left["reason"]) for left in merged["left"]] == [
        (2, "checks_failed")
    ]
    assert git(repo, "rev-parse", "main") == merged["after"]
    assert "failed (run " in shown.err
    assert git(repo, "status", "--porcelain") == ""
    assert git(repo, "for-each-ref", "--format=%(refname)", "refs/heads") == refs
    assert run(["merge", "--undo"]) == 0
    assert run(["merge", "--queue", "--check", "test -e a.txt", "--check", "true"]) == 1
    again = capsys.readouterr()
    assert "checks on" not in again.err, "verdicts are kept, and the run is still the newest"
    assert "worker 2: not merged: the checks pass on" in again.out
    assert git(repo, "rev-parse", "main") == merged["after"]
    with reports("base.checks-failed"):
        assert run(["merge", "--queue", "--check", "test ! -e a.txt"]) == 2


@pytest.mark.docker
def test_branch_that_changes_the_tests_does_not_pass_by_them(
    repo: Path, capsys: pytest.CaptureFixture
) -> None:
    """One of the two files is a test by its name, and the other by the configuration."""
    (repo / "tests").mkdir()
    for name in ("tests/check.sh", "gate"):
        (repo / name).write_text("test -e a.txt\n")
    (repo / "orchestrator.yaml").write_text("judge: {instruments: [gate]}\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "two tests")
    lazy = "rm a.txt; echo true | tee gate > tests/check.sh"
    options = ["--agent-cli", "shell", "--quiet", "--network", "none", "--workers", "1"]
    assert run(["parallel", *options, lazy]) == 0
    queue = ["merge", "--queue", "--check", "sh tests/check.sh || sh gate"]
    assert run(queue) == 1
    assert "with the target's tests: failed" in capsys.readouterr().err
    assert run([*queue, "--tests", "free"]) == 0
    assert git(repo, "show", "main:tests/check.sh") == "true"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--check", "true"], "`--check` and `--tests` require `--queue`"),
        (["--queue", "--tests", "all", "--check", "true"], "option `--tests` is `all`"),
        (["--queue", "--dry-run"], "`--queue` cannot be used with `--dry-run` or `--undo`"),
        (
            ["--queue", "--on-conflict", "stop"],
            "`--on-conflict stop` cannot be used with `--queue`",
        ),
        (
            ["--on-conflict", "agent", "--as", "rebase"],
            "`--on-conflict agent` cannot be used with `--as rebase`",
        ),
        (
            ["--on-conflict", "agent", "--allow-path", "../x"],
            "option `--allow-path`: `../x`: `..` leads out of the repository",
        ),
    ],
)
def test_options_without_meaning_are_errors(
    capsys: pytest.CaptureFixture, options: list[str], said: str
) -> None:
    assert run(["merge", *options]) == 3
    assert said in capsys.readouterr().err
