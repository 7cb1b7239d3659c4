"""Tests of the file with the variables of ports and services in the worktree."""

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.base.results import Reason, Status, WorkerResult
from orchestrator.config.settings.container import Isolation
from orchestrator.config.settings.project import Project, Service
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.runs.runner import ParallelRunner
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import configured, show

PORTS = {"ports": {"PORT": 3000}}
BEGIN = "# Ports and services of this worker alone, by orchestrator; never committed."
END = "# Until here."


@pytest.fixture
def run(repo: Path, local_engine: LocalEngine) -> Callable[..., WorkerResult]:
    def execute(
        task: str, project: dict[str, Any], isolation: dict[str, Any] | None = None, **rest: Any
    ) -> WorkerResult:
        config = configured(
            task,
            project=Project.model_validate(project),
            isolation=Isolation.model_validate(isolation or PORTS),
            **rest,
        )
        (worker,) = ParallelRunner(config, repo, engine=local_engine).run()
        return worker

    return execute


def said(worker: WorkerResult) -> list[str]:
    return (Path(worker.log or "") / "stdout.log").read_text().splitlines()


def lines(worker: WorkerResult) -> list[str]:
    host = worker.ports[3000]
    return [BEGIN, "PORT=3000", f"HOST_PORT={host}", f"PORT_URL=http://127.0.0.1:{host}", END]


def test_ports_are_written_and_the_file_is_not_committed(
    run: Callable[..., WorkerResult], repo: Path
) -> None:
    worker = run("cat .env; git status --porcelain; echo w > w", {"dotenv": ".env"})
    assert worker.status is Status.SUCCESS, worker.message
    assert said(worker) == lines(worker)
    assert worker.files_modified == ["w"]
    assert not (repo / ".env").exists()


def test_file_is_not_committed_even_if_gitignore_includes_it(
    run: Callable[..., WorkerResult], repo: Path
) -> None:
    (repo / ".gitignore").write_text("!.env\n")
    git(repo, "add", ".gitignore")
    git(repo, "commit", "-m", "wanted")
    worker = run("git add -A; echo w > w", {"dotenv": ".env"})
    assert worker.files_modified == ["w"]


def test_copied_file_of_the_user_is_extended(run: Callable[..., WorkerResult], repo: Path) -> None:
    (repo / ".env").write_text("OWN=1\nPORT=9")
    worker = run("cat .env; echo w > w", {"dotenv": ".env"}, {**PORTS, "copied": ["/.env"]})
    assert said(worker) == ["OWN=1", "PORT=9", *lines(worker)]
    assert worker.files_modified == ["w"]
    assert (repo / ".env").read_text() == "OWN=1\nPORT=9"


def test_file_written_by_setup_is_extended(run: Callable[..., WorkerResult]) -> None:
    setup = ("grep HOST_PORT .env > seen", "echo SAMPLE=1 > .env")
    worker = run("cat .env seen", {"dotenv": ".env", "setup": setup})
    assert said(worker) == ["SAMPLE=1", *lines(worker), f"HOST_PORT={worker.ports[3000]}"]


def test_file_may_be_in_a_subdirectory(run: Callable[..., WorkerResult]) -> None:
    worker = run("cat apps/web/.env.local; echo w > apps/w", {"dotenv": "apps/web/.env.local"})
    assert said(worker) == lines(worker)
    assert worker.files_modified == ["apps/w"]


def test_lines_are_written_once_per_attempt(run: Callable[..., WorkerResult]) -> None:
    worker = run("cat .env; exit 1", {"dotenv": ".env"}, retries=1, retry_delay=0)
    assert (worker.attempts, said(worker)) == (2, lines(worker))


def test_special_characters_are_quoted(run: Callable[..., WorkerResult]) -> None:
    odd = {"A": "two words #1", "B": 'it\'s "$HOME" `x` \\', "C": "p?a=b&c"}
    service = Service(image=BASE_IMAGE, command=("sleep", "60"), variables=odd)
    env = {"DB_HOST": "mine"}
    read = 'set -a; . ./.env; printf "%s|" "$DB_HOST" "$A" "$B" "$C"'
    project = {"dotenv": ".env", "services": {"db": service}}
    worker = run(f"cat .env; env -i sh -c {shlex.quote(read)}", project, {"env": env})
    assert said(worker)[-1] == "|".join(["mine", *odd.values(), ""])


@pytest.mark.parametrize("path", ["a.txt", "b"])
def test_tracked_file_is_refused(run: Callable[..., WorkerResult], repo: Path, path: str) -> None:
    (repo / "b").mkdir()
    (repo / "b" / "c").write_text("c")
    git(repo, "add", "b")
    git(repo, "commit", "-m", "b")
    with raises("dotenv.tracked") as caught:
        run("true", {"dotenv": path})
    assert caught.value.exit_code == 3
    assert not (repo / ".architect-parallel-1").exists()


def test_file_tracked_by_included_uncommitted_work_is_refused(
    run: Callable[..., WorkerResult], repo: Path
) -> None:
    (repo / "fresh").write_text("x")
    with raises("dotenv.tracked"):
        run("true", {"dotenv": "fresh"}, include_uncommitted=True)
    assert git(repo, "for-each-ref", "refs/heads/architect") == ""


def test_link_of_the_repository_is_not_followed(
    run: Callable[..., WorkerResult], repo: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (repo / "apps").symlink_to(outside)
    git(repo, "add", "apps")
    git(repo, "commit", "-m", "link")
    worker = run("true", {"dotenv": "apps/.env"})
    assert worker.reason is Reason.SETUP_FAILED
    assert (
        worker.message
        == "the `dotenv` file `apps/.env` cannot be written: a directory or a link is in its "
        "place, or its path leads through a file or a link"
    )
    assert list(outside.iterdir()) == []


def test_link_created_by_setup_is_not_followed(
    run: Callable[..., WorkerResult], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("kept")
    worker = run("cat .env", {"dotenv": ".env", "setup": (f"rm .env; ln -s {outside} .env",)})
    assert said(worker) == lines(worker)
    assert outside.read_text() == "kept"


def test_linked_directory_created_by_setup_is_not_followed(
    run: Callable[..., WorkerResult], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    setup = (f"rm -r apps; ln -s {outside} apps",)
    worker = run("true", {"dotenv": "apps/.env", "setup": setup})
    assert worker.status is Status.FAILED
    assert "cannot be written: a directory or a link is in its place" in (worker.message or "")
    assert list(outside.iterdir()) == []


def test_file_committed_by_the_worker_causes_a_note(
    run: Callable[..., WorkerResult], repo: Path
) -> None:
    worker = run("git add -f .env; git commit -qm env", {"dotenv": ".env"})
    assert "PORT=3000" in show(repo, "architect/parallel-1:.env")
    assert "a copied file is in the worker's own commits: .env" in (worker.message or "")


@pytest.mark.parametrize(
    "path", ["/etc/x", "../x", "a/../x", ".git", "a/.git", "a b", "a*", "", "a/", "./a", "x\ny"]
)
def test_invalid_paths_are_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="must be a path in the worktree"):
        Project(dotenv=path)


def test_file_of_the_user_is_not_copied_or_changed(
    run: Callable[..., WorkerResult], repo: Path
) -> None:
    (repo / ".env").write_text("SECRET=1\n")
    worker = run("cat .env", {"dotenv": ".env"})
    assert said(worker) == lines(worker)
    status = subprocess.run(
        ["git", "-C", str(repo / ".architect-parallel-1"), "status", "--porcelain"],
        capture_output=True, check=True,
    )  # fmt: skip
    assert status.stdout == b""
