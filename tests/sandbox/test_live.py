"""Tests of sandboxes that stay: commands, files, time, and what ends them."""

import io
import subprocess
import sys
import tarfile
import textwrap
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.base.errors import ConfigError, ImageNotFoundError, NotRunningError
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.labels import MANAGED, SANDBOX
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.sandbox.expire import end
from orchestrator.sandbox.live.box import Sandbox
from orchestrator.sandbox.live.files import Files
from orchestrator.sandbox.live.process import Process
from orchestrator.sandbox.models import EndReason, Finished, SandboxLimits, Template
from tests.support.live import eventually

pytestmark = pytest.mark.usefixtures("homes")
SMALL = Template(
    limits=SandboxLimits(memory="64m", cpus=1, pids=32, disk="20m", log_limit="256k", grace=0.2),
    env={"A": "template"},
)
_SPIN = "import time\nt = time.process_time\nwhile t() < 0.5: pass"


def _containers(engine: ContainerEngine, id: str) -> list[str]:
    return [left.id for left in engine.leftovers({MANAGED: "true", SANDBOX: id})]


@pytest.fixture
def box(docker_engine: DockerEngine) -> Iterator[Sandbox]:
    with Sandbox.create(SMALL, engine=docker_engine, ttl=300, labels={"test": "live"}) as box:
        yield box
    assert _containers(docker_engine, box.id) == []


@pytest.mark.docker
def test_commands_run_with_input_variables_directory_and_limits(box: Sandbox) -> None:
    done = box.run(["sh", "-c", "cat; echo $A $B; pwd; exit 7"], stdin=b"in\n", env={"B": "b"})
    assert (done.exit_code, done.reason) == (7, EndReason.EXITED)
    assert done.stdout == b"in\ntemplate b\n/workspace\n"
    assert box.run(["pwd"], cwd="/tmp").stdout == b"/tmp\n"  # the sandbox's
    assert box.run(["cat"]).stdout == b""
    assert box.run(["cat"], stdin=b"x" * 200_000).stdout == b"x" * 200_000
    assert box.run(["no-such-command"]).exit_code == 127
    assert b"Read-only" in box.run(["touch", "/x"]).stderr
    spun = box.run([*("python3", "-c"), _SPIN])
    assert spun.cpu_time is not None
    assert 0.5 <= spun.cpu_time < 1.0
    assert spun.peak_memory is None
    assert spun.uncounted is not None


@pytest.mark.docker
def test_each_end_has_its_reason(box: Sandbox) -> None:
    slow = box.run(["sh", "-c", "sleep 60 & sleep 60"], timeout=0.5)
    assert (slow.reason, slow.wall < 15) == (EndReason.TIMEOUT, True)
    silent = box.run(["sleep", "60"], idle_timeout=0.5)
    assert silent.reason is EndReason.IDLE
    loud = box.run(["yes"], output_limit="64k")
    assert (loud.reason, loud.truncated, len(loud.stdout)) == (EndReason.OUTPUT, True, 64 * 1024)
    greedy = box.run(["python3", "-c", "bytearray(300 * 2**20)"])
    assert (greedy.reason, greedy.exit_code) == (EndReason.OOM, 137)
    assert box.run(["sh", "-c", "kill -9 $$"]).reason is EndReason.EXITED
    # Nothing of the stopped commands is left.
    left = box.run(["sh", "-c", "cat /proc/[0-9]*/comm"]).stdout.split()
    assert b"yes" not in left
    assert left.count(b"sleep") == 1


@pytest.mark.docker
def test_started_command_takes_input_and_signals_and_its_output_is_read_again(
    box: Sandbox,
) -> None:
    process = box.start(["sh"])
    process.write(b"echo one; echo two >&2\n")
    assert process.output("stdout", timeout=20) == b"one\n"
    assert process.output("stderr", timeout=20) == b"two\n"
    process.write(b"echo three\n")
    assert process.output("stdout", 4, timeout=20) == b"three\n"
    process.close_stdin()
    assert process.wait(20).ok
    trap = box.start(
        ["sh", "-c", "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.1; done"]
    )
    trap.output(timeout=20)
    trap.signal("SIGINT")
    done = trap.wait(20)
    assert (done.exit_code, done.stdout) == (5, b"ready\ncaught\n")
    asleep = box.start(["sleep", "60"])
    with pytest.raises(TimeoutError):
        asleep.wait(0.1)
    asleep.kill()
    assert asleep.wait(20).reason is EndReason.KILLED


