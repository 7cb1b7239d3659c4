"""Tests of the harvest of a few ordinary files without a container."""

from pathlib import Path

import pytest

from orchestrator.base.results import RunResult, Status
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.labels import ROLE, WORKER
from orchestrator.engine.interface.protocol import Container
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.runs.resuming.continued_worker import ContinuedWorker
from orchestrator.runs.resuming.continuing import Message
from orchestrator.state.worker.turns import NextTurn
from orchestrator.worker.harvest import harvest
from tests.support.attempts import state_of
from tests.support.repository import git, make_repository
from tests.support.runs import shell_run

pytestmark = pytest.mark.docker
PLAIN = (
    "echo new > new.txt",
    "echo more >> a.txt; chmod +x a.txt",
    "mkdir -p deep/er; printf '\\0' > deep/er/zero; touch deep/empty; mkdir without",
    "echo same > scratch; rm scratch; cp a.txt b.txt",
    "echo changed > src/app.py; echo added > src/other.py",
)
"""Tasks that leave only a few ordinary files."""
OTHERS = (
    "ln -s a.txt link",
    "rm a.txt; echo x > x.txt",
    "echo x > x.txt; git add x.txt",
    "echo x > x.txt; git add -A; git commit -qm mine",
    "echo x > x.txt; git checkout -q --detach",
    "echo x > x.txt; git update-index --assume-unchanged a.txt",
    "echo x > x.log; echo x > x.txt",
    "echo '*.txt text' > .gitattributes; printf 'x\\r\\n' > x.txt",
    "mv src moved",
    "rm -r src; mkdir src; echo x > src/x.txt",
    "mkdir sub; git -C sub init -q; echo x > sub/x.txt",
    "echo x > x.txt; git symbolic-ref HEAD refs/heads/other",
    "echo x > x.txt; git update-ref HEAD HEAD~1",
)
"""Tasks that leave more than ordinary files, such as links, commits or deletions."""


class Recording(DockerEngine):
    """Records the roles of the containers of each worker."""

    def __init__(self) -> None:
        super().__init__()
        self.roles: dict[str, set[str]] = {}

    def create(self, spec: ContainerSpec) -> Container:
        if WORKER in spec.labels:
            self.roles.setdefault(spec.labels[WORKER], set()).add(spec.labels[ROLE])
        return super().create(spec)


def run(root: Path, engine: Recording, *tasks: str) -> tuple[Path, RunResult]:
    repo = make_repository(root)
    (repo / ".gitignore").write_text("*.log\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "ignored")
    engine.roles.clear()
    result = shell_run(repo, engine, *tasks, workers=4)
    assert result.status is Status.SUCCESS, [worker.message for worker in result.results]
    return repo, result


def trees(repo: Path, result: RunResult) -> list[str]:
    form = "--format=%T %an %ae %B"
    return [git(repo, "log", "-1", form, worker.branch) for worker in result.results]


def written(upper: Path) -> set[str]:
    """Return the names of the regular files below a directory."""
    return {path.name for path in upper.rglob("*") if path.is_file() and not path.is_symlink()}


def test_few_ordinary_files_are_harvested_without_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Recording()
    repo, result = run(tmp_path / "plain", engine, *PLAIN)
    assert engine.roles == {str(number): {"worker"} for number in range(1, len(PLAIN) + 1)}
    uppers = list((repo / ".git" / "orchestrator" / "runs").glob("*/worker-*/upper"))
    assert len(uppers) == len(PLAIN)
    assert not any(list(upper.iterdir()) for upper in uppers)
    monkeypatch.setattr(harvest, "pack_plainly", lambda _: False)
    other, expected = run(tmp_path / "container", engine, *PLAIN)
    assert engine.roles["1"] == {"worker", "harvest"}
    assert trees(repo, result) == trees(other, expected)
    engine.close()


def test_other_files_are_harvested_in_a_container(tmp_path: Path) -> None:
    engine = Recording()
    repo, _ = run(tmp_path / "plain", engine, *OTHERS)
    plain = [n for n in range(1, len(OTHERS) + 1) if "harvest" not in engine.roles[str(n)]]
    assert [OTHERS[number - 1] for number in plain] == []
    (runs,) = (repo / ".git" / "orchestrator" / "runs").glob("*/")
    left = {task: written(runs / f"worker-{n}" / "upper") for n, task in enumerate(OTHERS, 1)}
    # A converted file differs from that of the commit, and no commit has a nested git directory.
    expected_left = {OTHERS[6]: {"x.log"}, OTHERS[7]: {"x.txt"}, OTHERS[10]: left[OTHERS[10]]}
    assert {task: names for task, names in left.items() if names} == expected_left
    assert "HEAD" in left[OTHERS[10]]
    assert "x.txt" not in left[OTHERS[10]]
    engine.close()


@pytest.mark.extra
def test_attempt_without_a_container_changes_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Recording()
    repo, result = run(tmp_path / "plain", engine, *OTHERS)
    monkeypatch.setattr(harvest, "pack_plainly", lambda _: False)
    other, expected = run(tmp_path / "container", engine, *OTHERS)
    subjects = [git(repo, "log", "-1", "--format=%T", worker.branch) for worker in result.results]
    assert subjects == [
        git(other, "log", "-1", "--format=%T", worker.branch) for worker in expected.results
    ]
    engine.close()


@pytest.mark.extra
def test_container_replaces_the_pack_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = harvest.pack_plainly
    packed: list[bool] = []

    def pack_and_forget(request: harvest.HarvestRequest) -> bool:
        packed.append(original(request))
        return False

    monkeypatch.setattr(harvest, "pack_plainly", pack_and_forget)
    engine = Recording()
    repo, result = run(tmp_path / "repo", engine, PLAIN[0])
    assert set(packed) == {True}
    assert engine.roles["1"] == {"worker", "harvest"}
    assert result.results[0].files_modified == ["new.txt"]
    assert git(repo, "show", f"{result.results[0].branch}:new.txt") == "new"
    engine.close()


@pytest.mark.extra
def test_later_turns_are_harvested_without_a_container_too(tmp_path: Path) -> None:
    """Each turn says how its files are committed, and what its commit shows."""
    engine = Recording()
    repo, result = run(tmp_path / "repo", engine, "echo 1 > one.txt")
    branch, roles = result.results[0].branch, engine.roles["1"]
    turns = [
        ("echo 2 > two.txt; echo more >> one.txt", {"worker"}, "one.txt two.txt", 2),
        ("true", {"worker"}, "one.txt two.txt", 2),
        ("echo 2 > two.txt", {"worker"}, "one.txt two.txt", 2),
        ("git rm -q one.txt; git commit -qm mine", {"worker", "harvest"}, "two.txt", 3),
        ("mkdir sub; echo 3 > sub/three.txt", {"worker"}, "sub/three.txt two.txt", 4),
    ]
    for message, expected, names, commits in turns:
        roles.clear()
        turn = Message(1, NextTurn(message=message))
        continued = ContinuedWorker(state_of(repo), turn, engine=engine)
        assert continued.execute().status is Status.SUCCESS
        assert roles == expected, message
        assert git(repo, "diff", "--name-only", "HEAD", branch).split() == names.split()
        assert git(repo, "rev-list", "--count", f"HEAD..{branch}") == str(commits)
    assert git(repo, "show", f"{branch}~2:one.txt") == "1\nmore"
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""
