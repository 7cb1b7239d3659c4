"""Tests of the wheel, the source archive and the dev container feature, far from any checkout."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path
from zipfile import ZipFile

import pytest

from orchestrator.base.text.version import __version__
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.faces.cli.command_table import read_commands
from tests.docs.markdown import ROOT

DISTRIBUTION = "worktree_orchestrator"
FEATURE = ROOT / "devcontainer" / "orchestrator"


def built(source: Path, target: Path, kind: str) -> Path:
    """Build a wheel or a source archive, and return its path."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory"]
    subprocess.run([*command, str(target)], cwd=source, check=True, capture_output=True)
    (file,) = target.glob(f"{DISTRIBUTION}-*")
    return file


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's packages alone; its dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("installed")
    with ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(installed: Path, *words: str, where: Path, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *words], cwd=where, text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(installed), **(env or {})}, check=True,
    )  # fmt: skip
    return done.stdout


def test_wheel_has_two_commands_and_every_extra(installed: Path) -> None:
    (info,) = installed.glob("*.dist-info")
    points = ConfigParser()
    points.read_string((info / "entry_points.txt").read_text())
    assert set(points["console_scripts"]) == {"orchestrator", "orch"}
    assert len(set(points["console_scripts"].values())) == 1
    lines = (info / "METADATA").read_text().splitlines()
    assert {"Provides-Extra: ui", "Name: worktree-orchestrator"} <= {*lines}


def test_wheel_has_the_recipes_of_all_images(installed: Path, tmp_path: Path) -> None:
    program = (
        "from orchestrator.engine.images import recipes\n"
        "print(recipes.build_files(), recipes.base_recipe())\n"
        "for agent in recipes.INSTALLERS: print(recipes.agent_recipe(agent, ''))\n"
    )

    def printed(path: Path) -> list[str]:
        command = [sys.executable, "-c", program]
        env = {**os.environ, "PYTHONPATH": str(path)}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=True)
        return done.stdout.decode().split()

    place, *hashes = printed(installed)
    assert place == str(installed / "orchestrator" / "_images")
    checkout, *of_checkout = printed(ROOT)
    assert checkout == str(ROOT)
    assert hashes == of_checkout
    assert len(hashes) > 5


def test_wheel_has_man_pages_and_completion_scripts(installed: Path) -> None:
    (data,) = installed.glob("*.data")
    shared = data / "data" / "share"
    pages = {path.name for path in (shared / "man" / "man1").iterdir()}
    paths = [row.path.split() for row in read_commands()]
    assert pages == {"orch.1", *("-".join(["orchestrator", *words]) + ".1" for words in paths)}
    for place in ("bash-completion/completions/orchestrator", "zsh/site-functions/_orchestrator",
                  "fish/vendor_completions.d/orchestrator.fish"):  # fmt: skip
        assert "parallel-cleanup" in (shared / place).read_text()


def test_no_message_of_the_wheel_names_a_checkout(installed: Path) -> None:
    words = ("make setup", "a clone of orchestrator", "/path/to/checkout")
    sources = [path for path in (installed / "orchestrator").rglob("*.py") if path.is_file()]
    assert len(sources) > 500
    found = {
        str(path.relative_to(installed))
        for path in sources
        if any(word in path.read_text() for word in words)
    }
    assert found == set()


def test_program_without_arguments_prints_help(installed: Path, tmp_path: Path) -> None:
    assert run(installed, where=tmp_path) == run(installed, "--help", where=tmp_path)


@pytest.mark.extra
def test_source_archive_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    archive = built(ROOT, tmp_path / "sdist", "sdist")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    again = built(source, tmp_path / "again", "wheel")

    def names(file: Path) -> set[str]:
        with ZipFile(file) as members:
            return {*members.namelist()}

    assert names(again) == names(wheel)


def test_every_manifest_has_the_version_of_the_package() -> None:
    manifests = (FEATURE / "devcontainer-feature.json", ROOT / ".claude-plugin" / "plugin.json")
    assert {json.loads(path.read_text())["version"] for path in manifests} == {__version__}


def test_feature_gets_neither_an_engine_nor_privileges_by_itself() -> None:
    feature = json.loads((FEATURE / "devcontainer-feature.json").read_text())
    assert feature["id"] == FEATURE.name
    assert {*feature} == {"id", "version", "name", "description", "options", "installsAfter"}
    for option in feature["options"].values():
        assert {*option} == {"type", "proposals", "default", "description"}
        assert option["type"] == "string"
        assert isinstance(option["default"], str)


def install_feature(
    wheel: Path, command: str, **options: str
) -> "subprocess.CompletedProcess[str]":
    """Install the feature from a wheel in a container without network; then run a command."""
    environment = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_FIND_LINKS": "/wheel", **options}
    given = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
    return subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "--user", "0", *given,
         "-v", f"{FEATURE}:/feature:ro", "-v", f"{wheel.parent}:/wheel:ro", BASE_IMAGE,
         "sh", "-c", f"sh /feature/install.sh; code=$?; {command}; exit $code"],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.mark.docker
@pytest.mark.extra
def test_feature_installs_both_commands(wheel: Path) -> None:
    listed = "readlink -e /usr/local/bin/orchestrator /usr/local/bin/orch"
    done = install_feature(wheel, listed, VERSION=__version__, EXTRAS="mcp,ui")
    assert done.returncode == 0, done.stderr
    places = [line for line in done.stdout.splitlines() if line.startswith("/opt/")]
    assert places == [f"/opt/worktree-orchestrator/bin/{name}" for name in ("orchestrator", "orch")]


@pytest.mark.docker
@pytest.mark.parametrize(
    "options",
    [{"VERSION": "1; touch /evil"}, {"VERSION": "1 -r/x"}, {"VERSION": ""}, {"EXTRAS": "ui] /x #"}],
)
def test_feature_refuses_options_that_are_none(wheel: Path, options: dict[str, str]) -> None:
    done = install_feature(wheel, "ls /evil /opt/worktree-orchestrator", **options)
    assert done.returncode == 3, done.stdout
    assert done.stderr.startswith("error: ")
    assert done.stdout == ""
