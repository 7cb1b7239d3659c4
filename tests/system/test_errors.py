"""Tests that errors of the command line are one line each and leave nothing behind."""

import re
from pathlib import Path

import pytest

from tests.support.cli import orchestrator, spare_probe
from tests.support.repository import git

pytestmark = pytest.mark.docker
SHELL = ("parallel", "--agent-cli", "shell")
ERRORS = {
    "no daemon": (("true",), {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}, 7),
    "no image": (("true", "--image", "no-such-image:here"), {}, 3),
    "no runtime": (("true", "--runtime", "no-such-runtime"), {}, 3),
    "no base": (("true", "--base", "no-such-branch"), {}, 3),
    "too many cpus": (("true", "--cpus", "4000"), {}, 3),
    "workers 0": (("true", "--workers", "0"), {}, 3),
    "workers 11": (("true", "--workers", "11"), {}, 3),
    "workers x": (("true", "--workers", "x"), {}, 3),
    "no task": ((), {}, 3),
    "unknown agent": (("true", "--agent-cli", "nobody"), {}, 3),
    "unknown option": (("true", "--no-such-option"), {}, 3),
    "empty model": (("true", "--models", "a,,b"), {}, 3),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_one_line_and_create_nothing(repo: Path, name: str) -> None:
    arguments, env, code = ERRORS[name]
    spare_probe(repo)
    before = everything(repo)
    done = orchestrator(*SHELL, *arguments, cwd=repo, env=env)
    assert_one_error(done, code)
    assert everything(repo) == before


def assert_one_error(done, code: int) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert re.fullmatch(r"error: [^\n]+\n\nhint: [^\n]+\n", done.stderr), done.stderr


def everything(directory: Path) -> list[str]:
    """Return every path below a directory."""
    return sorted(str(path) for path in directory.rglob("*"))


def test_missing_repository_missing_commit_and_bad_yaml(repo: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert_one_error(orchestrator(*SHELL, "true", cwd=empty), 3)
    assert everything(empty) == []
    git(empty, "init", "-q")
    spare_probe(empty)
    before = everything(empty)
    assert_one_error(orchestrator(*SHELL, "true", cwd=empty), 3)
    assert everything(empty) == before
    (repo / "orchestrator.yaml").write_text("parallel_runs:\n  wokers: 3\n  max_steps: -1\n")
    spare_probe(repo)
    before = everything(repo)
    done = orchestrator(*SHELL, "true", cwd=repo)
    assert done.returncode == 3
    assert "wokers" in done.stderr
    assert "did you mean `parallel_runs.workers`" in done.stderr
    assert "max_steps" in done.stderr
    assert everything(repo) == before
