"""Tests of which tasks may start, and which are skipped."""

import random
from collections.abc import Collection

import pytest

from orchestrator.config.workflow.model import AtOneTime, Task, Workflow
from orchestrator.config.workflow.order import Order, TaskOutcome, TaskOutcomes, Wait


def workflow(*tasks: Task) -> Workflow:
    return Workflow(name="w", tasks=tasks)


def task(name: str, *needs: str, **more: object) -> Task:
    return Task.model_validate({"id": name, "task": name, "depends_on": needs, **more})


def started(
    flow: Workflow,
    *,
    waiting: str,
    running: str = "",
    fates: TaskOutcomes | None = None,
    free: int = 9,
) -> str:
    chosen = Order(flow).next(waiting.split(), running.split(), fates or {}, free=free)
    return " ".join(one.id for one in chosen.started)


def skipped(flow: Workflow, waiting: str, fates: TaskOutcomes) -> dict[str, str]:
    return {one.task.id: one.because for one in Order(flow).skips(waiting.split(), fates)}


GOOD, BAD = TaskOutcome.SUCCEEDED, TaskOutcome.FAILED
DIAMOND = workflow(task("a"), task("b", "a"), task("c", "a"), task("d", "b", "c"))


def test_all_ready_tasks_start_and_no_others() -> None:
    assert started(DIAMOND, waiting="a b c d") == "a"
    assert started(DIAMOND, waiting="b c d", fates={"a": GOOD}) == "b c"
    assert started(DIAMOND, waiting="d", running="c", fates={"a": GOOD, "b": GOOD}) == ""
    assert started(DIAMOND, waiting="d", fates=dict.fromkeys("abc", GOOD)) == "d"


def test_starts_are_limited_by_the_slots() -> None:
    assert started(DIAMOND, waiting="b c", fates={"a": GOOD}, free=1) == "b"
    assert started(DIAMOND, waiting="b c", fates={"a": GOOD}, free=0) == ""


def test_exclusive_task_is_not_overtaken() -> None:
    flow = workflow(task("a"), task("alone", parallel=False), task("b"))
    assert started(flow, waiting="alone b", running="a") == ""
    assert started(flow, waiting="alone b") == "alone"
    assert started(flow, waiting="b", running="alone") == ""
    assert started(flow, waiting="a alone b") == "a"


def test_lock_is_exclusive_and_first_come_first_served() -> None:
    flow = workflow(
        task("a", resources=["db"]), task("b", resources=["db", "net"]),
        task("c", resources=["net"]), task("d"),
    )  # fmt: skip
    assert started(flow, waiting="a b c d") == "a d"
    assert started(flow, waiting="b c d", running="a") == "d"
    assert started(flow, waiting="b c") == "b"


def test_default_limits_of_complexities() -> None:
    high = workflow(*(task(name, complexity="high") for name in "ab"), task("plain"))
    assert started(high, waiting="a b plain") == "a plain"
    medium = workflow(*(task(name, complexity="medium") for name in "abc"))
    assert started(medium, waiting="a b c") == "a b"
    low = workflow(*(task(f"t{number}", complexity="low") for number in range(12)))
    names = " ".join(one.id for one in low.tasks)
    assert len(started(low, waiting=names, free=12).split()) == 10
    mixed = workflow(task("low", complexity="low"), task("high", complexity="high"))
    assert started(mixed, waiting="high", running="low") == ""


def test_limits_of_complexities_can_be_set() -> None:
    tasks = [task(f"{kind}{n}", complexity=kind) for kind in ("high", "low") for n in range(4)]
    flow = workflow(*tasks).model_copy(update={"complexity": AtOneTime(high=2, low=3)})
    assert started(flow, waiting="high0 high1 high2", free=9) == "high0 high1"
    assert started(flow, waiting="low0 low1 low2 low3", free=9) == "low0 low1 low2"
    # Tasks take 1/2 and 1/3 of the capacity, which leaves no room for another 1/3.
    assert started(flow, waiting="low0 low1", running="high0", free=9) == "low0"


def test_task_without_room_waits_unless_alone() -> None:
    flow = workflow(task("big"), task("small"), task("third"))

    def shortage(one: Task, running: Collection[Task]) -> str | None:  # noqa: ARG001
        return "too big" if one.id == "big" else None

    order = Order(flow, shortage)
    held = order.next(["big"], ["small"], {}, free=3)
    assert (held.started, held.held) == ([], {"big": Wait("machine", "too big")})
    both = order.next(["big", "small"], [], {}, free=3)
    assert ([one.id for one in both.started], both.held) == (["big", "small"], {})
    reasons = order.next(["big", "third"], ["small"], {}, free=3).held
    assert reasons["third"] == Wait("lock", "task `big` starts first")


def test_reasons_for_waiting_name_the_tasks_and_resources() -> None:
    flow = workflow(
        task("a", resources=("db",)), task("b", resources=("db",)), task("c", "a", "b"),
        task("e"), task("d", "a", "b", "c", "e"), task("alone", parallel=False), task("last"),
        task("high", complexity="high"), task("low", complexity="low"),
    )  # fmt: skip
    order = Order(flow)
    assert order.reasons_to_wait(["b", "c", "d"], {"a": GOOD}) == {
        "c": Wait("dependency", "task `b` must end first"),
        "d": Wait("dependency", "tasks `b`, `c` and `e` must end first"),
    }
    assert order.next(["b", "low", "alone", "last"], ["a", "high"], {}, free=9).held == {
        "b": Wait("lock", "an earlier task needs resource `db`"),
        "alone": Wait("lock", "this task runs alone: the running tasks must end first"),
        "last": Wait("lock", "task `alone` starts first"),
        "low": Wait("lock", "task `alone` starts first"),
    }
    assert order.next(["last"], ["alone"], {}, free=9).held == {
        "last": Wait("lock", "task `alone` runs alone")
    }
    assert order.next(["low"], ["high"], {}, free=9).held == {
        "low": Wait("lock", "too many tasks with a complexity run at the same time")
    }


