"""The contract of all engines for commands inside a running container."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from orchestrator.base.errors import NotRunningError
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.protocol import ContainerEngine, InnerProcess, TerminalSize
from tests.support.containers import USER, Starter, finish

NAP = ("sleep", "300")
SIZE = TerminalSize(rows=31, columns=97)


@pytest.fixture
def enter(engine: ContainerEngine, start: Starter):
    """Return a function that starts a command in a sleeping container."""
    container = start(*NAP, env={"COLOUR": "teal"}, workdir="/tmp")

    def enter(*command: str, **rest: object) -> InnerProcess:
        return engine.enter(container.id, command, **rest)

    return enter


def read(process: InnerProcess) -> tuple[int, bytes, bytes]:
    said = {"stdout": b"", "stderr": b""}
    with closing(process):
        for chunk in process.output():
            said[chunk.stream] += chunk.data
        return process.wait(), said["stdout"], said["stderr"]


def read_until(output: Iterator, wanted: bytes) -> bytes:
    said = b""
    for chunk in output:
        said += chunk.data
        if wanted in said:
            return said
    raise AssertionError(f"{wanted!r} was not said, but {said!r}")


def test_streams_are_separate_and_exit_code_is_returned(enter) -> None:
    code, stdout, stderr = read(enter("sh", "-c", "echo out; echo err >&2; exit 43"))
    assert (code, stdout, stderr) == (43, b"out\n", b"err\n")


def test_bytes_are_complete_and_unchanged(enter) -> None:
    _, stdout, _ = read(
        enter("sh", "-c", r"printf '\000\377\033[31m\r\n'; head -c 3000000 /dev/zero")
    )
    assert stdout[:9] == b"\x00\xff\x1b[31m\r\n"
    assert len(stdout) == 3_000_009


def test_command_has_the_containers_directory_and_variables(enter) -> None:
    _, stdout, _ = read(enter("sh", "-c", "pwd; echo $COLOUR $MORE", env={"MORE": "tea"}))
    assert stdout == b"/tmp\nteal tea\n"


def test_command_without_terminal_has_no_input(enter) -> None:
    assert read(enter("cat")) == (0, b"", b"")


@pytest.mark.parametrize("word", ["no-such-program", "/etc/passwd"])
def test_missing_program_exits_126_or_127(enter, word: str) -> None:
    assert read(enter(word))[0] in (126, 127)


def test_death_by_a_signal_exits_128_plus_its_number(enter) -> None:
    assert read(enter("sh", "-c", "kill -9 $$"))[0] == 137


def test_command_with_its_own_terminal(enter) -> None:
    process = enter("sh", "-c", "stty size; read line; stty size; echo got $line", terminal=SIZE)
    with closing(process):
        output = process.output()
        # The engine may set the size of the terminal after the command has started.
        said = read_until(output, b"\n")
        assert said.strip() in (b"31 97", b"0 0")
        process.resize(TerminalSize(rows=11, columns=22))
        process.write(b"hello\r")
        rest = b"".join(chunk.data for chunk in output)
        assert process.wait() == 0
    assert b"11 22\r\n" in rest
    assert rest.endswith(b"got hello\r\n")


def test_ctrl_c_interrupts_the_command(enter) -> None:
    # A shell handles a signal only after the current program, so the programs are short.
    command = "trap 'exit 130' INT; echo ready; while :; do sleep 0.1; done"
    process = enter("sh", "-c", command, terminal=SIZE)
    with closing(process):
        output = process.output()
        read_until(output, b"ready")
        process.write(b"\x03")
        for _ in output:
            pass
        assert process.wait() == 130


def test_ended_container_cannot_be_entered(engine: ContainerEngine, start: Starter) -> None:
    container = start("true")
    finish(container)
    with pytest.raises(NotRunningError):
        engine.enter(container.id, ("true",))
    container.remove()
    with pytest.raises(NotRunningError):
        engine.enter(container.id, ("true",))


@pytest.mark.docker
class TestDocker:
    def test_command_has_the_containers_user_and_no_privileges(
        self, docker_engine: DockerEngine, docker_start: Starter
    ) -> None:
        container = docker_start(*NAP)
        command = "id -u; grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status; touch /x"
        process = docker_engine.enter(container.id, ("sh", "-c", command))
        code, stdout, _ = read(process)
        lines = stdout.decode().split()
        assert lines[0] == str(USER)
        assert lines[1:] == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]
        assert code != 0

    def test_silent_command_does_not_time_out(
        self, docker_engine: DockerEngine, docker_start: Starter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The connection has the client's timeout of one minute until the engine removes it."""
        container = docker_start(*NAP)
        # Calls of the engine have the timeout too, and may take long on a busy machine.
        monkeypatch.setattr(docker_engine._client, "timeout", 4)
        process = docker_engine.enter(container.id, ("sh", "-c", "sleep 5; echo late"))
        assert read(process) == (0, b"late\n", b"")

    def test_end_of_the_container_ends_the_command(
        self, docker_engine: DockerEngine, docker_start: Starter
    ) -> None:
        container = docker_start(*NAP)
        process = docker_engine.enter(container.id, ("sh", "-c", "echo ready; sleep 60"))
        output = process.output()
        read_until(output, b"ready")
        killer = threading.Timer(0.2, container.kill, ("SIGKILL",))
        killer.start()
        started = time.monotonic()
        with closing(process):
            for _ in output:
                pass
            assert process.wait() == 137
        assert time.monotonic() - started < 55
        killer.join()
