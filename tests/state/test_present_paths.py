"""Tests that a moved or copied repository shows present paths in results of earlier runs."""

import json
import shutil
from pathlib import Path

import pytest

from orchestrator.faces.cli.app import run
from orchestrator.repository.repository import Repository
from orchestrator.runs.resuming.resume import ResumedRun
from orchestrator.state.run_directory import all_runs
from tests.support.local_engine import LocalEngine
from tests.support.runs import shell_run


@pytest.mark.parametrize("way", ["moved", "copied"])
@pytest.mark.parametrize("command", ["wait", "watch"])
def test_results_have_the_present_paths(
    repo: Path,
    local_engine: LocalEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    way: str,
) -> None:
    shell_run(repo, local_engine, "echo x > x")
    place = tmp_path / "elsewhere" / "shop"
    place.parent.mkdir()
    shutil.copytree(repo, place, symlinks=True) if way == "copied" else repo.rename(place)
    monkeypatch.chdir(place)
    capsys.readouterr()
    assert run([command]) == 0
    said = "".join(capsys.readouterr())
    assert f"{place}/.architect-parallel-1" in said
    assert str(repo) not in said.replace(str(place), "")


def test_json_of_a_moved_run_names_files_that_exist(
    repo: Path,
    local_engine: LocalEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell_run(repo, local_engine, "echo x > x", checks=["true"])
    repo.rename(tmp_path / "shop")
    monkeypatch.chdir(tmp_path / "shop")
    (found,) = all_runs(Repository(Path.cwd()).state_dir)
    (resumed,) = ResumedRun(found, engine=local_engine).execute().results
    capsys.readouterr()
    assert run(["wait", "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["results"]
    assert resumed.log == one["log"]
    assert (Path(one["log"]) / "stdout.log").exists()
    assert (Path(one["worktree_path"]) / "x").exists()
    assert [Path(check["log"]).exists() for check in one["checks"]] == [True]
