"""Tests that a container shows which limits an engine enforces, and that its answer is data."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from orchestrator.base.errors import EngineError
from orchestrator.base.machine import boot_id
from orchestrator.config.settings.values import Limit
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.interface.features import WATCHED
from orchestrator.engine.interface.spec import ContainerSpec
from orchestrator.engine.probes.limits_probe import probe_limits
from tests.support.answering_engine import SOUND, AnsweringEngine, answer
from tests.support.local_engine import LocalContainer

EVERY: set[Any] = set(get_args(Limit))


def names(repository: Path) -> str:
    return str(repository / ".git")


@pytest.mark.docker
def test_the_engine_of_this_machine_enforces_every_limit(
    docker_engine: DockerEngine, tmp_path: Path
) -> None:
    proven = probe_limits(docker_engine, names(tmp_path))
    assert {limit for limit, how in proven.enforced.items() if how == "kernel"} == EVERY - {
        *WATCHED
    }
    assert proven.is_sound
    assert proven.reports_memory
    assert (proven.kernel, proven.boot) == (os.uname().release, boot_id())


def dropped(host: dict[str, Any], *names: str) -> None:
    for name in names:
        host.pop(name, None)


IGNORED = {
    "memory": ("Memory", "MemorySwap"),
    "cpus": ("NanoCpus",),
    "pids": ("PidsLimit",),
    "open_files": ("Ulimits",),
    "read_only_root": ("ReadonlyRootfs",),
    "capabilities": ("CapDrop",),
    "network": ("NetworkMode",),
}


@pytest.mark.docker
def test_a_stub_that_accepts_limits_and_drops_them_is_noticed(
    docker_engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = docker_engine._client
    create = client.create_container

    def lying(**arguments: Any) -> Any:
        host = arguments["host_config"]
        dropped(host, *(name for group in IGNORED.values() for name in group))
        host["SecurityOpt"] = ["seccomp=unconfined"]
        host["Tmpfs"] = dict.fromkeys(host["Tmpfs"], "rw,mode=1777")
        return create(**arguments)

    monkeypatch.setattr(client, "create_container", lying)
    proven = probe_limits(docker_engine, names(tmp_path))
    wrong = {limit for limit, how in proven.enforced.items() if how != "no"} - {*WATCHED}
    # A machine without swap space needs no limit of it.
    assert wrong <= {"swap"}
    assert proven.reports_memory is None


@pytest.mark.docker
def test_a_stub_that_drops_the_limit_of_memory_is_noticed(
    docker_engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = docker_engine._client
    create = client.create_container

    def lying(**arguments: Any) -> Any:
        dropped(arguments["host_config"], *IGNORED["memory"])
        return create(**arguments)

    monkeypatch.setattr(client, "create_container", lying)
    proven = probe_limits(docker_engine, names(tmp_path))
    assert {limit for limit, how in proven.enforced.items() if how == "no"} - {"swap"} == {"memory"}


def test_answer_is_a_table(tmp_path: Path) -> None:
    engine = AnsweringEngine(tmp_path / "e", answer(pids=False))
    proven = probe_limits(engine, names(tmp_path))
    assert proven.enforced == {
        **dict.fromkeys(EVERY - {"pids"}, "kernel"), **WATCHED, "pids": "no"
    }  # fmt: skip
    assert not proven.is_sound
    # The process died, but the engine did not say why.
    assert proven.reports_memory is False
    assert engine.leftovers({}) == []


def test_what_the_container_cannot_tell_is_unknown(tmp_path: Path) -> None:
    text = json.dumps({name: said for name, said in SOUND.items() if name != "seccomp"})
    proven = probe_limits(AnsweringEngine(tmp_path / "e", text), names(tmp_path))
    assert EVERY - proven.enforced.keys() == {"seccomp"}
    assert not proven.is_sound


class Sandbox(AnsweringEngine):
    """Containers whose kernel is a program: the machine's kernel ends it, with the container."""

    def __init__(self, scratch: Path, ends: list[tuple[str, bool, int]]) -> None:
        super().__init__(scratch)
        self.ends = ends

    def start(self, spec: ContainerSpec) -> LocalContainer:
        self.text, killed, refused = self.ends.pop(0)
        container = super().start(spec)
        status = container.wait(10)
        told = replace(
            status, oom_killed=killed, counters=replace(status.counters, refused_processes=refused)
        )
        container.wait = lambda _timeout: told  # type: ignore[method-assign]
        return container


BEFORE = json.dumps({"tmp": True, "tmp_inodes": False, "kernel": "4.4.0"})


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        # It ended at the limit of processes, then, asked again, at that of memory.
        ([(BEFORE, False, 1), ("", True, 0)], {"pids": "kernel", "memory": "kernel"}),
        ([(BEFORE, False, 1), ('{"memory": false}', False, 0)], {"pids": "kernel", "memory": "no"}),
        # Its program was told of no kill, but the machine's kernel killed a process of it.
        ([(f'{BEFORE}\n{{"pids": true, "memory": false}}', True, 0)],
         {"pids": "kernel", "memory": "kernel"}),
        # It needed more memory than the limit before it reached that of processes.
        ([(BEFORE, True, 0)], {"memory": "kernel"}),
        ([(BEFORE, False, 0)], {}),
    ],
    ids=["both", "memory-ignored", "told-wrongly", "memory-first", "ended"],
)  # fmt: skip
def test_limit_at_which_the_container_ends_is_enforced(
    tmp_path: Path, ends: list[tuple[str, bool, int]], shown: dict[str, str]
) -> None:
    engine = Sandbox(tmp_path / "e", list(ends))
    proven = probe_limits(engine, names(tmp_path), runtime="process")
    assert proven.enforced == {"tmp": "kernel", "tmp_inodes": "no", **WATCHED, **shown}
    assert engine.ends == []
    assert engine.leftovers({}) == []
    # The program's own threads and memory count.
    assert {(spec.pids, spec.memory) for spec in engine.asked} == {(96, 256 * 1024**2)}
    assert [spec.command[-1] for spec in engine.asked[1:]] == [f"memory={256 * 1024**2}"] * (
        len(ends) - 1
    )


@pytest.mark.parametrize(
    "text",
    [
        "", "not JSON", "[]", "7", '{"memory": 1}', '{"memory": "yes"}', '{"other": true}',
        '{"kernel": 7}', json.dumps({"kernel": "k" * 201}), answer() + " " * 20_000, "[" * 10_000,
        '{"memory": true}\n\x1b[2J',
    ],
)  # fmt: skip
def test_an_answer_of_another_form_is_an_error(tmp_path: Path, text: str) -> None:
    engine = AnsweringEngine(tmp_path / "e", text)
    with pytest.raises(EngineError, match="cannot test the limits of containers") as caught:
        probe_limits(engine, names(tmp_path))
    assert "\x1b" not in f"{caught.value.message}{caught.value.hint}"
    assert engine.leftovers({}) == []
