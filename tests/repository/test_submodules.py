"""Tests that submodules are found on this machine or reported; nothing is fetched or run."""

from functools import partial
from pathlib import Path

import pytest

from orchestrator.repository.checkouts.submodules import Submodules, ready_submodules
from orchestrator.repository.objects.object_packs import pack_commit
from orchestrator.repository.repository import Repository
from orchestrator.runs.runner import ParallelRunner
from tests.support.local_engine import LocalEngine
from tests.support.repository import git, make_repository
from tests.support.runs import configured
from tests.support.submodules import LOCAL, with_submodules

ABSENT = "workers get empty directories for submodules that are not on this machine: {}; fetch "


@pytest.fixture
def repo(tmp_path: Path, home: Path) -> Path:  # noqa: ARG001
    return with_submodules(tmp_path / "repo")


def ready(repo: Path, objects: Path, base: str = "HEAD") -> Submodules:
    objects.mkdir(exist_ok=True)
    repository = Repository(repo)
    return ready_submodules(
        repository, repository.resolve(base), objects, partial(pack_commit, history="full")
    )


def paths(found: Submodules) -> list[str]:
    return [one.path for one in found.found]


def test_each_submodule_has_its_own_objects(repo: Path, tmp_path: Path) -> None:
    found = ready(repo, tmp_path / "objects")
    assert (paths(found), found.notices) == (["vendor/lib", "vendor/lib/deep"], ())
    for one in found.found:
        pack = tmp_path / "objects" / "submodules" / str(one.number) / "pack"
        (index,) = pack.glob("*.idx")
        assert one.commit in git(repo, "verify-pack", "-v", str(index))


def test_submodules_are_prepared_once_per_run(repo: Path, tmp_path: Path) -> None:
    found = ready(repo, tmp_path / "objects")
    (repo / ".git" / "modules").rename(tmp_path / "elsewhere")
    assert ready(repo, tmp_path / "objects") == found


def test_incomplete_objects_are_packed_again(repo: Path, tmp_path: Path) -> None:
    half = tmp_path / "objects" / "submodules" / "0" / "pack"
    half.mkdir(parents=True)
    (half / "pack-half.pack").write_text("half")
    found = ready(repo, tmp_path / "objects")
    assert paths(found) == ["vendor/lib", "vendor/lib/deep"]
    assert not (half / "pack-half.pack").exists()


def test_missing_submodule_causes_a_notice(repo: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repo), str(clone))
    found = ready(clone, tmp_path / "objects")
    assert found.found == ()
    (notice,) = found.notices
    assert notice.startswith(ABSENT.format("vendor/lib"))
    assert list((tmp_path / "objects").iterdir()) == []


def test_missing_nested_submodule_causes_a_notice(repo: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repo), str(clone))
    git(clone, *LOCAL, "submodule", "--quiet", "update", "--init")
    found = ready(clone, tmp_path / "objects")
    assert paths(found) == ["vendor/lib"]
    (notice,) = found.notices
    assert notice.startswith(ABSENT.format("vendor/lib/deep"))


def test_missing_commit_of_a_submodule_causes_a_notice(repo: Path, tmp_path: Path) -> None:
    git(repo, "update-index", "--cacheinfo", f"160000,{'1' * 40},vendor/lib")
    git(repo, "commit", "-qm", "moved on")
    (notice,) = ready(repo, tmp_path / "objects").notices
    assert notice.startswith(ABSENT.format("vendor/lib"))


def test_submodules_are_found_from_a_linked_worktree(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    found = ready(tmp_path / "linked", tmp_path / "objects")
    assert paths(found) == ["vendor/lib", "vendor/lib/deep"]


def test_changes_in_a_submodule_cause_a_notice(repo: Path, local_engine: LocalEngine) -> None:
    (repo / "vendor" / "lib" / "a.txt").write_text("edited\n")
    notices: list[str] = []
    runner = ParallelRunner(
        configured("true"), repo, engine=local_engine,
        emit=lambda event: notices.append(str(getattr(event, "message", ""))),
    )  # fmt: skip
    runner.execute()
    told = "workers do not see the uncommitted changes in submodules: vendor/lib"
    assert told in notices


@pytest.mark.parametrize("name", ["..", "a/../../x", ".git", ""])
def test_unsafe_submodule_name_is_ignored(repo: Path, tmp_path: Path, name: str) -> None:
    text = f'[submodule "{name}"]\n\tpath = vendor/lib\n\turl = x\n'
    (repo / ".gitmodules").write_text(text)
    git(repo, "commit", "-qam", "names")
    assert ready(repo, tmp_path / "objects") == Submodules()


def test_configured_programs_of_a_submodule_do_not_run(repo: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    lib = repo / ".git" / "modules" / "the vendor" / "lib"
    for key in ("core.fsmonitor", "core.hooksPath", "diff.external", "core.sshCommand"):
        git(repo, "config", "--file", str(lib / "config"), key, str(program))
    (repo / "vendor" / "lib" / "a.txt").write_text("edited\n")
    assert paths(ready(repo, tmp_path / "objects")) == ["vendor/lib", "vendor/lib/deep"]
    assert not ran.exists()


def test_repository_without_submodules(tmp_path: Path, home: Path) -> None:  # noqa: ARG001
    repo = make_repository(tmp_path / "plain")
    assert ready(repo, tmp_path / "objects") == Submodules()
    assert list((tmp_path / "objects").iterdir()) == []
