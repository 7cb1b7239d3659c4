"""Tests of the removal of everything that the orchestrator has on a machine."""

import os
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

import docker
import pytest

from orchestrator.base.errors import EngineError
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.images.recipes import RECIPE
from orchestrator.engine.interface.image_protocol import ImageInfo
from orchestrator.engine.interface.labels import MANAGED, PLACE, REPOSITORY, ROLE, RUN, WORKER
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.commands import uninstall as command
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import Wanted
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.cleanup.uninstall import Belongings, find_belongings, remove_belongings
from orchestrator.sandbox.live.box import Sandbox
from orchestrator.state.run_directory import RunDirectory
from tests.support.live import killed_run, newest
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run
from tests.worker.test_harvest import ALONE


class Machine(LocalEngine):
    """The local engine, with images."""

    def __init__(self, scratch: Path, shelf: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__(scratch)
        self.shelf = {
            name: ImageInfo(id=name, size=1, created="", labels=labels)
            for name, labels in shelf.items()
        }
        self.in_use: set[str] = set()

    def image_id(self, image: str) -> str | None:
        return image if image in self.shelf else None

    def labelled_images(self, label: str) -> Mapping[str, ImageInfo]:
        return {name: info for name, info in self.shelf.items() if label in info.labels}

    def remove_image(self, image: str) -> None:
        if image in self.in_use:
            raise EngineError(f"`{image}` is in use", key="engine.refusal")
        del self.shelf[image]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for state of the user, with a file in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "state" / "orchestrator"
    folder.mkdir(parents=True)
    (folder / "builds.json").write_text("{}")
    return folder


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    ours = {RECIPE: "1"}
    shelf = {
        BASE_IMAGE: {}, "orchestrator/worker:claude": ours, "orchestrator/project:0f": ours,
        "shop/derived:1": ours, "debian:trixie-slim": {},
    }  # fmt: skip
    return Machine(tmp_path / "engine", shelf)


def entries(top: Path) -> set[str]:
    """Return all paths below a directory, apart from git's objects and logs."""
    found = (str(path.relative_to(top)) for path in top.rglob("*"))
    return {name for name in found if not name.startswith((".git/objects/", ".git/logs/"))}


def test_run_of_another_machine_may_be_live(
    repo: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = {MANAGED: "true", REPOSITORY: "/elsewhere/.git", RUN: "20260101-000000-abcdef"}
    machine.create_network("n", labels)
    assert find_belongings(machine, [Repository(repo)]).live == ()
    monkeypatch.setattr(machine, "configure", lambda _: None, raising=False)
    (live,) = find_belongings(machine, [Repository(repo)]).live
    assert live == "20260101-000000-abcdef in /elsewhere/.git"
    for left in machine.leftovers(labels):
        machine.remove(left)


def test_nothing_is_left_of_a_merged_run_and_nothing_else_is_removed(
    repo: Path, machine: Machine, home: Path
) -> None:
    (repo / ".git" / "info" / "exclude").write_bytes(b"# mine\n*.caf\xe9\n")
    before = entries(repo)
    shell_run(repo, machine, "echo x > new")
    git(repo, "merge", "--quiet", "--ff-only", "architect/parallel-1")
    repositories = [Repository(repo)]
    found = find_belongings(machine, repositories)
    assert found == Belongings(
        images=("orchestrator/project:0f", "orchestrator/worker:claude", BASE_IMAGE),
        derived=("shop/derived:1",), leftovers=(), live=(),
        state=(home, repo / ".git" / "orchestrator"),
    )  # fmt: skip

    removal = remove_belongings(machine, repositories, found)

    assert (removal.problems, removal.kept) == ([], [])
    assert {*machine.shelf} == {"shop/derived:1", "debian:trixie-slim"}
    assert not home.parent.exists(), "an empty directory is not left either"
    assert entries(repo) - before == {"new", ".git/ORIG_HEAD"}
    assert (repo / ".git" / "info" / "exclude").read_bytes() == b"# mine\n*.caf\xe9\n"


def test_unmerged_work_is_kept_in_refs(repo: Path, machine: Machine, home: Path) -> None:
    (home.parent / "other").touch()
    shell_run(repo, machine, "echo x > new")
    repositories = [Repository(repo)]
    removal = remove_belongings(machine, repositories, find_belongings(machine, repositories))
    (ref,) = removal.kept
    assert git(repo, "show", f"{ref}:new") == "x"
    assert not (repo / ".git" / "orchestrator").exists()
    assert [path.name for path in home.parent.iterdir()] == ["other"]


REFUSED, PATCH, ARTIFACT = "copy/work.txt", "submodule-0.patch", "artifacts/report.txt"
MOVES_BRANCH = f"{ALONE} git -C {{}} update-ref refs/heads/architect/parallel-1 {{}}"


@pytest.mark.parametrize(
    ("kind", "only"),
    [("refused", REFUSED), ("patch", PATCH), ("artifacts", ARTIFACT), ("no worktree", REFUSED)],
)
def test_work_that_exists_nowhere_else_is_kept_until_it_is_purged(
    repo: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture, kind: str, only: str,
) -> None:  # fmt: skip
    moves = MOVES_BRANCH.format(repo, git(repo, "rev-parse", "HEAD~1"))
    is_refused = only == REFUSED
    (worker,) = shell_run(
        repo, machine, f"echo x > work.txt; {moves if is_refused else ''}"
    ).results
    state = Path(worker.log or "")
    (state / "artifacts").mkdir(exist_ok=True)
    if not is_refused:
        (state / only).write_text("x")
    if kind == "no worktree":
        git(repo, "worktree", "remove", "--force", worker.worktree_path)
        git(repo, "branch", "-qD", worker.branch)
    monkeypatch.setattr(command, "load_engine", lambda _: machine)
    monkeypatch.chdir(repo)
    place = state if is_refused else state / only.split("/")[0]

    assert run(["uninstall", "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert f"would not remove: {place}, the only copy of " in shown.err
    assert f"would remove {repo / '.git' / 'orchestrator'}\n" not in shown.out
    assert run(["uninstall", "--yes"]) == 1
    assert (state / only).exists()
    shown = capsys.readouterr()
    assert f"not removed: {place}, the only copy of " in shown.err
    assert f"removed {repo / '.git' / 'orchestrator'}\n" not in shown.out
    run_id = state.parent.name
    assert f"`orchestrator parallel-cleanup 1 --run {run_id} --purge` removes it" in shown.err
    cleanup(repo, engine=machine, run_id=run_id, wanted=Wanted(workers=(1,)), purge=True)
    assert not (state / only).exists()
    assert run(["uninstall", "--yes"]) == 0
    assert not state.exists()


def test_refused_work_of_a_run_whose_record_cannot_be_read_is_kept(
    repo: Path, machine: Machine
) -> None:
    moves = MOVES_BRANCH.format(repo, git(repo, "rev-parse", "HEAD~1"))
    (worker,) = shell_run(repo, machine, f"echo x > work.txt; {moves}").results
    state = Path(worker.log or "")
    (state.parent / "run.json").write_text("{")
    repositories = [Repository(repo)]
    removal = remove_belongings(machine, repositories, find_belongings(machine, repositories))
    assert any(str(state) in problem for problem in removal.problems)
    assert (state / REFUSED).exists()


def test_work_of_a_dead_run_that_is_only_in_the_engine_is_kept(
    repo: Path, machine: Machine, tmp_path: Path
) -> None:
    """Also if the repository is not one of those whose state is removed."""
    killed_run(repo, tmp_path / "other", "echo x > work.txt; echo y; sleep 60")
    run_id = newest(repo).directory.run_id
    labels = {MANAGED: "true", REPOSITORY: f"{repo}/.git", RUN: run_id, WORKER: "1"}
    machine.create_network("place", {**labels, PLACE: "place", ROLE: "worker"})
    machine.create_network("rest", labels)

    found = find_belongings(machine, [])
    assert [text for text in found.sole if "only in the engine" in text]
    removal = remove_belongings(machine, [], found)

    (problem,) = removal.problems
    assert problem == (
        f"worker 1 of dead run {run_id} in {repo}/.git: its work is only in the engine; "
        f"`orchestrator resume {run_id}` collects it"
    )
    (left,) = machine.leftovers({})
    assert left.id == "place"
    machine.remove(left)


def test_what_cannot_be_removed_is_named_and_the_rest_is_removed(machine: Machine) -> None:
    machine.in_use.add(BASE_IMAGE)
    removal = remove_belongings(machine, [], find_belongings(machine, []))
    assert removal.problems == [f"`{BASE_IMAGE}` is in use"]
    assert BASE_IMAGE in machine.shelf
    assert "orchestrator/worker:claude" not in machine.shelf


def test_a_live_sandbox_is_found_and_outlives_a_cleanup(repo: Path, machine: Machine) -> None:
    box = Sandbox.create(engine=machine)
    try:
        assert cleanup(repo, engine=machine).leftovers == 0
        assert find_belongings(machine, [Repository(repo)]).live == (f"sandbox {box.id}",)
        assert box.run(["true"]).ok
    finally:
        box.kill()
    assert find_belongings(machine, [Repository(repo)]).live == ()


def test_a_live_run_is_found(repo: Path, machine: Machine) -> None:
    result = shell_run(repo, machine, "true")
    directory = repo / ".git" / "orchestrator" / "runs" / str(result.run_id)
    with RunDirectory(directory).hold():
        found = find_belongings(machine, [Repository(repo)])
    assert found.live == (f"{result.run_id} in {repo / '.git'}",)


@pytest.mark.parametrize("words", [(), ("--dry-run", "--yes")])
def test_a_removal_is_asked_for_by_one_option(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["uninstall", *words]) == 3
    assert "--dry-run" in capsys.readouterr().err


OWN = "orchestrator/test-uninstall:own"
DERIVED = "orchestrator/test-uninstall:derived"


@pytest.fixture
def stocked(docker_engine: DockerEngine, client: docker.APIClient) -> Iterator[DockerEngine]:
    """The daemon, with an image of ours and one that is built on it."""
    for tag in (OWN, DERIVED):
        recipe = BytesIO(f"FROM {BASE_IMAGE}\nENV TEST={tag}\n".encode())
        [*client.build(fileobj=recipe, tag=tag, labels={RECIPE: "1"}, rm=True, forcerm=True)]
    yield docker_engine
    for tag in (OWN, DERIVED):
        docker_engine.remove_image(tag)


@pytest.mark.docker
def test_objects_of_a_dead_run_and_images_are_removed_from_a_daemon(
    repo: Path, stocked: DockerEngine, client: docker.APIClient
) -> None:
    labels = {MANAGED: "true", REPOSITORY: str(repo / ".git")}
    name = f"orchestrator-test-{os.getpid()}"
    container = client.create_container(BASE_IMAGE, ["sleep", "60"], labels=labels)
    client.start(container)
    client.create_volume(name, labels=labels)
    client.create_network(name, labels=labels)

    found = find_belongings(stocked, [], labels=labels, is_own=lambda name: name == OWN)
    assert {DERIVED, BASE_IMAGE} <= {*found.derived}
    removal = remove_belongings(stocked, [], found)

    assert removal.problems == []
    assert stocked.leftovers(labels) == []
    assert stocked.image_id(OWN) is None
    assert stocked.image_id(DERIVED) is not None
