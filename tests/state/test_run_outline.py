"""Lists of runs read only a part of each run's record."""

import json
from pathlib import Path

import pytest

from orchestrator.repository.repository import Repository
from orchestrator.state.record.history import choose_run
from orchestrator.state.record.listing import list_runs
from orchestrator.state.run_directory import RunDirectory, all_runs
from orchestrator.state.run_outline import read_outline
from orchestrator.state.run_record import read_record, require_record
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.runs import shell_run


@pytest.fixture
def newer(repo: Path, local_engine: LocalEngine) -> RunDirectory:
    """A run whose settings contain a key that this version does not know."""
    shell_run(repo, local_engine, "true")
    (run,) = all_runs(repo / ".git" / "orchestrator")
    file = run.path / "run.json"
    record = json.loads(file.read_text())
    record["config"]["from_a_newer_version"] = 1
    file.write_text(json.dumps(record))
    return run


def test_a_run_of_a_newer_version_is_listed(newer: RunDirectory, repo: Path) -> None:
    outline = read_outline(newer)
    assert outline is not None
    assert [spec.task for spec in outline.workers] == ["true"]
    assert [run.run_id for run in list_runs(Repository(repo)).runs] == [newer.run_id]


def test_the_settings_of_a_newer_version_are_refused(newer: RunDirectory) -> None:
    assert read_record(newer) is None
    with raises("run.unreadable"):
        require_record(newer)


def test_run_without_a_readable_record_is_not_said_to_lack_a_worker(
    newer: RunDirectory, repo: Path
) -> None:
    (newer.path / "run.json").write_text("{")
    with raises("run.unreadable"):
        choose_run(list(all_runs(repo / ".git" / "orchestrator")), newer.run_id, worker=1)
