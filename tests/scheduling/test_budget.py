"""What a run may spend, shared out: never more than there is."""

import random
from typing import Any

import pytest

from orchestrator.config.run import ParallelConfig
from orchestrator.results import Status, WorkerResult
from orchestrator.scheduling.budget import Budget, BudgetPool
from orchestrator.worker.budget_share import BudgetShare


def config(**rest: Any) -> ParallelConfig:
    return ParallelConfig(tasks=("t",), **rest)


def ended(number: int, cost: float | None = None, **rest: Any) -> WorkerResult:
    return WorkerResult(
        worker_id=number,
        branch="b",
        model="m",
        status=Status.SUCCESS,
        worktree_path="/w",
        cost=cost or 0.0,
        cost_known=cost is not None,
        **{"started_at": "2026-11-21T12:00:00Z", **rest},
    )


class TestShares:
    def test_are_equal(self) -> None:
        funds = Budget(config(tokens_total=100_000))
        given = [funds.allot(number, config(), 5 - number) for number in range(1, 5)]
        assert given == [BudgetShare(tokens=25_000)] * 4

    def test_what_one_leaves_is_for_the_others(self) -> None:
        funds = Budget(config(budget_total=4.0))
        first = funds.allot(1, config(), 4)
        assert first == BudgetShare(budget=1.0)
        funds.settle(ended(1, 0.25))
        assert funds.allot(2, config(), 3) == BudgetShare(budget=1.25)

    def test_none_is_larger_than_a_worker_s_own_budget(self) -> None:
        own = config(budget_per_worker=0.5, tokens_per_worker=7)
        funds = Budget(config(budget_total=4.0, tokens_total=100))
        given = funds.allot(1, own, 2)
        assert given == BudgetShare(budget=0.5, tokens=7)

    def test_a_worker_gets_one_for_all_of_its_attempts(self) -> None:
        funds = Budget(config(budget_total=4.0))
        given = funds.allot(1, config(), 2)
        assert funds.has(1)
        assert funds.allot(1, config(), 9) == given
        assert not funds.has(2)

    def test_without_a_total_there_is_nothing_to_share(self) -> None:
        own = config(budget_per_worker=0.5)
        given = Budget(config()).allot(1, own, 1)
        assert given == BudgetShare(budget=0.5)

    def test_when_nothing_is_left_nobody_starts(self) -> None:
        funds = Budget(config(budget_total=1.0, tokens_total=10))
        funds.allot(1, config(), 1)
        assert funds.allot(2, config(), 1) is None
        assert funds.allot(2, config(), 1, runs=True) == BudgetShare(budget=0.0, tokens=0.0)

    def test_of_what_is_refused_nothing_stays_set_aside(self) -> None:
        funds = Budget(config(budget_total=1.0, tokens_total=10))
        funds.allot(1, config(), 2)
        funds.settle(ended(1, 0.25, tokens=10))
        assert funds.allot(2, config(), 1) is None
        assert funds.budget is not None
        assert (funds.budget.reserved, funds.budget.left) == (0.0, 0.75)


class TestSettling:
    def test_one_that_ran_and_tells_nothing_has_spent_its_share(self) -> None:
        funds = Budget(config(budget_total=1.0))
        funds.allot(1, config(), 2)
        funds.settle(ended(1))
        assert funds.budget is not None
        assert (funds.budget.spent, funds.budget.left) == (0.5, 0.5)

    def test_one_that_never_ran_has_spent_nothing(self) -> None:
        funds = Budget(config(budget_total=1.0))
        funds.allot(1, config(), 1)
        funds.settle(ended(1, started_at=None))
        assert funds.budget is not None
        assert funds.budget.left == 1.0

    def test_results_of_an_earlier_process_count(self) -> None:
        funds = Budget(config(budget_total=1.0, tokens_total=100))
        funds.settle(ended(1, 0.75, tokens=40))
        assert funds.allot(2, config(), 1) == BudgetShare(budget=0.25, tokens=60)

    def test_one_that_went_over_takes_it_from_the_others(self) -> None:
        funds = Budget(config(budget_total=1.0))
        funds.allot(1, config(), 2)
        funds.settle(ended(1, 0.9))
        assert funds.allot(2, config(), 1) == BudgetShare(budget=pytest.approx(0.1))


@pytest.mark.parametrize("seed", range(60))
def test_shares_and_what_is_spent_never_come_to_more_than_the_total(seed: int) -> None:
    chance = random.Random(seed)
    purse = BudgetPool(total=chance.uniform(0.5, 50), least=0.0001)
    waiting, out = chance.randint(1, 200), []
    for _ in range(2000):
        if waiting and chance.random() < 0.6:
            most = chance.choice([None, chance.uniform(0.001, 2)])
            share = purse.share(waiting, most=most)
            waiting -= 1
            assert share is None or 0 < share <= (most or share)
            out += [] if share is None else [share]
        elif out:
            share = out.pop(chance.randrange(len(out)))
            purse.returned(share, share * chance.choice([0, 0.3, 1]))
        assert purse.spent + purse.reserved <= purse.total + 1e-9
        assert purse.reserved == pytest.approx(sum(out), abs=1e-9)
    assert waiting == 0
