"""Tests of token buckets, pauses and slots, with a simulated clock."""

import math
import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from orchestrator.base.events import Event, ProviderPaused, SlotsChanged
from orchestrator.config.settings.run import Provider, RateLimit
from orchestrator.runs.scheduling.rate_limits import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    QUIET,
    REPEATED,
    RateLimiter,
    Start,
)
from orchestrator.sandbox.supervision.pacing.token_bucket import provider_of

HOUR = 3600.0


def limited(capacity: int, rate: float, *, enabled: bool = True) -> Provider:
    return Provider(rate_limit=RateLimit(enabled=enabled, capacity=capacity, refill_rate=rate))


@dataclass
class Bench:
    """A rate limiter, and the events that it emitted."""

    providers: dict[str, Provider] = field(default_factory=dict)
    slots: int = 8
    patience: float = HOUR
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.governor = RateLimiter(self.providers, self.slots, self.patience, self.events.append)

    def start(self, count: int, now: float, provider: str = "p") -> list[Start]:
        for _ in range(count):
            assert self.governor.wait(provider, now) == 0
        return [self.governor.note_start(provider, now) for _ in range(count)]

    @property
    def pauses(self) -> list[float]:
        return [one.seconds for one in self.events if isinstance(one, ProviderPaused)]

    @property
    def changes(self) -> list[int]:
        return [one.slots for one in self.events if isinstance(one, SlotsChanged)]


class TestProviders:
    @pytest.mark.parametrize(
        ("agent_cli", "model", "configured", "wanted"),
        [
            ("gemini", None, (), "gemini"),
            ("gemini", None, ("gemini-cli",), "gemini-cli"),
            ("claude", "x", ("claude-code", "gemini-cli"), "claude-code"),
            ("claude", "x", ("anthropic", "claude"), "claude"),
            ("codex", "gpt-5", ("openai",), "openai"),
            ("opencode", "anthropic/claude-x", ("anthropic",), "anthropic"),
            ("opencode", "anthropic/claude-x", ("openai",), "opencode"),
            ("claude", "anthropic", ("anthropic",), "anthropic"),
            ("shell", None, ("shell",), "shell"),
        ],
    )
    def test_provider_of_a_worker(
        self, agent_cli: str, model: str | None, configured: tuple[str, ...], wanted: str
    ) -> None:
        assert provider_of(agent_cli, model, configured) == wanted


class TestBucket:
    def test_bucket_allows_a_burst_and_then_a_rate(self) -> None:
        bench = Bench({"p": limited(2, 1.0)})
        bench.start(2, now=100)
        assert bench.governor.wait("p", 100) == pytest.approx(1)
        assert bench.governor.wait("p", 100.4) == pytest.approx(0.6)
        bench.start(1, now=101)
        assert bench.governor.wait("p", 101) == pytest.approx(1)
        # However long no worker starts, the bucket holds no more tokens than its capacity.
        bench.start(1, now=10_000)
        bench.start(1, now=10_000)
        assert bench.governor.wait("p", 10_000) == pytest.approx(1)

    def test_each_provider_has_its_own_bucket(self) -> None:
        bench = Bench({"p": limited(1, 0.1)})
        bench.start(1, now=0)
        bench.start(8, now=0, provider="q")
        assert bench.governor.wait("p", 0) == pytest.approx(10)

    def test_disabled_limit_has_no_effect(self) -> None:
        bench = Bench({"p": limited(1, 0.1, enabled=False), "q": Provider()})
        bench.start(8, now=0)
        bench.start(8, now=0, provider="q")

    def test_workers_of_another_process_take_no_token(self) -> None:
        bench = Bench({"p": limited(1, 0.1)})
        bench.governor.note_start("p", 0, new=False)
        assert bench.governor.wait("p", 0) == 0

    def test_bucket_may_start_empty(self) -> None:
        governor = RateLimiter({"p": limited(4, 2.0)}, 8, HOUR, full=False)
        assert governor.wait("p", 50) == pytest.approx(0.5)


class TestPauses:
    def test_simultaneous_refusals_are_one_pause(self) -> None:
        bench = Bench()
        starts = bench.start(8, now=0)
        for number, start in enumerate(starts):
            bench.governor.note_refusal(start, 1 + number * 0.1, None)
        assert bench.pauses == [FIRST_PAUSE]
        assert bench.changes == []
        assert bench.governor.wait("p", 1.8) == pytest.approx(FIRST_PAUSE - 0.8)
        assert bench.governor.wait("p", 1 + FIRST_PAUSE) == 0
        assert bench.governor.wait("q", 1.8) == 0

    def test_reported_reset_time_overrides_the_guess(self) -> None:
        bench = Bench()
        first, second, third = bench.start(3, now=0)
        bench.governor.note_refusal(first, 1, None)
        bench.governor.note_refusal(second, 2, 60)
        bench.governor.note_refusal(third, 2.5, 59)
        assert bench.pauses == [FIRST_PAUSE, 61.0]
        assert 60 < bench.governor.wait("p", 2.5) < 62

    def test_failed_guesses_are_doubled_up_to_a_limit(self) -> None:
        bench = Bench()
        now = 0.0
        for _ in range(10):
            (start,) = bench.start(1, now)
            bench.governor.note_refusal(start, now + 1, None)
            now += 1 + bench.pauses[-1]
        assert bench.pauses[:4] == [5, 10, 20, 40]
        assert bench.pauses[-1] == LONGEST_PAUSE

    def test_success_resets_the_guess(self) -> None:
        bench = Bench()
        for now in (0.0, 10.0):
            (start,) = bench.start(1, now)
            bench.governor.note_refusal(start, now + 1, None)
        first, second = bench.start(2, now=100)
        bench.governor.note_end(first, 101, succeeded=True)
        bench.governor.note_refusal(second, 102, None)
        assert bench.pauses == [5, 10, 5]

    def test_refusal_of_an_earlier_start_does_not_count_against_the_pause(self) -> None:
        bench = Bench()
        early, late = bench.start(2, now=0)
        bench.governor.note_refusal(early, 1, None)
        bench.governor.note_refusal(late, 100, None)
        assert bench.pauses == [5, 5]
        assert bench.changes == []

    def test_pause_is_limited_by_the_patience(self) -> None:
        bench = Bench(patience=60)
        first, second = bench.start(2, now=0)
        assert bench.governor.note_refusal(first, 1, 61) is None
        assert bench.governor.wait("p", 1) == 0
        assert bench.governor.note_refusal(second, 1, 60) is not None
        assert bench.governor.wait("p", 1) == pytest.approx(61)


