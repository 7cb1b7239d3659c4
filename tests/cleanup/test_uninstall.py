"""Tests of the removal of everything that the orchestrator has on a machine."""

import os
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

import docker
import pytest

from orchestrator.cleanup.uninstall import Belongings, find_belongings, remove_belongings
from orchestrator.cli.app import run
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.image_protocol import ImageInfo
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.images.recipes import RECIPE
from orchestrator.engine.labels import MANAGED, REPOSITORY, RUN
from orchestrator.errors import EngineError
from orchestrator.git.repository import Repository
from orchestrator.state.run_directory import RunDirectory
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import shell_run


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


def test_what_cannot_be_removed_is_named_and_the_rest_is_removed(machine: Machine) -> None:
    machine.in_use.add(BASE_IMAGE)
    removal = remove_belongings(machine, [], find_belongings(machine, []))
    assert removal.problems == [f"`{BASE_IMAGE}` is in use"]
    assert BASE_IMAGE in machine.shelf
    assert "orchestrator/worker:claude" not in machine.shelf


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
