"""Tests of setup, teardown and read-only worktrees on the real engine."""

from pathlib import Path

import pytest

from tests.support.cli import orchestrator
from tests.support.lfs import pointer, store
from tests.support.repository import git
from tests.support.submodules import with_submodules

pytestmark = [pytest.mark.docker, pytest.mark.variants("*overlay*")]
# Overlay options cannot contain a comma, so the mode `bind` is used there.
PLACES = {"overlay": "plain", "bind": "with,comma"}
CONTENT = b"content\n" * 1000
SECRET = "API_TOKEN=not-for-anybody-else"
LOOK = (
    "test -f .env && test -f vendor/lib/deep/a.txt && test -d .venv && test -d node_modules"
    ' && test $(wc -c < a.bin) = 8000 && test -z "$(find . -user root)"'
)
CONFIG = """
container: {copy: [.env]}
setup:
  - python3 -m venv --without-pip .venv
  - mkdir -p node_modules/dep && cp package.json node_modules/dep/
  - find . -user root
teardown: [rm -rf node_modules]
checks:
  - .venv/bin/python -c 'import tomllib; tomllib.load(open("pyproject.toml", "rb"))'
  - name: ready
    run: LOOK && test "$(cat answer.txt)" = 42 && git log -1 --format=%H
"""


@pytest.fixture(params=PLACES)
def repo(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    place = tmp_path / PLACES[request.param]
    place.mkdir()
    repo = with_submodules(place / "repo")
    (repo / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (repo / ".gitignore").write_text(".env\n.venv/\nnode_modules/\n")
    (repo / "a.bin").write_text(pointer(CONTENT))
    store(repo, CONTENT)
    (repo / "package.json").write_text('{"name": "shop", "version": "1.0.0"}\n')
    (repo / "pyproject.toml").write_text('[project]\nname = "shop"\nversion = "1"\n')
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "a project")
    (repo / ".env").write_text(f"{SECRET}\n")
    return repo


def test_agent_starts_after_setup(repo: Path, tmp_path: Path) -> None:
    config = tmp_path / "shop.yaml"
    config.write_text(CONFIG.replace("LOOK", LOOK))
    before = git(repo, "status", "--porcelain")
    task = f"{LOOK} && echo 42 > answer.txt"
    done = orchestrator(
        "parallel", "--config", str(config), "--agent-cli", "shell", "--network", "none",
        "--workers", "2", "--json", task, cwd=repo,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for result in done.results.values():
        assert (result["status"], result["message"]) == ("success", None)
        assert result["files_modified"] == ["answer.txt"]
        assert [(one["name"], one["passed"]) for one in result["checks"]][1] == ("ready", True)
        assert result["commit"] in Path(result["checks"][1]["log"]).read_text()
        assert (Path(result["log"]) / "setup.log").read_text().splitlines()[-1] == (
            "[setup 3/3] find . -user root"
        )
        assert git(repo, "log", "--format=%H", "-S", "API_TOKEN", "--all") == ""
        assert git(Path(result["worktree_path"]), "status", "--porcelain") == ""
    assert git(repo, "status", "--porcelain") == before


@pytest.mark.extra
def test_failed_setup_is_reported_with_its_log(repo: Path) -> None:
    done = orchestrator(
        "parallel", "--agent-cli", "shell", "--network", "none", "--workers", "1", "--json",
        "--setup", "echo made > made.txt; echo out; echo why >&2; exit 5",
        "--teardown", "echo tidied", "touch agent.txt", cwd=repo,
    )  # fmt: skip
    (result,) = done.results.values()
    assert (result["status"], result["reason"]) == ("failed", "setup_failed")
    assert result["message"].endswith("exited with 5: why")
    assert result["files_modified"] == ["made.txt"]
    shown = orchestrator("logs", "1", "--setup", "--teardown", cwd=repo).stdout
    assert shown.splitlines()[1:3] == ["out", "why"]
    assert shown.splitlines()[-1] == "tidied"


@pytest.mark.variants("bind")
def test_read_only_worker_cannot_write(repo: Path, tmp_path: Path) -> None:
    config = tmp_path / "look.yaml"
    config.write_text("setup: [echo made > made.txt]\ncontainer: {read_only: true}\n")
    task = (
        'cat made.txt && git log -1 --format=%s && test -z "$(git status --porcelain a.bin)"'
        " && ! touch new.txt && ! rm a.bin && ! git commit --allow-empty -qm x"
        " && ! git update-ref refs/heads/mine HEAD && echo note > /tmp/note && echo note > ~/note"
    )
    done = orchestrator(
        "parallel", "--config", str(config), "--agent-cli", "shell", "--network", "none",
        "--workers", "1", "--json", task, cwd=repo,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = done.results.values()
    assert result["summary"] == "made\na project"
    assert (result["files_modified"], result["commit"]) == ([], git(repo, "rev-parse", "HEAD"))
    said = (Path(result["log"]) / "stderr.log").read_text()
    assert said.count("Read-only file system") >= 4
    # No harvest was needed: the worktree is read-only.
    assert not (Path(result["log"]) / "out").exists()
