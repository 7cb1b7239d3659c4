"""Every attack, through the real command line, as root and as an ordinary user."""

import os

import pytest

from tests.attacks.attack import Attack, every, grouped
from tests.attacks.conftest import Run

pytestmark = pytest.mark.docker

SIZE = 9
CALLERS = ("root", "user") if os.getuid() == 0 else ("user",)
ATTACKS = [attack for attack in every() if attack.group != "limits"]
GROUPS = grouped(ATTACKS, SIZE)
CASES = [(group, attack) for group in GROUPS for attack in group]
# What differs where the worker has a checkout of its own: everything it does to files.
BIND = (20, 21, 31, 32, 37, 39, 40, 44, 45, 46, 102, 117, 138, 150)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try the second way of mounting with what concerns files; for the table with everything."""
    if "bound" in metafunc.fixturenames:
        everything = metafunc.config.getoption("write_table")
        tried = [attack for attack in ATTACKS if everything or attack.number in BIND]
        cases = [(group, attack) for group in grouped(tried, SIZE) for attack in group]
        metafunc.parametrize(("bound", "attack"), cases, ids=[a.name for _, a in cases])


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("group", "attack"), CASES, ids=[a.name for _, a in CASES])
def test_attack_harms_nothing(
    caller: str, group: tuple[Attack, ...], attack: Attack, campaigns: Run
) -> None:
    campaign = campaigns(caller, "overlay", group)

    found = next(o for o in campaign.observations if o.attack is attack)
    assert found.outcome, campaign.harms
    assert found.harms == [], found.outcome


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("group", GROUPS, ids=[f"with-{group[0].name}" for group in GROUPS])
def test_run_as_a_whole_harms_nothing(
    caller: str, group: tuple[Attack, ...], campaigns: Run
) -> None:
    campaign = campaigns(caller, "overlay", group)

    assert (campaign.mode, campaign.harms) == ("overlay", [])


@pytest.mark.parametrize("caller", CALLERS)
def test_attack_harms_nothing_without_overlay(
    caller: str, bound: tuple[Attack, ...], attack: Attack, campaigns: Run
) -> None:
    campaign = campaigns(caller, "bind", bound)

    found = next(o for o in campaign.observations if o.attack is attack)
    assert found.outcome, campaign.harms
    assert found.harms == [], found.outcome
    assert (campaign.mode, campaign.harms) == ("bind", [])
