"""Tests that everything a worker wrote stays reachable, whatever the state of its git."""

from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.config.settings.container import Isolation
from orchestrator.config.workflow.model import Task, Workflow
from orchestrator.repository.incoming.kept_refs import _names
from orchestrator.repository.repository import KEPT, Repository
from orchestrator.runs.cleanup.inventory import Wanted
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.cleanup.restore import restore
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.record.listing import list_runs
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import configured, shell_run, show

COMMIT = "{ echo %s > %s; git add -A; git commit -qm %s; }"


def commit(name: str) -> str:
    return COMMIT % (name, name, name)


def left(repo: Path, engine: LocalEngine, *tasks: str, **rest: object) -> list[WorkerResult]:
    """Run tasks; return the results with the names of kept refs relative to their prefix."""
    result = shell_run(repo, engine, *tasks, **rest)
    git(repo, "fsck", "--strict", "--no-dangling")
    place = f"{KEPT}{result.run_id}/"
    return [
        one.model_copy(update={"kept_refs": [ref.removeprefix(place) for ref in one.kept_refs]})
        for one in result.results
    ]


def kept(repo: Path, name: str) -> str:
    """Return the full name of the kept ref that ends with `name`."""
    (found,) = [
        ref
        for ref in git(repo, "for-each-ref", "--format=%(refname)", KEPT).splitlines()
        if ref.endswith(name)
    ]
    return found


def test_commits_outside_of_the_branch_are_kept(repo: Path, local_engine: LocalEngine) -> None:
    results = left(
        repo,
        local_engine,
        f"git checkout -qb side; {commit('side')}; git checkout -q -",
        f"git checkout -q --detach; {commit('loose')}; git checkout -q -",
        f"git checkout -q --detach; {commit('tagged')}; git tag v1; git tag -am text v2; "
        "git checkout -q -",
        "echo one > one; git stash -qu; echo two > a.txt; git stash -q",
        f"{commit('gone')}; git reset -q --hard HEAD~1; git reflog expire --expire=all --all",
        f"git checkout -q --orphan new; git rm -qrf .; {commit('root')}; "
        "git checkout -q architect/parallel-6",
        commit("first") + "; git commit -q --amend -m better",
    )
    assert {one.status for one in results} == {Status.SUCCESS}
    refs = [one.kept_refs for one in results]
    assert refs[0] == ["1/heads/side"]
    assert [ref[: len("2/unreachable/")] for ref in refs[1]] == ["2/unreachable/"]
    assert refs[2] == ["3/tags/v1", "3/tags/v2"]
    assert refs[3] == ["4/stash/0", "4/stash/1"]
    assert refs[4] == ["5/ORIG_HEAD"]
    assert refs[5] == ["6/heads/new"]
    assert len(refs[6]) == 1
    assert show(repo, f"{kept(repo, '/side')}:side") == "side"
    assert show(repo, f"{kept(repo, '3/tags/v1')}:tagged") == "tagged"
    assert "text" in git(repo, "log", "-1", "--format=%B", kept(repo, "3/tags/v2"))
    assert show(repo, f"{kept(repo, 'stash/0')}:a.txt") == "two"
    assert show(repo, f"{kept(repo, 'stash/1')}^3:one") == "one"
    assert show(repo, f"{kept(repo, 'heads/new')}:root") == "root"
    assert git(repo, "log", "-1", "--format=%s", "architect/parallel-7") == "better"
    assert "are kept: `refs/orchestrator/kept/" in (results[0].message or "")
    assert [worker.kept_refs != () for worker in list_runs(Repository(repo)).runs[0].workers] == [
        True
    ] * 7


def test_branch_is_the_tip_if_head_is_at_an_ancestor(repo: Path, local_engine: LocalEngine) -> None:
    away = f"{commit('mine')}; git checkout -q --detach HEAD~1"
    clean, carried, conflict, before, bisect = left(
        repo,
        local_engine,
        away,
        f"{away}; echo new > new",
        f"{commit('a.txt')}; git checkout -q --detach HEAD~1; echo other > a.txt",
        f"{commit('mine')}; git checkout -q --detach HEAD~2",
        f"{commit('x')}; {commit('y')}; git bisect start -q HEAD HEAD~2; git bisect bad",
    )
    assert (clean.files_modified, clean.kept_refs) == (["mine"], [])
    assert (carried.files_modified, carried.kept_refs) == (["mine", "new"], [])
    assert show(repo, f"{conflict.branch}:a.txt") == "a.txt"
    assert conflict.kept_refs == ["3/uncommitted"]
    assert show(repo, f"{kept(repo, '3/uncommitted')}:a.txt") == "other"
    assert (before.files_modified, before.kept_refs) == (["mine"], [])
    assert (bisect.files_modified, bisect.kept_refs) == (["x", "y"], [])


