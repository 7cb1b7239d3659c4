"""Tests of the wheel and the source archive, unpacked far from any checkout."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path
from zipfile import ZipFile

import pytest

from orchestrator.cli.command_table import read_commands
from tests.docs.markdown import ROOT

DISTRIBUTION = "worktree_orchestrator"


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
