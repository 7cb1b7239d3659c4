"""Every attack, through the real command line, as root and as an ordinary user."""

import os

import pytest

from tests.attacks.attack import grouped, load, names
from tests.attacks.conftest import Run

pytestmark = pytest.mark.docker

SIZE = 9
CALLERS = ("root", "user") if os.getuid() == 0 else ("user",)
GROUPS = grouped([load(name) for name in names()], SIZE)
CASES = [(group, attack) for group in GROUPS for attack in group]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("group", "attack"), CASES, ids=[a.name for _, a in CASES])
def test_attack_harms_nothing(caller: str, group: tuple, attack: object, campaigns: Run) -> None:
    campaign = campaigns(caller, "overlay", group)

    found = next(o for o in campaign.observations if o.attack is attack)
    assert found.harms == [], found.outcome


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("group", GROUPS, ids=[f"with-{group[0].name}" for group in GROUPS])
def test_run_as_a_whole_harms_nothing(caller: str, group: tuple, campaigns: Run) -> None:
    assert campaigns(caller, "overlay", group).harms == []