def test_unfinished_git_operations_are_kept(repo: Path, local_engine: LocalEngine) -> None:
    sides = (
        "git checkout -qb side; echo side > a.txt; git commit -qam side; "
        "git checkout -q architect/parallel-%d; echo ours > a.txt; git commit -qam ours; "
    )
    merge, rebase, pick, staged = left(
        repo,
        local_engine,
        sides % 1 + "! git merge -q side",
        sides % 2 + "! git rebase -q side",
        sides % 3 + "git checkout -q --detach; ! git cherry-pick side; git branch -D side",
        "echo staged > a.txt; git add a.txt; echo later > a.txt; echo n > n; git add n; rm n",
    )
    assert {one.status for one in (merge, rebase, pick, staged)} == {Status.SUCCESS}
    assert merge.kept_refs == ["1/heads/side", "1/conflict"]
    assert show(repo, f"{kept(repo, '1/conflict')}:3/a.txt") == "side"
    assert "2/heads/architect/parallel-2" in rebase.kept_refs
    assert show(repo, f"{kept(repo, '2/heads/architect/parallel-2')}:a.txt") == "ours"
    assert "3/CHERRY_PICK_HEAD" in pick.kept_refs
    assert staged.kept_refs == ["4/index"]
    assert show(repo, f"{kept(repo, '4/index')}:a.txt") == "staged"
    assert show(repo, f"{kept(repo, '4/index')}:n") == "n"
    assert show(repo, f"{staged.branch}:a.txt") == "later"


