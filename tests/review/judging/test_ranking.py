"""Tests of the order of candidates."""

import random

from orchestrator.review.judging.ranking import Score, decide, rank

_COLUMNS = ("out", "must fix", "checks", "changed lines", "cost")


def _scores(table: list[tuple[int, ...]], change: list[str | None] | None = None) -> list[Score]:
    return [
        Score(
            worker_id=number,
            passes=not any(row[:3]),
            columns=tuple(zip(_COLUMNS, map(float, row), strict=True)),  # type: ignore[arg-type]
            change=change[number - 1] if change else None,
        )
        for number, row in enumerate(table, start=1)
    ]


def test_order_does_not_depend_on_the_order_of_candidates() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        rows = range(chance.randint(1, 8))
        scores = _scores([tuple(chance.randint(0, 2) for _ in _COLUMNS) for _ in rows])
        shuffled = chance.sample(scores, len(scores))
        assert rank(shuffled) == rank(scores)
        out = sum(dict(one.columns)["out"] > 0 for one in scores)
        assert all((one.decided_by is None) >= (one.place is None) for one in rank(scores))
        places = [*range(1, len(scores) - out + 1), *[None] * out]
        assert [one.place for one in rank(scores)] == places


def test_column_that_decided_is_named() -> None:
    ranked = rank(_scores([(0, 0, 1, 0, 0), (0, 0, 0, 2, 0), (0, 0, 0, 1, 0), (0, 0, 0, 1, 0)]))
    assert [one.score.worker_id for one in ranked] == [3, 4, 2, 1]
    assert [one.decided_by for one in ranked] == ["number", "changed lines", "checks", None]
    assert decide(ranked) == ("undecided", None)


def test_size_alone_decides_nothing_but_equal_changes_share_a_place() -> None:
    ranked = rank(_scores([(0, 0, 0, 1, 2), (0, 0, 0, 1, 1)], ["same", "same"]))
    assert [(one.score.worker_id, one.place) for one in ranked] == [(2, 1), (1, 1)]
    assert decide(ranked) == ("clear", 2)


def test_no_candidate_is_picked_if_none_passes() -> None:
    assert decide(rank(_scores([(0, 0, 1, 0, 0)]))) == ("none", None)