@pytest.mark.docker
def test_files_are_written_read_listed_moved_and_removed(box: Sandbox) -> None:
    files = box.files
    files.write("a/b c.txt", b"hello", mode=0o600)
    files.write("/workspace/a/-n", bytes(range(256)) * 100)
    assert files.read("a/b c.txt") == b"hello"
    assert files.read("/workspace/a/-n") == bytes(range(256)) * 100
    files.write("a/b c.txt", b"other")
    assert files.read("a/b c.txt") == b"other"
    info = files.stat("a/b c.txt")
    assert (info.name, info.kind, info.size) == ("b c.txt", "file", 5)
    files.make_dir("a/dir")
    box.run(["sh", "-c", "ln -s /etc/passwd a/link; mkfifo a/fifo; printf x > 'a/new\nline'"])
    kinds = {info.name: info.kind for info in files.list("a")}
    assert kinds == {
        "b c.txt": "file", "-n": "file", "dir": "directory", "link": "link", "fifo": "special",
        "new\nline": "file",
    }  # fmt: skip
    assert files.read("a/link") == box.run(["cat", "/etc/passwd"]).stdout
    files.move("a/b c.txt", "a/moved")
    assert files.read("a/moved") == b"other"
    with pytest.raises(FileNotFoundError):
        files.read("a/b c.txt")
    with pytest.raises(IsADirectoryError):
        files.read("a/dir")
    with pytest.raises(IsADirectoryError):
        files.write("a/dir", b"")
    with pytest.raises(NotADirectoryError):
        files.list("a/moved")
    with pytest.raises(OSError, match="Invalid argument"):
        files.read("a/fifo")
    with pytest.raises(OSError, match="larger"):
        files.read("a/-n", limit=100)


@pytest.mark.docker
def test_directories_are_copied_in_and_out(box: Sandbox, tmp_path: Path) -> None:
    files, content = box.files, bytes(range(256)) * 100
    files.write("a/-n", content)
    files.write("a/moved", b"other")
    files.make_dir("a/dir")
    box.run(["sh", "-c", "ln -s /etc/passwd a/link; mkfifo a/fifo"])
    files.download("a", tmp_path / "out")
    assert (tmp_path / "out" / "-n").read_bytes() == content
    assert (tmp_path / "out" / "dir").is_dir()
    assert not (tmp_path / "out" / "link").exists()
    (tmp_path / "out" / "own link").symlink_to("nowhere")
    files.upload(tmp_path / "out", "copy")
    assert files.stat("copy/own link").kind == "link"
    assert files.read("copy/-n") == content
    # Outside of the workspace, and through a link, the sandbox packs the files itself.
    box.run(["sh", "-c", "cp -r a /tmp/a; ln -s /tmp/a aside; ln -s /etc/passwd /tmp/a/l"])
    for number, path in enumerate(("/tmp/a", "aside", "aside/../a")):  # the sandbox's
        files.download(path, tmp_path / f"out{number}")
        assert (tmp_path / f"out{number}" / "moved").read_bytes() == b"other"
        assert not (tmp_path / f"out{number}" / "l").exists()
    # `..` is that of the sandbox, never of this machine.
    box.run(["mkdir", "/tmp/control"])
    files.write("/tmp/control/inner", b"")
    files.download("../tmp/control", tmp_path / "up")
    assert [path.name for path in (tmp_path / "up").iterdir()] == ["inner"]
    for path in ("../control", "a/../../control"):
        with pytest.raises(FileNotFoundError):
            files.download(path, tmp_path / path.replace("/", "-"))
    for path in ("a", "/tmp/a"):  # the sandbox's
        with pytest.raises(OSError, match=r"more than|exceed"):
            files.download(path, tmp_path / f"small{path.count('/')}", limit=1000)
    with pytest.raises(FileNotFoundError):
        files.download("missing", tmp_path / "missing")
    files.remove("a")
    files.remove("a")
    assert [info.name for info in files.list()] == ["aside", "copy"]
    with pytest.raises(OSError, match="NUL"):
        files.read("a\0b")


@pytest.mark.docker
def test_snapshot_begins_other_sandboxes(box: Sandbox, docker_engine: DockerEngine) -> None:
    box.run(["sh", "-c", "mkdir d; echo text > d/f; chmod 755 d/f; ln -s d/f link; mkfifo p"])
    assert box.snapshot("ready") == "ready"
    box.files.write("d/f", b"later")
    with pytest.raises(ConfigError) as refused:
        box.snapshot("ready")
    assert refused.value.key == "sandbox.snapshot-exists"
    with pytest.raises(ConfigError):
        box.snapshot("../up")
    with Sandbox.create(snapshot="ready", engine=docker_engine, env={"B": "own"}) as fork:
        done = fork.run(["sh", "-c", "cat link; ls -A; test -x d/f && echo $A$B; touch d/new"])
        assert done.stdout == b"text\nd\nlink\nown\n"
        assert done.ok, done
    assert [snapshot.name for snapshot in Sandbox.snapshots()] == ["ready"]
    Sandbox.remove_snapshot("ready")
    assert Sandbox.snapshots() == []
    with pytest.raises(NotRunningError):
        Sandbox.create(snapshot="ready", engine=docker_engine)