def test_staged_ignored_files_are_harvested(repo: Path, local_engine: LocalEngine) -> None:
    (repo / ".gitignore").write_text("*.log\n")
    (repo / "b.txt").write_text("b\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "third")
    forced, intended, same, swapped, hidden, sparse, split, committed = left(
        repo,
        local_engine,
        "echo one > a.log; echo two > b.log; git add -f a.log b.log; echo three > b.log",
        "echo one > a.log; git add -N -f a.log; echo two > b.log",
        "echo c > c.txt; touch -r a.txt c.txt; cp -p c.txt a.txt; git status --short",
        "mkdir x y; touch -d @1000 a.txt b.txt; mv a.txt t; mv b.txt a.txt; mv t b.txt",
        "git update-index --assume-unchanged a.txt; echo other > a.txt; "
        "git update-index --skip-worktree b.txt; echo other > b.txt",
        "git sparse-checkout set --no-cone src; ls > src/list",
        "git update-index --split-index; echo x > x; git add x; echo y > y",
        # Git in the container compares only sizes and times, even when it commits.
        "echo c > c.txt; touch -r a.txt c.txt; cp -p c.txt a.txt; git add -A; git commit -qm c; "
        "git status --short > /dev/null; git stash -q; git reset -q --hard",
    )
    assert forced.files_modified == ["a.log", "b.log"]
    assert show(repo, f"{forced.branch}:b.log") == "three"
    assert intended.files_modified == ["a.log"]
    assert same.files_modified == ["a.txt", "c.txt"]
    assert show(repo, f"{swapped.branch}:a.txt") == "b"
    assert hidden.files_modified == ["a.txt", "b.txt"]
    assert sparse.files_modified == ["src/list"]
    assert split.files_modified == ["x", "y"]
    assert committed.files_modified == ["a.txt", "c.txt"]
    assert show(repo, f"{committed.branch}:a.txt") == "c"


def test_users_split_index_setting_has_no_effect(repo: Path, local_engine: LocalEngine) -> None:
    git(repo, "config", "core.splitIndex", "true")
    (worker,) = left(repo, local_engine, "echo x > x; git add x; git commit -qm x; echo y > y")
    assert (worker.status, worker.files_modified) == (Status.SUCCESS, ["x", "y"])


def test_stopped_workers_and_attempts_have_their_own_kept_refs(
    repo: Path, local_engine: LocalEngine
) -> None:
    side = f"git checkout -q -B side; {commit('side')}; git checkout -q -; "
    (late,) = left(repo, local_engine, side + "sleep 60", timeout_per_worker=1)
    assert (late.status, late.kept_refs) == (Status.TIMEOUT, ["1/heads/side"])
    away = f"{side}echo $$ > mine; git add -A; git commit -qm mine; git checkout -q --detach HEAD~1"
    again = {"retries": 1, "retry_delay": 0.0, "retry_from": "keep"}
    (tried,) = left(repo, local_engine, f"{away}; exit 1", **again)
    assert tried.attempts == 2
    assert tried.kept_refs == ["2/heads/side", "2/attempt-2/heads/side"]
    assert git(repo, "log", "--format=%s", "-2", tried.branch).split() == ["mine", "mine"]
    assert kept(repo, "/2/heads/side") != kept(repo, "attempt-2/heads/side")


PLANT = (
    "o=$(git hash-object -w a.txt); t=$(printf '100644 blob %s\\t.git\\n' $o | git mktree); "
    "t=$(printf '040000 tree %s\\tsrc\\n100644 blob %s\\tlegit\\n' $t $o | git mktree); "
    "c=$(git commit-tree -p HEAD -m planted $t); "
)


def test_refused_commit_does_not_exclude_others(repo: Path, local_engine: LocalEngine) -> None:
    one, two, three = left(
        repo,
        local_engine,
        f"{commit('good')}; {PLANT} git update-ref HEAD $c; echo last > last",
        f"{commit('good')}; {PLANT} git branch bad $c; git branch fine HEAD; "
        f"git checkout -qb other HEAD~1; {commit('other')}; git checkout -q architect/parallel-2",
        "mkdir -p repo/objects repo/refs; echo x > repo/HEAD; echo x > repo/objects/x; "
        f"{commit('good')}; echo last > last",
    )
    assert (one.status, one.reason) == (Status.PARTIAL, Reason.HARVEST_REFUSED)
    assert one.files_modified == ["good", "last"]
    assert "hasDotgit" in (one.message or "")
    assert "are kept in" in (one.message or "")
    assert (two.status, two.files_modified) == (Status.PARTIAL, ["good"])
    assert two.kept_refs == ["2/heads/bad", "2/heads/other"]
    assert "`heads/bad` was refused" in (two.message or "")
    assert git(repo, "rev-parse", kept(repo, "heads/bad")) == two.commit
    assert (three.status, three.reason) == (Status.PARTIAL, Reason.HARVEST_REFUSED)
    assert three.files_modified == ["good", "last", "repo/objects/x"]


def test_refused_commits_stay_in_the_state_directory(repo: Path, local_engine: LocalEngine) -> None:
    orphan = f"{PLANT} git symbolic-ref HEAD refs/heads/o; "
    orphan += "git update-ref HEAD $(git commit-tree -m planted-orphan $t)"
    result = shell_run(
        repo,
        local_engine,
        f"{orphan}; echo file > file",
        f"{commit('good')}; {orphan}",
        f"{commit('good')}; {PLANT} git branch bad $c",
    )
    for worker in result.results:
        assert (worker.status, worker.reason) == (Status.PARTIAL, Reason.HARVEST_REFUSED)
        message = worker.message or ""
        assert "commits that are not on the worker's branch were refused" in message
        assert f"all files of the worker are kept in {worker.log}" in message
        assert "hasDotgit" in message
    report = cleanup(repo, engine=local_engine, wanted=Wanted())
    assert [one.note for one in report.workers] == [
        f"refused work is kept in {worker.log}" for worker in result.results
    ]
    for worker in result.results:
        store = Path(worker.log or "") / "git"
        lost = [path for path in (store / "refs" / "heads").iterdir() if path.name in ("o", "bad")]
        assert [(store / "objects" / id[:2] / id[2:]).exists() for id in map(_text, lost)] == [True]
    cleanup(repo, engine=local_engine, purge=True)
    assert not [one for one in result.results if (Path(one.log or "") / "git").exists()]


def _text(path: Path) -> str:
    return path.read_text().strip()


def test_names_of_kept_refs_contain_no_secret(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "correct-horse-battery")
    name = "is-$(cat $ORCHESTRATOR_SECRETS/TOKEN)"
    isolation = Isolation(network="none", secrets=("TOKEN",))
    task = f"git checkout -qb {name}; {commit('side')}; git checkout -q -"
    (worker,) = left(repo, local_engine, task, isolation=isolation)
    assert worker.kept_refs == ["1/renamed/1"]
    assert show(repo, f"{kept(repo, 'renamed/1')}:side") == "side"
    assert "names of the worker's refs contained the value of `TOKEN`" in (worker.message or "")
    notes = (Path(worker.log or "") / "harvest.json").read_text()
    assert "correct-horse-battery" not in f"{notes}{git(repo, 'for-each-ref')}"


def test_cleanup_keeps_kept_refs_and_refused_work(repo: Path, local_engine: LocalEngine) -> None:
    result = shell_run(
        repo,
        local_engine,
        f"git checkout -qb side; {commit('side')}; git checkout -q -",
        f"{PLANT} git update-ref HEAD $c; echo last > ignored.o; echo '*.o' > .gitignore",
    )
    upper = Path(result.results[1].log or "") / "copy"
    report = cleanup(repo, engine=local_engine, wanted=Wanted())
    first, second = report.workers
    assert first.kept_refs == tuple(result.results[0].kept_refs) != ()
    assert f"refused work is kept in {result.results[1].log}" == second.note
    assert (upper / "ignored.o").exists()
    assert show(repo, f"{kept(repo, 'heads/side')}:side") == "side"
    report = cleanup(repo, engine=local_engine, purge=True)
    kept_refs = [ref for one in result.results for ref in one.kept_refs]
    assert sorted(report.purged) == sorted([*kept_refs, *filter(None, [second.backup])])
    assert not upper.exists()
    assert git(repo, "for-each-ref", "refs/orchestrator") == ""


def test_cleanup_removes_ignored_files_of_a_deleted_worktree(
    repo: Path, local_engine: LocalEngine
) -> None:
    (result,) = shell_run(repo, local_engine, "echo '*.o' > .gitignore; seq 9999 > big.o").results
    git(repo, "worktree", "remove", "--force", ".architect-parallel-1")
    git(repo, "branch", "-D", result.branch)
    report = cleanup(repo, engine=local_engine, wanted=Wanted())
    assert report.workers == ()
    assert report.freed > 40_000
    assert not list(Path(result.log or "").rglob("big.o"))
    assert cleanup(repo, engine=local_engine, wanted=Wanted()).freed == 0


def test_dependent_task_starts_from_the_branch_tip(repo: Path, local_engine: LocalEngine) -> None:
    first = Task(id="first", task=f"{commit('one')}; git checkout -q --detach HEAD~1")
    second = Task(id="second", task="cat one > two", depends_on=("first",))
    flow = Workflow(name="flow", tasks=(first, second))
    run = ParallelRunner(configured("-", workers=2), repo, engine=local_engine, workflow=flow)
    results = {one.name: one for one in run.execute().results}
    assert results["second"].base == results["first"].commit
    assert show(repo, f"{results['second'].branch}:two") == "one"


def test_restore_names_the_kept_refs(repo: Path, local_engine: LocalEngine) -> None:
    side = f"git checkout -qb side; {commit('side')}; git checkout -q -"
    (one, two) = shell_run(repo, local_engine, f"{side}; {commit('one')}", side).results
    cleanup(repo, engine=local_engine, wanted=Wanted())
    (restored,) = restore(repo, workers=(1,))
    assert restored.kept_refs == tuple(one.kept_refs) != ()
    with pytest.raises(ConfigError) as caught:
        restore(repo, workers=(2,))
    assert f"`git branch NAME {two.kept_refs[0]}`" in (caught.value.hint or "")


def test_pushed_branch_is_not_merged(repo: Path, local_engine: LocalEngine, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "remote")
    git(repo, "remote", "add", "origin", str(tmp_path / "remote"))
    shell_run(repo, local_engine, commit("one"), commit("two"))
    git(repo, "push", "-q", "origin", "architect/parallel-1")
    git(repo, "push", "-q", "-u", "origin", "architect/parallel-2:feature")
    assert cleanup(repo, engine=local_engine, wanted=Wanted(merged=True)).workers == ()
    git(repo, "push", "-q", "origin", "architect/parallel-1:main")
    (merged,) = cleanup(repo, engine=local_engine, wanted=Wanted(merged=True)).workers
    assert merged.worker_id == 1
    (pushed,) = cleanup(repo, engine=local_engine, wanted=Wanted()).workers
    assert pushed.backup is not None


def test_ref_names_are_made_valid() -> None:
    odd = [
        "heads/a", "heads/A", "heads/a/b", "heads/.hidden", "heads/x.lock", "heads/a..b", "x/",
        "heads/\x1b[31m", "heads/" + "n" * 5000, "/".join("d" * 50), "heads/é", "-rf", "@{1}", "",
        "tags/v/1", "tags/v", "tags/v/1/2",
    ]  # fmt: skip
    names = list(_names(odd))
    assert names[:4] == ["heads/a", "heads_A-2", "heads_a_b-2", "heads/_hidden"]
    assert len({name.lower() for name in names}) == len(odd)
    assert max(map(len, names)) < 500
    low = [name.lower() for name in names]
    assert not [one for one in low if any(other.startswith(f"{one}/") for other in low)]
    for name in names:
        git(Path("/"), "check-ref-format", f"{KEPT}run/1/{name}")


@pytest.mark.parametrize("history", ["full", "shallow"])
def test_history_that_does_not_contain_the_base_is_kept(
    repo: Path, local_engine: LocalEngine, history: str
) -> None:
    isolation = Isolation(network="none", history=history)  # type: ignore[arg-type]
    (worker,) = left(
        repo, local_engine, "git commit -q --amend -m rewritten; echo x > x", isolation=isolation
    )
    assert worker.kept_refs == ["1/heads/architect/parallel-1"]
    assert git(repo, "log", "-1", "--format=%s", kept(repo, "parallel-1")) == "rewritten"
    assert worker.files_modified == ["x"]
