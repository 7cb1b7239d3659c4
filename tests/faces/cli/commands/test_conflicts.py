"""Tests of `conflicts` and `diff`, which read the branches of a run."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from tests.support.landing import snapshot_of
from tests.support.repository import git
from tests.support.runs import past_run

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def _there(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repo)


EDIT_ONE = "echo one > a.txt"
EDIT_TWO = "echo two > a.txt; echo new > new.txt"
EDIT_OTHER = "echo more >> src/app.py"


def test_conflicts_names_pair_and_file_and_changes_nothing(repo, local_engine, capsys):
    past_run(repo, local_engine, EDIT_ONE, EDIT_TWO, EDIT_OTHER)
    before = snapshot_of(repo)
    assert run(["conflicts"]) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        "FILE        1  2  3",
        "a.txt       M  M",
        "new.txt        A",
        "src/app.py        M",
        "",
        "PAIR   RESULT",
        "1 + 2  conflict (text): a.txt",
        "",
        "3 workers, 6 pairs: 1 conflict",
    ]
    assert shown.err == ""
    assert run(["conflicts", "1", "3"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 workers, 3 pairs: no conflicts"
    assert run(["conflicts", "--check", " "]) == 3
    assert "option `--check`: ``: a command must not be empty" in capsys.readouterr().err
    assert snapshot_of(repo) == before


def test_conflicts_as_json(repo, local_engine, capsys):
    result = past_run(repo, local_engine, EDIT_ONE, EDIT_TWO)
    assert run(["conflicts", result.run_id, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["run_id"], found["base"]) == (result.run_id, result.base)
    assert found["workers"] == [1, 2]
    assert found["pairs"][-1] == {
        "a": 1, "b": 2, "kind": "text", "files": ["a.txt"], "conflicts": ["contents"],
    }  # fmt: skip
    assert [change["task"] for change in found["changes"]] == [EDIT_ONE, EDIT_TWO]


def test_workers_without_commits_are_not_compared(repo, local_engine, capsys):
    past_run(repo, local_engine, EDIT_ONE, "true")
    assert run(["conflicts"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == "1 worker, 1 pair: no conflicts"
    assert shown.err == "workers that committed nothing: 2\n"
    past_run(repo, local_engine, "true")
    assert run(["conflicts"]) == 0
    assert "committed anything" in capsys.readouterr().err


def test_branch_of_a_later_run_with_the_same_number_is_not_taken(repo, local_engine, capsys):
    first = past_run(repo, local_engine, EDIT_ONE)
    commit = first.results[0].commit
    git(repo, "tag", "kept", commit)
    git(repo, "worktree", "remove", "--force", ".architect-parallel-1")
    git(repo, "branch", "-D", "architect/parallel-1")
    past_run(repo, local_engine, EDIT_OTHER)
    assert run(["diff", first.run_id, "1"]) == 0
    assert "+one" in capsys.readouterr().out
    assert run(["diff", "1"]) == 0
    assert "+more" in capsys.readouterr().out


def test_removed_commits_are_an_error(repo, local_engine, capsys):
    past_run(repo, local_engine, EDIT_ONE)
    git(repo, "worktree", "remove", "--force", ".architect-parallel-1")
    git(repo, "branch", "-D", "architect/parallel-1")
    git(repo, "reflog", "expire", "--expire=now", "--all")
    git(repo, "gc", "-q", "--prune=now")
    assert run(["diff", "1"]) == 3
    said = capsys.readouterr().err
    assert "worker 1 of run" in said
    assert "it has no commits, or they are gone" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["9"], "no run has a worker 9"),
        (["1", "9"], "has no worker 9"),
        (["x", "y"], "`x` and `y` are not numbers of workers, and only one run can be named"),
        (["0"], "there is no worker 0: workers are numbered from 1"),
        (["2099"], "no run has a worker 2099"),
        (["20990101-"], "no such run: `20990101-`"),
    ],
)
def test_wrong_arguments_are_errors(repo, local_engine, capsys, arguments, said):
    past_run(repo, local_engine, EDIT_ONE)
    for command in ("conflicts", "diff"):
        assert run([command, *arguments]) == 3
        assert said in capsys.readouterr().err


def test_diff_prints_the_patch_of_each_worker(repo, local_engine, capfd):
    past_run(repo, local_engine, EDIT_ONE, EDIT_OTHER)
    capfd.readouterr()
    assert run(["diff", "2", "1"]) == 0
    patch = capfd.readouterr().out
    assert [line for line in patch.splitlines() if line[0] in "w+"] == [
        f"worker 2: {EDIT_OTHER}", "+++ b/src/app.py", "+more",
        f"worker 1: {EDIT_ONE}", "+++ b/a.txt", "+one",
    ]  # fmt: skip
    subprocess.run(["git", "apply"], cwd=repo, input=patch, text=True, check=True)
    assert git(repo, "diff", "--name-only").split() == ["a.txt", "src/app.py"]
    assert run(["diff", "2", "1", "--raw"]) == 0
    assert "worker 2" not in capfd.readouterr().out


HARD_TO_PATCH = r"""
printf 'a\033\377b\r\n::error::x\n##[y]\n--- z\n+++ z\302\205\342\200\250\f\v' > a.txt
head -c 9000 /dev/urandom > 'quote"d \\ name	x'; printf 'no end' > "$(printf 'new\nline \377')"
printf 'caf\303\251' > caf\303\251; mkdir -p d; printf '\r\r\n' > d/cr; ln -s 'a
b' link; chmod +x src/app.py; : > empty; git rm -q README.md 2> /dev/null || rm -f README.md
"""


def test_diff_into_a_pipe_or_file_is_a_patch_that_git_applies(
    repo, local_engine, capfdbinary, monkeypatch
):
    for key, value in (("diff.noprefix", "true"), ("diff.mnemonicPrefix", "true"),
                       ("diff.submodule", "log"), ("color.ui", "always")):  # fmt: skip
        git(repo, "config", key, value)
    result = past_run(repo, local_engine, HARD_TO_PATCH)
    capfdbinary.readouterr()
    assert run(["diff"]) == 0
    patch = capfdbinary.readouterr().out
    subprocess.run(["git", "apply", "--index"], cwd=repo, input=patch, check=True)
    assert git(repo, "write-tree") == git(repo, "rev-parse", f"{result.results[0].commit}^{{tree}}")
    # pytest's file is like the file of a CI system for stdout; its stderr is another one.
    monkeypatch.setenv("CI", "true")
    assert run(["diff"]) == 0
    assert capfdbinary.readouterr().out == patch


def test_diff_in_the_log_of_a_ci_job_is_harmless(repo, local_engine):
    past_run(repo, local_engine, r"printf '::error::x\n' > a.txt; printf '##vso[a]\033\n' > b")
    job = {**os.environ, "GITHUB_ACTIONS": "true", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "orchestrator", "diff"]

    def printed(*options: str, out: int = subprocess.PIPE) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [*command, *options], cwd=repo, env=job, stdout=out, stderr=subprocess.PIPE, check=False
        )

    done = printed()
    assert done.returncode == 0
    assert b"##vso[" not in done.stdout
    assert b"\033" not in done.stdout
    assert b"changed for the job's log" in done.stderr
    assert printed("--raw").returncode == 3
    with (repo / ".git" / "log").open("w+b") as log:
        # Jenkins lets the steps of a job write their log to a file.
        subprocess.run(command, cwd=repo, env=job, stdout=log, stderr=log, check=True)
        log.seek(0)
        assert b"##vso[" not in log.read()
    with (repo / ".git" / "patch").open("w+b") as patch:
        assert printed("--raw", out=patch.fileno()).returncode == 0
        patch.seek(0)
        assert b"+##vso[a]\033\n" in patch.read()


def test_diff_counts_lines(repo, local_engine, capsys):
    past_run(repo, local_engine, EDIT_TWO)
    assert run(["diff", "--stat"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "FILE     ADDED  REMOVED",
        "a.txt    +1     -1",
        "new.txt  +1     -0",
    ]


def test_hostile_patch_is_harmless_on_a_terminal(repo, local_engine, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("GIT_PAGER", "cat")
    evil = r"printf 'a\033[2Jb\n' > a.txt; head -c 300000 /dev/zero | tr '\0' x > long.txt"
    past_run(repo, local_engine, evil)
    assert run(["diff", "1"]) == 0
    coloured = capsys.readouterr().out
    assert "\x1b[32m+a\ufffd[2Jb\x1b[0m\n" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert run(["diff", "1"]) == 0
    out = capsys.readouterr().out
    assert re.sub(r"\x1b\[\d*m", "", coloured) == out
    assert "\x1b" not in out
    assert "+a\ufffd[2Jb" in out
    assert out.replace("\n", "").count("x") >= 300_000


def test_diff_runs_no_program_of_the_tree(repo, local_engine, tmp_path, capsys):
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    evil.chmod(0o755)
    for key in ("diff.evil.textconv", "diff.evil.command", "diff.external", "merge.evil.driver"):
        git(repo, "config", key, str(evil))
    attributes = "* diff=evil merge=evil filter=evil"
    past_run(repo, local_engine, *(f"echo '{attributes}' > .gitattributes; {edit}"
                                    for edit in (EDIT_ONE, EDIT_TWO)))  # fmt: skip
    assert run(["diff"]) == 0
    assert run(["diff", "--stat"]) == 0
    assert run(["conflicts"]) == 1
    capsys.readouterr()
    assert not (tmp_path / "ran").exists()
    assert subprocess.run(["git", "diff", "HEAD", "architect/parallel-1"], cwd=repo,
                          capture_output=True, check=False).returncode is not None  # fmt: skip
    assert (tmp_path / "ran").exists(), "the program would have run"


@pytest.mark.extra
@pytest.mark.docker
def test_pair_that_fails_the_check_together_is_found_in_containers(repo, capsys):
    """Worker 3 fails alone, so that no pair with it is tested."""
    words = ("--agent-cli", "shell", "--quiet", "--network", "none")
    tasks = ("--task", "touch one", "--task", "touch two", "--task", "rm a.txt")
    assert run(["parallel", *words, *tasks]) == 0
    before = git(repo, "for-each-ref"), git(repo, "status", "--porcelain")
    capsys.readouterr()
    checks = ("--check", "test -e a.txt", "--check", "! test -e one -a -e two")
    check = ["conflicts", "--json", *checks]
    assert run(check) == 1
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    kinds = {(pair["a"], pair["b"]): pair["kind"] for pair in found["pairs"]}
    assert {pair for pair, kind in kinds.items() if kind != "clean"} == {(1, 2)}
    assert (kinds[1, 2], found["failing"]) == ("semantic", [3])
    assert shown.err.count("checks on") > 0
    assert (git(repo, "for-each-ref"), git(repo, "status", "--porcelain")) == before
    assert run(check) == 1
    assert "checks on" not in capsys.readouterr().err, "results are kept"
