"""A step under its shim and the porter, as plain processes: what a hostile command can do there."""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine.kubernetes.pod_step import _LIMITED
from orchestrator.engine.places.in_place.channel import Channel, exit_code, order_text
from orchestrator.engine.places.in_place.commands import send
from tests.support.plain_place import SHIM, PlainPlace, wait_for

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root starts steps of another user")
Open = Callable[..., PlainPlace]


@pytest.fixture
def open_place() -> Iterator[Open]:
    """Return a function that opens a place below a directory that every user can enter."""
    places: list[PlainPlace] = []
    root = Path(tempfile.mkdtemp(prefix="orchestrator-place-"))
    root.chmod(0o755)

    def opened(steps: dict[str, Any] | None = None, **rest: Any) -> PlainPlace:
        folder = root / str(len(places))
        folder.mkdir()
        places.append(PlainPlace(folder, steps or {"agent": {}}, **rest))
        return places[-1]

    yield opened
    for place in places:
        place.close()
    shutil.rmtree(root)


def test_streams_are_apart_and_complete(open_place: Open) -> None:
    place = open_place()
    assert place.run("agent", "sh", "-c", "printf one; printf two >&2; exit 7") == 7
    assert place.ended("agent")["exit_code"] == 7
    assert (place.output("agent.stdout"), place.output("agent.stderr")) == (b"one", b"two")
    assert place.output("agent.stdout", 2) == b"e"


def test_command_gets_words_and_variables_unchanged(open_place: Open) -> None:
    place = open_place()
    odd = "two words = $HOME `id`\n'second' \"line\" \\ é"
    shown = 'printf "%s|" "$@"; env -0'
    assert place.run("agent", "sh", "-c", shown, "sh", odd, "", "-n", ODD=odd) == 0
    words, _, rest = place.output("agent.stdout").decode().rpartition("|")
    assert words == f"{odd}||-n"
    assert dict(v.split("=", 1) for v in rest.split("\0")[:-1] if "PWD" not in v)["ODD"] == odd


@pytest.mark.parametrize(
    ("argv", "code"), [(("no-such-program",), 127), (("/etc/passwd",), 126), (("false",), 1)]
)
def test_exit_code_is_that_of_the_command(
    open_place: Open, argv: tuple[str, ...], code: int
) -> None:
    assert open_place().run("agent", *argv) == code


