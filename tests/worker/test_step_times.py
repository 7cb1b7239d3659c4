"""Tests of the time of each step of a worker."""

from pathlib import Path

from orchestrator.base.results import Status, Timings
from orchestrator.config.settings.container import Limits
from orchestrator.config.settings.project import Check
from orchestrator.worker.step_times import StepTimes
from tests.support.local_engine import LocalEngine
from tests.support.runs import shell_run


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_moment_belongs_to_the_step_begun_last() -> None:
    clock = Clock()
    times = StepTimes(clock)
    assert times.read() is None
    for step, until in (("prepare", 2.0), ("agent", 7.0), ("prepare", 8.0), ("harvest", 8.5)):
        times.begin(step)
        clock.now = until
    assert times.read() == Timings(prepare=3.0, agent=5.0, harvest=0.5)
    clock.now = 9.0
    assert times.read() == Timings(prepare=3.0, agent=5.0, harvest=1.0)


def test_end_of_a_stopped_agent_counts_as_stop() -> None:
    clock = Clock()
    times = StepTimes(clock)
    times.begin("agent")
    clock.now = 10.0
    times.begin("stop")
    times.count_as_stop(3.0)
    clock.now = 11.0
    assert times.read() == Timings(agent=7.0, stop=4.0)


def test_attempt_starts_at_zero() -> None:
    clock = Clock()
    times = StepTimes(clock)
    times.begin("agent")
    clock.now = 10.0
    times.restart()
    assert times.read() is None
    times.begin("prepare")
    assert times.read() == Timings()


def test_result_has_the_times_of_completed_steps(repo: Path, local_engine: LocalEngine) -> None:
    wrote = shell_run(
        repo, local_engine, "echo x > x; sleep 0.1", setup=("true",), checks=(Check(run="true"),)
    )
    (worker,) = wrote.results
    assert worker.status is Status.SUCCESS, worker.message
    assert worker.timings is not None
    steps = worker.timings.model_dump()
    assert set(steps) == set(Timings.model_fields)
    assert all(steps.values()), steps
    assert sum(steps.values()) <= wrote.duration


def test_stopped_worker_has_a_time_for_the_stop(repo: Path, local_engine: LocalEngine) -> None:
    task = "trap 'while [ ! -e /dev/null/x ]; do sleep 0.01; done' TERM; sleep 60 & wait"
    (worker,) = shell_run(
        repo, local_engine, task, timeout_per_worker=3, limits=Limits(grace=0.5)
    ).results
    assert worker.status is Status.TIMEOUT
    assert worker.timings is not None
    assert worker.timings.stop >= 0.5