def test_only_dependents_of_a_failure_are_skipped() -> None:
    flow = workflow(task("a"), task("b", "a"), task("c", "b"), task("other"))
    assert skipped(flow, "b c other", {"a": BAD}) == {
        "b": "task `a` failed",
        "c": "task `b` skipped",
    }
    assert started(flow, waiting="other", fates={"a": BAD}) == "other"


def test_when_determines_the_effect_of_a_failure() -> None:
    flow = workflow(
        task("a"), task("b"), task("tidy", "a", "b", when="always"),
        task("mend", "a", "b", when="on_failure"), task("after", "mend"),
    )  # fmt: skip
    names = "tidy mend after"
    assert skipped(flow, names, {"a": GOOD}) == {}
    assert skipped(flow, names, {"a": GOOD, "b": GOOD}) == {
        "mend": "no task that this task depends on failed"
    }
    assert skipped(flow, names, {"a": BAD}) == {}
    assert started(flow, waiting=names, fates={"a": BAD}) == ""
    assert started(flow, waiting=names, fates={"a": BAD, "b": GOOD}) == "tidy mend"
    assert skipped(flow, "after", {"a": GOOD, "b": GOOD, "mend": TaskOutcome.UNNEEDED}) == {}


def test_task_waits_for_the_dependencies_of_a_skipped_one() -> None:
    flow = workflow(
        task("bad"), task("slow"), task("skipped", "bad", "slow"),
        task("report", "skipped", when="always"),
    )  # fmt: skip
    fates = {"bad": BAD, "skipped": TaskOutcome.SKIPPED}
    assert started(flow, waiting="report", running="slow", fates=fates) == ""
    assert started(flow, waiting="report", fates={**fates, "slow": GOOD}) == "report"


@pytest.mark.parametrize("critical", [True, False, None])
def test_only_critical_failures_stop_independent_tasks(critical: bool | None) -> None:
    flow = workflow(task("a", critical=critical), task("b"), task("tidy", "a", when="always"))
    expected = {"b": "critical task `a` failed", "tidy": "critical task `a` failed"}
    assert skipped(flow, "b tidy", {"a": BAD}) == (expected if critical else {})
    assert skipped(flow, "b tidy", {"a": GOOD}) == {}


def random_workflow(chance: random.Random, count: int) -> Workflow:
    names = [f"t{number}" for number in range(count)]
    return workflow(
        *(
            task(
                name,
                *chance.sample(names[:place], min(place, chance.choice([0, 0, 1, 2, 3]))),
                parallel=chance.random() > 0.03,
                critical=chance.choice([None, None, False, True]) if count < 40 else None,
                when=chance.choice(["on_success"] * 6 + ["always", "on_failure"]),
                resources=chance.sample(["db", "net", "gpu"], chance.choice([0, 0, 1, 2])),
                complexity=chance.choice([None, None, "low", "medium", "high"]),
            )
            for place, name in enumerate(names)
        )
    )


class Simulation:
    """Executes a workflow like the scheduler, with random ends."""

    def __init__(self, flow: Workflow, chance: random.Random, slots: int) -> None:
        self.flow, self.chance, self.slots = flow, chance, slots
        self.order = Order(flow)
        self.waiting = {one.id for one in flow.tasks}
        self.running: list[str] = []
        self.fates: dict[str, TaskOutcome] = {}

    def run(self) -> dict[str, TaskOutcome]:
        while self.waiting or self.running:
            for skip in self.order.skips(self.waiting, self.fates):
                self.end(skip.task.id, skip.fate)
            self.start()
            if self.running:
                ended = self.running.pop(self.chance.randrange(len(self.running)))
                self.end(ended, self.chance.choice([GOOD, GOOD, GOOD, BAD]))
            else:
                assert not self.waiting
        return self.fates

    def end(self, name: str, fate: TaskOutcome) -> None:
        assert name not in self.fates
        self.waiting.discard(name)
        self.fates[name] = fate

    def start(self) -> None:
        free = self.slots - len(self.running)
        for one in self.order.next(self.waiting, self.running, self.fates, free=free).started:
            assert {*one.depends_on} <= self.fates.keys()
            self.waiting.remove(one.id)
            self.running.append(one.id)
        self.hold()

    def hold(self) -> None:
        tasks = [self.flow[name] for name in self.running]
        locks = [lock for one in tasks for lock in one.resources]
        weights = {"high": 10, "medium": 5, "low": 1}
        assert len(tasks) <= self.slots
        assert len(locks) == len(set(locks))
        assert all(one.parallel for one in tasks) or len(tasks) == 1
        assert sum(weights[one.complexity] for one in tasks if one.complexity) <= 10


@pytest.mark.parametrize("seed", range(40))
def test_random_workflows_keep_all_rules(seed: int) -> None:
    chance = random.Random(seed)
    flow = random_workflow(chance, chance.choice([5, 12, 30, 120]))
    fates = Simulation(flow, chance, slots=chance.randint(1, 10)).run()
    assert fates.keys() == {one.id for one in flow.tasks}
    for one in flow.tasks:
        if fates[one.id] in (GOOD, BAD) and one.when == "on_success":
            assert all(fates[other] in (GOOD, TaskOutcome.UNNEEDED) for other in one.depends_on)
