"""Tests of hostile git stores that try to make work of the worker unreachable."""

from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.results import Reason, Status
from orchestrator.repository.repository import ATTEMPTS, BACKUPS, KEPT, Repository
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.cleanup.restore import restore
from orchestrator.state.record.listing import list_runs
from tests.repository.test_kept_refs import commit, kept, left
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run, show
from tests.support.submodules import with_submodules

LONG = "n" * 61


def test_160_long_names_that_collide_are_kept(repo: Path, local_engine: LocalEngine) -> None:
    parts = "/".join([LONG] * 7)
    away = "git checkout -q --detach HEAD~1"
    (worker,) = left(
        repo,
        local_engine,
        f"{commit('one')}; git branch {parts}1; {commit('two')}; git branch {parts}2; "
        f"git checkout -q --orphan o; {commit('mine')}; git checkout -q architect/parallel-1; "
        f"git reset -q --hard HEAD~2; {commit('home')}; {away}",
    )
    assert (worker.status, worker.files_modified) == (Status.SUCCESS, ["home"])
    assert len(worker.kept_refs) >= 2
    assert "two" in git(repo, "log", "--all", "--format=%s")


def test_161_ref_named_like_the_next_attempt_is_kept(
    repo: Path, local_engine: LocalEngine, tmp_path: Path
) -> None:
    again = {"retries": 1, "retry_delay": 0.0}
    first = f"git checkout -q --detach; {commit('first')}; git update-ref refs/attempt-2/x HEAD; "
    second = f"git checkout -q -b side; {commit('second')}; "
    home = "git checkout -q architect/parallel-%d; exit 1"
    file = first.replace("attempt-2/x", "attempt-2")
    results = left(
        repo,
        local_engine,
        f"mkdir {tmp_path}/m1 && {{ {first} {home % 1}; }}; {second} {home % 1}",
        f"mkdir {tmp_path}/m2 && {{ {file} {home % 2}; }}; {second} {home % 2}",
        **again,
    )
    for number, worker in enumerate(results, 1):
        assert worker.attempts == 2
        assert worker.reason is Reason.AGENT_FAILED
        assert f"{number}/attempt-2/heads/side" in worker.kept_refs
        there = git(repo, "for-each-ref", "--format=%(refname)").splitlines()
        assert len([one for one in there if f"/{number}/" in one]) == len(worker.kept_refs) == 2


def test_162_tags_of_files_and_of_tags_are_kept(repo: Path, local_engine: LocalEngine) -> None:
    tree, chain, blob = left(
        repo,
        local_engine,
        "echo t > t; git add t; git tag -am tree only $(git write-tree); git rm -qf t",
        "git tag -am zero t0; for n in 1 2 3; do git tag -am $n t$n t$((n - 1)); done; "
        f"git checkout -q --detach; {commit('x')}; git tag -am deep d; git tag -am e e d; "
        "git checkout -q -",
        "git tag -am text file $(echo content | git hash-object -w --stdin)",
    )
    assert "1/tags/only" in tree.kept_refs
    assert show(repo, f"{kept(repo, '1/tags/only')}:t") == "t"
    assert {"2/tags/d", "2/tags/e", "2/tags/t3"} <= set(chain.kept_refs)
    assert blob.kept_refs == ["3/tags/file"]
    assert show(repo, f"{kept(repo, 'tags/file')}:blob") == "content"
    assert "text" in git(repo, "log", "-1", "--format=%B", kept(repo, "tags/file"))


def test_163_many_notes_do_not_hide_a_loss(repo: Path, local_engine: LocalEngine) -> None:
    (worker,) = left(
        repo,
        local_engine,
        "for n in $(seq 30); do mkfifo f$n; done; truncate -s 101M big; echo w > w",
    )
    assert worker.files_modified == ["w"]
    assert "a file over 100 MiB was left out: big" in (worker.message or "")
    assert "a special file was removed: 21 more" in (worker.message or "")


def test_166_long_names_do_not_hide_a_note(repo: Path, local_engine: LocalEngine) -> None:
    folders = "/".join(["$(printf '\\377%.0s' $(seq 250))"] * 10)
    (worker,) = left(
        repo,
        local_engine,
        f"mkdir -p {folders}; for n in $(seq 6); do mkfifo {folders}/f$n; done; "
        "truncate -s 101M big; echo w > w",
    )
    assert worker.files_modified == ["w"]
    assert "a file over 100 MiB was left out: big" in (worker.message or "")


def test_167_branch_late_in_packed_refs_is_found(repo: Path, local_engine: LocalEngine) -> None:
    (worker,) = left(
        repo,
        local_engine,
        f"{commit('one')}; git pack-refs --all; id=$(git rev-parse HEAD~1); "
        "{ for n in $(seq 30000); do echo $id refs/heads/a$n; done; cat $GIT_DIR/packed-refs; } "
        "> $GIT_DIR/p; grep -v '^#' $GIT_DIR/p > $GIT_DIR/packed-refs; rm $GIT_DIR/p",
    )
    assert (worker.status, worker.files_modified, worker.kept_refs) == (
        Status.SUCCESS, ["one"], [],
    )  # fmt: skip
    assert git(repo, "log", "-1", "--format=%s", worker.branch) == "one"


def test_164_lost_staged_content_is_reported(repo: Path, local_engine: LocalEngine) -> None:
    large, link, fifo = left(
        repo,
        local_engine,
        "truncate -s 101M big; git add big; rm big; echo w > w",
        "echo s > s; git add s; rm s; mv $GIT_DIR/index $GIT_DIR/i; ln -s i $GIT_DIR/index",
        "rm -f $GIT_DIR/index; mkfifo $GIT_DIR/index; echo w > w",
    )
    assert "staged" in (large.message or "")
    assert "big" in (large.message or "")
    for worker in (link, fifo):
        assert "the worker's git index is unreadable" in (worker.message or ""), worker


