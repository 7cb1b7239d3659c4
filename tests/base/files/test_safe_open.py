"""Tests that only regular files are opened."""

import os
from pathlib import Path

import pytest

from orchestrator.base.files.safe_open import NotRegularError, open_regular, read_limited


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"text"


def test_path_is_relative_to_the_given_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with open_regular("file", folder=folder) as file:
            assert file.read() == b"text"
    finally:
        os.close(folder)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(tmp_path / "link")


@pytest.mark.timeout(90)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_special_files_are_refused_and_closed(tmp_path: Path, make) -> None:
    make(tmp_path / "odd")
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(NotRegularError, match=r"the file is not a regular file: .*odd"):
        open_regular(tmp_path / "odd")
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_device_is_refused() -> None:
    with pytest.raises(NotRegularError):
        open_regular("/dev/null")


def test_missing_file_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


def test_an_error_says_why_a_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 2048)
    assert len(read_limited(tmp_path / "file", most=2048)) == 2048
    with pytest.raises(OSError, match="larger") as caught:
        read_limited(tmp_path / "file", most=2047)
    assert caught.value.strerror == "the file is larger than 1 KiB"
    with pytest.raises(NotRegularError) as caught:
        read_limited(tmp_path, most=1)
    assert caught.value.strerror == "the file is not a regular file"
