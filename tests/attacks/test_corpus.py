"""Every attack, through the real command line, as root and as an ordinary user."""

import os

import pytest

from tests.attacks.attack import grouped, load, names
from tests.attacks.conftest import Run

pytestmark = pytest.mark.docker

SIZE = 9
CALLERS = ("root", "user") if os.getuid() == 0 else ("user",)
GROUPS = grouped([load(name) for name in names()], SIZE)
# What differs where the worker has a checkout of its own: everything it does to files.
BIND = ("20", "21", "31", "32", "37", "39", "40", "44", "45", "46", "102", "117", "138")
BIND_GROUPS = grouped([load(name) for name in names() if name.partition("-")[0] in BIND], SIZE)
BIND_CASES = [(group, attack) for group in BIND_GROUPS for attack in group]
CASES = [(group, attack) for group in GROUPS for attack in group]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("group", "attack"), CASES, ids=[a.name for _, a in CASES])
def test_attack_harms_nothing(caller: str, group: tuple, attack: object, campaigns: Run) -> None:
    campaign = campaigns(caller, "overlay", group)

    found = next(o for o in campaign.observations if o.attack is attack)
    assert found.outcome, campaign.harms
    assert found.harms == [], found.outcome


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("group", GROUPS, ids=[f"with-{group[0].name}" for group in GROUPS])
def test_run_as_a_whole_harms_nothing(caller: str, group: tuple, campaigns: Run) -> None:
    campaign = campaigns(caller, "overlay", group)

    assert (campaign.mode, campaign.harms) == ("overlay", [])


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("group", "attack"), BIND_CASES, ids=[a.name for _, a in BIND_CASES])
def test_attack_harms_nothing_without_overlay(
    caller: str, group: tuple, attack: object, campaigns: Run
) -> None:
    campaign = campaigns(caller, "bind", group)

    found = next(o for o in campaign.observations if o.attack is attack)
    assert found.outcome, campaign.harms
    assert found.harms == [], found.outcome
    assert (campaign.mode, campaign.harms) == ("bind", [])
