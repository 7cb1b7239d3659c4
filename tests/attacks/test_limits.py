"""Attacks on what a worker may use: each ends with its reason, and the work so far arrives."""

import os

import pytest

from tests.attacks.attack import Attack
from tests.attacks.conftest import Run

pytestmark = pytest.mark.docker

CALLERS = ("root", "user") if os.getuid() == 0 else ("user",)

_WRITE = (
    "i=0; while [ $i -lt 50 ]; do head -c 10M /dev/zero > {}/fill.$i; i=$((i+1)); done; sleep 30"
)
_FILES = """import os, time
for n in range(100):
    os.mkdir(f"many-{n}")
    for m in range(1000): open(f"many-{n}/{m}", "w").close()
    time.sleep(0.1)
time.sleep(30)"""
_DEEP = """import os, time
for level in range(60): os.mkdir("d" * 100); os.chdir("d" * 100)
for n in range(50):
    with open(f"fill.{n}", "wb") as file: file.write(bytes(10 << 20))
time.sleep(30)"""


def _limit(number: int, name: str, what: str, script: str, reason: str, *options: str) -> Attack:
    return Attack(
        name=f"{number}-{name}",
        what=what,
        script=script,
        options=("--disk", "100m", "--inodes", "20000", *options),
        status="timeout" if reason == "idle" else "failed",
        reason=reason,
        within=None if reason == "log_limit" else 35,
    )


DISK = (
    _limit(63, "disk", "Fills the disk through its work tree.", _WRITE.format("."), "disk"),
    _limit(64, "disk-store", "Fills the disk by way of its store.", _WRITE.format("/git"), "disk"),
    _limit(
        143, "disk-deep", "Fills the disk below a path too long to name.",
        f"python3 -c '{_DEEP}'", "disk",
    ),
    _limit(43, "inodes", "As many files as there may be.", f"python3 -c '{_FILES}'", "inodes"),
)  # fmt: skip
OUTPUT = (
    _limit(
        65, "log-flood", "200 MB of lines to both streams.",
        "yes 0123456789abcdef0123456789abcdef | head -c 200M | tee /dev/stderr", "log_limit",
        "--log-limit", "5m", "--idle-timeout", "8",
    ),
    _limit(
        66, "blank-lines", "A flood of blank lines, which a naive log multiplies.",
        "yes '' | head -c 50M", "log_limit", "--log-limit", "5m", "--idle-timeout", "8",
    ),
    _limit(
        75, "silence", "Says nothing and never ends.", "sleep 60", "idle",
        "--log-limit", "5m", "--idle-timeout", "8",
    ),
)  # fmt: skip
BOMB = (
    Attack(
        name="51-zip-bomb",
        what="Commits 480 MiB of zeros, half a megabyte as a pack.",
        script=(
            "i=0; while [ $i -lt 12 ]; do truncate -s 40M z$i; i=$((i+1)); done; git add -A; "
            "git commit -qm bomb"
        ),
        options=("--disk", "100m"),
        status="failed",
        reason="harvest_refused",
        refused="too many to check out",
    ),
)
CASES = [(group, attack) for group in (DISK, OUTPUT, BOMB) for attack in group]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("group", "attack"), CASES, ids=[a.name for _, a in CASES])
def test_limit_holds(caller: str, group: tuple, attack: Attack, campaigns: Run) -> None:
    campaign = campaigns(caller, "overlay", group)

    found = next(o for o in campaign.observations if o.attack is attack)
    assert found.outcome, campaign.harms
    assert (found.harms, campaign.harms) == ([], []), found.outcome
