"""Attacks on what a worker may use: each ends with its reason, and the work so far arrives."""

import os

import pytest

from tests.attacks.attack import Attack, every, grouped
from tests.attacks.conftest import Run

pytestmark = pytest.mark.docker

CALLERS = ("root", "user") if os.getuid() == 0 else ("user",)
GROUPS = grouped([attack for attack in every() if attack.group == "limits"], 9)
CASES = [(group, attack) for group in GROUPS for attack in group]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("group", "attack"), CASES, ids=[a.name for _, a in CASES])
def test_limit_holds(
    caller: str, group: tuple[Attack, ...], attack: Attack, campaigns: Run
) -> None:
    campaign = campaigns(caller, "overlay", group)

    found = next(o for o in campaign.observations if o.attack is attack)
    assert found.outcome, campaign.harms
    assert (found.harms, campaign.harms) == ([], []), found.outcome
