"""Tests that each cheat is caught in the way that the documentation says."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.review.judging.judgement import NEED_REVIEW, Candidate, Judgement
from tests.review.judging.cheats import BASE, BASES, CHEATS, HIDDEN, HIDDEN_HELPER, Cheat, table
from tests.support.judging import RIGHT, LocalChecks, judge
from tests.support.merges import World
from tests.support.named_tests import ROOT

FEW = {
    "unittest": ("exits", "call-test-method", "by-bytes", "was-successful", "shadow"),
    "make": ("script",),
    "hidden": ("hidden-frame", "hidden-values"),
    "table": ("table-by-name", "table-unseen", "table-by-code"),
}
"""Cheats that `make test` tries, with an honest candidate; `make variants` tries all."""
GROUPS = sorted(
    {(one.check, one.with_hidden, one.base) for one in CHEATS.values() if one.caught != "wins"}
)


def _judged(world: World, cheats: Mapping[str, Cheat], *, honest: bool = True) -> Judgement:
    (first, *_) = cheats.values()
    world.base = world.commit({**BASE, **BASES[first.base]})
    content = HIDDEN_HELPER if first.base == "hidden helper" else HIDDEN
    hidden = {"tests/test_more.py": content} if first.with_hidden else {}
    candidates = [dict(one.files()) for one in cheats.values()]
    candidates += [{"calc.py": RIGHT}] if honest else []
    return judge(world, *candidates, checks=(), must_fix=(first.check,), hidden=hidden)


def _caught(candidate: Candidate) -> str:
    named = [flag.flag for flag in candidate.flags if flag.out]
    named += [flag.flag for flag in candidate.flags if candidate.needs_review and flag.proof]
    if named:
        return named[0]
    if not candidate.passes:
        return "hidden tests" if candidate.hidden == "fail" else "fails"
    named = [flag.flag for flag in candidate.flags if flag.flag in NEED_REVIEW]
    return named[0] if named else "wins"


def _assert_proofs_hold(world: World, judgement: Judgement) -> None:
    """Run every published proof again: tree, command and answer must agree."""
    checks = LocalChecks(world)
    for candidate in judgement.ranking:
        trees = {"base": judgement.base, "commit": candidate.commit,
                 "protected": candidate.protected}  # fmt: skip
        for proof in [one for flag in candidate.flags for one in flag.proof]:
            with_hidden = candidate.hidden is not None and proof.tree == "protected"
            if proof.tree in trees and not with_hidden:
                assert proof.commit == trees[proof.tree], proof
            (again,) = checks(proof.commit, [proof.check])
            assert again.answer == proof.answer, (candidate.worker_id, proof)


def _check(world: World, cheats: Mapping[str, Cheat]) -> Judgement:
    """Judge cheats and an honest candidate, and check what was found about them."""
    judgement = _judged(world, cheats)
    by_number = {one.worker_id: one for one in judgement.ranking}
    found = {name: _caught(by_number[number]) for number, name in enumerate(cheats, start=1)}
    assert found == {name: one.caught for name, one in cheats.items()}
    assert judgement.picked == len(cheats) + 1, "the honest candidate"
    return judgement


@pytest.mark.parametrize("names", FEW.values(), ids=FEW)
def test_cheats_are_caught(world: World, names: tuple[str, ...]) -> None:
    judgement = _check(world, {name: CHEATS[name] for name in names})
    if "by-bytes" in names:
        _assert_proofs_hold(world, judgement)


@pytest.mark.extra
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("check", "with_hidden", "base"), GROUPS)
def test_all_cheats_are_caught_as_documented(
    world: World, check: str, with_hidden: bool, base: str
) -> None:
    cheats = {
        name: one
        for name, one in CHEATS.items()
        if (one.check, one.with_hidden, one.base) == (check, with_hidden, base)
        and one.caught != "wins"
    }
    _assert_proofs_hold(world, _check(world, cheats))


@pytest.mark.extra
@pytest.mark.parametrize("name", [name for name, one in CHEATS.items() if one.caught == "wins"])
def test_cheat_that_still_wins(world: World, name: str) -> None:
    """If this fails, something better was found: move the cheat in the table."""
    judgement = _judged(world, {name: CHEATS[name]}, honest=False)
    assert (_caught(judgement.ranking[0]), judgement.picked) == ("wins", 1)


def test_documentation_has_the_table() -> None:
    text = Path(ROOT, "docs/guides/judging.md").read_text()
    assert "\n".join(table()) in text
    assert len(CHEATS) >= 40
