"""How the files of a pod's parts arrive."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.engine.places.in_place import incoming
from orchestrator.engine.places.in_place.archive import END
from orchestrator.engine.places.in_place.incoming import (
    Measurements,
    _note_full,
    append,
    beat,
    keeps_forking,
    measure,
    unpack_part,
    watch,
)
from orchestrator.engine.places.part_files import archive_of

_USER = 20_301
_ALONE = 1_800_000_000 + os.getpid()
"""A user without other processes on this machine."""
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs files of another owner")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "own"
    parts = {}
    for name in ("tree", "pointer"):
        volume = tmp_path / name
        volume.mkdir()
        parts[name] = str(volume / "files")
    (tmp_path / "tree" / "files").mkdir()
    (tmp_path / "pointer" / "file").touch()
    root.mkdir()
    usage = tmp_path / "usage"
    usage.mkdir()
    described = {"parts": parts, "usage": str(usage), "limited": {"agent": ["tree"]}}
    (root / "spec.json").write_text(json.dumps(described))
    return root


def send(root: Path, name: str, source: Path, *, known: str) -> None:
    data = b"".join([*archive_of(source, "files" if source.is_dir() else ""), END])
    for at in range(0, len(data), 1000):
        append(str(root), name, at, data[at : at + 1000])
    unpack_part(str(root), name, str(len(data)), hashlib.sha256(data).hexdigest(), known)


def test_files_take_the_place_of_earlier_ones_and_the_directory_stays(
    root: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "d" / "f").write_text("1")
    (source / "gone").write_text("1")
    (source / "link").symlink_to("/etc/passwd")
    source.chmod(0o751)
    files = tmp_path / "tree" / "files"
    inode = files.stat().st_ino
    send(root, "tree", source, known="1")
    (files / "mount").touch()
    (source / "gone").unlink()
    (source / "d" / "f").write_text("2")
    send(root, "tree", source, known="2")
    assert (files.stat().st_ino, files.stat().st_mode & 0o777) == (inode, 0o751)
    assert {path.name for path in files.iterdir()} == {"d", "link", "mount"}
    assert (files / "d" / "f").read_text() == "2"
    assert (files / "link").readlink() == Path("/etc/passwd")
    assert [path.name for path in (tmp_path / "tree").iterdir()] == ["files"]


def test_a_single_file_keeps_its_inode(root: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "pointer" / "file"
    source.write_text("gitdir: /git\n")
    inode = target.stat().st_ino
    send(root, "pointer", source, known="1")
    assert (target.read_text(), target.stat().st_ino) == ("gitdir: /git\n", inode)


def test_altered_and_incomplete_files_are_refused(root: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    append(str(root), "tree", 0, b"x")
    with pytest.raises(ValueError, match="completely"):
        unpack_part(str(root), "tree", "1", hashlib.sha256(b"y").hexdigest(), "1")
    with pytest.raises(ValueError, match="earlier"):
        append(str(root), "tree", 5, b"x")
    # A piece that is sent again takes the place of the first one.
    append(str(root), "tree", 0, b"zz")
    send(root, "tree", source, known="1")


@needs_root
def test_what_is_mounted_in_a_part_is_not_replaced(root: Path, tmp_path: Path) -> None:
    source, pointer = tmp_path / "source", tmp_path / "tree" / "files" / ".git"
    source.mkdir()
    (source / ".git").write_text("of this machine")
    pointer.write_text("mounted")
    os.chown(pointer, 12345, 12345)
    send(root, "tree", source, known="1")
    assert pointer.read_text() == "mounted"


@needs_root
@pytest.mark.process
def test_files_in_read_only_directories_are_replaced(root: Path, tmp_path: Path) -> None:
    """As the steps' user, who has no right to ignore the modes of files."""
    source, files = tmp_path / "source", tmp_path / "tree" / "files"
    (source / "d").mkdir(parents=True)
    for text in ("1", "2"):
        for path in (source / "f", source / "d" / "f"):
            path.unlink(missing_ok=True)
            path.write_text(text)
            path.chmod(0o400)
            path.parent.chmod(0o500)
        program = (
            "import sys; from pathlib import Path\n"
            "from tests.engine.in_place.test_incoming import send\n"
            "send(Path(sys.argv[1]), 'tree', Path(sys.argv[2]), known=sys.argv[3])"
        )
        subprocess.run(
            [
                *("setpriv", "--bounding-set", "-dac_override,-dac_read_search"),
                *(sys.executable, "-c", program, root, source, text),
            ],
            check=True,
            cwd=Path(__file__).parents[3],
        )
        assert [(files / name).read_text() for name in ("f", "d/f")] == [text, text]
        assert [path.stat().st_mode & 0o777 for path in (files, files / "d")] == [0o500, 0o500]


