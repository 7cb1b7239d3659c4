"""Tests of private files: for their owner only, replaced at once, and never through a link."""

import os
import stat

import pytest

from orchestrator.files.atomic import write_private


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


def test_what_a_dead_process_or_an_attacker_left_is_replaced(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / ".file.new").symlink_to(elsewhere)
    write_private(tmp_path / "file", b"secret")
    assert not elsewhere.exists()
    assert (tmp_path / "file").read_bytes() == b"secret"


def test_file_that_appears_meanwhile_is_not_written(tmp_path, monkeypatch):
    (tmp_path / ".file.new").write_bytes(b"theirs")
    monkeypatch.setattr("pathlib.Path.unlink", lambda *_, **__: None)
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "file", b"secret")
    assert (tmp_path / ".file.new").read_bytes() == b"theirs"


def test_private_file_can_belong_to_another_user(tmp_path):
    owner = (65534, 65534) if os.getuid() == 0 else (os.getuid(), os.getgid())
    write_private(tmp_path / "file", b"x", owner=owner)
    info = (tmp_path / "file").stat()
    assert (info.st_uid, info.st_gid) == owner
