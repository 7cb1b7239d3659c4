"""Tests of attacks on limits: each ends with its reason, and earlier work is harvested."""

import pytest

from tests.assurance.attacks.attack import Attack, every, grouped
from tests.assurance.attacks.conftest import Run, each_attack, turns

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

GROUPS = grouped([attack for attack in every() if attack.group == "limits"], 9)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Distribute the groups of attacks over the callers."""
    each_attack(metafunc, ("caller", "group", "attack"), turns(metafunc.config, GROUPS))


def test_limit_holds(
    caller: str, group: tuple[Attack, ...], attack: Attack, campaigns: Run
) -> None:
    campaign = campaigns(caller, "overlay", group)

    found = next(o for o in campaign.observations if o.attack is attack)
    assert found.outcome, campaign.harms
    assert (found.harms, campaign.harms) == ([], []), found.outcome
