"""Tests that no attack of the corpus succeeds through the real command line.

`make test` makes some attacks of every kind: root and an ordinary user take turns with the runs.
`make attacks` makes all of them with `--every-caller`: both callers make every attack, and also on
a checkout in place of an overlay. An attack that is named, by `-k` or its parameters, is made too.
"""

import os

import pytest

from tests.assurance.attacks.attack import Attack, every, grouped
from tests.assurance.attacks.conftest import Group, Run, each_attack, each_caller, in_full, turns

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

SIZE, FEW = 27, 13
"""Maximum number of attacks in a run, of all attacks and of few: 9 take half the time of 27."""
ATTACKS = [attack for attack in every() if attack.group != "limits"]
EVERY_TIME = (
    1, 6, 10, 11, 30, 31, 37, 40, 46, 48, 49, 53, 60, 61, 68, 80, 81, 85, 106, 115, 128, 144, 162,
    180, 204,
)  # fmt: skip
"""Attacks of `make test`: on git's files, refs, objects, file names, limits, the engine, output."""
# Attacks on files, whose outcome may differ if the worker has a checkout instead of an overlay.
BIND = (20, 21, 31, 32, 37, 39, 40, 44, 45, 46, 102, 117, 138, 150)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Distribute the attacks over arrangements, callers and runs."""
    config, names = metafunc.config, metafunc.fixturenames
    if "bound" in names:
        found = turns(config, grouped(_bound(config), SIZE), first=1)
        each_attack(metafunc, ("caller", "bound", "attack"), found)
    elif "attack" in names:
        each_attack(metafunc, ("caller", "group", "attack"), turns(config, _groups(config)))
    else:
        found = turns(config, _groups(config))
        ids = [f"with-{group[0].name}-{caller}" for caller, group in found]
        metafunc.parametrize(("caller", "group"), found, ids=ids)


def _bound(config: pytest.Config) -> list[Attack]:
    """Return the attacks that are made without an overlay."""
    if config.getoption("write_table"):
        return ATTACKS
    tried = [attack for attack in ATTACKS if attack.number in BIND]
    # An attack that needs a special repository would need a separate run.
    return tried if each_caller(config) else [one for one in tried if not one.repository]


def _groups(config: pytest.Config) -> list[Group]:
    """Return the attacks that are made with an overlay."""
    if in_full(config):
        return grouped(ATTACKS, SIZE)
    return grouped([attack for attack in ATTACKS if attack.number in EVERY_TIME], FEW)


@pytest.mark.usefixtures("reported")
def test_attack_harms_nothing(
    caller: str, group: tuple[Attack, ...], attack: Attack, campaigns: Run
) -> None:
    campaign = campaigns(caller, "overlay", group)

    found = next(o for o in campaign.observations if o.attack is attack)
    assert found.outcome, campaign.harms
    assert found.harms == [], found.outcome


def test_run_as_a_whole_harms_nothing(
    caller: str, group: tuple[Attack, ...], campaigns: Run, request: pytest.FixtureRequest
) -> None:
    campaign = campaigns(caller, "overlay", group)

    # A shared checkout has no files of submodules, so their workers get checkouts of their own.
    is_sent = os.environ["ORCHESTRATOR_TRANSFER"] == "streams"
    is_copied = is_sent or (
        request.config.getoption("worktrees") not in (None, "start")
        and group[0].repository == "rich"
    )
    assert (campaign.mode, campaign.harms) == ("bind" if is_copied else "overlay", [])


@pytest.mark.extra
def test_attack_harms_nothing_without_overlay(
    caller: str, bound: tuple[Attack, ...], attack: Attack, campaigns: Run
) -> None:
    campaign = campaigns(caller, "bind", bound)

    found = next(o for o in campaign.observations if o.attack is attack)
    assert found.outcome, campaign.harms
    assert found.harms == [], found.outcome
    assert (campaign.mode, campaign.harms) == ("bind", [])
