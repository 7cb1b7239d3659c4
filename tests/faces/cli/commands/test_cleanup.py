"""Tests of the output and exit codes of `parallel-cleanup` and `restore`."""

from datetime import timedelta

import pytest

from orchestrator.base.errors import EngineUnavailableError
from orchestrator.faces.cli.app import run
from orchestrator.faces.cli.commands import cleanup as command
from orchestrator.runs.cleanup.inventory import Wanted
from orchestrator.runs.cleanup.report import CleanedWorker, CleanupReport
from orchestrator.runs.cleanup.restore import RestoredWorker

NOTHING = CleanupReport(workers=(), live=(), leftovers=0)


class Engine:
    """An engine that can only be closed."""

    closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def engine(monkeypatch) -> Engine:
    engine = Engine()
    monkeypatch.setattr(command, "load_engine", lambda _: engine)
    return engine


@pytest.fixture
def record_arguments(monkeypatch):
    """Replace the cleanup by a function that records its arguments and returns a report."""

    def reply(report: CleanupReport) -> dict:
        seen: dict = {}

        def clean_up(root, **record_arguments) -> CleanupReport:
            seen.update(record_arguments, root=root)
            return report

        monkeypatch.setattr(command, "clean_up", clean_up)
        return seen

    return reply


def cleaned(number: int, **rest) -> CleanedWorker:
    return CleanedWorker(
        run_id="R",
        worker_id=number,
        branch=f"architect/parallel-{number}",
        worktree=f"/repo/.architect-parallel-{number}",
        **rest,
    )


def test_options_become_arguments_of_cleanup(repository, engine, record_arguments):
    seen = record_arguments(NOTHING)
    assert run(["parallel-cleanup", "2", "3", "--run", "R", "--purge", "--dry-run"]) == 0
    assert seen == {
        "root": repository, "engine": engine, "wanted": Wanted(workers=(2, 3)), "run_id": "R",
        "purge": True, "dry_run": True,
    }  # fmt: skip
    assert engine.closed


@pytest.mark.usefixtures("repository", "engine")
@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("90s", timedelta(seconds=90)),
        ("15m", timedelta(minutes=15)),
        ("6h", timedelta(hours=6)),
        ("2d", timedelta(days=2)),
    ],
)
def test_older_than_is_parsed(record_arguments, text, age):
    seen = record_arguments(NOTHING)
    assert run(["parallel-cleanup", "--older-than", text, "--merged"]) == 0
    assert seen["wanted"] == Wanted(merged=True, older_than=age)


@pytest.mark.usefixtures("repository", "engine")
@pytest.mark.parametrize("text", ["", "6", "h", "1.5h", "-1h", "6 h", "6w", "9" * 40 + "d"])
def test_invalid_age_is_refused(record_arguments, text, capsys):
    seen = record_arguments(NOTHING)
    assert run(["parallel-cleanup", "--older-than", text]) == 3
    assert not seen
    said = capsys.readouterr().err
    assert said.startswith(f"error: `--older-than` must be an age, not `{text}`\n\nhint: use ")


@pytest.mark.usefixtures("repository", "engine")
class TestReport:
    def test_removed_objects_are_printed(self, record_arguments, capsys):
        record_arguments(CleanupReport(
            workers=(cleaned(1), cleaned(2, backup="refs/orchestrator/backup/R/2")),
            live=("L",), leftovers=2, purged=("refs/orchestrator/backup/O/1",),
        ))  # fmt: skip
        assert run(["parallel-cleanup"]) == 0
        shown = capsys.readouterr()
        assert shown.out == (
            "removed worker 1: /repo/.architect-parallel-1, architect/parallel-1\n"
            "removed worker 2: /repo/.architect-parallel-2, architect/parallel-2\n"
            "  kept as refs/orchestrator/backup/R/2, restore with: orchestrator restore 2 --run R\n"
            "removed 2 containers, networks and volumes\n"
            "dropped refs/orchestrator/backup/O/1\n"
        )
        assert shown.err == "run L is still running: not removed\n"

    def test_dry_run_prints_what_would_be_removed(self, record_arguments, capsys):
        record_arguments(CleanupReport(workers=(cleaned(1),), live=(), leftovers=1))
        assert run(["parallel-cleanup", "--dry-run"]) == 0
        assert capsys.readouterr().out == (
            "would remove worker 1: /repo/.architect-parallel-1, architect/parallel-1\n"
            "would remove 1 container, network or volume\n"
        )

    def test_worker_that_could_not_be_removed_exits_1(self, record_arguments, capsys):
        record_arguments(
            CleanupReport(workers=(cleaned(1, problem="busy\x1b[31m"),), live=(), leftovers=0)
        )
        assert run(["parallel-cleanup"]) == 1
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == (
            "", "worker 1 was not removed: busy\ufffd[31m\n"
        )  # fmt: skip

    def test_engine_object_that_could_not_be_removed_exits_1(self, record_arguments, capsys):
        record_arguments(
            CleanupReport(workers=(), live=(), leftovers=0, problems=("container c: stuck\x1b",))
        )
        assert run(["parallel-cleanup"]) == 1
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("", "not removed: container c: stuck\ufffd\n")

    def test_nothing_to_clean_up_is_reported(self, record_arguments, capsys):
        record_arguments(NOTHING)
        assert run(["parallel-cleanup"]) == 0
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("", "nothing to clean up\n")


@pytest.mark.usefixtures("repository")
def test_without_engine_everything_else_is_cleaned(record_arguments, monkeypatch, capsys):
    def load(_: str) -> None:
        raise EngineUnavailableError("no engine", key="engine.unreachable", hint="start it")

    monkeypatch.setattr(command, "load_engine", load)
    report = CleanupReport(workers=(cleaned(1),), live=(), leftovers=0, unchecked=("R",))
    seen = record_arguments(report)
    assert run(["parallel-cleanup"]) == 7
    assert seen["engine"] is None
    shown = capsys.readouterr()
    assert shown.out.startswith("removed worker 1")
    assert shown.err == (
        "without the container engine, containers of dead runs cannot be removed\n"
        "error: no engine\n\nhint: start it\n"
    )


@pytest.mark.usefixtures("repository")
def test_without_engine_and_without_runs_exits_0(monkeypatch, capsys):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    assert run(["parallel-cleanup"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith(
        "nothing to clean up\nthe container engine was not checked: cannot connect"
    )


@pytest.mark.process
def test_outside_a_repository_nothing_is_cleaned(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["parallel-cleanup"]) == 0
    assert capsys.readouterr().err == "nothing to clean up: this is not a git repository\n"
    assert run(["parallel-cleanup", "--run", "R"]) == 3
    assert run(["parallel-cleanup", "1"]) == 3


@pytest.mark.parametrize("number", ["0", "-1", "x"])
@pytest.mark.usefixtures("repository")
def test_invalid_worker_number_is_refused(number):
    assert run(["parallel-cleanup", "--", number]) == 3


def test_restored_worker_is_printed(repository, monkeypatch, capsys):
    worker = RestoredWorker(run_id="R", worker_id=2, branch="b", worktree="/w")

    def bring_back(root, **record_arguments) -> tuple[RestoredWorker, ...]:
        assert (root, record_arguments) == (repository, {"workers": (2,), "run_id": "R"})
        return (worker,)

    monkeypatch.setattr("orchestrator.runs.cleanup.restore.restore", bring_back)
    assert run(["restore", "2", "--run", "R"]) == 0
    assert capsys.readouterr().out == "restored worker 2: b in /w\n"
