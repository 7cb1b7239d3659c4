"""Tests that a task starts beside others only if the machine has its resources."""

import os
from pathlib import Path

import pytest

from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.workflow.model import Task
from orchestrator.config.workflow.planning import demand_of
from orchestrator.engine.interface.features import EngineFeatures
from orchestrator.runs.scheduling.queue import Admission, readings
from tests.support.local_engine import LocalEngine

GIB = 1024**3


@pytest.fixture
def machine(local_engine: LocalEngine) -> EngineFeatures:
    found = local_engine.check(images=(), runtime=None)
    return type(found)(**{**vars(found), "cpus": 4, "memory": 8 * GIB})


def task(name: str, **limits: object) -> Task:
    return Task.model_validate({"id": name, "task": name, "settings": {"limits": limits}})


def shortage(
    machine: EngineFeatures,
    asks: Task,
    *running: Task,
    memory: int | None = 8 * GIB,
    disk: int = 100 * GIB,
    auto: bool = False,
) -> str | None:
    config = ParallelConfig(tasks=("-",), auto_workers=auto)
    own, *others = (demand_of(config, one, cpus=machine.cpus) for one in (asks, *running))
    return Admission(machine, lambda: (memory, disk)).shortage(own, others)


def test_default_limits_reserve_nothing(machine: EngineFeatures) -> None:
    assert shortage(machine, task("a"), *(task(name) for name in "bcdefg")) is None


def test_requested_memory_never_exceeds_the_machine(machine: EngineFeatures) -> None:
    assert shortage(machine, task("a", memory="5g"), task("b", memory="4g")) == (
        "the running workers and this worker need about 9216 MiB of memory, but the machine has "
        "8192"
    )
    assert shortage(machine, task("a", memory="5g"), task("b")) is None


def test_chosen_number_of_workers_shares_the_cpus(machine: EngineFeatures) -> None:
    eight = [task(name, cpus=4) for name in "abcdefgh"]
    assert shortage(machine, *eight) is None


def test_auto_reserves_chosen_limits_and_half_of_the_defaults(machine: EngineFeatures) -> None:
    # The machine has 4 CPUs and 8 GiB; the default limits of a worker are 2 CPUs and 4 GiB.
    assert shortage(machine, *(task(name) for name in "abcd"), auto=True) is None
    assert shortage(machine, *(task(name) for name in "abcde"), auto=True) == (
        "the running workers and this worker need about 5 CPUs, but the machine has 4"
    )
    assert shortage(machine, task("a", cpus=2), task("b", cpus=2), auto=True) is None
    assert shortage(machine, task("a", cpus=2.5), task("b", cpus=2), auto=True) == (
        "the running workers and this worker need about 4.5 CPUs, but the machine has 4"
    )
    small = {"cpus": 0.4, "memory": "64m"}
    ten = [task(name, **small) for name in "abcdefghij"]
    assert shortage(machine, ten[0], *ten[1:], auto=True) is None


def test_no_task_starts_while_memory_or_disk_is_short(machine: EngineFeatures) -> None:
    short = shortage(machine, task("a"), task("b"), memory=300 * 1024**2)
    assert short == "only 300 MiB of memory are free"
    full = shortage(machine, task("a"), task("b"), disk=100 * 1024**2)
    assert full == "only 100 MiB of disk are free"
    assert shortage(machine, task("a"), task("b"), memory=None) is None


def test_only_task_starts_regardless_of_resources(machine: EngineFeatures) -> None:
    assert shortage(machine, task("a", cpus=9), memory=0, disk=0) is None


def test_readings_measure_this_machine(tmp_path: Path) -> None:
    memory, disk = readings(tmp_path)()
    assert memory is not None
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < memory <= total
    assert disk > 0