@pytest.mark.docker
def test_paused_sandbox_stands_still(box: Sandbox) -> None:
    process = box.start(["sh", "-c", "while :; do echo; sleep 0.05; done"])
    process.output(timeout=20)
    box.pause()
    with pytest.raises(NotRunningError):
        box.run(["true"])
    before = len(process.output())
    with pytest.raises(TimeoutError):
        process.wait(1)
    assert len(process.output()) <= before + 1
    box.resume()
    box.resume()
    assert process.output(offset=before + 1, timeout=20)
    process.kill()
    assert box.run(["true"]).ok


@pytest.mark.docker
def test_too_much_on_disk_ends_the_sandbox(docker_engine: DockerEngine) -> None:
    with Sandbox.create(SMALL, engine=docker_engine) as box:
        done = box.run(["sh", "-c", "head -c 99m /dev/zero > a; sleep 60"])
        assert done.reason is EndReason.DISK
        assert done.message is not None
        with pytest.raises(NotRunningError):
            box.run(["true"])


@pytest.mark.docker
def test_sandbox_is_found_by_its_labels_and_by_another_process(
    box: Sandbox, docker_engine: DockerEngine
) -> None:
    box.files.write("a", b"kept")
    (info,) = Sandbox.list({"test": "live"})
    assert info.id == box.id
    assert 200 < info.expires_in <= 300
    assert Sandbox.list({"test": "other"}) == []
    again = Sandbox.connect(box.id, engine=docker_engine)
    assert again.files.read("a") == b"kept"
    assert again.labels == {"test": "live"}
    again.extend(500)
    assert box.expires_in > 400
    # Who was told to end it finds that it was extended.
    assert end([box.id]) == 0
    process = box.start(["sleep", "60"])
    assert box.run(["true"]).ok
    again.kill()
    assert not process.wait(30).ok
    with pytest.raises(NotRunningError):
        Sandbox.connect(box.id, engine=docker_engine)
    with pytest.raises(NotRunningError):
        box.extend(10)


@pytest.mark.docker
def test_sandbox_ends_at_its_time_without_its_client(
    docker_engine: DockerEngine, homes: Path
) -> None:
    program = textwrap.dedent("""
        from orchestrator.sandbox.live.box import Sandbox
        box = Sandbox.create(ttl=6)
        print(box.id, flush=True)
        box.start(["sleep", "300"])
    """)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    id = done.stdout.strip()
    eventually(lambda: not (homes / id).exists(), "the end of the sandbox")
    assert _containers(docker_engine, id) == []


@pytest.mark.docker
def test_command_in_an_expired_sandbox_says_so(docker_engine: DockerEngine) -> None:
    box = Sandbox.create(SMALL, engine=docker_engine, ttl=5)
    assert box.run(["sleep", "60"]).reason is EndReason.EXPIRED
    box.kill()


@pytest.mark.docker
def test_several_threads_use_one_sandbox(box: Sandbox) -> None:
    found = {}

    def work(number: int) -> None:
        box.files.write(f"f{number}", b"%d" % number)
        found[number] = box.run(["cat", f"f{number}"]).stdout

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: b"%d" % number for number in range(4)}


@pytest.mark.docker
def test_wrong_settings_are_errors_and_leave_nothing(
    docker_engine: DockerEngine, homes: Path
) -> None:
    with pytest.raises(ImageNotFoundError):
        Sandbox.create(image="no/such:image", engine=docker_engine)
    with pytest.raises(ConfigError):
        Sandbox.create(SMALL, image="orchestrator/base:latest", engine=docker_engine)
    with pytest.raises(ConfigError):
        Sandbox.create(ttl=0, engine=docker_engine)
    assert not homes.exists() or not any(path.is_dir() for path in homes.iterdir())


@pytest.mark.fast
@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_archive_of_a_sandbox_stays_in_its_directory(name: str, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = 4
        archive.addfile(member, io.BytesIO(b"evil"))

    def answers(*_: object, **__: object) -> Finished:
        return Finished(exit_code=0, reason=EndReason.EXITED, stdout=packed.getvalue())

    def starts(*_: object, **__: object) -> Process:
        raise AssertionError("nothing is uploaded")

    with suppress(tarfile.FilterError):
        Files(answers, starts, None).download("d", tmp_path / "deep" / "out")
    assert not (tmp_path / "deep" / "x").exists()
    assert not Path("/x").exists()
