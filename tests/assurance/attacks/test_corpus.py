"""Every attack, through the real command line, as root and as an ordinary user: in turns, so that
each attack is made once, or with `--every-caller` by both.
"""

import pytest

from tests.assurance.attacks.attack import Attack, every, grouped
from tests.assurance.attacks.conftest import Run, each_attack, turns

pytestmark = pytest.mark.docker

SIZE = 9
ATTACKS = [attack for attack in every() if attack.group != "limits"]
GROUPS = grouped(ATTACKS, SIZE)
# What differs where the worker has a checkout of its own: everything it does to files.
BIND = (20, 21, 31, 32, 37, 39, 40, 44, 45, 46, 102, 117, 138, 150)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let callers take turns with the groups, or each have all; the table tries all mountings."""
    config, names = metafunc.config, metafunc.fixturenames
    if "bound" in names:
        everything = config.getoption("write_table")
        tried = [attack for attack in ATTACKS if everything or attack.number in BIND]
        found = turns(config, grouped(tried, SIZE), first=1)
        each_attack(metafunc, ("caller", "bound", "attack"), found)
    elif "attack" in names:
        each_attack(metafunc, ("caller", "group", "attack"), turns(config, GROUPS))
    else:
        found = turns(config, GROUPS)
        ids = [f"with-{group[0].name}-{caller}" for caller, group in found]
        metafunc.parametrize(("caller", "group"), found, ids=ids)


def test_attack_harms_nothing(
    caller: str, group: tuple[Attack, ...], attack: Attack, campaigns: Run
) -> None:
    campaign = campaigns(caller, "overlay", group)

    found = next(o for o in campaign.observations if o.attack is attack)
    assert found.outcome, campaign.harms
    assert found.harms == [], found.outcome


def test_run_as_a_whole_harms_nothing(
    caller: str, group: tuple[Attack, ...], campaigns: Run
) -> None:
    campaign = campaigns(caller, "overlay", group)

    assert (campaign.mode, campaign.harms) == ("overlay", [])


def test_attack_harms_nothing_without_overlay(
    caller: str, bound: tuple[Attack, ...], attack: Attack, campaigns: Run
) -> None:
    campaign = campaigns(caller, "bind", bound)

    found = next(o for o in campaign.observations if o.attack is attack)
    assert found.outcome, campaign.harms
    assert found.harms == [], found.outcome
    assert (campaign.mode, campaign.harms) == ("bind", [])