class Clock:
    """Stands in for the module `time`: sleeping takes no time, and the wall clock is late."""

    def __init__(self, later: Callable[[float], None] = lambda _: None) -> None:
        self.slept = self.stopped = 0.0
        self._later = later
        """Called with the seconds that were slept."""

    def monotonic(self) -> float:
        return self.slept + self.stopped

    def time(self) -> float:
        return time.time() - 3600

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self._later(self.slept)


def test_what_was_measured_long_ago_does_not_count(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tree" / "files" / "f").write_bytes(b"x" * 100_000)
    measure(str(root))
    clock = Clock()
    monkeypatch.setattr(incoming, "time", clock)
    made = Measurements(str(tmp_path / "usage"), "agent")
    # The clock of this machine was set, which says nothing.
    for moment in (1, time.time() + 10**6):
        os.utime(tmp_path / "usage" / "agent.json", (moment, moment))
        for _ in range(100):
            assert made.last().size >= 100_000
            clock.sleep(1)
    # This process was stopped, as the other one may have been.
    clock.stopped = 10**6
    assert made.last().size >= 100_000
    clock.sleep(10)
    made.last()
    clock.sleep(10)
    with pytest.raises(TimeoutError):
        made.last()
    os.utime(tmp_path / "usage" / "agent.json")
    assert made.last().size >= 100_000


@pytest.mark.variants("porter died", "never began")
@pytest.mark.parametrize(
    ("beats", "over", "stopped", "end"),
    [
        ([range(300)], 999, 999, 420),
        ([range(50), range(150, 300)], 300, 999, 300),
        ([range(300)], 300, 100, 300),
        ([range(300)], 200, 999, 200),
        ([], 999, 999, 120),
    ],
    ids=["porter died", "porter was still", "both were stopped", "porter ended", "never began"],
)
def test_files_stay_as_long_as_the_porter(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    beats: list[range],
    over: int,
    stopped: int,
    end: int,
) -> None:
    described = json.loads((root / "spec.json").read_text())
    (root / "spec.json").write_text(json.dumps({**described, "processes": {}}))
    usage = tmp_path / "usage"

    def later(slept: float) -> None:
        before, clock.stopped = clock.stopped, 3600 if slept >= stopped else 0
        # After a stop of both, the porter may be the later one to go on.
        if clock.stopped == before and any(int(slept) in seconds for seconds in beats):
            beat(str(usage))
            os.utime(usage / "porter", (slept, slept))
        if slept >= over:
            beat(str(usage), is_last=True)

    clock = Clock(later)
    monkeypatch.setattr(incoming, "time", clock)
    watch(str(root))
    assert end - 2 <= clock.slept <= end + 2


@needs_root
def test_no_step_hides_files_from_the_measurement(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "tree" / "files" / "closed"
    closed.mkdir()
    (closed / "f").write_bytes(b"x" * 100_000)
    closed.chmod(0)
    for path in (tmp_path, *tmp_path.rglob("*")):
        os.chown(path, _USER, _USER)
    # Only the last part of a path may need to be searched by an ordinary user.
    monkeypatch.chdir(tmp_path)
    described = (root / "spec.json").read_text().replace(f"{tmp_path}/", "")
    (root / "spec.json").write_text(described)
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setgid(_USER)
        os.setuid(_USER)
        measure("own")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert Measurements(str(tmp_path / "usage"), "agent").last().size >= 100_000


@needs_root
def test_user_with_as_many_processes_as_a_step_may_start_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is that no further process can be started, several measurements in a row."""
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, Path("own"), Path("usage")):
        folder.mkdir(exist_ok=True)
        os.chown(folder, _ALONE, _ALONE)
    spec = {"usage": "usage", "processes": {"agent": 4, "harvest": 5}}
    Path("own/spec.json").write_text(json.dumps(spec))
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setgid(_ALONE)
        os.setuid(_ALONE)
        sleepers = [os.posix_spawn("/bin/sleep", ["sleep", "60"], {}) for _ in range(3)]
        seen = []
        for _ in range(5):
            seen.append(keeps_forking(Path("usage"), "agent"))
            _note_full("own")
        seen += [keeps_forking(Path("usage"), step) for step in ("agent", "harvest")]
        os.kill(sleepers[0], signal.SIGKILL)
        os.waitpid(sleepers[0], 0)
        _note_full("own")
        seen.append(keeps_forking(Path("usage"), "agent"))
        for sleeper in sleepers[1:]:
            os.kill(sleeper, signal.SIGKILL)
        os._exit(0 if seen == [*[False] * 5, True, False, False] else 1)
    assert os.waitpid(child, 0)[1] == 0
