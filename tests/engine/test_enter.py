"""The contract of all engines for commands inside a running container."""

import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import pytest

from orchestrator.base.errors import EngineError, NotRunningError, UnsupportedError
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
    said: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    with closing(process):
        for chunk in process.output():
            said[chunk.stream].append(chunk.data)
        return process.wait(), b"".join(said["stdout"]), b"".join(said["stderr"])


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


def count(enter, words: str) -> int:
    """Return how many processes of the container have words in their command line."""
    script = """for at in /proc/[0-9]*; do tr '\\0' ' ' < $at/cmdline; echo; done 2> /dev/null"""
    _, stdout, _ = read(enter("sh", "-c", script))
    return sum(line.startswith(words) for line in stdout.decode().splitlines())


def eventually_gone(enter, words: str) -> bool:
    deadline = time.monotonic() + 30
    while count(enter, words):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


@pytest.fixture
def nap() -> str:
    """Return a number of seconds that no other test sleeps."""
    return f"{1000 + secrets.randbelow(10**9)}"


def test_input_without_a_terminal_is_complete_and_has_an_end(enter) -> None:
    data = secrets.token_bytes(1024) * 10_000
    process = enter("cat", stdin=True, timeout=60)
    writer = threading.Thread(target=lambda: (process.write(data), process.close_stdin()))
    writer.start()
    code, stdout, stderr = read(process)
    writer.join()
    assert (code, stdout == data, stderr) == (0, True, b"")


def test_input_that_ends_at_once_is_empty(enter) -> None:
    process = enter("cat", stdin=True)
    process.close_stdin()
    assert read(process) == (0, b"", b"")


def test_input_that_nobody_wants_is_refused(enter) -> None:
    with closing(enter("true")) as process, pytest.raises(EngineError) as refused:
        process.write(b"x")
    assert refused.value.key == "command.no-input"


def test_command_has_its_own_directory(enter) -> None:
    assert read(enter("pwd", cwd="/usr")) == (0, b"/usr\n", b"")
    code, _, stderr = read(enter("pwd", cwd="/no such place"))
    assert code == 126
    assert b"/no such place" in stderr


def test_command_sees_nothing_of_the_shell_that_watches_it(enter) -> None:
    names = {"_line": "a", "odd.name": "b c", "LINES": "x\ny", "_mark": "d"}
    script = """
import os
print(sorted(map(int, os.listdir("/proc/self/fd")))[:-1], os.getsid(0) == os.getpgid(0))
print([os.environ[name] for name in ("odd.name", "LINES")], "OLDPWD" in os.environ)
try:
    print(os.waitpid(-1, 0))
except ChildProcessError:
    print("no child")
import signal
print([s for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN])
"""
    code, stdout, stderr = read(enter("python3", "-c", script, env=names, timeout=60))
    assert (code, stderr) == (0, b"")
    *seen, ignored = stdout.decode().splitlines()
    assert seen == ["[0, 1, 2] True", "['b c', 'x\\ny'] False", "no child"]
    assert ignored == "[<Signals.SIGPIPE: 13>, <Signals.SIGXFSZ: 25>]"  # of Python itself


def test_signal_reaches_the_group_or_the_command_alone(enter) -> None:
    child = "trap 'echo child; exit 0' USR1; echo ready; while :; do sleep 0.1; done"
    parent = f"trap 'echo parent' USR1; sh -c \"{child}\" & while ! wait $!; do :; done"
    for group, expected in ((True, {b"child", b"parent"}), (False, {b"parent"})):
        process = enter("sh", "-c", parent, timeout=60)
        with closing(process):
            output = process.output()
            read_until(output, b"ready\n")
            process.signal("SIGUSR1", group=group)
            said = read_until(output, b"parent\n")
            if group:
                said += b"".join(chunk.data for chunk in output)
                assert process.wait() == 0
            # The shell also reports that its programs died of the signal.
            assert {*said.split()} & {b"child", b"parent"} == expected


def test_unknown_signal_is_refused(enter) -> None:
    with closing(enter("sleep", "60")) as process, pytest.raises(UnsupportedError) as refused:
        process.signal("TERM; reboot")
    assert refused.value.key == "command.signal"


def test_group_is_killed_with_all_of_its_processes(enter, nap: str) -> None:
    process = enter("sh", "-c", f"sleep {nap} & sleep {nap} & echo ready; wait")
    with closing(process):
        output = process.output()
        read_until(output, b"ready")
        process.signal("SIGKILL")
        assert list(output) == []
        assert process.wait() == 137
    assert eventually_gone(enter, f"sleep {nap}")