@pytest.mark.extra
def test_165_refs_to_unreadable_objects_are_reported(repo: Path, local_engine: LocalEngine) -> None:
    broken, many = left(
        repo,
        local_engine,
        f"git checkout -qb side; {commit('side')}; id=$(git rev-parse HEAD); "
        "git checkout -q -; f=$GIT_DIR/objects/$(echo $id | cut -c1-2)/$(echo $id | cut -c3-); "
        "chmod u+w $f; : > $f",
        # One damaged ref beside 1,050 others.
        "git checkout -q --detach; for n in $(seq 1050); do "
        "echo commit refs/heads/b$n; echo committer a '<a>' $n +0000; echo data ${#n}; echo $n; "
        "echo from $(git rev-parse HEAD); done | git fast-import --quiet; "
        "t=$(printf '100644 blob %040d\\tx\\n' 1 | git mktree --missing); "
        "git update-ref refs/heads/aaa $(git commit-tree -p HEAD -m x $t); "
        "git checkout -q -",
    )
    assert "a ref names an object that is missing or unreadable: heads/side" in (
        broken.message or ""
    )
    assert (many.status, len(many.kept_refs)) == (Status.SUCCESS, 100)
    assert "a damaged commit could not be kept: `heads/aaa`" in (many.message or "")
    tips = [kept(repo, f"/{name}") for name in ("heads/b1", "2/rest")]
    assert git(repo, "rev-list", "--count", *tips, "--not", "main") == "953"


def test_168_commits_in_a_submodule_are_reported(
    tmp_path: Path,
    home: Path,  # noqa: ARG001
    local_engine: LocalEngine,
) -> None:
    repo = with_submodules(tmp_path / "repo")
    stashed, quiet, hostile = shell_run(
        repo,
        local_engine,
        "g=--git-dir=$GIT_DIR/modules/0; git $g commit-tree -m x $(git $g mktree < /dev/null)",
        "git --git-dir=$GIT_DIR/modules/0 mktree < /dev/null",
        "rm -rf $GIT_DIR/modules/0/objects/??; mkdir $GIT_DIR/modules/0/objects/ab; "
        "mkfifo $GIT_DIR/modules/0/objects/ab/$(printf %038d 1); "
        "rm -rf $GIT_DIR/modules/1; ln -s / $GIT_DIR/modules/1; echo w > w",
    ).results
    told = "the worker's commits in a submodule are not kept, only the files: vendor/lib"
    assert told in (stashed.message or "")
    assert told not in (quiet.message or "")
    assert hostile.files_modified == ["w"]


def test_169_long_lists_of_refs_are_read_in_bounded_time(
    repo: Path, local_engine: LocalEngine
) -> None:
    (worker,) = left(
        repo,
        local_engine,
        f"{commit('one')}; for n in $(seq 1000); do : > $GIT_DIR/refs/heads/e$n; done; "
        "truncate -s 100G $GIT_DIR/packed-refs; mkdir -p $GIT_DIR/logs/refs; "
        "truncate -s 100G $GIT_DIR/logs/refs/stash; truncate -s 100G $GIT_DIR/shallow; "
        "truncate -s 100G $GIT_DIR/index",
    )
    assert (worker.status, worker.files_modified) == (Status.SUCCESS, ["one"])
    assert "the worker's git index is unreadable" in (worker.message or "")


@pytest.mark.extra
def test_170_tags_over_the_limit_are_reported(repo: Path, local_engine: LocalEngine) -> None:
    (worker,) = left(
        repo,
        local_engine,
        "mkdir -p $GIT_DIR/refs/tags; id=$(git rev-parse HEAD); for n in $(seq 110); do printf "
        "'object %s\ntype commit\ntag t\ntagger a <a> %s +0000\n\nx\n' $id $n | "
        "git hash-object -t tag -w --stdin > $GIT_DIR/refs/tags/t$n; done; echo w > w",
    )
    assert (len(worker.kept_refs), worker.files_modified) == (100, ["w"])
    said = "refs to tags, trees or blobs beyond the first 100 refs were left out: 1"
    assert said in (worker.message or "")


def test_171_lfs_content_only_in_the_store_is_reported(
    repo: Path, local_engine: LocalEngine
) -> None:
    (worker,) = left(
        repo,
        local_engine,
        "p=$GIT_DIR/lfs/objects; mkdir -p $p/ab/cd; echo x > $p/ab/cd/$(printf %064d 1); "
        "mkdir $p/ab/cd/e; mkfifo $p/ab/cd/e/$(printf %064d 2); ln -s / $p/root; echo w > w",
    )
    assert worker.files_modified == ["w"]
    assert "is only in the worker's git directory is not kept: 2 objects" in (worker.message or "")


def test_172_foreign_refs_below_our_prefixes_are_ignored(
    repo: Path, local_engine: LocalEngine
) -> None:
    for folder in (KEPT, ATTEMPTS, BACKUPS):
        for name in ("x", "run/x", f"run/{'9' * 200}/x/y", "a/b/c/d"):
            git(repo, "update-ref", f"{folder}{name}", "HEAD")
    (result,) = shell_run(repo, local_engine, f"git checkout -qb side; {commit('side')}").results
    (run,) = list_runs(Repository(repo)).runs
    assert run.workers[0].kept_refs == tuple(result.kept_refs)
    before = git(repo, "for-each-ref")
    report = cleanup(repo, engine=local_engine, purge=True)
    assert [one.worker_id for one in report.workers] == [1]
    assert git(repo, "for-each-ref", f"{KEPT}run") in before
    with pytest.raises(ConfigError):
        restore(repo)
