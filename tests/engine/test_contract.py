"""The contract of all engines. A new engine is a new parameter of the fixture `engine`."""

import secrets
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.base.errors import (
    EngineError,
    ImageNotFoundError,
    NotRunningError,
    PortTakenError,
    UnsupportedError,
)
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.images.names import BASE_IMAGE
from orchestrator.engine.interface.protocol import ContainerEngine, ExitStatus
from tests.support.containers import Run, Starter, bind, finish

NAP = ("sleep", "300")


def test_the_first_byte_is_not_lost(run: Run) -> None:
    for _ in range(3):
        status, stdout, _ = run("printf", "first")
        assert (status.exit_code, stdout) == (0, b"first")


def test_output_before_the_first_read_is_kept(start: Starter) -> None:
    container = start("printf", "early")
    container.wait(60)
    assert finish(container)[1] == b"early"


def test_stdout_and_stderr_are_separate(run: Run) -> None:
    _, stdout, stderr = run("sh", "-c", "echo one; echo two >&2; echo three; echo four >&2")
    assert (stdout, stderr) == (b"one\nthree\n", b"two\nfour\n")


def test_large_output_is_complete(run: Run) -> None:
    status, stdout, stderr = run("sh", "-c", "head -c 5000000 /dev/zero; echo done >&2")
    assert (status.exit_code, len(stdout), stderr) == (0, 5_000_000, b"done\n")


@pytest.mark.parametrize("code", [0, 1, 77, 255])
def test_exit_code_is_that_of_the_command(run: Run, code: int) -> None:
    status, _, _ = run("sh", "-c", f"exit {code}")
    assert (status.exit_code, status.oom_killed) == (code, False)


def test_death_by_a_signal_exits_128_plus_its_number(run: Run) -> None:
    assert run("sh", "-c", "kill -9 $$")[0].exit_code == 137


def test_missing_program_exits_127(run: Run) -> None:
    status, _, stderr = run("no-such-program-anywhere")
    assert status.exit_code == 127
    assert b"no-such-program-anywhere" in stderr


def test_wait_timeout_does_not_stop_the_container(start: Starter) -> None:
    container = start(*NAP)
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        container.wait(0.3)
    assert 0.3 <= time.monotonic() - begun < 60
    assert container.usage() is not None


def test_wait_without_timeout_waits_for_the_end(start: Starter) -> None:
    container = start("sh", "-c", "sleep 0.5; exit 5")
    assert container.wait(None).exit_code == 5
    assert container.wait(None).exit_code == 5


def test_wait_for_a_removed_container_is_an_error(start: Starter) -> None:
    container = start("true")
    container.wait(60)
    container.remove()
    with pytest.raises(EngineError):
        container.wait(60)


def test_sigterm_ends_the_container_and_is_repeatable(start: Starter) -> None:
    # Wait for the program: the process before its start may ignore signals.
    container = start("sh", "-c", "echo ready; exec sleep 300")
    next(container.logs())
    container.kill("SIGTERM")
    container.kill("SIGTERM")
    assert container.wait(60).exit_code == 143
    container.kill("SIGTERM")


