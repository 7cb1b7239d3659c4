"""Tests that a run is refused if it needs too many worktrees or too much disk space."""

import re
from collections import namedtuple
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError
from orchestrator.base.events import Event, Notice
from orchestrator.config.settings.container import Isolation
from orchestrator.repository.repository import Repository
from orchestrator.runs.cleanup.inventory import Wanted
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.planning import capacity
from orchestrator.runs.runner import ParallelRunner
from orchestrator.state.run_directory import all_runs
from tests.support.errors import raises
from tests.support.local_engine import LocalEngine
from tests.support.repository import git
from tests.support.runs import branches, configured, shell_run

Usage = namedtuple("Usage", "total used free")
COMMIT = "echo done > done.txt; git add -A; git commit -qm done"
HINT = (
    "`orchestrator parallel-cleanup --merged` removes merged, clean worktrees; "
    "without `--merged` it removes the other worktrees too, and `orchestrator restore` "
    "restores them"
)


def refused(repo: Path, engine: LocalEngine, *tasks: str, **rest: object) -> ConfigError:
    before = (git(repo, "for-each-ref"), runs(repo), sorted(repo.iterdir()))
    with pytest.raises(ConfigError) as caught:
        shell_run(repo, engine, *tasks, **rest)
    assert (git(repo, "for-each-ref"), runs(repo), sorted(repo.iterdir())) == before
    return caught.value


def runs(repo: Path) -> list[str]:
    return [run.run_id for run in all_runs(Repository(repo).state_dir)]


class TestWorktrees:
    def test_runs_up_to_the_limit_start(self, repo: Path, local_engine: LocalEngine) -> None:
        shell_run(repo, local_engine, "true", "true", max_worktrees=3)
        shell_run(repo, local_engine, "true", max_worktrees=3)
        assert len(branches(repo)) == 3

    def test_refusal_lists_removable_worktrees(self, repo: Path, local_engine: LocalEngine) -> None:
        shell_run(repo, local_engine, "true", COMMIT, "true")
        (repo / ".architect-parallel-3" / "mine").write_text("x")
        (repo / ".architect-parallel-9").mkdir()
        error = refused(repo, local_engine, "true", "true", max_worktrees=5)
        told = re.sub(r"ended \d+ s ago", "ended now", error.message)
        assert told.splitlines() == [
            "there are 4 worktrees of workers; 2 more would exceed `max_worktrees`, which is 5",
            "  worker 1: ended now, merged, clean",
            "  worker 2: ended now, not merged, clean",
            "  worker 3: ended now, merged, not clean",
            "  worker 9: not in the record of any run",
        ]
        assert error.hint == HINT
        cleanup(repo, engine=None, wanted=Wanted(merged=True))
        shell_run(repo, local_engine, "true", "true", max_worktrees=5)

    def test_waiting_tasks_do_not_count(self, repo: Path, local_engine: LocalEngine) -> None:
        tasks = ("true",) * 5
        result = shell_run(repo, local_engine, *tasks, workers=2, max_worktrees=2)
        assert [one.status.value for one in result.results] == ["success"] * 5
        assert "there are 5 worktrees of workers; 1 more" in (
            refused(repo, local_engine, "true", max_worktrees=5).message
        )

    def test_worktrees_that_a_live_run_will_create_count(
        self, repo: Path, local_engine: LocalEngine
    ) -> None:
        shell_run(repo, local_engine, "true", "true")
        (run,) = all_runs(Repository(repo).state_dir)
        git(repo, "worktree", "remove", ".architect-parallel-2")
        shell_run(repo, local_engine, "true", max_worktrees=2)
        git(repo, "worktree", "remove", ".architect-parallel-3")
        (run.worker(2) / "result.json").unlink()
        with run.hold():
            error = refused(repo, local_engine, "true", max_worktrees=2)
        assert "worker 2: its run is live" in error.message

    def test_dry_run_is_refused_too(self, repo: Path, local_engine: LocalEngine) -> None:
        config = configured("true", "true", max_worktrees=1)
        with raises("worktrees.exhausted", "2 workers", "ORCHESTRATOR_MAX_WORKTREES=2"):
            ParallelRunner(config, repo, engine=local_engine).plan()

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (7199, "1 h"), (200_000, "2 d")],
    )
    def test_ages_are_rounded(self, seconds: float, text: str) -> None:
        assert capacity.round_age(seconds) == text


class TestDisk:
    @pytest.fixture
    def free(self, monkeypatch: pytest.MonkeyPatch):
        """Return a function that sets the free disk space, in addition to what every run needs."""

        def set_free(more: int) -> None:
            usage = Usage(0, 0, capacity.ROOM + more)
            monkeypatch.setattr(capacity.shutil, "disk_usage", lambda _: usage)

        return set_free

    def test_checkout_size_counts_whole_blocks(self, repo: Path) -> None:
        (repo / "big").write_bytes(b"x" * 4097)
        (repo / "odd\nname").symlink_to("a.txt")
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "big")
        assert capacity.checkout_size(Repository(repo), "HEAD") == (1 + 1 + 2 + 1) * 4096

    def test_checkout_size_is_unknown_without_all_objects(self, repo: Path) -> None:
        blob = git(repo, "rev-parse", "HEAD:a.txt")
        (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
        assert capacity.checkout_size(Repository(repo), "HEAD") is None

    def test_too_little_disk_space_is_refused(
        self, repo: Path, local_engine: LocalEngine, free
    ) -> None:
        """Two files of one block each, for two workers and, without overlays, their copies."""
        shallow = {"isolation": Isolation(network="none", history="shallow")}
        free(2 * 2 * 2 * 4096 - 1)
        error = refused(repo, local_engine, "true", "true", **shallow)
        assert error.message == (
            f"the worktrees of 2 workers need about 257 MiB of disk, but {repo} has 256 MiB free"
        )
        free(2 * 2 * 2 * 4096)
        shell_run(repo, local_engine, "true", "true", **shallow)

    def test_disk_with_the_least_space_is_named(
        self, repo: Path, tmp_path: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = tmp_path / "other"
        other.mkdir()
        monkeypatch.setattr(
            capacity.shutil, "disk_usage", lambda path: Usage(0, 0, 0 if path == other else 2**40)
        )
        error = refused(repo, local_engine, "true", worktree_dir=f"{other}/{{n}}")
        assert error.message.endswith(f"but {other} has 0 MiB free")

    def test_history_counts_once_for_all_workers(self, repo: Path, free) -> None:
        git(repo, "gc", "-q")
        objects = git(repo, "count-objects", "-v").splitlines()
        kib = sum(int(line.split()[1]) for line in objects if line.startswith(("size:", "size-p")))
        config, repository = configured("true", "true"), Repository(repo)
        free(2 * 2 * 4096 + kib * 1024 - 1)
        with pytest.raises(ConfigError):
            capacity.check_disk(repository, config, overlay=True)
        free(2 * 2 * 4096 + kib * 1024)
        capacity.check_disk(repository, config, overlay=True)


def test_run_reports_a_died_run(
    repo: Path, local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    monkeypatch.setattr("orchestrator.runs.runner.leftover_notices", lambda *_: ["run X died"])
    ParallelRunner(configured("true"), repo, engine=local_engine, emit=told.append).execute()
    assert "run X died" in [event.message for event in told if isinstance(event, Notice)]
