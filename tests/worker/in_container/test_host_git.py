"""How the harvest runs git, and what it says when git fails."""

from pathlib import Path

import pytest

from orchestrator.git.disk_full import disk_full
from orchestrator.worker.in_container.host_git import HostGit, Places, write_pack
from tests.support.repository import git


def test_a_full_disk_is_in_the_last_line(repo: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "pack").symlink_to("/dev/full")
    base = git(repo, "rev-parse", "HEAD")
    (repo / "file").write_text("new\n")
    git(repo, "add", "file")
    git(repo, "commit", "-qm", "new")
    objects = str(repo / ".git" / "objects")
    host = HostGit(Places(str(repo), str(repo), str(repo / ".git"), objects, str(out)))
    with pytest.raises(RuntimeError) as caught:
        write_pack(host, "pack", tip=git(repo, "rev-parse", "HEAD"), base=base)
    assert disk_full(str(caught.value).rpartition("\n")[2])
