"""Tests of the kinds of repositories that a run starts from or refuses."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.base.errors import (
    ConfigError,
    EngineError,
    ImageNotFoundError,
    OrchestratorError,
    RepositoryError,
    UnsupportedError,
)
from orchestrator.base.events import Event, Notice
from orchestrator.base.results import Status
from orchestrator.config.settings.container import Isolation, Network
from orchestrator.engine.interface.labels import ROLE
from orchestrator.runs.runner import ParallelRunner
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import git, make_repository
from tests.support.runs import configured, shell_run


def everything(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_run_from_a_subdirectory(repo: Path, local_engine: LocalEngine) -> None:
    (worker,) = shell_run(repo / "src", local_engine, "ls > list; pwd").results
    assert worker.worktree_path == str(repo / ".architect-parallel-1")
    assert git(repo, "show", f"{worker.branch}:list").split() == ["a.txt", "list", "src"]


def test_run_from_the_current_directory(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repo / "src")
    runner = ParallelRunner(configured("true"), engine=local_engine)
    assert runner.plan().top == repo
    assert [one.status for one in runner.run()] == [Status.SUCCESS]


def test_run_from_a_detached_head(repo: Path, local_engine: LocalEngine) -> None:
    git(repo, "checkout", "-q", "--detach", "HEAD~1")
    base = git(repo, "rev-parse", "HEAD")
    result = shell_run(repo, local_engine, "test ! -e src; echo w > w")
    assert (result.base, result.status) == (base, Status.SUCCESS)
    assert git(repo, "rev-parse", "architect/parallel-1~1") == base
    assert git(repo, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"


def test_run_from_another_commit(repo: Path, local_engine: LocalEngine) -> None:
    git(repo, "tag", "-a", "-m", "old", "v1", "HEAD~1")
    result = shell_run(repo, local_engine, "test ! -e src", base="v1")
    assert (result.base, result.status) == (git(repo, "rev-parse", "HEAD~1"), Status.SUCCESS)


def test_run_from_a_commit_whose_past_is_incomplete(repo: Path, local_engine: LocalEngine) -> None:
    lost = git(repo, "rev-parse", "HEAD~1:a.txt")
    (repo / "a.txt").write_text("other\n")
    git(repo, "commit", "-qam", "third")
    (repo / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    told: list[Event] = []
    task = "git log --oneline | wc -l > count; git status --porcelain"
    runner = ParallelRunner(configured(task), repo, engine=local_engine, emit=told.append)
    (worker,) = runner.run()
    assert worker.status is Status.SUCCESS
    assert git(repo, "show", f"{worker.branch}:count").strip() == "1"
    notices = [event.message for event in told if isinstance(event, Notice)]
    assert [one for one in notices if "missing or damaged" in one] != []


def test_run_from_a_shallow_clone(repo: Path, local_engine: LocalEngine, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repo}", "clone")
    clone = tmp_path / "clone"
    task = "git log --format=%s > log.txt; echo w > w; git add w; git commit -qm mine"
    (worker,) = shell_run(clone, local_engine, task).results
    assert (worker.status, worker.files_modified) == (Status.SUCCESS, ["log.txt", "w"])
    assert git(clone, "show", f"{worker.branch}:log.txt") == "second"
    log = git(clone, "log", "--format=%s", worker.branch).splitlines()
    assert log == ["architect: uncommitted work of worker 1", "mine", "second"]
    git(clone, "fsck", "--strict", "--no-dangling")


def test_shallow_history_contains_only_the_base(repo: Path, local_engine: LocalEngine) -> None:
    isolation = Isolation(network="none", history="shallow")
    task = "git log --format=%s > log.txt"
    (worker,) = shell_run(repo, local_engine, task, isolation=isolation).results
    assert git(repo, "show", f"{worker.branch}:log.txt") == "second"
    log = git(repo, "log", "--format=%s", worker.branch).splitlines()
    assert log == ["architect: uncommitted work of worker 1", "second", "first"]


def test_run_from_a_linked_worktree(repo: Path, local_engine: LocalEngine, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(repo, "worktree", "add", "-q", "-b", "feature", str(linked))
    git(linked, "commit", "-q", "--allow-empty", "-m", "on the feature")
    result = shell_run(linked, local_engine, "echo w > w")
    assert result.base == git(linked, "rev-parse", "HEAD")
    assert result.results[0].worktree_path == str(linked / ".architect-parallel-1")
    assert git(linked, "show", "architect/parallel-1:w") == "w"
    assert git(linked, "status", "--porcelain") == ""


def test_run_from_a_sha256_repository(local_engine: LocalEngine, tmp_path: Path) -> None:
    repo = tmp_path / "sha256"
    git(tmp_path, "init", "-q", "--object-format=sha256", str(repo))
    git(repo, "config", "user.name", "n")
    git(repo, "config", "user.email", "e@example.org")
    git(repo, "commit", "-q", "--allow-empty", "-m", "start")
    (worker,) = shell_run(repo, local_engine, "echo w > w").results
    assert (worker.status, worker.files_modified) == (Status.SUCCESS, ["w"])
    assert len(worker.commit or "") == 64


def test_run_from_a_path_with_special_characters(local_engine: LocalEngine, tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "an odd näme, 'quoted' $HOME")
    (worker,) = shell_run(repo, local_engine, "echo w > w").results
    assert (worker.status, worker.files_modified) == (Status.SUCCESS, ["w"])


def test_git_status_does_not_show_the_worktrees(repo: Path, local_engine: LocalEngine) -> None:
    exclude = repo / ".git" / "info" / "exclude"
    exclude.write_text("*.mine")
    shell_run(repo, local_engine, "true")
    shell_run(repo, local_engine, "true")
    assert git(repo, "status", "--porcelain") == ""
    assert exclude.read_text() == "*.mine\n/.architect-parallel-*\n"


def bare(place: Path) -> None:
    git(place, "init", "-q", "--bare", ".")


def nothing(place: Path) -> None:
    (place / "file").write_text("")


def without_commit(place: Path) -> None:
    git(place, "init", "-q", ".")


@pytest.mark.parametrize(
    ("make", "said"),
    [(bare, "bare"), (nothing, "not a git repository"), (without_commit, "no commit")],
)
def test_unusable_directories_are_refused(
    local_engine: LocalEngine, tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    make(place)
    before = everything(place)
    runner = ParallelRunner(configured("true"), place, engine=local_engine)
    for attempt in (runner.plan, runner.run):
        with pytest.raises(RepositoryError, match=said) as caught:
            attempt()
        assert caught.value.hint
        assert caught.value.exit_code == 3
    assert everything(place) == before


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"image": "orchestrator/nowhere:none"}, ImageNotFoundError),
        ({"isolation": Isolation(network="none", runtime="nowhere")}, UnsupportedError),
        ({"base": "no-such-branch"}, RepositoryError),
        ({"base": "--help"}, RepositoryError),
        ({"agent_cli": "nobody"}, ConfigError),
        ({"limits": {"cpus": 1024}}, ConfigError),
    ],
)
def test_unavailable_inputs_are_refused_before_anything_is_created(
    repo: Path, local_engine: LocalEngine, options: dict[str, object], expected: type[Exception]
) -> None:
    before = everything(repo)
    with pytest.raises(expected):
        shell_run(repo, local_engine, "true", **options)
    assert everything(repo) == before


def test_branch_named_architect_is_refused(repo: Path, local_engine: LocalEngine) -> None:
    git(repo, "branch", "architect")
    refs = git(repo, "for-each-ref")
    with raises("branch.obstruction", "`architect`") as caught:
        shell_run(repo, local_engine, "true", "true")
    assert "git branch -m architect" in (caught.value.hint or "")
    assert git(repo, "for-each-ref") == refs
    assert list((repo / ".git" / "orchestrator" / "runs").iterdir()) == []
    assert not list(repo.glob(".architect-parallel-*"))


def test_run_from_a_workers_worktree_is_refused(repo: Path, local_engine: LocalEngine) -> None:
    (worker,) = shell_run(repo, local_engine, "true").results
    with pytest.raises(ConfigError, match="a worker's worktree") as caught:
        shell_run(Path(worker.worktree_path), local_engine, "true")
    assert str(repo) in (caught.value.hint or "")


class WithoutNetworks(LocalEngine):
    def create_network(self, name, labels):  # noqa: ARG002
        raise OrchestratorError("no more networks", key="internal.error")


def test_failed_preparation_removes_the_branches(repo: Path, tmp_path: Path) -> None:
    refs = git(repo, "for-each-ref")
    engine = WithoutNetworks(tmp_path / "engine")
    with pytest.raises(OrchestratorError, match="no more networks"):
        shell_run(repo, engine, "true", "true", isolation=Isolation(network="open"))
    assert git(repo, "for-each-ref") == refs
    assert list((repo / ".git" / "orchestrator" / "runs").iterdir()) == []


def test_plan_creates_nothing(repo: Path, local_engine: LocalEngine) -> None:
    before = everything(repo)
    (repo / "a.txt").write_text("edited\n")
    plan = ParallelRunner(configured("one", "two"), repo, engine=local_engine).plan()
    assert [worker.branch for worker in plan.workers] == [
        "architect/parallel-1",
        "architect/parallel-2",
    ]
    assert (plan.base, plan.timeout) == (git(repo, "rev-parse", "HEAD"), 60)
    assert ["uncommitted" in notice for notice in plan.notices] == [True]
    assert everything(repo) == before


class HostIsOpen(LocalEngine):
    """Records requests to close the host, and fails them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: list[tuple[str, tuple[tuple[str, int | None], ...], str]] = []

    def close_host(self, name, network, egress, labels):
        assert name == f"{network}-host"
        self.asked.append((network, egress.allowed, labels[ROLE]))
        raise EngineError("not here", key="engine.refusal")