def test_sigterm_can_be_handled(start: Starter) -> None:
    container = start(
        "sh", "-c", "trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    )
    logs = container.logs()
    said = next(logs).data
    assert said == b"ready\n"
    container.kill("SIGTERM")
    said += b"".join(chunk.data for chunk in logs)
    assert said == b"ready\nbye\n"
    assert container.wait(60).exit_code == 9


def test_sigkill_ends_a_process_that_ignores_sigterm(start: Starter) -> None:
    container = start("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    logs = container.logs()
    next(logs)
    container.kill("SIGTERM")
    with pytest.raises(TimeoutError):
        container.wait(0.5)
    container.kill("SIGKILL")
    container.kill("SIGKILL")
    status = container.wait(60)
    assert (status.exit_code, status.oom_killed) == (137, False)
    container.kill("SIGKILL")
    assert list(logs) == []


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL", "by itself"])
def test_children_and_logs_end_with_the_container(start: Starter, shared: Path, end: str) -> None:
    """A child that keeps the output open and continues to write must not outlive the container."""
    child = 'while :; do date +%s.%N > "$0"; sleep 0.05; done'
    task = f"sh -c '{child}' \"$0\" & echo ready; " + (
        "sleep 0.2" if end == "by itself" else "wait"
    )
    container = start("sh", "-c", task, "/data/beat", mounts=(bind(shared, "/data"),))
    logs = container.logs()
    assert next(logs).data == b"ready\n"
    if end != "by itself":
        container.kill(end)
    assert list(logs) == []
    container.wait(60)
    beat = shared / "beat"
    last = beat.read_text() if beat.exists() else ""
    time.sleep(0.3)
    assert (beat.read_text() if beat.exists() else "") == last


def test_kill_of_an_ended_container_is_no_error(start: Starter) -> None:
    container = start("sh", "-c", "exit 4")
    container.wait(60)
    container.kill("SIGTERM")
    container.kill("SIGKILL")
    assert container.wait(60).exit_code == 4


def test_logs_end_when_another_thread_kills_the_container(start: Starter) -> None:
    container = start("sh", "-c", "echo up; sleep 300")
    logs = container.logs()
    assert next(logs).data == b"up\n"
    killer = threading.Timer(0.3, container.kill, ("SIGKILL",))
    killer.start()
    assert list(logs) == []
    killer.join()


def test_usage_during_and_after_a_run(start: Starter) -> None:
    container = start("sh", "-c", "sleep 300 & sleep 300 & echo up; wait", pids=99)
    next(container.logs())
    usage = container.usage()
    assert usage is not None
    assert usage.pids is not None
    assert 3 <= usage.pids <= 5
    assert usage.pids_limit == 99
    assert usage.memory is not None
    assert usage.memory > 0
    container.kill("SIGKILL")
    container.wait(60)
    assert container.usage() is None


@pytest.mark.variants("local")
def test_usage_of_all_running_containers(
    engine: ContainerEngine, start: Starter, labels: dict[str, str]
) -> None:
    busy = start("sh", "-c", "while :; do :; done", labels={**labels, "n": "1"})
    idle = start(*NAP, labels={**labels, "n": "2"})
    start("true").wait(60)
    first = {one.id: one for one in engine.usage(labels)}
    assert {one.labels["n"]: one.id for one in first.values()} == {"1": busy.id, "2": idle.id}
    assert [one.id for one in engine.usage({**labels, "n": "2"})] == [idle.id]
    deadline = time.monotonic() + 180
    while (cpu := _cpu(engine, busy.id, labels)) < (first[busy.id].usage.cpu or 0) + 10**8:
        assert time.monotonic() < deadline, cpu
    assert _cpu(engine, idle.id, labels) < 10**9
    busy.remove()
    assert [one.id for one in engine.usage(labels)] == [idle.id]


def _cpu(engine: ContainerEngine, container_id: str, labels: dict[str, str]) -> int:
    (cpu,) = (one.usage.cpu for one in engine.usage(labels) if one.id == container_id)
    assert cpu is not None
    return cpu


def test_remove_kills_and_is_repeatable(
    engine: ContainerEngine, start: Starter, labels: dict[str, str]
) -> None:
    container = start(*NAP)
    begun = time.monotonic()
    container.remove()
    container.remove()
    assert time.monotonic() - begun < 60
    assert engine.leftovers(labels) == []
    assert container.usage() is None


def test_mounts_are_readable_and_writable(run: Run, tmp_path: Path, shared: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "note").write_text("from outside\n")
    status, _, stderr = run(
        "cp", "/given/note", "/data/copy",
        mounts=(bind(given, "/given", read_only=True), bind(shared, "/data")),
    )  # fmt: skip
    assert status.exit_code == 0, stderr
    assert (shared / "copy").read_text() == "from outside\n"


def test_a_file_can_be_mounted_into_a_mount(run: Run, tmp_path: Path, shared: Path) -> None:
    (shared / "inner").write_text("hidden")
    (tmp_path / "note").write_text("seen")
    mounts = (bind(shared, "/data"), bind(tmp_path / "note", "/data/inner", read_only=True))
    assert run("cat", "/data/inner", mounts=mounts)[1] == b"seen"


def test_command_gets_only_its_variables(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_CALLER", "sesame")
    odd = "two words = $HOME\n'second line'"
    _, stdout, _ = run("env", "-0", env={"ODD": odd, "HOME": "/elsewhere"})
    seen = dict(item.split("=", 1) for item in stdout.decode().split("\0") if item)
    assert (seen["ODD"], seen["HOME"]) == (odd, "/elsewhere")
    assert "SECRET_OF_THE_CALLER" not in seen


def test_arguments_are_passed_unchanged(run: Run) -> None:
    words = ("two words", "", "$HOME", "'quoted' \"twice\"", "line\nline", "é✓")
    _, stdout, _ = run("printf", "%s|", *words)
    assert stdout.decode().split("|")[:-1] == list(words)


def test_command_starts_in_the_working_directory(run: Run, shared: Path) -> None:
    (shared / "deep").mkdir()
    (shared / "deep" / "here").write_text("yes")
    mounts = (bind(shared, "/data"),)
    assert run("cat", "here", workdir="/data/deep", mounts=mounts)[1] == b"yes"


def test_port_in_use_starts_nothing(
    engine: ContainerEngine, start: Starter, labels: dict[str, str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        network = engine.create_network(f"orchestrator-test-{secrets.token_hex(4)}", labels)
        with pytest.raises(PortTakenError):
            start(*NAP, network=network, ports={8000: port})
    assert [leftover.kind for leftover in engine.leftovers(labels)] == ["network"]


LISTEN = (
    "import socket; s = socket.create_server(('127.0.0.1', 0)); "
    "print(s.getsockname()[1], flush=True); s.accept()"
)
CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 60)"


def test_container_can_join_another_containers_network(start: Starter, run: Run) -> None:
    holder = start(*NAP)
    server = start("python3", "-c", LISTEN, network_of=holder.id)
    port = next(iter(server.logs())).data.decode().strip()
    assert run("python3", "-c", CONNECT, port, network_of=holder.id)[0].exit_code == 0
    assert server.wait(60).exit_code == 0


def test_network_of_an_ended_container_cannot_be_joined(start: Starter) -> None:
    ended = start("true")
    ended.wait(60)
    with pytest.raises(EngineError):
        start("true", network_of=ended.id)
    ended.remove()
    with pytest.raises(EngineError):
        start("true", network_of=ended.id)


def test_an_image_may_expose_nothing(engine: ContainerEngine) -> None:
    assert engine.exposed_ports(BASE_IMAGE) == ()
    with pytest.raises(ImageNotFoundError):
        engine.exposed_ports("orchestrator/nowhere:none")


def test_leftovers_are_found_by_labels_and_removed(
    engine: ContainerEngine, start: Starter, labels: dict[str, str]
) -> None:
    running, ended = start(*NAP), start("true")
    ended.wait(60)
    network = engine.create_network(f"orchestrator-test-{secrets.token_hex(4)}", labels)
    left = engine.leftovers(labels)
    assert {(one.kind, one.id) for one in left} == {
        ("container", running.id),
        ("container", ended.id),
        ("network", network),
    }
    assert all(labels.items() <= one.labels.items() for one in left)
    assert engine.leftovers({**labels, "orchestrator.run": "another"}) == []
    for one in left * 2:
        engine.remove(one)
    assert engine.leftovers(labels) == []


def test_an_unknown_image_starts_nothing(
    engine: ContainerEngine, start: Starter, labels: dict[str, str]
) -> None:
    with pytest.raises(ImageNotFoundError):
        start("true", image="orchestrator/nowhere:none")
    assert engine.leftovers(labels) == []
    with pytest.raises(ImageNotFoundError, match="orchestrator/nowhere:none"):
        engine.check(images=(BASE_IMAGE, "orchestrator/nowhere:none"), runtime=None)


def test_container_name_is_unique(
    engine: ContainerEngine, start: Starter, labels: dict[str, str]
) -> None:
    name = f"orchestrator-test-{secrets.token_hex(4)}"
    first = start(*NAP, name=name)
    with pytest.raises(EngineError, match="in use"):
        start(*NAP, name=name)
    assert [leftover.id for leftover in engine.leftovers(labels)] == [first.id]


def test_check_reports_the_machines_features(engine: ContainerEngine) -> None:
    features = engine.check(images=(BASE_IMAGE,), runtime=None)
    assert features.cpus >= 1
    assert features.memory > 64 * 1024**2
    assert features.runtimes
    assert engine.name in features.version


def test_an_unknown_runtime_is_refused(engine: ContainerEngine) -> None:
    with pytest.raises(UnsupportedError, match="no-such-runtime"):
        engine.check(images=(), runtime="no-such-runtime")


@pytest.mark.variants("local")
def test_many_containers_at_once(start: Starter) -> None:
    containers = [start("sh", "-c", f"echo {n}; exit {n}") for n in range(8)]
    results: dict[int, tuple[int, bytes]] = {}

    def follow(number: int) -> None:
        status, stdout, _ = finish(containers[number])
        results[number] = (status.exit_code, stdout)

    threads = [threading.Thread(target=follow, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {n: (n, b"%d\n" % n) for n in range(8)}


def test_created_container_does_not_run_before_its_start(
    engine: ContainerEngine, start: Starter, shared: Path
) -> None:
    spec = start.spec("touch", "/shared/ran", mounts=(bind(shared, "/shared"),))
    container = engine.create(spec)
    assert container.state().started_at is None
    assert not (shared / "ran").exists()
    container.start()
    container.wait(60)
    assert (shared / "ran").exists()


def test_second_start_does_not_run_the_command_again(
    engine: ContainerEngine, start: Starter, shared: Path
) -> None:
    spec = start.spec(
        "sh", "-c", 'echo run >> "$0"', "/shared/runs", mounts=(bind(shared, "/shared"),)
    )
    container = engine.create(spec)
    for _ in range(3):
        container.start()
        container.wait(60)
    assert (shared / "runs").read_text() == "run\n"


def test_state_contains_start_and_end(start: Starter) -> None:
    before = datetime.now(UTC)
    container = start(*NAP)
    started = container.state()
    assert started.ended_at is None
    container.kill("SIGKILL")
    container.wait(60)
    ended = container.state()
    assert started.started_at == ended.started_at
    assert started.started_at is not None
    assert ended.ended_at is not None
    assert before <= started.started_at < ended.ended_at <= datetime.now(UTC)


def test_adopted_container_is_read_from_the_first_byte(
    engine: ContainerEngine, start: Starter
) -> None:
    container = start(
        "sh", "-c", "echo early; echo late >&2; sleep 1; echo last; exit 3", kept_output=10**6
    )
    seen = next(iter(container.logs()))
    assert seen.data
    adopted = engine.adopt(container.id)
    assert adopted is not None
    status, stdout, stderr = finish(adopted)
    assert (status.exit_code, stdout, stderr) == (3, b"early\nlast\n", b"late\n")


def test_adopted_ended_container_has_all_its_output(
    engine: ContainerEngine, start: Starter
) -> None:
    container = start("sh", "-c", "echo out; echo err >&2; exit 4", kept_output=10**6)
    container.wait(60)
    adopted = engine.adopt(container.id)
    assert adopted is not None
    assert finish(adopted) == (ExitStatus(exit_code=4, oom_killed=False), b"out\n", b"err\n")
    assert adopted.ports == {}
    adopted.remove()
    assert engine.adopt(container.id) is None


def test_reconnected_container_is_read_from_the_first_byte(start: Starter) -> None:
    container = start("sh", "-c", "echo out; echo err >&2; exit 4", kept_output=10**6)
    container.wait(60)
    again = container.again()
    assert again is not None
    assert finish(again) == (ExitStatus(exit_code=4, oom_killed=False), b"out\n", b"err\n")
    again.remove()
    assert container.again() is None


def test_paused_container_stands_still_until_it_is_resumed(start: Starter) -> None:
    container = start("sh", "-c", "while :; do echo tick; sleep 0.05; done")
    output = container.logs()
    next(output)
    container.pause()
    before = container.usage()
    time.sleep(0.3)
    after = container.usage()
    container.resume()
    assert before is not None
    assert after is not None
    assert before.cpu == after.cpu
    next(output)
    container.kill("SIGKILL")
    for _ in output:
        pass
    container.wait(60)
    for change in (container.pause, container.resume):
        with pytest.raises(NotRunningError):
            change()


@pytest.mark.docker
def test_image_of_a_container_has_its_files_and_labels(
    docker_engine: DockerEngine, docker_start: Starter
) -> None:
    container = docker_start("sleep", "60")
    name = f"orchestrator/test-{secrets.token_hex(4)}:ready"
    image = docker_engine.commit(container.id, name, {"made": "here"})
    try:
        info = docker_engine.image_info(name)
        assert info is not None
        assert (info.id, info.labels["made"]) == (image, "here")
    finally:
        docker_engine.remove_image(name)
    with pytest.raises(NotRunningError):
        docker_engine.commit("no-such-container", name, {})
