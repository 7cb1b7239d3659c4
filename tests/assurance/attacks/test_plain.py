"""Measurement of the attacks on plain `docker run -v`; takes minutes, needs `--measure-plain`."""

from pathlib import Path

import pytest

from tests.assurance.attacks.attack import Attack, every
from tests.assurance.attacks.caller import Caller
from tests.assurance.attacks.plain import attack_plain
from tests.assurance.attacks.table import Table

pytestmark = pytest.mark.docker


@pytest.mark.parametrize("attack", every(), ids=[a.name for a in every()])
def test_plain_docker_run_is_measured(
    attack: Attack, everyone: dict[str, Caller], grounds: Path, table: Table
) -> None:
    caller = next(iter(everyone.values()))

    observation = attack_plain(caller, grounds / "measured" / attack.name, attack)

    table.add(observation, column="plain")
    assert table.rows[attack.name]["plain"]
