"""Tests of `enforce: ro`, with which a worker can write only to its `paths`."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.path_patterns import directories
from orchestrator.config.settings.project import Check, Project
from orchestrator.config.settings.run import ParallelConfig, Triggers
from orchestrator.config.workflow.model import Task, WorkerSettings, Workflow
from orchestrator.config.workflow.parsing.reader import read_workflow
from orchestrator.engine.interface.labels import ROLE
from orchestrator.engine.interface.spec import BindMount, OverlayMount
from orchestrator.repository.checkouts.checkout import Worktree
from orchestrator.repository.repository import Repository
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import all_runs
from orchestrator.state.worker.worker_directory import Store
from orchestrator.worker.workspace.layout import AGENT_STEP, HARVEST_STEP, SWEPT, WORKSPACE, Mode
from orchestrator.worker.workspace.mounts import Workspace
from orchestrator.worker.workspace.worker_user import worker_user
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.parts import seen
from tests.support.recording_engine import RecordingEngine
from tests.support.repository import git
from tests.support.runs import branches, configured, show
from tests.support.submodules import with_submodules


class Recording(RecordingEngine):
    """Returns which directories of the worktree its containers can write."""

    def writable(self, role: str) -> dict[str, bool]:
        specs = (spec for spec in self.specs if spec.labels[ROLE] == role)
        mounts = (mount for spec in specs for mount in spec.mounts)
        binds = (mount for mount in mounts if isinstance(mount, BindMount))
        return {
            mount.target: not mount.read_only
            for mount in binds
            if mount.target.startswith(WORKSPACE) and not mount.target.endswith(".git")
        }


def confined(*paths: str, **rest: Any) -> ParallelConfig:
    return configured("true", triggers=Triggers(paths=paths, enforce="ro"), **rest)


CONFINED = {WORKSPACE: False, f"{WORKSPACE}/new/deep": True, f"{WORKSPACE}/src": True}


def test_only_the_paths_are_writable(repo: Path, tmp_path: Path) -> None:
    engine = Recording(tmp_path / "engine")
    config = confined(
        "./src/", "new/deep", "src/inner", setup=("true",), teardown=("true",),
        checks=(Check(run="true"),),
    )  # fmt: skip
    config = config.model_copy(update={"tasks": ("echo x > src/made; echo y > new/deep/made",)})
    (result,) = ParallelRunner(config, repo, engine=engine).execute().results
    assert result.files_modified == ["new/deep/made", "src/made"], result.message
    assert [engine.writable(role) for role in ("worker", "setup", "teardown")] == [CONFINED] * 3
    # Checks run in a separate checkout, and the harvest reads the whole worktree.
    assert engine.writable("check") == engine.writable("harvest") == {WORKSPACE: True}


def test_a_task_of_a_workflow_is_confined(repo: Path, tmp_path: Path) -> None:
    engine = Recording(tmp_path / "engine")
    own = WorkerSettings(paths=("src",), enforce="ro")
    flow = Workflow(name="w", tasks=(Task(id="one", task="true", settings=own),))
    ParallelRunner(configured("-"), repo, engine=engine, workflow=flow).execute()
    assert engine.writable("worker") == {WORKSPACE: False, f"{WORKSPACE}/src": True}


def test_resumed_worker_is_confined(repo: Path, tmp_path: Path) -> None:
    engine = Recording(tmp_path / "engine", lambda spec: spec.labels[ROLE] == "worker")
    ParallelRunner(confined("src"), repo, engine=engine).execute()
    assert engine.writable("worker") == {}
    (left,) = all_runs(Repository(repo).state_dir)
    ResumedRun(left, engine=engine).execute()
    assert engine.writable("worker") == {WORKSPACE: False, f"{WORKSPACE}/src": True}


def workspace_of(tmp_path: Path, mode: Mode = "overlay", *paths: str) -> Workspace:
    state = Store(root=tmp_path / "state")
    tree = tmp_path / "tree"
    for place in (tree, state.upper, state.overlay, state.copy):
        place.mkdir(parents=True)
    for part in ("objects/info", "objects/pack"):
        (state.git / part).mkdir(parents=True)
    (state.git / "objects/info/alternates").touch()
    return Workspace(
        worktree=Worktree(path=tree, branch="b", git_dir=tmp_path / "git"), store=state,
        objects=tmp_path / "objects", mode=mode, user=worker_user(1), start="c0ffee",
        confined_to=paths,
    )  # fmt: skip


def test_each_path_has_its_own_upper_layer(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, "overlay", "a/b", "c")
    tree, state = workspace.worktree.path, workspace.store
    workspace.confine()
    mounts = seen(workspace, AGENT_STEP)
    view, *parts = (mount for mount in mounts if isinstance(mount, OverlayMount))
    assert (view.lower, view.target, view.read_only) == (tree, WORKSPACE, True)
    assert [(part.lower, part.upper, part.target) for part in parts] == [
        (tree / name, state.upper / name, f"{WORKSPACE}/{name}") for name in ("a/b", "c")
    ]
    assert not any(part.read_only or part.redirects for part in parts)
    assert all(part.lower.is_dir() and part.upper.is_dir() for part in parts)
    assert len({mount.work for mount in (view, *parts)}) == 3
    packing = seen(workspace, HARVEST_STEP)
    whole, *swept = (mount for mount in packing if isinstance(mount, OverlayMount))
    assert (whole.lower, whole.upper, whole.target) == (tree, state.upper, WORKSPACE)
    # Mounted so that the daemon empties the overlay's work directories, which belong to root.
    assert {mount.work for mount in swept} == {mount.work for mount in (view, *parts)}
    assert all(mount.target.startswith(SWEPT) and mount.read_only for mount in swept)


def test_created_mount_points_are_not_work(tmp_path: Path) -> None:
    workspace = workspace_of(tmp_path, "overlay", "a/b")
    workspace.confine()
    assert workspace.is_untouched()
    (workspace.store.upper / "a/b/made").touch()
    assert not workspace.is_untouched()


@pytest.mark.parametrize("mode", ["overlay", "bind"])
@pytest.mark.parametrize("name", ["link", "link/below", "file"])
def test_mount_points_are_not_created_through_links(tmp_path: Path, mode: Mode, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    workspace = workspace_of(tmp_path, mode, name)
    tree = workspace.worktree.path if mode == "overlay" else workspace.store.copy
    (tree / "link").symlink_to(outside)
    (tree / "file").touch()
    with raises("enforce.no-directory"):
        workspace.confine()
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ((), "names no directory"),
        (("src/*.py",), "wildcards"),
        ((".",), "names the whole repository"),
        (("../x",), "leads out"),
        (("src/.git",), "no files of a commit"),
        (("src,upperdir=x",), "cannot be mounted"),
        (("a:b",), "cannot be mounted"),
        (("a.txt",), "`a.txt` is not a directory"),
        (("src/app.py/x",), "`src/app.py` is not a directory"),
        (("link",), "`link` is not a directory"),
        (("link/src",), "`link` is not a directory"),
    ],
)
def test_path_that_is_not_a_directory_is_refused(
    repo: Path, local_engine: LocalEngine, paths: tuple[str, ...], said: str
) -> None:
    (repo / "link").symlink_to("src")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "a link")
    with pytest.raises(ConfigError, match=said) as caught:
        ParallelRunner(confined(*paths), repo, engine=local_engine).execute()
    assert caught.value.exit_code == 3
    assert caught.value.hint
    assert branches(repo) == []


def test_other_required_writes_are_refused(
    repo: Path, tmp_path: Path, local_engine: LocalEngine
) -> None:
    config = confined("src").model_copy(update={"project": Project(dotenv=".env")})
    with raises("enforce.dotenv"):
        ParallelRunner(config, repo, engine=local_engine).execute()
    inner = with_submodules(tmp_path / "inner")
    with raises("enforce.submodules"):
        ParallelRunner(confined("src"), inner, engine=local_engine).execute()


def test_link_committed_by_a_dependency_fails_the_task(
    repo: Path, local_engine: LocalEngine
) -> None:
    own = WorkerSettings(paths=("src",), enforce="ro")
    tasks = (
        Task(id="links", task="rm -r src; ln -s /etc src"),
        Task(id="behind", task="true", depends_on=("links",), settings=own),
    )
    flow = Workflow(name="w", tasks=tasks)
    runner = ParallelRunner(configured("-"), repo, engine=local_engine, workflow=flow)
    links, behind = runner.execute().results
    assert show(repo, f"{links.branch}:src") == "/etc"
    assert (behind.reason, behind.message) == (
        "setup_failed",
        "`enforce: ro`: `src` is not a directory in the commit that the worker starts from",
    )


def test_nested_directories_are_merged() -> None:
    found = directories(["b/", "./a/x", "/a", "a-b", "a/y/z", "c d"])
    assert found == ("a", "a-b", "b", "c d")


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ("enforce: ro", "`enforce` requires `paths`"),
        ("enforce: ro, paths: ['src/*']", "wildcards is not a directory"),
        ("enforce: rw, paths: [src]", "`tasks[1].enforce` is `rw`"),
    ],
)
def test_workflow_with_invalid_paths_is_refused(tmp_path: Path, own: str, said: str) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(f"tasks: [{{id: one, task: x, {own}}}]")
    with pytest.raises(ConfigError) as caught:
        read_workflow(file)
    assert said in f"{caught.value}"
    assert caught.value.exit_code == 3
