"""Tests of the commit of a checkout's uncommitted changes."""

from pathlib import Path

from orchestrator.base.results import Status
from orchestrator.repository.repository import BASES
from orchestrator.runs.cleanup.inventory import Wanted
from orchestrator.runs.cleanup.remove import cleanup
from orchestrator.runs.runner import ParallelRunner
from tests.support.local_engine import LocalEngine
from tests.support.repository import fingerprint, git
from tests.support.runs import configured, shell_run, show


def held(repo: Path) -> list[str]:
    return git(repo, "for-each-ref", "--format=%(refname) %(objectname)", BASES).splitlines()


def test_snapshot_is_kept_until_the_last_worker_is_removed(
    repo: Path, local_engine: LocalEngine
) -> None:
    (repo / "a.txt").write_text("edited\n")
    result = shell_run(repo, local_engine, "true", "true", include_uncommitted=True)
    assert held(repo) == [f"{BASES}{result.run_id} {result.base}"]
    cleanup(repo, engine=local_engine, wanted=Wanted(workers=(1,)), dry_run=True)
    cleanup(repo, engine=local_engine, wanted=Wanted(workers=(1,)))
    assert len(held(repo)) == 1
    cleanup(repo, engine=local_engine)
    assert held(repo) == []


def test_snapshot_contains_every_kind_of_change(repo: Path, local_engine: LocalEngine) -> None:
    git(repo, "rm", "-q", "src/app.py")
    (repo / "a.txt").unlink()
    (repo / "staged").write_text("staged\n")
    git(repo, "add", "staged")
    (repo / "staged").write_text("edited since\n")
    (repo / "untracked dir").mkdir()
    (repo / "untracked dir" / "ä").write_text("u\n")
    before = fingerprint(repo)
    result = shell_run(repo, local_engine, "true", include_uncommitted=True)
    assert fingerprint(repo) == before
    listed = git(repo, "ls-tree", "-r", "--name-only", "-z", result.base).split("\0")
    assert listed == ["staged", "untracked dir/ä", ""]
    assert show(repo, f"{result.base}:staged") == "edited since"


def test_nested_repository_causes_a_notice(repo: Path, local_engine: LocalEngine) -> None:
    git(repo, "init", "-q", "deep/nested")
    (repo / "new").write_text("new\n")
    config = configured("ls", include_uncommitted=True)
    runner = ParallelRunner(config, repo, engine=local_engine)
    notice = "workers do not see the contents of `deep/nested`, which is a separate repository"
    assert runner.plan().notices == (notice,)
    result = runner.execute()
    assert result.status is Status.SUCCESS
    listed = git(repo, "ls-tree", "-r", "--name-only", result.base).splitlines()
    assert listed == ["a.txt", "new", "src/app.py"]
