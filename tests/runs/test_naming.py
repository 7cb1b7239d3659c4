"""Tests of names from templates: numbering, conflicts, cleanup."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestrator.base.errors import ConfigError
from orchestrator.config.loading.loading import load_config
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Task, Workflow
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import Wanted, owners
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.cleanup.restore import restore
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.record.listing import list_runs
from orchestrator.state.run_directory import all_runs
from orchestrator.worker.workspace.untracked import held_back
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import fingerprint, git
from tests.support.runs import configured, shell_run, show

COMMIT = "echo done > done.txt; git add -A; git commit -qm done"
INSIDE = {"worktree_dir": ".worktrees/issue-{n}", "branch": "solve/issue-{n}"}
OUTSIDE = {"worktree_dir": "../.worktrees/{id}", "branch": "solve/{id}"}


def planned(repo: Path, engine: LocalEngine, **names: str) -> ConfigError:
    """Return the error for refused names; nothing is created."""
    before = fingerprint(repo)
    runs = list(all_runs(Repository(repo).state_dir))
    with pytest.raises(ConfigError) as caught:
        ParallelRunner(configured(COMMIT, **names), repo, engine=engine).plan()
    with pytest.raises(ConfigError):
        shell_run(repo, engine, COMMIT, **names)
    assert fingerprint(repo) == before
    assert list(all_runs(Repository(repo).state_dir)) == runs
    return caught.value


def flow_run(repo: Path, engine: LocalEngine, *ids: str, **names: str) -> list[tuple[str, str]]:
    flow = Workflow(name="flow", tasks=tuple(Task(id=one, task=COMMIT) for one in ids))
    config = configured("-", **names)
    result = ParallelRunner(config, repo, engine=engine, workflow=flow).execute()
    assert {one.status for one in result.results} == {"success"}
    return [(one.branch, one.worktree_path) for one in result.results]


def test_taken_numbers_are_skipped(repo: Path, local_engine: LocalEngine) -> None:
    git(repo, "branch", "solve/issue-1")
    (repo / ".worktrees" / "issue-2").mkdir(parents=True)
    results = shell_run(repo, local_engine, COMMIT, COMMIT, **INSIDE).results
    assert [one.branch for one in results] == ["solve/issue-3", "solve/issue-4"]
    assert show(repo, "solve/issue-4:done.txt") == "done"
    assert (repo / ".worktrees" / "issue-3" / "done.txt").read_text() == "done\n"
    # The worktrees do not appear in `git status`, and no run can start in one of them.
    assert git(repo, "status", "--porcelain") == ""
    assert not Repository(repo).is_dirty()
    with raises("repository.worktree"):
        Repository(repo / ".worktrees" / "issue-3")
    # All of this directory is ignored, and so is no part of an image.
    assert ".worktrees" in held_back(repo)
    # Later runs, with default names too, use free numbers: a number names one worker.
    (later,) = shell_run(repo, local_engine, COMMIT).results
    assert later.branch == "architect/parallel-1"
    (more,) = shell_run(repo, local_engine, COMMIT, **INSIDE).results
    assert more.branch == "solve/issue-5"


def test_number_is_used_by_one_worker_across_templates(
    repo: Path, local_engine: LocalEngine
) -> None:
    (first,) = shell_run(repo, local_engine, COMMIT, **OUTSIDE).results
    (second,) = shell_run(repo, local_engine, COMMIT).results
    assert (first.worker_id, second.branch) == (1, "architect/parallel-2")


def test_task_ids_as_names_outside_of_the_repository(repo: Path, local_engine: LocalEngine) -> None:
    names = flow_run(repo, local_engine, "one", "two", **OUTSIDE)
    place = repo.parent / ".worktrees"
    assert names == [("solve/one", str(place / "one")), ("solve/two", str(place / "two"))]
    assert git(place / "two", "rev-parse", "--abbrev-ref", "HEAD") == "solve/two"
    exclude = (repo / ".git" / "info" / "exclude").read_text()
    assert str(place) not in exclude
    assert ".worktrees" not in exclude
    listed = list_runs(Repository(repo)).runs[0].workers
    assert [one.worktree_path for one in listed] == [path for _, path in names]
    # Running the same tasks again is refused, because the names from their ids exist.
    again = planned_flow(repo, local_engine, "two", **OUTSIDE)
    assert "solve/two" in again.message
    shutil.rmtree(place / "two")
    git(repo, "worktree", "prune")
    assert "solve/two" in planned_flow(repo, local_engine, "two", **OUTSIDE).message


def planned_flow(repo: Path, engine: LocalEngine, task: str, **names: str) -> ConfigError:
    flow = Workflow(name="flow", tasks=(Task(id=task, task=COMMIT),))
    with pytest.raises(ConfigError) as caught:
        ParallelRunner(configured("-", **names), repo, engine=engine, workflow=flow).execute()
    return caught.value


@pytest.mark.parametrize("names", [INSIDE, OUTSIDE], ids=["inside", "outside"])
def test_cleanup_uses_the_recorded_names(
    repo: Path, local_engine: LocalEngine, names: dict[str, str]
) -> None:
    (worker,) = shell_run(repo, local_engine, COMMIT, **names).results
    worktree = Path(worker.worktree_path)
    (worktree / "note.txt").write_text("mine")
    # The current configuration does not contain these names.
    (cleaned,) = cleanup(repo, engine=None, wanted=Wanted(workers=(1,))).workers
    assert (cleaned.problem, cleaned.branch) == (None, worker.branch)
    assert not worktree.exists()
    assert git(repo, "for-each-ref", "refs/heads/solve") == ""
    assert show(repo, f"{cleaned.backup}:note.txt") == "mine"
    # The worker can only be restored once another run's worker of its number is removed.
    shell_run(repo, local_engine, COMMIT)
    with pytest.raises(ConfigError, match=r"worker 1 of run .* exists"):
        restore(repo, workers=(1,), run_id=cleaned.run_id)
    cleanup(repo, engine=None, wanted=Wanted(workers=(1,)))
    restore(repo, workers=(1,), run_id=cleaned.run_id)
    assert (worktree / "note.txt").read_text() == "mine"
    assert owners(Repository(repo))[1].spec.branch == worker.branch
    (again,) = cleanup(repo, engine=None).workers
    assert (again.problem, again.worktree) == (None, str(worktree))
    assert not worktree.exists()


def test_cleanup_keeps_a_users_worktree_at_a_workers_path(
    repo: Path, local_engine: LocalEngine
) -> None:
    (worker,) = shell_run(repo, local_engine, COMMIT, **OUTSIDE).results
    git(repo, "worktree", "remove", "--force", worker.worktree_path)
    git(repo, "worktree", "add", "-q", worker.worktree_path, "-b", "mine")
    (cleaned,) = cleanup(repo, engine=None).workers
    assert "is no longer the worker's worktree" in (cleaned.problem or "")
    assert git(Path(worker.worktree_path), "branch", "--show-current") == "mine"


def test_resumed_run_does_not_take_names_of_another_run(
    repo: Path, local_engine: LocalEngine
) -> None:
    first = ParallelRunner(configured(COMMIT, **OUTSIDE), repo, engine=local_engine).reserve()
    first.release()
    git(repo, "branch", "-D", "solve/worker-1")
    assert flow_run(repo, local_engine, "worker-1", **OUTSIDE)[0][0] == "solve/worker-1"
    with raises("run.superseded"):
        ResumedRun(first, engine=local_engine).execute()


def test_commits_only_on_workers_branches_are_not_merged(
    repo: Path, local_engine: LocalEngine
) -> None:
    when = "2026-01-01T00:00:00Z"
    commit = f"GIT_COMMITTER_DATE={when} git commit -qm x --date={when}"
    write = f"echo same > x; git add -A; {commit}"
    shell_run(repo, local_engine, write, write, **INSIDE)
    assert git(repo, "rev-parse", "solve/issue-1") == git(repo, "rev-parse", "solve/issue-2")
    assert cleanup(repo, engine=None, wanted=Wanted(merged=True)).workers == ()
    git(repo, "update-ref", "refs/remotes/origin/solve/issue-1", "solve/issue-1")
    assert cleanup(repo, engine=None, wanted=Wanted(merged=True)).workers == ()
    git(repo, "merge", "-q", "solve/issue-1")
    merged = cleanup(repo, engine=None, wanted=Wanted(merged=True)).workers
    assert [one.worker_id for one in merged] == [1, 2]


@pytest.mark.parametrize("write", ["mkdir -p .worktrees && echo x > .worktrees/issue-9",
                                   "ln -s /etc .worktrees"])  # fmt: skip
def test_worker_cannot_add_files_at_worktree_paths(
    repo: Path, local_engine: LocalEngine, write: str
) -> None:
    # The refused worker belongs to a run with default names.
    shell_run(repo, local_engine, COMMIT, **INSIDE)
    (worker,) = shell_run(repo, local_engine, f"{write}; echo y > y").results
    listed = git(repo, "ls-tree", "-r", "--name-only", worker.branch)
    assert ".worktrees" not in listed
    assert worker.status != "success"


def test_named_worktrees_count_towards_the_limit(repo: Path, local_engine: LocalEngine) -> None:
    shell_run(repo, local_engine, COMMIT, COMMIT, **OUTSIDE)
    with raises("worktrees.exhausted"):
        shell_run(repo, local_engine, COMMIT, COMMIT, max_worktrees=3)


Prepare = Callable[[Path], object]


def link(repo: Path) -> None:
    (repo / ".link").symlink_to(repo.parent)


def other_repository(repo: Path) -> None:
    git(repo.parent, "init", "-q", "other")


def nested_worktree(repo: Path) -> None:
    git(repo, "worktree", "add", "-q", "--detach", ".mine")


@pytest.mark.parametrize(
    ("names", "prepare", "said"),
    [
        ({"worktree_dir": "src/{n}"}, None, "has files in `src`"),
        ({"worktree_dir": ".link/{n}"}, link, "is a symbolic link"),
        ({"worktree_dir": "../other/{n}"}, other_repository, "another worktree or repository"),
        ({"worktree_dir": "../other/x/{n}"}, other_repository, "another worktree or repository"),
        ({"worktree_dir": ".mine/{n}"}, nested_worktree, r"a worktree: .*\.mine is a worktree"),
        ({"worktree_dir": "../repo/.x/{n}"}, None, "is in the repository"),
        ({"worktree_dir": "/proc/{n}/x"}, None, "already exists|nothing can be created"),
        ({"worktree_dir": "/dev/null/{n}"}, None, "is not a directory"),
        ({"worktree_dir": "../.w/{id}"}, lambda r: (r.parent / ".w/worker-1").mkdir(parents=True),
         "already exists"),
        ({"branch": "main/{n}"}, None, "`refs/heads/main` exists"),
        ({"branch": "{id}"}, lambda r: git(r, "branch", "worker-1"), "exists"),
        ({"branch": "{id}"}, lambda r: git(r, "tag", "worker-1"), "refs/tags/worker-1"),
        ({"branch": "x..{n}"}, None, "is not a valid branch name"),
        ({"branch": "x/{n}.lock"}, None, "is not a valid branch name"),
        ({"branch": "x@{n}"}, None, None),
    ],
)  # fmt: skip
def test_conflicting_names_are_refused(
    repo: Path, local_engine: LocalEngine, names: dict[str, str], prepare: Prepare | None,
    said: str | None,
) -> None:  # fmt: skip
    if prepare is not None:
        prepare(repo)
    if said is None:
        (worker,) = shell_run(repo, local_engine, COMMIT, **names).results
        assert (worker.message, worker.status) == (None, "success")
        return
    error = planned(repo, local_engine, **names)
    assert error.exit_code == 3
    with pytest.raises(ConfigError, match=said):
        raise error


@pytest.mark.parametrize(
    "names",
    [
        {"worktree_dir": ".worktrees/all"},
        {"worktree_dir": ".worktrees/{m}-{n}"},
        {"worktree_dir": "{n}"},
        {"worktree_dir": "a/../../{n}"},
        {"worktree_dir": "./{n}"},
        {"worktree_dir": "~other/{n}"},
        {"worktree_dir": ".git/{n}"},
        {"worktree_dir": "../x/.GIT/{n}"},
        {"worktree_dir": ".architect-parallel-x{n}"},
        {"worktree_dir": ".wt/{n},lowerdir=x"},
        {"worktree_dir": ".wt/{n}\n"},
        {"worktree_dir": ".wt/*{n}"},
        {"branch": "main"},
        {"branch": "refs/heads/{n}"},
        {"branch": "-{n}"},
        {"branch": "architect/parallel-{n}-x"},
        {"branch": "a b{n}"},
    ],
)
def test_invalid_templates_are_refused(names: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        ParallelConfig(tasks=("x",), **names)


def test_discovered_file_cannot_place_worktrees_outside(repo: Path) -> None:
    def load(template: str) -> ParallelConfig:
        (repo / "orchestrator.yaml").write_text(f"parallel_runs: {{worktree_dir: '{template}'}}\n")
        return load_config(options={"tasks": ("x",)}, environ={}, top=repo, file=None)

    assert load(".worktrees/{n}").worktree_dir == ".worktrees/{n}"
    for template in ("../{n}", "~/{n}", "/tmp/{n}"):
        with pytest.raises(ConfigError, match="not accepted from a file that was found"):
            load(template)


def test_ids_that_differ_only_in_case_are_refused(repo: Path, local_engine: LocalEngine) -> None:
    flow = Workflow(name="flow", tasks=(Task(id="a", task="true"), Task(id="A", task="true")))
    config = configured("-", **OUTSIDE)
    with pytest.raises(ConfigError, match="workers 1 and 2 would both have the name"):
        ParallelRunner(config, repo, engine=local_engine, workflow=flow).execute()


def test_name_with_a_secret_is_refused(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "much-too-long-to-guess")
    config = configured(COMMIT, branch="much-too-long-to-guess/{n}")
    isolation = config.isolation.model_copy(update={"secrets": ("TOKEN",)})
    config = config.model_copy(update={"isolation": isolation})
    with raises("name.secret"):
        ParallelRunner(config, repo, engine=local_engine).execute()
