"""Tests of the collection of findings and artifacts, without following links."""

import os
import signal
import socket
import subprocess
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.base.text.redact import Redactor
from orchestrator.worker.workspace.artifacts import (
    MOST_FINDINGS,
    MOST_LISTED,
    Handover,
    copy_collected,
    findings,
    make_place,
    take,
)

USER = (os.getuid(), os.getgid())
NOBODY = Redactor()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the directory that a worker writes to."""
    return make_place(tmp_path / "worker", USER)


@contextmanager
def soon(seconds: int = 60) -> Iterator[None]:
    """Fail instead of blocking forever on a FIFO."""

    def late(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def taken(place: Path, redactor: Redactor = NOBODY) -> Handover:
    with soon():
        return take(place.parent, redactor)


def test_findings_and_artifacts_are_kept(place: Path) -> None:
    (place / "findings.md").write_text("- slow table\n")
    (place / "artifacts" / "deep" / "er").mkdir(parents=True)
    (place / "artifacts" / "report.html").write_text("r")
    (place / "artifacts" / "deep" / "er" / "run.sh").write_text("#!/bin/sh\n")
    (place / "artifacts" / "deep" / "er" / "run.sh").chmod(0o6711)
    (place / "notes.txt").write_text("neither the one nor the other")
    root = place.parent
    assert taken(place) == Handover(("deep/er/run.sh", "report.html"))
    assert findings(root) == "- slow table\n"
    assert (root / "artifacts" / "report.html").read_text() == "r"
    assert sorted(path.name for path in root.iterdir()) == ["artifacts", "findings.md"]
    assert (root / "artifacts" / "deep" / "er" / "run.sh").stat().st_mode & 0o7777 == 0o755
    assert (root / "artifacts" / "report.html").stat().st_mode & 0o7777 == 0o644


def test_collection_may_be_repeated(place: Path) -> None:
    (place / "findings.md").write_text("first\n")
    (place / "artifacts" / "a").write_text("a")
    first = taken(place)
    # A process that takes over the run creates the directory again.
    again = make_place(place.parent, USER)
    (again / "findings.md").write_text("nobody's\n")
    (again / "artifacts" / "b").write_text("b")
    assert taken(again) == first == Handover(("a",))
    assert findings(place.parent) == "first\n"


def test_interrupted_collection_is_continued(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "findings.md").write_text("first\n")
    (place / "artifacts" / "a").write_text("a")
    os.mkfifo(place / "artifacts" / "fifo")
    with monkeypatch.context() as cut:
        cut.setattr("orchestrator.worker.workspace.artifacts._cleaned", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            taken(place)
    make_place(place.parent, USER)
    assert taken(place) == Handover(
        ("a",), ("1 of the worker's artifacts were not regular files and were left out",)
    )
    assert findings(place.parent) == "first\n"


def test_existing_directory_is_kept(place: Path) -> None:
    (place / "findings.md").write_text("mine")
    assert (make_place(place.parent, USER) / "findings.md").read_text() == "mine"


def test_without_files_nothing_is_collected(place: Path, tmp_path: Path) -> None:
    assert taken(place) == Handover()
    assert findings(place.parent) == ""
    assert take(tmp_path / "never was", NOBODY) == Handover()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.mkdir()


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(path.parent)
        one.bind(path.name)
        os.chdir(here)


def _link(path: Path) -> None:
    secret = path.parent.parent / "of-the-host"
    if not secret.exists():
        secret.write_text("private")
    path.symlink_to(secret)


PLANTED = (_fifo, _directory, _socket, _link)


@pytest.mark.parametrize("plant", PLANTED)
def test_special_file_as_findings_is_left_out(place: Path, plant: Callable[[Path], None]) -> None:
    plant(place / "findings.md")
    assert taken(place).notes == ("the worker's `findings.md` is not a readable file",)
    assert findings(place.parent) == ""
    assert not place.exists()


@pytest.mark.parametrize("plant", [_fifo, _socket, _link])
def test_special_files_among_artifacts_are_removed(
    place: Path, plant: Callable[[Path], None]
) -> None:
    plant(place / "artifacts" / "planted")
    (place / "artifacts" / "fine").write_text("f")
    handed = taken(place)
    assert handed.artifacts == ("fine",)
    assert handed.notes == ("1 of the worker's artifacts were not regular files and were left out",)
    assert [path.name for path in (place.parent / "artifacts").iterdir()] == ["fine"]


def _folder(path: Path) -> None:
    folder = path.parent.parent / "folder-of-the-host"
    folder.mkdir()
    path.symlink_to(folder)


@pytest.mark.parametrize("plant", [_fifo, _socket, _link, _folder])
def test_special_file_as_artifacts_is_left_out(place: Path, plant: Callable[[Path], None]) -> None:
    (place / "artifacts").rmdir()
    plant(place / "artifacts")
    assert taken(place) == Handover((), ("the worker's `artifacts` is not a directory",))
    assert not os.path.lexists(place.parent / "artifacts")


def test_link_to_a_directory_of_the_host_is_not_followed(place: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("private")
    (outside / "file").chmod(0o600)
    (place / "artifacts" / "out").symlink_to(outside)
    assert taken(place).artifacts == ()
    assert (outside / "file").stat().st_mode & 0o7777 == 0o600


def test_deeply_nested_directories_are_left_out(place: Path) -> None:
    here = Path.cwd()
    os.chdir(place / "artifacts")
    try:
        for _ in range(700):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(here)
    (place / "artifacts" / "fine").write_text("f")
    handed = taken(place)
    assert handed == Handover(
        ("fine",), ("1 of the worker's artifacts had too long a path and were left out",)
    )
    assert not place.exists()


def test_directories_without_permissions_are_collected(place: Path) -> None:
    locked = place / "artifacts" / "locked"
    locked.mkdir()
    (locked / "file").write_text("f")
    (locked / "file").chmod(0)
    for path in (locked, place / "artifacts", place):
        path.chmod(0)
    assert taken(place).artifacts == ("locked/file",)
    assert (place.parent / "artifacts" / "locked" / "file").read_text() == "f"


def test_long_findings_are_truncated(place: Path) -> None:
    (place / "findings.md").write_text("x" * (MOST_FINDINGS + 1))
    os.truncate(place / "findings.md", 100 * 1024**2)
    tracemalloc.start()
    notes = taken(place).notes
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * 1024**2
    assert notes == ("the worker's findings are longer than 64 KiB: the rest was left out",)
    assert len(findings(place.parent)) == MOST_FINDINGS


def test_a_sparse_artifact_stays_sparse(place: Path) -> None:
    (place / "artifacts" / "big").touch()
    os.truncate(place / "artifacts" / "big", 10 * 1024**3)
    assert taken(place).artifacts == ("big",)
    assert (place.parent / "artifacts" / "big").stat().st_blocks == 0


def test_findings_are_redacted_and_made_harmless(place: Path) -> None:
    redactor = Redactor({"TOKEN": b"hunter2hunter2"})
    (place / "findings.md").write_bytes(b"\x1b]0;x\x07token hunter2hunter2 \xff\0end\n")
    taken(place, redactor)
    assert findings(place.parent) == ("\ufffd]0;x\ufffdtoken [redacted:TOKEN] \ufffd\ufffdend\n")


def test_secret_at_the_limit_is_redacted(place: Path) -> None:
    redactor = Redactor({"TOKEN": b"hunter2hunter2"})
    text = b"x" * (MOST_FINDINGS - 7) + b"hunter2hunter2"
    (place / "findings.md").write_bytes(text)
    taken(place, redactor)
    assert "hunter2" not in findings(place.parent)


def test_number_of_listed_artifacts_is_bounded(place: Path) -> None:
    for number in range(MOST_LISTED + 5):
        (place / "artifacts" / f"{number:04}").touch()
    handed = taken(place)
    assert len(handed.artifacts) == MOST_LISTED
    assert handed.notes == (f"only {MOST_LISTED} of the worker's artifacts are listed",)


def test_name_that_is_not_utf8_is_escaped(place: Path) -> None:
    (place / "artifacts" / os.fsdecode(b"a\xff")).touch()
    assert taken(place).artifacts == ("a\\xff",)


class TestCopies:
    """Copies of artifacts to a directory that the user named."""

    def test_files_keep_their_places_contents_and_executability(self, tmp_path: Path) -> None:
        top = tmp_path / "worker" / "artifacts"
        (top / "deep").mkdir(parents=True)
        (top / "deep" / "run.sh").write_text("x")
        (top / "deep" / "run.sh").chmod(0o755)
        (top / ".coverage.1").write_bytes(b"\0\xff" * 1000)
        copy_collected(tmp_path / "worker", tmp_path / "out" / "worker-1")
        copied = tmp_path / "out" / "worker-1"
        assert (copied / "deep" / "run.sh").stat().st_mode & 0o111
        assert (copied / ".coverage.1").read_bytes() == b"\0\xff" * 1000
        assert not (copied / ".coverage.1").stat().st_mode & 0o111

    def test_worker_without_artifacts_gets_no_directory(self, tmp_path: Path) -> None:
        (tmp_path / "worker").mkdir()
        copy_collected(tmp_path / "worker", tmp_path / "out" / "worker-1")
        assert not (tmp_path / "out").exists()

    def test_links_among_artifacts_are_not_followed(self, tmp_path: Path) -> None:
        top = tmp_path / "worker" / "artifacts"
        top.mkdir(parents=True)
        (tmp_path / "secret").write_text("of the host")
        (top / "link").symlink_to(tmp_path / "secret")
        (top / "folder").symlink_to(tmp_path)
        os.mkfifo(top / "fifo")
        (top / "real").write_text("x")
        with soon():
            copy_collected(tmp_path / "worker", tmp_path / "out")
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["real"]

    @pytest.mark.parametrize("prepared", ["out", "out/deep", "out/deep/file"])
    def test_links_that_a_commit_prepared_are_not_followed(
        self, repo: Path, tmp_path: Path, prepared: str
    ) -> None:
        (tmp_path / "worker" / "artifacts" / "deep").mkdir(parents=True)
        (tmp_path / "worker" / "artifacts" / "deep" / "file").write_text("of a worker")
        target = tmp_path / "elsewhere"
        (target / "deep").mkdir(parents=True)
        victim = target / "deep" / "file"
        victim.write_text("of the user")
        (repo / prepared).parent.mkdir(parents=True, exist_ok=True)
        (repo / prepared).symlink_to(
            {"out": target, "out/deep": target / "deep"}.get(prepared, victim)
        )
        with pytest.raises(OSError, match=r"link|exists"):
            copy_collected(tmp_path / "worker", repo / "out")
        assert victim.read_text() == "of the user"

    def test_existing_file_is_not_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "worker" / "artifacts").mkdir(parents=True)
        (tmp_path / "worker" / "artifacts" / "file").write_text("new")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "file").write_text("old")
        with pytest.raises(FileExistsError):
            copy_collected(tmp_path / "worker", tmp_path / "out")
        assert (tmp_path / "out" / "file").read_text() == "old"

    @pytest.mark.parametrize("below", [".git", ".GIT", "deep/.git", "", "deep/mirror.git"])
    def test_repositories_among_artifacts_execute_nothing(
        self, place: Path, tmp_path: Path, below: str
    ) -> None:
        fake = place / "artifacts" / below
        for name, content in {
            "HEAD": "ref: refs/heads/main\n",
            "objects/kept": "",
            "refs/kept": "",
            "config": f"[core]\nbare = false\nworktree = .\nfsmonitor = touch {tmp_path}/ran;\n",
            "report.xml": "<testsuite/>",
        }.items():
            (fake / name).parent.mkdir(parents=True, exist_ok=True)
            (fake / name).write_text(content)
        handover = taken(place)
        copy_collected(place.parent, tmp_path / "out")
        for folder in (tmp_path / "out").rglob("*"):
            if folder.is_dir():
                subprocess.run(["git", "status"], cwd=folder, capture_output=True, check=False)
        subprocess.run(["git", "status"], cwd=tmp_path, capture_output=True, check=False)
        assert not (tmp_path / "ran").exists()
        assert "were parts of git repositories" in "".join(handover.notes)

    def test_pointer_to_a_repository_is_left_out(self, place: Path) -> None:
        (place / "artifacts" / ".git").write_text("gitdir: elsewhere\n")
        (place / "artifacts" / "HEAD").write_text("an ordinary file")
        assert taken(place).artifacts == ("HEAD",)

    def test_file_that_cannot_be_copied_does_not_stop_the_others(self, tmp_path: Path) -> None:
        top = tmp_path / "worker" / "artifacts"
        names = [f"{number}" for number in range(20)]
        top.mkdir(parents=True)
        for name in names:
            (top / name).write_text("new")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "7").write_text("old")
        with pytest.raises(FileExistsError):
            copy_collected(tmp_path / "worker", tmp_path / "out")
        assert {path.name for path in (tmp_path / "out").iterdir()} == {*names}
        assert (tmp_path / "out" / "7").read_text() == "old"

    @pytest.mark.parametrize("below", ["", "deep/.git/"])
    def test_repository_that_an_earlier_version_collected_is_not_copied(
        self, tmp_path: Path, below: str
    ) -> None:
        top = tmp_path / "worker" / "artifacts"
        for name in ("plain", f"{below}HEAD", f"{below}config", f"{below}objects/x"):
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_text("x")
        with pytest.raises(PermissionError, match="git"):
            copy_collected(tmp_path / "worker", tmp_path / "out")
        assert (tmp_path / "out" / "plain").exists()
        assert not [*(tmp_path / "out").rglob("HEAD")]
