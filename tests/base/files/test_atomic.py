"""Tests of files that are replaced at once: never through a link, private ones for their owner."""

import os
import resource
import signal
import stat

import pytest

from orchestrator.base.files import atomic
from orchestrator.base.files.atomic import write_atomically, write_private


def test_private_file_is_for_its_owner_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_private(path, b"newer", mode=0o400)
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_private_file_can_belong_to_another_user(tmp_path):
    owner = (65534, 65534) if os.getuid() == 0 else (os.getuid(), os.getgid())
    write_private(tmp_path / "file", b"x", owner=owner)
    info = (tmp_path / "file").stat()
    assert (info.st_uid, info.st_gid) == owner


@pytest.mark.parametrize("kind", ["link", "hard link", "FIFO"])
def test_what_has_the_name_is_replaced(tmp_path, kind):
    path, other = tmp_path / "file", tmp_path / "other"
    other.write_text("theirs")
    {"link": path.symlink_to, "hard link": path.hardlink_to, "FIFO": lambda _: os.mkfifo(path)}[
        kind
    ](other)
    write_atomically(path, "ours")
    assert (path.read_text(), other.read_text()) == ("ours", "theirs")
    assert not path.is_symlink()


@pytest.mark.parametrize("write", [write_atomically, lambda path, _: write_private(path, b"x")])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_prepared_temporary_file_is_never_written(tmp_path, monkeypatch, write, kind):
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda _: "guessed")
    prepared, other = tmp_path / ".guessed.new", tmp_path / "other"
    if kind == "link":
        prepared.symlink_to(other)
    else:
        prepared.write_text("theirs")
    with pytest.raises(FileExistsError):
        write(tmp_path / "file", "ours")
    assert not other.exists()
    assert kind == "link" or prepared.read_text() == "theirs"


def test_full_disk_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, "old")
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_atomically(path, "new" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
