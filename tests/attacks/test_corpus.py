"""Every attack, through the real command line, as root and as an ordinary user: in turns, so that
each attack is made once, or with `--every-caller` by both.
"""

import os

import pytest

from tests.attacks.attack import Attack, every, grouped
from tests.attacks.conftest import Run, each_caller

pytestmark = pytest.mark.docker

SIZE = 9
CALLERS = ("root", "user") if os.getuid() == 0 else ("user",)
ATTACKS = [attack for attack in every() if attack.group != "limits"]
GROUPS = grouped(ATTACKS, SIZE)
# What differs where the worker has a checkout of its own: everything it does to files.
BIND = (20, 21, 31, 32, 37, 39, 40, 44, 45, 46, 102, 117, 138, 150)
Group = tuple[Attack, ...]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let callers take turns with the groups, or each have all; the table tries all mountings."""
    config, names = metafunc.config, metafunc.fixturenames
    if "bound" in names:
        everything = config.getoption("write_table")
        tried = [attack for attack in ATTACKS if everything or attack.number in BIND]
        turns = _turns(config, grouped(tried, SIZE), first=1)
        _each_attack(metafunc, ("caller", "bound", "attack"), turns)
    elif "attack" in names:
        _each_attack(metafunc, ("caller", "group", "attack"), _turns(config, GROUPS))
    else:
        turns = _turns(config, GROUPS)
        ids = [f"with-{group[0].name}-{caller}" for caller, group in turns]
        metafunc.parametrize(("caller", "group"), turns, ids=ids)


def _turns(
    config: pytest.Config, groups: list[Group], *, first: int = 0
) -> list[tuple[str, Group]]:
    if each_caller(config):
        return [(caller, group) for caller in CALLERS for group in groups]
    return [(CALLERS[turn % len(CALLERS)], group) for turn, group in enumerate(groups, start=first)]


def _each_attack(
    metafunc: pytest.Metafunc, names: tuple[str, str, str], turns: list[tuple[str, Group]]
) -> None:
    cases = [(caller, group, attack) for caller, group in turns for attack in group]
    ids = [f"{attack.name}-{caller}" for caller, _, attack in cases]
    metafunc.parametrize(names, cases, ids=ids)


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