@pytest.mark.parametrize("network", ["open", "none"])
def test_failure_to_close_the_host_causes_a_notice(
    repo: Path, tmp_path: Path, network: Network
) -> None:
    engine = HostIsOpen(tmp_path / "engine")
    events: list[Event] = []
    allow = ("10.1.2.3:80",) if network == "open" else ()
    isolation = Isolation(network=network, allow=allow)
    runner = ParallelRunner(
        configured("true", isolation=isolation), repo, engine=engine, emit=events.append
    )
    result = runner.execute()
    assert [one.status for one in result.results] == ["success"]
    told = [one.message for one in events if isinstance(one, Notice) and "not here" in one.message]
    if network == "none":
        assert (engine.asked, told) == ([], [])
        return
    name = f"orchestrator-{result.run_id}"
    assert engine.asked == [(name, (("10.1.2.3/32", 80),), "host")]
    assert told == ["workers can reach addresses that this machine gets during the run (not here)"]


class HostClosesLate(LocalEngine):
    """Closes the host some time after the run has begun, and records the containers until then."""

    closed = False
    early = 0

    def close_host(self, *_):
        time.sleep(0.5)
        self.closed = True

    def create(self, spec):
        self.early += not self.closed and spec.egress is not None
        return super().create(spec)


def test_containers_are_created_when_the_host_is_closed(repo: Path, tmp_path: Path) -> None:
    engine = HostClosesLate(tmp_path / "engine")
    isolation = Isolation(network="open")
    runner = ParallelRunner(configured("true", isolation=isolation), repo, engine=engine)
    assert [one.status for one in runner.run()] == ["success"]
    assert (engine.closed, engine.early) == (True, 0)
