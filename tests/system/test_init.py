"""Tests of `init` on five kinds of projects: a valid file, and a run that works."""

import io
import secrets
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from orchestrator.config.loading.document import read_document
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY, ROLE
from tests.support.cli import orchestrator
from tests.support.projects import COMPOSE, GO, MONOREPO, NODE, PYTHON, make_project
from tests.support.repository import git

pytestmark = pytest.mark.docker
NPM = """\
#!/bin/sh
# Stands in for npm, which would take minutes to install: it does what is asked in the same places.
set -eu
case $* in
  ci) test -f package-lock.json; mkdir -p node_modules ;;
  test*) test -d node_modules ;;
  *) exit 64 ;;
esac
echo "npm $*"
"""
GO_PROGRAM = """\
#!/bin/sh
set -eu
test "$*" = "test ./..." && test -f go.mod && find . -name '*_test.go' | grep . || test -f ship.go
"""


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """Build the base with stand-ins for npm and Go."""
    name = f"orchestrator-test-init:{secrets.token_hex(6)}"
    client = docker.APIClient(version="auto")
    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        for path, text in {
            "Dockerfile": f"FROM {BASE_IMAGE}\nCOPY npm go /usr/local/bin/\n",
            "npm": NPM,
            "go": GO_PROGRAM,
        }.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    context.seek(0)
    built = [*client.build(fileobj=context, custom_context=True, tag=name, rm=True, decode=True)]
    assert not any("error" in line for line in built), built
    yield name
    client.remove_image(name)
    client.close()


def plain(project: Path) -> dict:
    return read_document(project / "orchestrator.yaml").plain()


@pytest.mark.parametrize(
    ("files", "setup", "checks"),
    [
        pytest.param(PYTHON, None, ["make test"], id="python"),
        pytest.param(NODE, ["npm ci"], ["npm test"], id="node"),
        pytest.param(GO, None, ["go test ./..."], id="go"),
        pytest.param(
            MONOREPO,
            ["npm ci"],
            ["npm test --workspaces --if-present", "cd services/ship && go test ./..."],
            id="monorepo",
        ),
        pytest.param(
            COMPOSE,
            ["python3 -m venv .venv && .venv/bin/pip install -r requirements.txt"],
            ["make check"],
            id="compose",
        ),
    ],
)
@pytest.mark.variants("monorepo")
@pytest.mark.extra
def test_written_file_is_valid_and_the_run_works(tmp_path, image, files, setup, checks):
    project = make_project(tmp_path / "project", files)
    made = orchestrator("init", "--agent-cli", "shell", "--image", image, cwd=project)
    assert (made.returncode, made.stdout) == (0, f"{project}/orchestrator.yaml\n"), made.stderr
    assert plain(project)["setup"] == setup
    assert plain(project)["checks"] == checks
    # A file with `setup` is only accepted if it is named with `--config`.
    file = ("orchestrator.yaml",) if setup else ()
    chosen = ("--config", *file) if setup else ("--agent-cli", "shell")
    assert f"`orchestrator parallel {' '.join(chosen)} --image {image} " in made.stderr
    validated = orchestrator("config", "validate", *file, cwd=project)
    assert (validated.returncode, validated.stdout) == (0, "ok\n"), validated.stderr
    run = orchestrator(
        "parallel", "echo done > done.txt", "--workers", "1", "--network", "none",
        *chosen, "--image", image, "--json", cwd=project,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    (result,) = run.json["results"]
    assert (result["status"], result["files_modified"]) == ("success", ["done.txt"])
    assert [check["exit_code"] for check in result["checks"]] == [0] * len(checks)


def test_commands_missing_in_the_image_are_comments(tmp_path):
    project = make_project(tmp_path / "project", NODE)
    made = orchestrator("init", "--agent-cli", "shell", cwd=project)
    assert made.returncode == 0
    assert plain(project)["setup"] is None
    assert "  # - npm ci\n" in (project / "orchestrator.yaml").read_text()
    assert f"{BASE_IMAGE} does not have `npm`: " in made.stderr
    client = docker.APIClient(version="auto")
    label = f"{REPOSITORY}={project / '.git'}"
    assert client.containers(all=True, filters={"label": label}) == []
    client.close()


def test_commands_that_fail_are_comments_with_the_reason(tmp_path):
    files = {**PYTHON, "Makefile": "check test:\n\tno-such-compiler shop.c\n"}
    del files["uv.lock"], files["pyproject.toml"]
    project = make_project(tmp_path / "project", files)
    made = orchestrator("init", "--agent-cli", "shell", cwd=project)
    text = (project / "orchestrator.yaml").read_text()
    assert plain(project)["checks"] == ["python3 -m unittest discover -s tests -t ."], made.stderr
    assert "  # - make test\n" in text
    assert "  # `make test` exited with 2: " in text
    assert git(project, "for-each-ref", "refs/heads/architect", "refs/orchestrator") == ""
    tried = orchestrator("config", "validate", "--try", cwd=project)
    assert (tried.returncode, tried.stdout) == (0, "ok\n"), tried.stderr
    (project / "orchestrator.yaml").write_text("checks: [make test]\n")
    tried = orchestrator("config", "validate", "--try", cwd=project)
    assert (tried.returncode, tried.stdout) == (1, "ok\n")
    assert "does not work: `make test`" in tried.stderr
    orchestrator("init", "--agent-cli", "shell", "--force", "--no-try", cwd=project)
    assert plain(project)["checks"] is None


def test_probe_of_a_killed_process_is_cleaned_up(tmp_path):
    project = make_project(tmp_path / "project", NODE)
    client = docker.APIClient(version="auto")
    labels = {MANAGED: "true", REPOSITORY: str(project / ".git"), ROLE: "probe"}
    client.create_container(BASE_IMAGE, "true", labels=labels)
    done = orchestrator("parallel-cleanup", cwd=project)
    left = client.containers(all=True, filters={"label": f"{REPOSITORY}={project / '.git'}"})
    client.close()
    assert (done.returncode, left) == (0, [])
    assert "removed 1 container" in done.stdout


def test_requested_services_are_written(tmp_path):
    project = make_project(tmp_path / "project", COMPOSE)
    made = orchestrator("init", "--services", "--no-try", "--agent-cli", "shell", cwd=project)
    assert made.returncode == 0, made.stderr
    assert "orchestrator parallel --config orchestrator.yaml" in made.stderr
    assert set(plain(project)["services"]) == {"db", "cache"}
    named = orchestrator("config", "validate", "orchestrator.yaml", cwd=project)
    assert named.returncode == 0
    assert orchestrator("config", "validate", cwd=project).returncode == 3
    plan = orchestrator(
        "parallel", "true", "--config", "orchestrator.yaml", "--dry-run", cwd=project
    )
    assert plan.returncode == 0, plan.stderr
    assert git(project, "status", "--porcelain") == "?? orchestrator.yaml"
