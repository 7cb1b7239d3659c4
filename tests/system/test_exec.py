"""Tests of `exec` and `shell` in a real worker's container, with a terminal for the shell."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from orchestrator.engine.interface.labels import REPOSITORY, ROLE
from tests.support.cli import orchestrator, start
from tests.support.live import PATIENCE, eventually
from tests.support.repository import make_repository
from tests.support.screen import Screen

pytestmark = pytest.mark.docker
TASK = "export MINE=yes; while ! test -e enough; do sleep 0.2; done; echo seen > seen.txt"


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("inside") / "repo")


@pytest.fixture(scope="module")
def worker(repo: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a run whose worker 1 ends when a file exists."""
    process = start(
        "parallel", "--agent-cli", "shell", "--workers", "1", "--network", "none", "--env",
        "TEAM=blue", "--quiet", TASK, cwd=repo, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        eventually(lambda: orchestrator("exec", "1", "--", "true", cwd=repo).returncode == 0)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


@pytest.fixture
def at_a_terminal(repo: Path, worker: object) -> Iterator:  # noqa: ARG001
    screens = []

    def at_a_terminal(*arguments: str) -> Screen:
        screens.append(Screen(repo, *arguments))
        return screens[-1]

    yield at_a_terminal
    for screen in screens:
        screen.close()


@pytest.fixture
def shell(at_a_terminal) -> Screen:
    """Start a shell, and wait for its first prompt."""
    screen = at_a_terminal("shell", "1")
    screen.read_until(r"[$#] ")
    return screen


@pytest.mark.usefixtures("worker")
class TestExec:
    def test_command_runs_as_the_worker_in_its_directory(self, repo: Path) -> None:
        script = "echo x > from-outside; id -u; pwd; echo $TEAM $HOME; git status --short; exit 5"
        done = orchestrator("exec", "1", "--", "sh", "-c", script, cwd=repo)
        uid, *rest = done.stdout.splitlines()
        assert (done.returncode, done.stderr) == (5, "")
        assert uid != "0"
        assert rest == ["/workspace", "blue /home/worker", "?? from-outside"]
        assert not (repo / ".architect-parallel-1" / "from-outside").exists()

    def test_streams_are_separate(self, repo: Path) -> None:
        done = orchestrator("exec", "1", "--", "sh", "-c", "echo 1; echo 2 >&2", cwd=repo)
        assert (done.stdout, done.stderr) == ("1\n", "2\n")

    def test_exec_of_missing_program_exits_126_or_127(self, repo: Path) -> None:
        assert orchestrator("exec", "1", "--", "no-such-thing", cwd=repo).returncode in (126, 127)

    @pytest.mark.variants("*-HUP TERM INT")
    @pytest.mark.parametrize("ignored", ["", "HUP", "HUP TERM INT"])
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
    def test_command_ends_with_exec(self, repo: Path, ignored: str, number: int) -> None:
        trap = f"trap '' {ignored}; " if ignored else ""
        script = f"{trap}echo begun; sleep 987; true"
        with start(
            "exec", "1", "--", "sh", "-c", script, cwd=repo, stdout=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdout
            assert process.stdout.readline() == b"begun\n"
            process.send_signal(number)
            assert process.wait(PATIENCE) == (130 if number == signal.SIGINT else -9)
        look = "! grep -qs 'sleep.98[7]' /proc/[0-9]*/cmdline"
        eventually(
            lambda: orchestrator("exec", "1", "--", "sh", "-c", look, cwd=repo).returncode == 0
        )

    def test_output_on_a_terminal_is_made_harmless(self, at_a_terminal) -> None:
        screen = at_a_terminal("exec", "1", "--", "printf", r"one\033[2Jtwo\033]0;title\007\n")
        assert screen.finish() == 0
        assert b"\x1b" not in screen.said
        assert b"two" in screen.said


class TestShell:
    def test_command_runs_as_the_worker_in_its_directory(self, shell: Screen) -> None:
        # The engine may set the size of the terminal after the shell has started.
        shell.type("until [ $(stty size | cut -c1) = 3 ]; do sleep 0.1; done; ")
        shell.type("echo at $(pwd), $(id -u), $TEAM, $(stty size)\r")
        shell.read_until(r"at /workspace, [1-9]\d*, blue, 30 90\r\n")
        shell.type("exit 7\r")
        assert shell.finish() == 7

    def test_shell_follows_the_window_size(self, shell: Screen) -> None:
        shell.resize(rows=12, columns=34)
        # The new size may arrive after the typed keys. If it arrives before the last key, the shell
        # draws its prompt again, without the end of the line that would precede the output.
        shell.type("until stty size | grep '^12 34$'; do sleep 0.1; done\r")
        shell.read_until(r"12 34\r\n")
        shell.type("exit\r")
        assert shell.finish() == 0

    def test_control_keys_are_passed_to_the_shell(self, shell: Screen) -> None:
        shell.type("sh -c 'echo up; exec sleep 600'\r")
        shell.read_until(r"up\r\n")
        shell.type("\x03")
        shell.read_until(r"[$#] ")
        shell.type("echo $?\r")
        # Ctrl-D must be typed at the prompt: while the shell changes the terminal's mode, the key
        # is lost.
        shell.read_until(r"(?s)130\r\n.*[$#] ")
        shell.type("\x04")
        assert shell.finish() == 0

    @pytest.mark.variants("15")
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    def test_signal_restores_the_terminal(self, shell: Screen, number: int) -> None:
        shell.process.send_signal(number)
        assert shell.finish() == 128 + number

    def test_modes_changed_by_the_container_are_restored(self, shell: Screen) -> None:
        shell.type(r"printf '\033[?1049h\033[?1000h\033[?25l'; exit" + "\r")
        assert shell.finish() == 0
        after = shell.said.rpartition(b"\x1b[?25l")[2]
        for mode in (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?25h"):
            assert mode in after

    @pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
    def test_closed_window_ends_the_shell(self, shell: Screen, repo: Path, number: int) -> None:
        shell.type("echo I am $((40 + 2)) $$\r")
        shell.read_until(r"I am 42 \d+\r\n")
        pid = re.findall(rb"I am 42 (\d+)", shell.said)[-1].decode()
        assert orchestrator("exec", "1", "--", "kill", "-0", pid, cwd=repo).returncode == 0
        shell.process.send_signal(number)
        assert shell.process.wait(PATIENCE) != 0
        gone = ("exec", "1", "--", "sh", "-c", f"! kill -0 {pid}")
        eventually(lambda: orchestrator(*gone, cwd=repo).returncode == 0)


class TestEnd:
    """Must run last: the worker ends in these tests."""

    def test_end_of_the_container_restores_the_terminal(self, shell: Screen, repo: Path) -> None:
        client = docker.APIClient(version="auto")
        labels = [f"{REPOSITORY}={repo / '.git'}", f"{ROLE}=worker"]
        (container,) = client.containers(filters={"label": labels})
        client.kill(container["Id"])
        client.close()
        assert shell.finish() in (7, 137)

    def test_ended_worker_cannot_be_entered(
        self, worker: "subprocess.Popen[bytes]", repo: Path
    ) -> None:
        worker.wait(PATIENCE)
        done = orchestrator("exec", "1", "--", "true", cwd=repo)
        assert done.returncode == 3
        assert "has no container" in done.stderr