class TestSlots:
    def test_repeated_refusals_halve_the_slots(self) -> None:
        bench = Bench()
        now, counts = 0.0, []
        for _ in range(6):
            starts = []
            while bench.governor.wait("p", now) == 0 and len(starts) < 8:
                starts.append(bench.governor.note_start("p", now))
            for start in starts:
                bench.governor.note_refusal(start, now + 1, 20)
            now += 22
            counts.append(len(starts))
        assert counts == [8, 8, 4, 2, 1, 1]
        assert bench.changes == [4, 2, 1]

    def test_running_workers_count_towards_the_slots(self) -> None:
        bench = Bench()
        first, *_ = bench.start(8, now=0)
        bench.governor.note_refusal(first, 1, 5)
        (again,) = bench.start(1, now=10)
        bench.governor.note_refusal(again, 11, 5)
        assert bench.changes == [4]
        assert bench.governor.wait("p", 20) == math.inf

    def test_slots_recover_after_successes_or_a_quiet_minute(self) -> None:
        bench = Bench(slots=4)
        now = 0.0
        for _ in range(2):
            starts = bench.start(4, now)
            for start in starts:
                bench.governor.note_refusal(start, now + 1, 1)
            now += 10
        assert bench.changes == [2]
        for start in bench.start(2, now):
            bench.governor.note_end(start, now + 1, succeeded=True)
        assert bench.changes == [2, 3]
        bench.start(1, now + 2 + QUIET)
        assert bench.changes == [2, 3, 4]
        bench.start(1, now + 3 + 9 * QUIET)
        assert bench.changes == [2, 3, 4]

    def test_distant_refusals_do_not_reduce_the_slots(self) -> None:
        bench = Bench()
        for now in (0.0, REPEATED + 100):
            (start,) = bench.start(1, now)
            bench.governor.note_refusal(start, now + 1, None)
        assert bench.changes == []


@dataclass
class World:
    """Random workers and refusals in simulated time."""

    seed: int

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.limits = {
            name: RateLimit(
                capacity=self.chance.randint(1, 6), refill_rate=self.chance.choice([0.2, 1, 5])
            )
            for name in ("p", "q")
        }
        providers = {name: Provider(rate_limit=limit) for name, limit in self.limits.items()}
        self.bench = Bench(providers, slots=self.chance.randint(1, 10), patience=120.0)
        self.names = ("p", "q", "free")
        self.starts: dict[str, list[float]] = {name: [] for name in self.names}
        self.paused: dict[str, float] = dict.fromkeys(self.names, 0.0)
        self.waiting = deque(self.chance.choice(self.names) for _ in range(150))
        self.running: list[tuple[float, Start]] = []
        self.now = 0.0

    def run(self) -> None:
        while self.waiting or self.running:
            assert self.now < 200_000, "a worker never starts"
            self._start()
            self.now += self.chance.choice([0.05, 0.2, 1.0])
            for due, start in [one for one in self.running if one[0] <= self.now]:
                self.running.remove((due, start))
                self._end(start)

    def _start(self) -> None:
        for name in list(self.waiting):
            if len(self.running) >= self.bench.slots:
                return
            if self.bench.governor.wait(name, self.now) <= 0:
                assert self.now >= self.paused[name], "a worker started during a pause"
                self.waiting.remove(name)
                start = self.bench.governor.note_start(name, self.now)
                self.starts[name].append(self.now)
                self.running.append((self.now + self.chance.expovariate(0.5), start))

    def _end(self, start: Start) -> None:
        kind = self.chance.random()
        if kind < 0.25:
            resets_in = self.chance.choice([None, None, 0.5, 30.0, 119.0, 500.0])
            until = self.bench.governor.note_refusal(start, self.now, resets_in)
            assert (until is None) == (resets_in == 500.0)
            if until is not None:
                assert until >= self.paused[start.provider]
                assert until <= self.now + 121
                self.paused[start.provider] = until
            self.waiting.append(start.provider)
        else:
            self.bench.governor.note_end(start, self.now, succeeded=kind < 0.9)


@pytest.mark.parametrize("seed", range(40))
def test_random_workers_respect_buckets_and_pauses(seed: int) -> None:
    world = World(seed)
    world.run()
    for name, limit in world.limits.items():
        times = world.starts[name]
        for first in range(len(times)):
            for count, time in enumerate(times[first:], start=1):
                most = limit.capacity + limit.refill_rate * (time - times[first])
                assert count <= most + 1e-6, (name, times[first], time)
    assert all(1 <= slots <= world.bench.slots for slots in world.bench.changes)
    assert len(world.bench.pauses) > 0
