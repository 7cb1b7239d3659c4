"""Tests that commands on a recorded run use the run's engine, whatever the user's settings are."""

import json
import re
import sys
from pathlib import Path

import pytest

import orchestrator.engine
from orchestrator.base.errors import ConfigError, EngineUnavailableError
from orchestrator.engine import ContainerSpec, Engine, engine_of_run, load_engine
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.labels import MANAGED, REPOSITORY, ROLE, RUN
from orchestrator.engine.interface.run_engine import RunEngine
from orchestrator.faces.cli.app import run as command_line
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import all_runs
from orchestrator.state.run_outline import read_outline
from tests.support.answering_engine import AnsweringEngine
from tests.support.errors import raises
from tests.support.runs import configured

USED = RunEngine(kind="docker", id="A", address="unix:///a", version="docker 1")


class Reached(AnsweringEngine):
    """An engine that says it is Docker."""

    name = "docker"
    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> dict[str, Reached]:
    """Return the engines by address; the empty address is the one that the user chose."""
    found: dict[str, Reached] = {}

    def load(name: str, address: str = "") -> Engine:
        if address not in found:
            raise EngineUnavailableError(f"nothing at {address}", key="engine.unreachable")
        assert name == found[address].name
        return found[address]  # type: ignore[return-value]

    monkeypatch.setattr(orchestrator.engine, "load_engine", load)
    return found


def made(tmp_path: Path, name: str) -> Reached:
    return Reached(tmp_path / f"engine-{name}", id=name, address=f"unix:///{name.lower()}")


def test_engine_at_the_recorded_address_is_used(
    engines: dict[str, Reached], tmp_path: Path
) -> None:
    engines |= {"unix:///a": made(tmp_path, "A"), "": made(tmp_path, "B")}
    assert engine_of_run(USED) is engines["unix:///a"]


@pytest.mark.parametrize("there", [None, "B"])
def test_engine_that_moved_is_found_where_the_user_points(
    engines: dict[str, Reached], tmp_path: Path, there: str | None
) -> None:
    engines[""] = made(tmp_path, "A")
    if there is not None:
        engines["unix:///a"] = made(tmp_path, there)
    assert engine_of_run(USED) is engines[""]
    assert not engines[""].closed


def test_another_engine_is_refused(engines: dict[str, Reached], tmp_path: Path) -> None:
    engines |= {"unix:///a": made(tmp_path, "B"), "": made(tmp_path, "C")}
    with pytest.raises(ConfigError, match="docker 1 at `unix:///a`") as caught:
        engine_of_run(USED)
    assert caught.value.exit_code == 3
    assert "`DOCKER_HOST`" in (caught.value.hint or "")
    assert all(engine.closed for engine in engines.values())


def test_no_engine_is_unavailable(engines: dict[str, Reached]) -> None:
    assert engines == {}
    with pytest.raises(EngineUnavailableError, match="unix:///a"):
        engine_of_run(USED)


def test_run_of_an_older_version_used_docker(engines: dict[str, Reached], tmp_path: Path) -> None:
    engines[""] = made(tmp_path, "B")
    assert engine_of_run(None) is engines[""]


def test_run_records_its_engine_without_passwords(repo: Path, tmp_path: Path) -> None:
    engine = made(tmp_path, "A")
    engine.features["address"] = "tcp://me:password@there:1"
    ParallelRunner(configured("true"), repo, engine=engine).execute()
    (run,) = all_runs(repo / ".git/orchestrator")
    text = (run.path / "run.json").read_text()
    assert json.loads(text)["engine_used"] == {
        "kind": "docker", "id": "A", "address": "tcp://there:1", "version": "local 1",
        "transfer": "mounts",
    }  # fmt: skip
    assert "password" not in text


def test_record_without_an_engine_is_read(repo: Path, tmp_path: Path) -> None:
    ParallelRunner(configured("true"), repo, engine=made(tmp_path, "A")).execute()
    (run,) = all_runs(repo / ".git/orchestrator")
    record = json.loads((run.path / "run.json").read_text())
    del record["engine_used"]
    (run.path / "run.json").write_text(json.dumps(record))
    outline = read_outline(run)
    assert outline is not None
    assert outline.engine_used is None


@pytest.mark.parametrize("has_docker", [True, False])
def test_cleanup_removes_containers_from_the_engine_of_each_run(
    repo: Path, tmp_path: Path, engines: dict[str, Reached], has_docker: bool
) -> None:
    theirs, mine = made(tmp_path, "A"), made(tmp_path, "B")
    theirs.name = "docker" if has_docker else "kubernetes"
    engines |= {"unix:///a": theirs, "": mine}
    ParallelRunner(configured("true"), repo, engine=theirs).execute()
    (run,) = all_runs(repo / ".git/orchestrator")
    labels = {MANAGED: "true", RUN: run.run_id, REPOSITORY: str(repo / ".git"), ROLE: "host"}
    theirs.create(
        ContainerSpec(
            name="left", image=BASE_IMAGE, command=("true",), user="", workdir="", labels=labels
        )
    )
    report = cleanup(repo, engine=mine if has_docker else None)
    assert (report.problems, report.leftovers, len(report.workers)) == ((), 1, 1)
    assert theirs.leftovers({}) == []
    assert theirs.closed
    assert not mine.closed


def test_cleanup_says_once_which_engine_it_could_not_look_at(
    repo: Path, tmp_path: Path, engines: dict[str, Reached]
) -> None:
    for task in ("true", "echo more"):
        ParallelRunner(configured(task), repo, engine=made(tmp_path, "A")).execute()
    engines[""] = made(tmp_path, "B")
    report = cleanup(repo, engine=engines[""], dry_run=True)
    assert report.problems == cleanup(repo, engine=engines[""]).problems
    assert len(report.workers) == 2
    (problem,) = report.problems
    assert "2 runs" in problem
    assert "local 1 at `unix:///a`" in problem
    # Nothing is left of them that this cleanup could have kept.
    assert cleanup(repo, engine=engines[""]).problems == ()


def test_cleanup_names_the_way_out_if_an_engine_is_gone_for_good(
    repo: Path, tmp_path: Path, engines: dict[str, Reached], capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(repo)
    monkeypatch.setattr(
        "orchestrator.faces.cli.commands.cleanup.load_engine", lambda _: engines[""]
    )
    engine = made(tmp_path, "A")
    ParallelRunner(configured("true", workers=2), repo, engine=engine).execute()
    (run,) = all_runs(repo / ".git/orchestrator")
    (run.worker(2) / "result.json").unlink()
    for name in ("git", "copy"):
        (run.worker(2) / name).mkdir(exist_ok=True)
    # An engine that was not asked may have the work.
    (problem,) = [worker.problem for worker in cleanup(repo, engine=None).workers if worker.problem]
    assert "--purge" not in problem
    engines[""] = made(tmp_path, "B")
    said = list[str]()
    for _ in range(2):
        assert command_line(["parallel-cleanup"]) == 1
        said.append(capsys.readouterr().err)
        assert (repo / ".architect-parallel-2").exists()
    assert [text.count(run.run_id) for text in said] == [2, 2]
    (way,) = re.findall("`orchestrator (parallel-cleanup [^`]+)`", said[-1])
    assert command_line(way.split()) == 1
    assert not (repo / ".architect-parallel-2").exists()
    assert command_line(["parallel-cleanup"]) == 0


def test_engine_without_its_package_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("orchestrator.engine.kubernetes")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    with raises("engine.needs-package", "`kubernetes`", "worktree-orchestrator[kubernetes]"):
        load_engine("kubernetes")