def test_command_that_ignores_sigterm_is_killed_after_its_grace(open_place: Open) -> None:
    place = open_place({"agent": {"timeout": 1.0, "grace": 1.0}})
    assert place.run("agent", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 9; done") == 137
    ended = place.ended("agent")
    assert (ended["exit_code"], ended["reason"]) == (137, "timeout")
    started, stopping, killing = (entry["age"] for entry in place.journal()[:3])
    assert 1.0 <= stopping - started < 9
    assert 1.0 <= killing - stopping < 9


def test_command_that_handles_sigterm_keeps_its_code_and_last_line(open_place: Open) -> None:
    place = open_place({"agent": {"timeout": 1.0, "grace": 30.0}})
    task = "trap 'echo last; exit 9' TERM; while :; do sleep 0.1; done"
    assert place.run("agent", "sh", "-c", task) == 9
    assert place.output("agent.stdout") == b"last\n"
    assert (place.ended("agent")["exit_code"], place.ended("agent")["reason"]) == (9, "timeout")


_TRACE = (
    "import ctypes, signal, time; signal.signal(15, signal.SIG_IGN); "
    "traced = ctypes.CDLL(None).ptrace(16, 1, 0, 0); print(traced, flush=True); time.sleep(300)"
)
_OVERWRITE = (
    "import signal, time; signal.signal(15, signal.SIG_IGN)\n"
    "for n in 1, 2:\n try: print(open(f'/proc/{n}/mem', 'r+b', 0), flush=True)\n"
    " except OSError: pass\n"
    "time.sleep(300)"
)
HOSTILE = {
    "traces PID 1": f'python3 -c "{_TRACE}"',
    "writes the memory of PID 1": f'python3 -c "{_OVERWRITE}"',
    "kills PID 1": "kill -9 1; kill -STOP 1; sleep 300",
    "takes the porter's words away": """
        for n in 1 2 3 4 5 6; do (trap '' TERM; while :; do cat "$0/obey"; done) & done
        (trap '' TERM; while :; do sleep 300; done) & wait""",
    "talks instead of the porter": """
        trap '' TERM; (echo go; echo "exit 0") > "$0/obey"; sleep 300 & sleep 300""",
    "floods": """
        trap '' TERM; (trap '' TERM; yes > "$0/say") & (trap '' TERM; yes exit > "$0/say") & wait
        sleep 300""",
    "stops the shells": "trap '' TERM; kill -STOP $PPID; sleep 300",
    "replaces the channel": 'trap "" TERM; rm -f "$0/obey"; mkfifo "$0/obey"; sleep 300; sleep 300',
    "uses all processes": """
        ulimit -u 60; trap '' TERM; n=0
        while [ $n -lt 100 ]; do (trap '' TERM; sleep 300) & n=$((n + 1)); done; wait""",
}


@pytest.mark.variants("traces*", "kills*")
@pytest.mark.parametrize("name", HOSTILE)
def test_no_step_escapes_its_deadline(open_place: Open, name: str) -> None:
    place = open_place({"agent": {"timeout": 1.0, "grace": 0.3}})
    begun = time.monotonic()
    channel = str(place.work.parent / "channels" / "agent")
    assert place.run("agent", "sh", "-c", HOSTILE[name], channel) != 0
    assert place.ended("agent")["exit_code"] != 0
    assert place.ended("agent")["reason"] == "timeout"
    said = place.output("agent.stdout")
    assert said != b"0\n"  # what ptrace returns if it may
    assert b"FileIO" not in said
    assert 1.0 <= time.monotonic() - begun < 40


def test_forged_end_ends_only_the_step_itself(open_place: Open) -> None:
    place = open_place()
    channel = str(place.work.parent / "channels" / "agent")
    beat = str(place.work / "beat")
    task = """
        date > "$1"; (while :; do date +%N > "$1"; sleep 0.05; done) &
        echo exit 0 > "$0/say"; sleep 300
    """
    assert place.run("agent", "sh", "-c", task, channel, beat) == 0
    assert place.ended("agent")["exit_code"] == 0
    last = Path(beat).read_text()
    time.sleep(0.3)
    assert Path(beat).read_text() == last


def test_killed_shell_around_the_command_ends_the_step(open_place: Open) -> None:
    place = open_place()
    assert place.run("agent", "sh", "-c", "kill -9 $PPID; sleep 300") == 137
    assert place.ended("agent")["exit_code"] is None


def test_grandchild_that_holds_the_output_ends_with_the_command(open_place: Open) -> None:
    place = open_place()
    task = "(trap '' TERM HUP; sleep 300) & echo done; exit 3"
    assert place.run("agent", "sh", "-c", task) == 3
    assert place.output("agent.stdout") == b"done\n"


def test_orphans_do_not_stay_as_zombies(open_place: Open) -> None:
    place = open_place()
    task = """
        for n in 1 2 3 4 5 6 7 8; do (sleep 0.1 &); done; sleep 0.5
        for turn in 1 2 3 4 5 6 7 8 9 10 11 12; do
          cat /proc/[0-9]*/status 2>&1 | grep -q 'State:.Z' || exit 0; sleep 0.5
        done; exit 1"""
    assert place.run("agent", "sh", "-c", task) == 0


@pytest.mark.extra
def test_large_output_is_complete(open_place: Open) -> None:
    place = open_place()
    assert place.run("agent", "sh", "-c", "head -c 20000000 /dev/zero; echo end >&2") == 0
    assert place.output("agent.stdout") == bytes(20_000_000)
    assert place.output("agent.stderr") == b"end\n"


def test_output_is_limited_and_the_step_stopped(open_place: Open) -> None:
    place = open_place({"agent": {"output": 1_000_000, "grace": 1.0}})
    assert place.run("agent", "yes") in (137, 143)
    assert place.ended("agent")["reason"] == "output"
    assert len(place.output("agent.stdout")) == 1_000_000


@pytest.mark.parametrize(
    ("limit", "task"),
    [
        ({"disk": 5_000_000}, 'head -c 20000000 /dev/zero > "$0/big"; sleep 300'),
        # Where only its owner could look.
        ({"disk": 5_000_000},
         'mkdir "$0/d"; head -c 20000000 /dev/zero > "$0/d/f"; chmod 0 "$0/d"; sleep 300'),
        ({"inodes": 100}, 'n=0; while [ $n -lt 200 ]; do : > "$0/$n"; n=$((n+1)); done; sleep 300'),
    ],
    ids=["disk", "closed directory", "inodes"],
)  # fmt: skip
def test_written_files_are_limited(open_place: Open, limit: dict[str, int], task: str) -> None:
    place = open_place({"agent": {**limit, "limited": ["work"], "grace": 0.5}})
    begun = time.monotonic()
    assert place.run("agent", "sh", "-c", task, str(place.work)) != 0
    assert time.monotonic() - begun < 40
    assert place.ended("agent")["reason"] == next(iter(limit))


def test_steps_follow_each_other_without_a_client(open_place: Open) -> None:
    following = {"teardown": {"after": "agent"}, "harvest": {"after": "teardown"}}
    place = open_place({"agent": {}, **following})
    shims = [place.start(name) for name in ("agent", "teardown", "harvest")]
    place.order("harvest", "echo", "replaced", nonce="follows")
    place.order("teardown", "sh", "-c", "exit 4", nonce="follows")
    ready = place.work / "ready"
    place.order("agent", "sh", "-c", 'until [ -e "$0" ]; do sleep 0.05; done', str(ready))
    place.order("harvest", "echo", "packed")
    ready.touch()
    assert [shim.wait(60) for shim in shims] == [0, 4, 0]
    assert place.output("harvest.stdout") == b"packed\n"
    events = [(e["step"], e["event"]) for e in place.journal()]
    names = ("agent", "teardown", "harvest")
    assert events == [(name, event) for name in names for event in ("started", "ended")]
    assert [e["number"] for e in place.journal()] == [1, 2, 3, 4, 5, 6]


def test_times_of_a_step_are_those_of_the_clock(open_place: Open) -> None:
    place = open_place()
    time.sleep(1)
    begun = time.time()
    assert place.run("agent", "sleep", "1") == 0
    place.ended("agent")
    over = time.time()
    assert place.ask("journal", "2") == {"entries": []}
    for _ in range(2):  # whenever they are asked for
        started, ended = place.journal()
        assert begun - 0.1 < started["at"] <= ended["at"] - 1 < over - 1 + 0.1
        assert ended["at"] - started["at"] == pytest.approx(ended["age"] - started["age"], abs=0.01)
        time.sleep(0.5)


def test_second_order_does_not_run_again(open_place: Open) -> None:
    place = open_place()
    beat = str(place.work / "runs")
    assert place.run("agent", "sh", "-c", 'echo run >> "$0"', beat) == 0
    assert place.order("agent", "true") == {}
    assert "ordered before" in place.order("agent", "true", nonce="other")["error"]
    assert Path(beat).read_text() == "run\n"


def test_forgotten_step_runs_again(open_place: Open) -> None:
    place = open_place()
    assert place.run("agent", "echo", "first") == 0
    place.ended("agent")
    for _ in range(3):  # the client repeats a call whose answer was lost
        assert place.ask("forget", "agent", "1") == {}
    assert place.ask("state", "agent") == {"state": "waiting", "run": 2}
    assert place.run("agent", "echo", "second", nonce="other") == 0
    wait_for(lambda: len(place.journal()) == 4)
    assert place.output("agent.stdout") == b"second\n"


def test_step_runs_no_more_often_than_it_has_containers(open_place: Open, tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text(json.dumps({"size": 0, "files": 0, "hidden": 0}))
    place = open_place(usage=tmp_path)
    # Nothing was ordered: the container still waits.
    assert place.ask("forget", "agent", "1") == {}
    assert place.ask("state", "agent") == {"state": "waiting", "run": 1}
    assert place.run("agent", "true") == 0
    place.ended("agent")
    for _ in range(3):
        assert place.ask("forget", "agent", "1") == {}
        assert place.ask("forget", "agent", "2") == {}
        assert place.ask("state", "agent") == {"state": "waiting", "run": 2}
    assert "no further container" in place.order("agent", "true", nonce="other")["error"]
    assert place.porter.poll() is None


def test_call_that_fails_is_answered_and_ends_nothing(open_place: Open, tmp_path: Path) -> None:
    place = open_place(usage=tmp_path)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(place.work.parent / "porter" / "socket"))
    # Nothing was measured, so the step's limits cannot be enforced.
    assert "agent.json" in place.order("agent", "true")["error"]
    assert "no such request" in send(str(place.work.parent / "porter"), {"command": "x"})["error"]
    assert place.ask("state", "agent") == {"state": "ordered", "run": 1}


def test_order_is_gone_when_the_command_runs(open_place: Open) -> None:
    place = open_place()
    channel = place.work.parent / "channels" / "agent"
    shim = place.start("agent")
    place.order("agent", "sh", "-c", "echo up; sleep 300", SECRET="sesame")
    wait_for(lambda: len(place.journal()) == 1)
    assert not (channel / "order").exists()
    assert place.ask("stop", "agent", "SIGTERM") == {}
    assert shim.wait(60) == 143
    left = [path for path in place.work.parent.rglob("*") if path.is_file()]
    assert not [path for path in left if b"sesame" in path.read_bytes()]


def test_stop_by_the_client(open_place: Open) -> None:
    place = open_place()
    shim = place.start("agent")
    place.order("agent", "sh", "-c", "trap '' TERM; echo up; sleep 300; sleep 300")
    assert place.output_so_far("agent.stdout", b"up\n")
    place.ask("stop", "agent", "SIGTERM")
    place.ask("stop", "agent", "SIGKILL")
    assert shim.wait(60) == 137
    assert place.ended("agent")["reason"] is None


def test_death_of_the_porter_kills_the_steps(open_place: Open) -> None:
    place = open_place()
    shim = place.start("agent")
    place.order("agent", "sh", "-c", "trap '' TERM; echo up; sleep 300; sleep 300")
    assert place.output_so_far("agent.stdout", b"up\n")
    place.porter.kill()
    assert shim.wait(60) == 137


def test_nothing_follows_a_step_that_cannot_be_ended(open_place: Open) -> None:
    place = open_place({"agent": {}, "harvest": {"after": "agent"}}, collect_within=1.0)
    place.order("harvest", "true", nonce="follows")
    shim = place.start("agent")
    harvest = place.start("harvest")
    place.order("agent", "sleep", "300")
    wait_for(lambda: len(place.journal()) == 1)
    children = Path(f"/proc/{shim.pid}/task/{shim.pid}/children").read_text()
    os.kill(int(children), signal.SIGSTOP)
    place.ask("stop", "agent", "SIGKILL")
    assert place.porter.wait(60) == 3
    assert harvest.wait(60) == 125
    assert [entry["event"] for entry in place.journal()] == ["started", "stopping"]
    os.kill(int(children), signal.SIGCONT)
    assert shim.wait(60) == 137


def test_place_without_an_order_ends_itself(open_place: Open) -> None:
    place = open_place(start_within=0.5)
    shim = place.start("agent")
    assert place.porter.wait(60) == 3
    assert shim.wait(60) == 125


def test_place_that_nobody_collects_ends_itself(open_place: Open) -> None:
    place = open_place(collect_within=1.0, start_within=30.0)
    begun = time.monotonic()
    assert place.run("agent", "true") == 0
    assert place.porter.wait(60) == 3
    assert time.monotonic() - begun >= 1.0


def test_place_that_only_serves_lives_while_a_client_asks(open_place: Open) -> None:
    place = open_place({"agent": {"serves": True}}, collect_within=2.0)
    place.start("agent")
    place.order("agent", "sleep", "300")
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        assert place.ask("state", "agent")["state"] in ("starting", "running")
        time.sleep(0.2)
    assert place.porter.wait(60) == 3


def test_released_place_ends(open_place: Open) -> None:
    place = open_place()
    assert place.ask("release") == {}
    assert place.porter.wait(60) == 0


def test_end_of_the_place_ends_the_measurements(open_place: Open, tmp_path: Path) -> None:
    place = open_place(usage=tmp_path)
    wait_for(lambda: (tmp_path / "porter").exists())
    assert not (tmp_path / "over").exists()
    place.ask("release")
    assert place.porter.wait(60) == 0
    assert (tmp_path / "over").exists()


def test_shim_outside_of_a_process_namespace_refuses() -> None:
    assert subprocess.run(["sh", "-c", SHIM, "shim", "/nowhere"], check=False).returncode == 125


@pytest.mark.parametrize(
    "words",
    [
        ("read", "0", "../journal", "0"), ("pack", "..", "9", "all"), ("pack", "work", "x", "all"),
        ("usage", "9", "9", "/etc"), ("changed", "../work", "9", "9"), ("forget", "nobody", "1"),
        ("stop", "nobody", "SIGTERM"), ("order", "99999999999", ""), ("order", "5", "bad"),
        ("no-such-command",),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_commands_are_refused(open_place: Open, words: tuple[str, ...]) -> None:
    place = open_place()
    assert place.ask(*words)["error"]
    assert place.porter.poll() is None


def test_words_of_a_step_are_bounded(tmp_path: Path) -> None:
    channel = Channel(str(tmp_path))
    words = os.open(tmp_path / "say", os.O_WRONLY)
    tracemalloc.start()
    try:
        for _ in range(400):
            os.write(words, b"x" * 50_000)
            assert channel.hear() == ([], False)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    os.write(words, b"\nexit 3\n")
    assert channel.hear()[0][-1] == b"exit 3"
    os.close(words)
    assert channel.hear() == ([], True)
    channel.close()


@pytest.mark.parametrize("line", [b"exit 256", b"exit -1", b"exit", b"exit 1 2", b"exit \xb2"])
def test_forged_exit_codes(line: bytes) -> None:
    assert exit_code(line) is None
    assert exit_code(b"exit 255") == 255


@pytest.mark.parametrize(
    ("argv", "env", "workdir"),
    [((), {}, "/"), (("a\0b",), {}, "/"), (("a",), {"A B": ""}, "/"), (("a",), {"A;id": ""}, "/"),
     (("a",), {"A": "\0"}, "/"), (("a",), {}, "\0")],
)  # fmt: skip
def test_orders_that_a_shell_cannot_run(
    argv: tuple[str, ...], env: dict[str, str], workdir: str
) -> None:
    with pytest.raises(ValueError, match=r"a (shell|command)"):
        order_text(argv, env, workdir)


def _limits(place: PlainPlace) -> dict[str, list[str]]:
    lines = place.output("agent.stdout").decode().splitlines()
    named = {line[:26].strip(): line[26:].split() for line in lines}
    return {name: named[name][:2] for name in ("Max processes", "Max open files")}


@pytest.mark.parametrize("shell", ["/bin/dash", "/bin/bash"])
def test_shim_limits_processes_and_open_files_of_a_step(open_place: Open, shell: str) -> None:
    """Both limits, which the step can lower, and never raise again."""
    place = open_place(shell=shell)
    place.start("agent", 5000, 64)
    place.order("agent", "sh", "-c", "ulimit -n 65; ulimit -S -n 10; cat /proc/self/limits")
    assert place.ended("agent")["exit_code"] == 0
    assert _limits(place) == {"Max processes": ["5000"] * 2, "Max open files": ["10", "64"]}


@pytest.mark.extra
def test_fork_bomb_ends_at_the_limit_of_processes(open_place: Open) -> None:
    """The kernel counts all processes of the user, who has others only in this place."""
    place = open_place(user=1_700_000_000 + os.getpid())
    place.start("agent", 30, 64)
    bomb = "n=0; while [ $((n += 1)) -le 60 ]; do sleep 60 & echo $n; done"
    place.order("agent", "bash", "-c", bomb)
    place.ended("agent")
    # The shim, its shells and the command are processes, too.
    assert 20 <= len(place.output("agent.stdout").split()) < 30


def test_lower_limits_of_the_container_stay(open_place: Open) -> None:
    place = open_place()
    own = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (own[0], own[0]))
    place.start("agent", 5000, own[0] + 1)
    place.order("agent", "cat", "/proc/self/limits")
    assert place.ended("agent")["exit_code"] == 0
    assert _limits(place)["Max open files"] == [str(own[0])] * 2


def test_entered_command_has_the_limits_of_the_step(open_place: Open) -> None:
    place = open_place()
    place.start("agent", 5000, 64)
    enter = 'ulimit -S -p 4999; ulimit -S -n 20; exec sh -c "$0" sh cat /proc/self/limits'
    place.order("agent", "dash", "-c", enter, _LIMITED)
    assert place.ended("agent")["exit_code"] == 0
    assert _limits(place) == {"Max processes": ["5000"] * 2, "Max open files": ["64"] * 2}


def test_step_that_keeps_forking_is_stopped(open_place: Open, tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text(json.dumps({"size": 0, "files": 0, "hidden": 0}))
    full = tmp_path / "full.json"
    full.write_text('{"agent": 4}')
    place = open_place(usage=tmp_path)
    place.start("agent")
    place.order("agent", "sleep", "300")
    wait_for(lambda: len(place.journal()) == 1)
    time.sleep(1.5)
    assert len(place.journal()) == 1
    full.write_text('{"agent": 5}')
    assert place.ended("agent")["reason"] == "pids"


def test_container_that_waits_for_long_starts_few_processes(tmp_path: Path) -> None:
    # The stand-in records how long it should sleep, and does not.
    stand_in = tmp_path / "sleep"
    stand_in.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/slept\n')
    stand_in.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    waiting = ["sh", "-c", SHIM, "shim", str(tmp_path), "600"]
    found = subprocess.run(["unshare", "--pid", "--fork", *waiting], env=environment, check=False)
    slept = [float(line) for line in (tmp_path / "slept").read_text().split()]
    assert (found.returncode, slept[0], round(sum(slept))) == (125, 0.05, 600)
    assert len(slept) < 700
