"""Tests of files at paths of users, where a commit or another user prepared what is there."""

import os
import stat
import threading
from pathlib import Path

import pytest

from orchestrator.base.files import output
from orchestrator.base.files.output import (
    check_output,
    create_output,
    open_to_append,
    output_directory,
    write_output,
)

NEW = b"new"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory like the top of a repository, as the current directory."""
    top = tmp_path / "repository"
    for name in ("objects", "refs", "hooks"):
        (top / ".git" / name).mkdir(parents=True)
    (top / "src").mkdir()
    monkeypatch.chdir(top)
    return top


def _append(path: Path) -> None:
    os.close(open_to_append(path))


def _export(path: Path) -> None:
    with output_directory(path):
        pass


WAYS = {
    "check": check_output,
    "write": lambda path: write_output(path, NEW),
    "create": lambda path: create_output(path, [NEW]),
    "append": _append,
    "export": _export,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("link", "target", "path"),
    [
        ("r.xml", "../outside", "r.xml"),
        ("r.xml", "src/inside", "r.xml"),
        ("r.xml", "../dangling", "r.xml"),
        ("r.xml", "r.xml", "r.xml"),
        ("r.xml", "/dev/null", "r.xml"),
        ("r.xml", ".git/hooks/pre-commit", "r.xml"),
        ("out", "..", "out/r.xml"),
        ("out", "..", "new/../out/r.xml"),
        ("out", ".git/hooks", "out/r.xml"),
        ("src/out", "../..", "src/out/r.xml"),
        ("src/out", "..", "../to-repository/src/out/r.xml"),
    ],
)
def test_no_link_of_a_repository_is_followed(
    repository: Path, way: str, link: str, target: str, path: str
) -> None:
    (repository.parent / "to-repository").symlink_to("repository")
    (repository / link).symlink_to(target)
    if way == "check":
        path = path.replace("new/../", "")  # the check does not look behind what is missing
    for given in (Path(path), repository / path):
        with pytest.raises(OSError, match=f"/{link}` is a link in a repository") as refused:
            WAYS[way](given)
        assert (refused.value.strerror or "").startswith(f"`{repository}/{link}`")
    assert {one.name for one in repository.parent.iterdir()} == {"repository", "to-repository"}
    assert [*(repository / ".git" / "hooks").iterdir()] == []
    assert (repository / link).is_symlink()


def test_no_link_is_followed_in_other_worktrees_and_in_tops_without_git(repository: Path) -> None:
    worktree, plain = repository.parent / "worktree", repository.parent / "plain"
    for top in (worktree, plain):
        top.mkdir()
        (top / "r.xml").symlink_to("../outside")
    (worktree / ".git").write_text("gitdir: elsewhere\n")
    with pytest.raises(OSError, match="is a link in a repository"):
        write_output(worktree / "r.xml", NEW)
    with pytest.raises(OSError, match="is a link in a repository"):
        write_output(plain / "r.xml", NEW, top=plain)
    assert not (repository.parent / "outside").exists()


@pytest.mark.parametrize("target", ["real.xml", "directory/real.xml"])
def test_links_outside_of_repositories_are_followed(repository: Path, target: str) -> None:
    place = repository.parent
    (place / "directory").mkdir()
    (place / "link").symlink_to(target)
    (place / "to-directory").symlink_to(place / "directory")
    (place / target).write_text("old")
    check_output(place / "link")
    write_output(Path("../link"), NEW)
    assert (place / target).read_bytes() == NEW
    assert (place / "link").is_symlink()
    write_output(place / "to-directory" / "a.xml", NEW)
    assert (place / "directory" / "a.xml").read_bytes() == NEW


def test_directory_that_becomes_a_link_meanwhile_is_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = output._lstat

    def then_replaced(name: str, folder: int) -> os.stat_result | None:
        info = found(name, folder)
        if name == "src" and not (repository / "src").is_symlink():
            (repository / "src").rmdir()
            (repository / "src").symlink_to("..")
        return info

    monkeypatch.setattr(output, "_lstat", then_replaced)
    with pytest.raises(NotADirectoryError):
        write_output(Path("src/r.xml"), NEW)
    assert {one.name for one in repository.parent.iterdir()} == {"repository"}


def test_fifo_that_becomes_another_file_meanwhile_is_refused(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, fifo = repository.parent / "victim", repository / "fifo"
    victim.write_text("theirs")
    os.mkfifo(fifo)
    found = output._check_kind

    def then_replaced(info: os.stat_result) -> None:
        found(info)
        fifo.unlink()
        fifo.hardlink_to(victim)

    monkeypatch.setattr(output, "_check_kind", then_replaced)
    with pytest.raises(OSError, match="replaced meanwhile"):
        write_output(fifo, NEW)
    assert victim.read_text() == "theirs"


@pytest.mark.parametrize(
    "path",
    [".git/config", ".git/hooks/post-merge", ".git/HEAD", ".git/Hooks/x", ".git/info/attributes",
     ".git/orchestrator/runs/x", "src/.git", "src/.GIT"],
)  # fmt: skip
def test_files_of_git_are_not_written(repository: Path, path: str) -> None:
    for way in ("check", "write", "create", "append"):
        with pytest.raises(OSError, match="git directory"):
            WAYS[way](Path(path))
    write_output(Path(".git/report.xml"), NEW)
    assert (repository / ".git" / "report.xml").read_bytes() == NEW


def test_missing_directories_are_made(repository: Path) -> None:
    check_output(Path("a/b/c.xml"))
    assert not (repository / "a").exists()
    write_output(Path("a/b/c.xml"), NEW)
    assert (repository / "a" / "b" / "c.xml").read_bytes() == NEW
    write_output(Path("x") / ("n" * 255), NEW)
    with pytest.raises(NotADirectoryError):
        check_output(Path("a/b/c.xml/d.xml"))
    with pytest.raises(IsADirectoryError):
        check_output(Path("a/.."))


def test_mode_is_kept_and_new_files_have_that_of_the_umask(repository: Path) -> None:
    before = os.umask(0o027)
    try:
        write_output(Path("a"), NEW)
        Path("b").touch()
        Path("b").chmod(0o606)
        (repository / "c").hardlink_to("b")
        write_output(Path("b"), NEW)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(Path(name).stat().st_mode) for name in "ab"]
    assert modes == [0o640, 0o606]
    assert Path("c").read_bytes() == b"", "a file that is also elsewhere is not written through"
    assert {one.name for one in repository.iterdir()} == {".git", "src", "a", "b", "c"}


@pytest.mark.usefixtures("repository")
def test_owner_is_kept() -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    Path("a").touch()
    os.chown("a", 65534, 65533)
    write_output(Path("a"), NEW)
    assert (Path("a").stat().st_uid, Path("a").stat().st_gid) == (65534, 65533)


@pytest.mark.usefixtures("repository")
def test_file_in_a_closed_directory_is_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a").write_text("long old text")

    def refuses(*_: object, **__: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(output, "replace_file", refuses)
    write_output(Path("a"), NEW)
    assert Path("a").read_bytes() == NEW
    with pytest.raises(PermissionError):
        write_output(Path("b"), NEW)


@pytest.mark.parametrize("kind", ["link", "file", "FIFO"])
def test_entries_of_other_users_in_a_directory_for_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    shared, entry, other = tmp_path / "shared", tmp_path / "shared" / "r.xml", tmp_path / "other"
    shared.mkdir()
    other.write_text("theirs")
    {"link": entry.symlink_to, "file": entry.hardlink_to, "FIFO": lambda _: os.mkfifo(entry)}[kind](
        other
    )
    shared.chmod(0o1777)
    found = output._lstat

    def of_another(name: str, folder: int) -> os.stat_result | None:
        info = found(name, folder)
        if info is None or name != "r.xml":
            return info
        return os.stat_result((*info[:4], os.geteuid() + 1, *info[5:]))

    monkeypatch.setattr(output, "_lstat", of_another)
    for way in ("check", "write"):
        with pytest.raises(OSError, match="xml` belongs to another user"):
            WAYS[way](entry)
    assert other.read_text() == "theirs"


@pytest.mark.usefixtures("repository")
def test_fifo_is_written_to_while_it_is_read() -> None:
    os.mkfifo("fifo")
    content = os.urandom(300_000)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(Path("fifo").read_bytes()))
    reader.start()
    write_output(Path("fifo"), content)
    reader.join()
    assert read == [content]
    assert stat.S_ISFIFO(Path("fifo").stat().st_mode)


@pytest.mark.usefixtures("repository")
def test_fifo_without_a_reader_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_PATIENCE", 0.2)
    os.mkfifo("fifo")
    with pytest.raises(OSError, match="no program reads the FIFO"):
        write_output(Path("fifo"), NEW)
    reader = os.open("fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(TimeoutError, match="nobody reads"):
            write_output(Path("fifo"), b"x" * 300_000)
    finally:
        os.close(reader)


@pytest.mark.usefixtures("repository")
def test_device_is_written_to() -> None:
    ours, theirs = os.openpty()
    try:
        write_output(Path(os.ttyname(theirs)), b"text\n")
        assert os.read(ours, 100) == b"text\r\n"
    finally:
        os.close(ours)
        os.close(theirs)


def test_descriptor_that_was_given_is_written_to_and_no_other(repository: Path) -> None:
    (repository / "log").write_text("before\n")
    given = os.open("log", os.O_WRONLY | os.O_APPEND)
    try:
        for path in (f"/dev/fd/{given}", f"/proc/self/fd/{given}"):
            with pytest.raises(OSError, match="started without a descriptor"):
                check_output(Path(path))
        os.set_inheritable(given, True)
        check_output(Path(f"/dev/fd/{given}"))
        write_output(Path(f"/dev/fd/{given}"), NEW)
    finally:
        os.close(given)
    assert (repository / "log").read_bytes() == b"before\nnew"
    for way in ("check", "write"):
        with pytest.raises(OSError, match="started without a descriptor 987"):
            WAYS[way](Path("/dev/fd/987"))