@pytest.mark.parametrize(
    "script",
    ["sleep {}", "trap '' TERM HUP; sleep {}; sleep {}", "setsid sleep {} & sleep {}",
     "(setsid sleep {} > /dev/null 2>&1 < /dev/null &); sleep {}",
     "set -m; sleep {} & sleep {}"],
)  # fmt: skip
@pytest.mark.parametrize("way", ["timeout", "close", "input"])
def test_command_is_ended_with_what_left_its_group(enter, nap: str, script: str, way: str) -> None:
    script = script.format(nap, nap)
    timeout = 1 if way == "timeout" else None
    process = enter("sh", "-c", f"echo ready; {script}", timeout=timeout, grace=0.5,
                    stdin=way == "input")  # fmt: skip
    started = time.monotonic()
    with closing(process):
        output = process.output()
        read_until(output, b"ready")
        if way == "timeout":
            assert "stdout" not in {chunk.stream for chunk in output}
            assert process.wait() in (143, 137)
            assert process.timed_out
            assert time.monotonic() - started > 0.9
    assert eventually_gone(enter, f"sleep {nap}")


def test_command_that_ends_in_time_has_not_timed_out(enter, nap: str) -> None:
    process = enter("sh", "-c", "exit 3", timeout=float(nap))
    assert read(process) == (3, b"", b"")
    assert not process.timed_out
    # What watched the time is gone too.
    assert eventually_gone(enter, f"sleep {nap}")


def test_output_that_others_hold_open_ends_soon_after_the_command(enter, nap: str) -> None:
    process = enter("sh", "-c", f"sleep {nap} & echo started; exit 4", timeout=60)
    started = time.monotonic()
    assert read(process) == (4, b"started\n", b"")
    assert time.monotonic() - started < 20
    # What a command leaves running goes on, as with any shell.
    assert count(enter, f"sleep {nap}") == 1


def test_command_that_was_started_to_stay_survives_its_handle(enter, nap: str) -> None:
    process = enter("sh", "-c", f"echo ready; sleep {nap}", stays=True)
    with closing(process):
        read_until(process.output(), b"ready")
    time.sleep(0.5)
    assert count(enter, f"sleep {nap}") == 1


def test_floods_of_both_streams_are_kept_apart(enter) -> None:
    script = "yes out | head -c 5000000 & yes err | head -c 5000000 >&2; wait; exit 9"
    code, stdout, stderr = read(enter("sh", "-c", script, timeout=60))
    assert code == 9
    assert (len(stdout), {*stdout.split()}) == (5_000_000, {b"out"})
    assert (len(stderr), {*stderr.split()}) == (5_000_000, {b"err"})


def test_signs_of_the_watching_shell_are_not_taken_from_others(enter) -> None:
    script = r"printf 'a\036' >&2; sleep 0.2; printf '\036b\036' >&2; printf '\036 0\n'; exit 5"
    assert read(enter("sh", "-c", script)) == (5, b"\x1e 0\n", b"a\x1e\x1eb\x1e")


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

    @pytest.mark.extra
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

    @pytest.mark.parametrize(
        "how", ["{}", "{'stdin': True}", "{'stdin': True, 'timeout': 2}", "{'terminal': SIZE}"]
    )
    def test_killed_client_ends_the_command(
        self, docker_engine: DockerEngine, docker_start: Starter, nap: str, how: str
    ) -> None:
        container = docker_start(*NAP)
        script = (
            f"(setsid sleep {nap} &); trap '' TERM HUP; echo ready; while :; do sleep {nap}; done"
        )
        code = (
            "from orchestrator.engine.docker import DockerEngine\n"
            "from orchestrator.engine.interface.protocol import TerminalSize\n"
            "SIZE = TerminalSize(rows=9, columns=9)\n"
            f"it = DockerEngine().enter({container.id!r}, ('sh', '-c', {script!r}), **{how})\n"
            "for chunk in it.output():\n    print(chunk.data.decode(), flush=True)\n"
        )
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            assert client.stdout.readline().strip() == b"ready"
            client.kill()

        def enter(*command: str) -> InnerProcess:
            return docker_engine.enter(container.id, command)

        assert eventually_gone(enter, f"sleep {nap}")

    def test_command_that_kills_its_watchers_is_ended_by_the_client(
        self, docker_engine: DockerEngine, docker_start: Starter, nap: str
    ) -> None:
        container = docker_start(*NAP)
        process = docker_engine.enter(
            container.id, ("sh", "-c", f"kill -9 $PPID; exec sleep {nap}"), timeout=1, grace=0.5
        )
        assert read(process)[0] == 137
        enter = partial(docker_engine.enter, container.id)
        assert eventually_gone(lambda *command: enter(command), f"sleep {nap}")

    def test_command_has_another_user(
        self, docker_engine: DockerEngine, docker_start: Starter
    ) -> None:
        container = docker_start(*NAP)
        command = ("id", "-u")
        assert read(docker_engine.enter(container.id, command, user="4242"))[1] == b"4242\n"
        with pytest.raises(EngineError) as refused:
            docker_engine.enter(container.id, command, user="nobody-of-that-name")
        assert refused.value.key == "command.not-started"

    def test_paused_container_cannot_be_entered(
        self, docker_engine: DockerEngine, docker_start: Starter
    ) -> None:
        container = docker_start(*NAP)
        container.pause()
        with pytest.raises(NotRunningError):
            docker_engine.enter(container.id, ("true",))
        container.resume()
        assert read(docker_engine.enter(container.id, ("true",)))[0] == 0
