"""Tests of the harvest's git commands in the container, and of their errors."""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.repository.git.failures import disk_full
from orchestrator.worker.in_container.host_git import DiskFullError, HostGit, Places, write_pack
from tests.support.repository import git, make_repository


def host_git(repo: Path, out: Path) -> HostGit:
    objects = str(repo / ".git" / "objects")
    return HostGit(Places(str(repo), str(repo), str(repo / ".git"), objects, str(out)))


def test_full_disk_is_named_when_a_pack_is_written(repo: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "pack").symlink_to("/dev/full")
    base = git(repo, "rev-parse", "HEAD")
    (repo / "file").write_text("new\n")
    git(repo, "add", "file")
    git(repo, "commit", "-qm", "new")
    host = host_git(repo, out)
    with pytest.raises(DiskFullError) as caught:
        write_pack(host, "pack", tip=git(repo, "rev-parse", "HEAD"), base=base)
    assert disk_full(str(caught.value))


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A repository on a disk with room for one file, but not for its git object."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "disk", disk], check=True)
    try:
        repo = make_repository(disk / "repo")
        (repo / "new.txt").write_bytes(bytes(range(256)) * 256)
        with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(4096))
        yield repo
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("command", ["add new.txt", "read-tree -m HEAD"])
def test_full_disk_is_distinguished_from_other_git_errors(
    full_disk: Path, tmp_path: Path, command: str
) -> None:
    with pytest.raises(DiskFullError):
        host_git(full_disk, tmp_path).run(*command.split())
