"""Tests of the run's budget and the workers' shares."""

import random
from typing import Any

import pytest

from orchestrator.base.results import Status, WorkerResult
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.runs.scheduling.budget import Budget, BudgetPool
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
    def test_shares_are_equal(self) -> None:
        funds = Budget(config(tokens_total=100_000))
        given = [funds.allot(number, config(), 5 - number) for number in range(1, 5)]
        assert given == [BudgetShare(tokens=25_000)] * 4

    def test_unspent_share_is_given_to_others(self) -> None:
        funds = Budget(config(budget_total=4.0))
        first = funds.allot(1, config(), 4)
        assert first == BudgetShare(budget=1.0)
        funds.settle(ended(1, 0.25))
        assert funds.allot(2, config(), 3) == BudgetShare(budget=1.25)

    def test_share_is_bounded_by_the_budget_per_worker(self) -> None:
        own = config(budget_per_worker=0.5, tokens_per_worker=7)
        funds = Budget(config(budget_total=4.0, tokens_total=100))
        given = funds.allot(1, own, 2)
        assert given == BudgetShare(budget=0.5, tokens=7)

    def test_worker_keeps_one_share_for_all_attempts(self) -> None:
        funds = Budget(config(budget_total=4.0))
        given = funds.allot(1, config(), 2)
        assert funds.has(1)
        assert funds.allot(1, config(), 9) == given
        assert not funds.has(2)

    def test_without_total_the_budget_per_worker_applies(self) -> None:
        own = config(budget_per_worker=0.5)
        given = Budget(config()).allot(1, own, 1)
        assert given == BudgetShare(budget=0.5)

    def test_no_share_is_given_if_nothing_is_left(self) -> None:
        funds = Budget(config(budget_total=1.0, tokens_total=10))
        funds.allot(1, config(), 1)
        assert funds.allot(2, config(), 1) is None
        assert funds.allot(2, config(), 1, runs=True) == BudgetShare(budget=0.0, tokens=0.0)

    def test_refused_share_reserves_nothing(self) -> None:
        funds = Budget(config(budget_total=1.0, tokens_total=10))
        funds.allot(1, config(), 2)
        funds.settle(ended(1, 0.25, tokens=10))
        assert funds.allot(2, config(), 1) is None
        assert funds.budget is not None
        assert (funds.budget.reserved, funds.budget.left) == (0.0, 0.75)


class TestSettling:
    def test_worker_without_reported_cost_spends_its_share(self) -> None:
        funds = Budget(config(budget_total=1.0))
        funds.allot(1, config(), 2)
        funds.settle(ended(1))
        assert funds.budget is not None
        assert (funds.budget.spent, funds.budget.left) == (0.5, 0.5)

    def test_worker_that_never_ran_spends_nothing(self) -> None:
        funds = Budget(config(budget_total=1.0))
        funds.allot(1, config(), 1)
        funds.settle(ended(1, started_at=None))
        assert funds.budget is not None
        assert funds.budget.left == 1.0

    def test_results_of_an_earlier_process_are_counted(self) -> None:
        funds = Budget(config(budget_total=1.0, tokens_total=100))
        funds.settle(ended(1, 0.75, tokens=40))
        assert funds.allot(2, config(), 1) == BudgetShare(budget=0.25, tokens=60)

    def test_unknown_amounts_of_an_earlier_process_count_as_equal_shares(self) -> None:
        funds = Budget(config(budget_total=3.0, tokens_total=300, workers=3))
        funds.settle(ended(1))
        assert funds.allot(2, config(), 1) == BudgetShare(budget=2.0, tokens=200)
        funds = Budget(config(budget_total=3.0, budget_per_worker=0.5, workers=3))
        funds.settle(ended(1))
        assert funds.budget is not None
        assert funds.budget.left == 2.5

    def test_overspending_reduces_the_shares_of_others(self) -> None:
        funds = Budget(config(budget_total=1.0))
        funds.allot(1, config(), 2)
        funds.settle(ended(1, 0.9))
        assert funds.allot(2, config(), 1) == BudgetShare(budget=pytest.approx(0.1))


@pytest.mark.parametrize("seed", range(60))
def test_spent_and_reserved_never_exceed_the_total(seed: int) -> None:
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
            purse.give_back(share, share * chance.choice([0, 0.3, 1]))
        assert purse.spent + purse.reserved <= purse.total + 1e-9
        assert purse.reserved == pytest.approx(sum(out), abs=1e-9)
    assert waiting == 0
