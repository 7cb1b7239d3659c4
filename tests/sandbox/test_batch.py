"""Tests of submissions: what a command gets, how it ends, what is left of it."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestrator.base.errors import ImageNotFoundError
from orchestrator.engine.interface.labels import MANAGED, SANDBOX
from orchestrator.engine.interface.protocol import ContainerEngine
from orchestrator.sandbox.batch import run_all
from orchestrator.sandbox.models import (
    EndReason,
    Finished,
    SandboxLimits,
    Submission,
    Template,
)
from orchestrator.sandbox.supervision.cancel import Cancel
from tests.support.live import eventually

pytestmark = pytest.mark.usefixtures("homes")
SMALL = Template(
    limits=SandboxLimits(memory="64m", cpus=1, pids=64, disk="20m", log_limit="64k", grace=0.2)
)
_FORKS = "import os, time\nwhile True:\n  try: os.fork()\n  except OSError: time.sleep(1)"
_MEMORY = "bytearray(300 * 2**20)"


def _run(engine: ContainerEngine, *submissions: Submission, **options: object) -> list[Finished]:
    found = run_all(submissions, template=SMALL, engine=engine, **options)  # type: ignore[arg-type]
    return sorted(found, key=lambda finished: finished.id)


def test_command_gets_its_files_input_and_variables(engine: ContainerEngine, homes: Path) -> None:
    asked = Submission(
        id="7",
        command=("sh", "-c", "cat; cat a/b.txt; echo $A >&2; mkdir out; echo done > out/x; exit 3"),
        files={"a/b.txt": b"file\n"},
        stdin=b"input\n",
        env={"A": "1"},
        out=("out/x", "missing"),
    )
    (found,) = _run(engine, asked)
    assert (found.id, found.exit_code, found.reason) == ("7", 3, EndReason.EXITED)
    assert (found.stdout, found.stderr) == (b"input\nfile\n", b"1\n")
    assert found.files == {"out/x": b"done\n"}
    assert not found.ok
    assert not found.truncated
    assert [path.name for path in homes.iterdir() if path.is_dir()] == []
    if engine.name == "local":
        # No other test uses this engine.
        assert engine.leftovers({MANAGED: "true"}) == []


def test_command_without_input_reads_the_end(engine: ContainerEngine) -> None:
    (found,) = _run(engine, Submission(command=("cat",), timeout=20))
    assert (found.exit_code, found.stdout) == (0, b"")
    assert found.ok


def test_slow_command_is_stopped_with_all_that_it_started(
    engine: ContainerEngine,
) -> None:
    command = ("sh", "-c", "sleep 60 & sleep 60")
    (found,) = _run(engine, Submission(command=command, timeout=0.5))
    assert found.reason is EndReason.TIMEOUT
    assert 0.5 <= found.wall < 15
    assert found.message is not None


def test_too_much_output_ends_the_command(engine: ContainerEngine) -> None:
    (found,) = _run(engine, Submission(command=("yes",), timeout=30))
    assert found.reason is EndReason.OUTPUT
    assert found.truncated
    assert len(found.stdout) == 64 * 1024


@pytest.mark.docker
def test_each_limit_has_its_reason(docker_engine: ContainerEngine) -> None:
    found = _run(
        docker_engine,
        Submission(id="disk", command=("sh", "-c", "head -c 99m /dev/zero > a; sleep 30")),
        Submission(id="none", command=("no-such-command",)),
        Submission(id="oom", command=("python3", "-c", _MEMORY)),
        Submission(id="pids", command=("python3", "-c", _FORKS)),
        Submission(id="who", command=("sh", "-c", "id -u; touch /x; cat /proc/net/route")),
    )
    disk, none, oom, pids, who = found
    assert [disk.reason, oom.reason, pids.reason] == [
        EndReason.DISK,
        EndReason.OOM,
        EndReason.PIDS,
    ]
    assert (none.exit_code, none.reason) == (127, EndReason.EXITED)
    assert oom.exit_code == 137
    assert oom.peak_memory == 64 * 1024**2
    assert int(who.stdout.split()[0]) >= min(os.getuid() or 30_000, 30_000)
    assert b"Read-only file system" in who.stderr
    assert who.cpu_time is not None


def test_links_in_the_workspace_are_not_followed(engine: ContainerEngine) -> None:
    script = "ln -s /etc/passwd a; mkdir d; ln -s /etc d/e; mkfifo f; echo fine > g"
    asked = Submission(command=("sh", "-c", script), out=("a", "d/e/passwd", "f", "g"))
    (found,) = _run(engine, asked)
    assert found.files == {"g": b"fine\n"}


@pytest.mark.fast
@pytest.mark.parametrize("name", ["../a", "/etc/passwd", "a/../../b", "", "a\0b", "/workspace"])
def test_files_outside_the_workspace_are_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        Submission(command=("true",), files={name: b""})
    with pytest.raises(ValidationError):
        Submission(command=("true",), out=(name,))


def test_results_come_as_they_end_and_submissions_are_read_as_needed(
    engine: ContainerEngine, homes: Path
) -> None:
    read: list[str] = []

    def endless() -> Iterator[Submission]:
        for number in range(10**6):
            read.append(str(number))
            yield Submission(id=str(number), command=("sleep", "60" if number == 0 else "0"))

    results = run_all(endless(), template=SMALL, at_once=2, engine=engine)
    first = [next(results).id for _ in range(3)]
    assert first == ["1", "2", "3"]
    assert len(read) <= 6
    results.close()
    assert [path.name for path in homes.iterdir() if path.is_dir()] == []


def test_cancelled_submissions_are_killed(engine: ContainerEngine) -> None:
    cancel = Cancel()
    cancel.press(kill=False, why="cancelled")
    assert _run(engine, Submission(command=("sleep", "60")), cancel=cancel) == []


def test_unknown_image_is_an_error(engine: ContainerEngine) -> None:
    with pytest.raises(ImageNotFoundError):
        list(run_all([], template=Template(image="no/such:image"), engine=engine))


@pytest.mark.process
def test_process_that_ends_sandboxes_has_no_secrets(
    local_engine: ContainerEngine, homes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_API_KEY", "value of the key")
    assert all(result.ok for result in _run(local_engine, Submission(command=("true",))))
    found = [
        process for process in Path("/proc").glob("[0-9]*")
        if os.fsencode(homes) in _content(process / "cmdline").split(b"\0")
    ]  # fmt: skip
    assert found
    for process in found:
        assert b"value of the key" not in _content(process / "environ")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.docker
def test_sandboxes_of_a_killed_client_end(docker_engine: ContainerEngine, homes: Path) -> None:
    program = textwrap.dedent("""
        from orchestrator.sandbox.batch import run_all
        from orchestrator.sandbox.models import Submission
        list(run_all([Submission(command=("sleep", "300"), timeout=200)] * 2))
    """)
    client = subprocess.Popen([sys.executable, "-c", program], env={**os.environ})

    def names() -> list[str]:
        return [path.name for path in homes.iterdir() if path.is_dir()] if homes.is_dir() else []

    def containers(ids: list[str]) -> list[str]:
        every = docker_engine.leftovers({MANAGED: "true"})
        return [left.id for left in every if left.labels.get(SANDBOX) in ids]

    try:
        eventually(lambda: len(containers(names())) == 2, "two sandboxes")
        ours = names()
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
    eventually(lambda: names() == [], "no sandbox is left")
    assert containers(ours) == []
